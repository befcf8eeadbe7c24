//! What each client holds.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use levity_telemetry::diagnostics;
use papaya::{Compute, HashMap, Operation};
use strum::EnumCount;

use super::holder::Holder;
use super::{Portion, Resource, Shares, Shortage};

/// The minimum time between two lines of the log about one resource, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Accounts beyond which those without a user are removed when one is added.
const ACCOUNTS_SWEPT_MIN: usize = 1024;

/// The amounts that one exchange holds, by resource.
pub(super) type Amounts = Arc<[AtomicUsize; Resource::COUNT]>;

/// What one client holds of each resource.
#[derive(Debug)]
pub(super) struct Account {
    holder: Holder,
    held: [AtomicUsize; Resource::COUNT],
    /// How many parts it holds or waits for.
    parts: [AtomicUsize; Resource::COUNT],
}

/// The accounts of all clients that hold something, or did lately. Requests look theirs up without a lock: with one, a loop would
/// wait for another that holds it and has lost its processor. Only who adds an account may wait, while the map grows.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    by_holder: HashMap<Holder, Weak<Account>>,
    /// The number of accounts at which those without a user are removed.
    sweep_at: AtomicUsize,
    /// A loop removes them. The others need not wait for that.
    is_being_swept: AtomicBool,
}

impl Accounts {
    /// The account of `holder`.
    pub(super) fn get(&self, holder: Holder) -> Arc<Account> {
        let by_holder = self.by_holder.pin();
        let known = by_holder.get(&holder).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            self.sweep();
            let account = Arc::new(Account::new(holder));
            // Another loop may have added one meanwhile.
            let added = by_holder.compute(holder, |known| {
                match known.and_then(|(_, account)| account.upgrade()) {
                    Some(account) => Operation::Abort(account),
                    None => Operation::Insert(Arc::downgrade(&account)),
                }
            });
            match added {
                Compute::Aborted(other) => other,
                _ => account,
            }
        })
    }

    /// Removes the accounts that nobody uses, once there are twice as many as were left the last time.
    fn sweep(&self) {
        let by_holder = self.by_holder.pin();
        let sweep_at = self.sweep_at.load(Ordering::Relaxed);
        if by_holder.len() >= sweep_at.max(ACCOUNTS_SWEPT_MIN)
            && !self.is_being_swept.swap(true, Ordering::Acquire)
        {
            by_holder.retain(|_, account| account.strong_count() > 0);
            self.sweep_at.store(2 * by_holder.len(), Ordering::Relaxed);
            self.is_being_swept.store(false, Ordering::Release);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_holder.len()
    }
}

impl Account {
    fn new(holder: Holder) -> Self {
        Self {
            holder,
            held: Default::default(),
            parts: Default::default(),
        }
    }

    pub(super) fn held(&self, resource: Resource) -> usize {
        self.held[resource as usize].load(Ordering::Relaxed)
    }

    fn add_part(&self, shares: &Shares, resource: Resource) {
        let before = self.parts[resource as usize].fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            let holders = &shares.pool(resource).holders;
            holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove_part(&self, shares: &Shares, resource: Resource) {
        let before = self.parts[resource as usize].fetch_sub(1, Ordering::Relaxed);
        if before == 1 {
            let holders = &shares.pool(resource).holders;
            holders.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds `amount`, whatever there is.
    fn add(&self, resource: Resource, amount: usize) -> usize {
        self.held[resource as usize].fetch_add(amount, Ordering::Relaxed) + amount
    }

    fn subtract(&self, shares: &Shares, resource: Resource, amount: usize) {
        self.held[resource as usize].fetch_sub(amount, Ordering::Relaxed);
        let used = &shares.pool(resource).used;
        used.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Counts a part of `amount`, whatever there is, of which `used` counts in all.
    pub(super) fn hold(&self, shares: &Shares, resource: Resource, amount: usize, used: usize) {
        self.add_part(shares, resource);
        self.add(resource, amount);
        let all = &shares.pool(resource).used;
        all.fetch_add(used, Ordering::Relaxed);
    }

    /// Ends that.
    pub(super) fn release(&self, shares: &Shares, resource: Resource, amount: usize, used: usize) {
        self.held[resource as usize].fetch_sub(amount, Ordering::Relaxed);
        let all = &shares.pool(resource).used;
        all.fetch_sub(used, Ordering::Relaxed);
        self.remove_part(shares, resource);
    }

    /// What it may hold above half, if it takes of `portion`. Whoever holds one part may have what a request needs at least,
    /// however many clients there are.
    fn share(&self, shares: &Shares, resource: Resource, portion: Portion) -> usize {
        let pool = shares.pool(resource);
        match self.parts[resource as usize].load(Ordering::Relaxed) {
            0 | 1 => pool.share(portion).max(pool.least(portion)),
            _ => pool.share(portion),
        }
    }

    /// Takes `amount` of a portion of `resource`.
    fn take(
        &self,
        shares: &Shares,
        resource: Resource,
        amount: usize,
        portion: Portion,
    ) -> Result<(), Shortage> {
        let pool = shares.pool(resource);
        let max = pool.max.load(Ordering::Relaxed);
        let used = pool.add(amount, portion.of(max))?;
        let held = self.add(resource, amount);
        if used > max / 2 && held > self.share(shares, resource, portion) {
            self.subtract(shares, resource, amount);
            self.log_share(shares, resource);
            return Err(Shortage::OverShare);
        }
        Ok(())
    }

    /// Says that the client has reached its share, at most once in [`LOG_INTERVAL_S`].
    fn log_share(&self, shares: &Shares, resource: Resource) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| now.as_secs());
        let next = |next_s| (next_s <= now_s).then_some(now_s + LOG_INTERVAL_S);
        let next_line_s = &shares.pool(resource).next_line_s;
        let may_log = next_line_s.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if may_log.is_ok() {
            let (holder, resource) = (self.holder, resource.name());
            diagnostics::log(format_args!(
                "{holder} holds its share of {resource} (levity_share_used), so further requests of it wait, get 503 or are not compressed"
            ));
        }
    }
}

/// A part of a resource, until it is dropped.
pub struct Held {
    shares: Arc<Shares>,
    account: Arc<Account>,
    /// What the exchange holds, with this; `None` for what several of them hold.
    of_stake: Option<Amounts>,
    resource: Resource,
    portion: Portion,
    amount: usize,
    /// Somebody waits for more of it.
    is_awaited: bool,
    /// It is one of the parts of the account.
    is_part: bool,
}

impl Held {
    /// Nothing of `resource` yet.
    pub(super) fn nothing(
        shares: Arc<Shares>,
        account: Arc<Account>,
        of_stake: Option<Amounts>,
        resource: Resource,
        portion: Portion,
    ) -> Self {
        Self {
            shares,
            account,
            of_stake,
            resource,
            portion,
            amount: 0,
            is_awaited: false,
            is_part: false,
        }
    }

    /// What it has: a number of files, or bytes.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes `more`. Does not wait.
    ///
    /// # Errors
    /// Then it has as much as before.
    pub fn try_grow(&mut self, more: usize) -> Result<(), Shortage> {
        self.try_grow_within(self.portion, more)
    }

    /// The same as long as no more than `portion` is used.
    ///
    /// # Errors
    /// Then it has as much as before.
    pub fn try_grow_within(&mut self, portion: Portion, more: usize) -> Result<(), Shortage> {
        if more == 0 {
            return Ok(());
        }
        // Before: the share of the client depends on whether it is a holder.
        self.make_part(true);
        let account = &self.account;
        let taken = account.take(&self.shares, self.resource, more, portion);
        if taken.is_ok() {
            self.grown(more);
        }
        self.update_part();
        taken
    }

    /// Takes `more` even beyond the bound: for what the client has already.
    pub fn grow(&mut self, more: usize) {
        let pool = self.shares.pool(self.resource);
        pool.used.fetch_add(more, Ordering::Relaxed);
        self.account.add(self.resource, more);
        self.grown(more);
        self.update_part();
    }

    fn grown(&mut self, more: usize) {
        self.amount += more;
        if let Some(amounts) = &self.of_stake {
            amounts[self.resource as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Gives back what is beyond `amount`.
    pub fn shrink_to(&mut self, amount: usize) {
        let rest = self.amount.saturating_sub(amount);
        if rest > 0 {
            self.amount -= rest;
            if let Some(amounts) = &self.of_stake {
                amounts[self.resource as usize].fetch_sub(rest, Ordering::Relaxed);
            }
            self.account.subtract(&self.shares, self.resource, rest);
            self.update_part();
        }
    }

    /// Makes it count to no client any more, but as used until the result is dropped.
    pub fn without_client(mut self) -> Used {
        let amount = self.amount;
        let shares = self.shares.clone();
        let all = &shares.pool(self.resource).used;
        all.fetch_add(amount, Ordering::Relaxed);
        self.shrink_to(0);
        Used {
            resource: self.resource,
            amount,
            shares,
        }
    }

    /// Whether there can be `more`, if nobody else has any.
    pub(super) fn may_have(&self, more: usize) -> bool {
        self.amount.saturating_add(more) <= self.max()
    }

    /// Somebody waits for more of it, or does so no longer. Whoever waits is a holder already, or those who hold much and want more
    /// would take all that becomes free.
    pub(super) fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
        self.update_part();
    }

    fn update_part(&mut self) {
        self.make_part(self.amount > 0 || self.is_awaited);
    }

    fn make_part(&mut self, is_part: bool) {
        match (mem::replace(&mut self.is_part, is_part), is_part) {
            (false, true) => self.account.add_part(&self.shares, self.resource),
            (true, false) => self.account.remove_part(&self.shares, self.resource),
            _ => {}
        }
    }

    /// What there is for its portion: more it can never have.
    pub fn max(&self) -> usize {
        self.portion.of(self.shares.max(self.resource))
    }

    /// Counts a request that did not get what it needed, although it waited, or that does without it.
    pub fn count_refused(&self) {
        let refused = &self.shares.pool(self.resource).refused;
        refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that did not get `amount` more, and does not wait: that is reclaimed for the next one.
    pub fn count_missed(&self, amount: usize) {
        self.count_refused();
        if self.may_have(amount) {
            self.note_missed(amount);
        }
    }

    /// Has `amount` reclaimed once, for all who lack no more.
    pub(super) fn note_missed(&self, amount: usize) {
        self.shares
            .pool(self.resource)
            .missed(amount, self.portion, Instant::now());
    }

    /// Whether its client would have more than its share with `more`.
    pub(super) fn is_over_share(&self, more: usize) -> bool {
        let (account, resource) = (&self.account, self.resource);
        let share = account.share(&self.shares, resource, self.portion);
        account.held(resource).saturating_add(more) > share
    }

    /// What all who wait want of its portion.
    pub(super) fn wanted(&self) -> &AtomicUsize {
        &self.shares.pool(self.resource).wanted[self.portion as usize]
    }
}

/// An amount that is used, whoever holds it.
pub struct Used {
    shares: Arc<Shares>,
    resource: Resource,
    amount: usize,
}

impl Used {
    /// What it has, as [`Held::amount`].
    pub fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let all = &self.shares.pool(self.resource).used;
        all.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} of {})", self.amount, self.resource.name())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
        self.make_part(false);
    }
}
