//! What each client holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use levity_telemetry::diagnostics;
use strum::EnumCount;

use super::holder::Holder;
use super::stakes::Amounts;
use super::{Portion, Resource, Shares, Shortage};

/// The minimum time between two lines of the log about one client, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Accounts beyond which those without a user are removed when one is added.
const ACCOUNTS_SWEPT_MIN: usize = 1024;

/// What one client holds of each resource.
#[derive(Debug)]
pub(super) struct Account {
    holder: Holder,
    held: [AtomicUsize; Resource::COUNT],
    /// What holds some of each resource, or waits for it.
    users: [AtomicUsize; Resource::COUNT],
    /// When the next line about it may be logged, in seconds.
    next_line_s: AtomicU64,
}

/// The accounts of all clients that hold something, or did lately.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<Directory>);

#[derive(Debug, Default)]
struct Directory {
    by_holder: HashMap<Holder, Weak<Account>>,
    /// The number of accounts at which those without a user are removed.
    sweep_at: usize,
}

impl Accounts {
    /// The account of `holder`. Takes a lock for one look-up.
    pub(super) fn get(&self, holder: Holder) -> Arc<Account> {
        let mut directory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = directory.by_holder.get(&holder).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            directory.sweep();
            let account = Arc::new(Account::new(holder));
            let weak = Arc::downgrade(&account);
            directory.by_holder.insert(holder, weak);
            account
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let directory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        directory.by_holder.len()
    }
}

impl Directory {
    /// Removes the accounts that nobody uses, once there are twice as many as were left the last time.
    fn sweep(&mut self) {
        if self.by_holder.len() >= self.sweep_at.max(ACCOUNTS_SWEPT_MIN) {
            self.by_holder
                .retain(|_, account| account.strong_count() > 0);
            self.sweep_at = 2 * self.by_holder.len();
        }
    }
}

impl Account {
    fn new(holder: Holder) -> Self {
        Self {
            holder,
            held: Default::default(),
            users: Default::default(),
            next_line_s: AtomicU64::new(0),
        }
    }

    pub(super) fn held(&self, resource: Resource) -> usize {
        self.held[resource as usize].load(Ordering::Relaxed)
    }

    /// Something begins to hold some of `resource`, or to wait for it.
    pub(super) fn enter(&self, shares: &Shares, resource: Resource) {
        if self.users[resource as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            let holders = &shares.pool(resource).holders;
            holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has ended.
    pub(super) fn leave(&self, shares: &Shares, resource: Resource) {
        if self.users[resource as usize].fetch_sub(1, Ordering::Relaxed) == 1 {
            let holders = &shares.pool(resource).holders;
            holders.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What it may hold of `resource` above half.
    fn share(&self, shares: &Shares, resource: Resource) -> usize {
        let is_counted = self.users[resource as usize].load(Ordering::Relaxed) > 0;
        let pool = shares.pool(resource);
        pool.share(usize::from(!is_counted)).max(pool.least)
    }

    /// Whether `more` of `resource` would be within its share.
    pub(super) fn is_within_share(&self, shares: &Shares, resource: Resource, more: usize) -> bool {
        self.held(resource) + more <= self.share(shares, resource)
    }

    fn give_back(&self, shares: &Shares, resource: Resource, amount: usize) {
        self.held[resource as usize].fetch_sub(amount, Ordering::Relaxed);
        let used = &shares.pool(resource).used;
        used.fetch_sub(amount, Ordering::Relaxed);
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
        let held = self.held[resource as usize].fetch_add(amount, Ordering::Relaxed) + amount;
        if used > max / 2 && held > self.share(shares, resource) {
            self.give_back(shares, resource, amount);
            self.log_share(resource);
            return Err(Shortage::OverShare);
        }
        Ok(())
    }

    /// Says that the client has reached its share, at most once in [`LOG_INTERVAL_S`].
    fn log_share(&self, resource: Resource) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| now.as_secs());
        let next = |next_s| (next_s <= now_s).then_some(now_s + LOG_INTERVAL_S);
        let may_log = self
            .next_line_s
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if may_log.is_ok() {
            let (holder, resource) = (self.holder, resource.name());
            diagnostics::log(format_args!(
                "{holder} holds its share of {resource} (levity_share_used), so further requests of it wait or get 503"
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
        self.account
            .take(&self.shares, self.resource, more, self.portion)?;
        self.grown(more);
        Ok(())
    }

    /// Takes `more` even beyond the bound: for what the client has already.
    pub fn grow(&mut self, more: usize) {
        let pool = self.shares.pool(self.resource);
        pool.used.fetch_add(more, Ordering::Relaxed);
        self.account.held[self.resource as usize].fetch_add(more, Ordering::Relaxed);
        self.grown(more);
    }

    fn grown(&mut self, more: usize) {
        if self.amount == 0 && more > 0 {
            self.account.enter(&self.shares, self.resource);
        }
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
            self.account.give_back(&self.shares, self.resource, rest);
            if self.amount == 0 {
                self.account.leave(&self.shares, self.resource);
            }
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    pub(super) fn resource(&self) -> Resource {
        self.resource
    }

    pub(super) fn portion(&self) -> Portion {
        self.portion
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
    }
}
