//! What the exchanges of one event loop hold, and how it is reclaimed.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak as ArcWeak};
use std::time::{Duration, Instant};

use levity_disk::OpenFile;
use levity_net::Timers;
use strum::{EnumCount, VariantArray};
use tokio::sync::Notify;

use super::account::{Account, Held};
use super::holder::Holder;
use super::{Portion, Resource, Shares};

/// What an exchange holds has stalled when its client has moved no byte for this long.
pub const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The amounts that one exchange holds, by resource.
pub(super) type Amounts = Arc<[AtomicUsize; Resource::COUNT]>;

/// The exchanges of an event loop that hold something.
pub struct Stakes {
    shares: Arc<Shares>,
    /// By the number of the stream.
    by_stream: RefCell<HashMap<u64, Stake>>,
    /// Files that exchanges of one client hold: each counts once.
    files: RefCell<HashMap<FileKey, Weak<FileUnit>>>,
    /// Notified after each sweep, for those who wait.
    pub(super) swept: Notify,
}

/// What one exchange holds.
struct Stake {
    account: Arc<Account>,
    holder: Holder,
    /// Gone when it holds nothing any more.
    amounts: ArcWeak<[AtomicUsize; Resource::COUNT]>,
}

/// The account and the file, by their addresses.
type FileKey = (*const Account, *const OpenFile);

/// The descriptor of a file that exchanges of one client hold on this loop.
struct FileUnit {
    stakes: Rc<Stakes>,
    key: FileKey,
    _held: Held,
    /// Kept open, so that no other file gets its address.
    _file: Arc<OpenFile>,
}

impl Drop for FileUnit {
    fn drop(&mut self) {
        self.stakes.files.borrow_mut().remove(&self.key);
    }
}

/// The part of an exchange in an open file.
pub struct FileHold {
    amounts: Amounts,
    _unit: Rc<FileUnit>,
}

impl Drop for FileHold {
    fn drop(&mut self) {
        self.amounts[Resource::Files as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stakes {
    /// Those of an event loop on which nothing is held.
    pub fn new(shares: Arc<Shares>) -> Rc<Self> {
        Rc::new(Self {
            shares,
            by_stream: RefCell::default(),
            files: RefCell::default(),
            swept: Notify::new(),
        })
    }

    /// The resources.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// The stake of the exchange on the stream of that number, for which `holder` answers.
    fn of(&self, holder: Holder, stream: u64) -> (Arc<Account>, Amounts) {
        let mut by_stream = self.by_stream.borrow_mut();
        let known = by_stream.get(&stream).filter(|it| it.holder == holder);
        if let Some((stake, amounts)) = known.and_then(|it| Some((it, it.amounts.upgrade()?))) {
            return (stake.account.clone(), amounts);
        }
        let account = self.shares.accounts.get(holder);
        let amounts = Amounts::default();
        let stake = Stake {
            account: account.clone(),
            holder,
            amounts: Arc::downgrade(&amounts),
        };
        by_stream.insert(stream, stake);
        (account, amounts)
    }

    /// Nothing of `resource` yet, for that exchange.
    pub(super) fn nothing(
        &self,
        (holder, stream): (Holder, u64),
        resource: Resource,
        portion: Portion,
    ) -> Held {
        let (account, amounts) = self.of(holder, stream);
        let shares = self.shares.clone();
        Held::nothing(shares, account, Some(amounts), resource, portion)
    }

    /// Nothing of `resource` yet, for no exchange.
    pub(super) fn nothing_lasting(
        &self,
        holder: Holder,
        resource: Resource,
        portion: Portion,
    ) -> Held {
        let account = self.shares.accounts.get(holder);
        Held::nothing(self.shares.clone(), account, None, resource, portion)
    }

    /// Counts `file`, which is open, for that exchange. Files of one client count once, and even beyond the bound.
    pub(super) fn hold_file(
        self: &Rc<Self>,
        (holder, stream): (Holder, u64),
        file: &Arc<OpenFile>,
    ) -> FileHold {
        let (account, amounts) = self.of(holder, stream);
        let key = (Arc::as_ptr(&account), Arc::as_ptr(file));
        let known = self.files.borrow().get(&key).and_then(Weak::upgrade);
        let unit = known.unwrap_or_else(|| {
            let (shares, portion) = (self.shares.clone(), Portion::Whole);
            let mut held = Held::nothing(shares, account, None, Resource::Files, portion);
            held.grow(1);
            let unit = Rc::new(FileUnit {
                stakes: self.clone(),
                key,
                _held: held,
                _file: file.clone(),
            });
            self.files.borrow_mut().insert(key, Rc::downgrade(&unit));
            unit
        });
        amounts[Resource::Files as usize].fetch_add(1, Ordering::Relaxed);
        FileHold {
            amounts,
            _unit: unit,
        }
    }

    /// Forgets exchanges that hold nothing any more. While somebody waits for a resource that is used up, ends as many waits of
    /// clients as are needed: of what has stalled, first that of the client that holds most, and of one client the oldest. Each
    /// client keeps its share. Then lets all who wait try again.
    pub fn sweep(&self, timers: &Timers, now: Instant) {
        let mut by_stream = self.by_stream.borrow_mut();
        by_stream.retain(|_, stake| stake.amounts.strong_count() > 0);
        for &resource in Resource::VARIANTS {
            let lacking = self.shares.pool(resource).lacking();
            if lacking.0 > 0 {
                self.reclaim(&by_stream, resource, lacking, timers, now);
            }
        }
        drop(by_stream);
        self.swept.notify_waiters();
    }

    fn reclaim(
        &self,
        by_stream: &HashMap<u64, Stake>,
        resource: Resource,
        (lacking, portion): (usize, Portion),
        timers: &Timers,
        now: Instant,
    ) {
        let pool = self.shares.pool(resource);
        let share = pool.share(portion);
        let stalled = by_stream.iter().filter_map(|(&stream, stake)| {
            let amount = stake.amounts.upgrade()?[resource as usize].load(Ordering::Relaxed);
            let held = stake.account.held(resource);
            let since = timers.client_awaited_since(number(stream))?;
            let is_stalled = now.saturating_duration_since(since) >= STALLED_AFTER;
            (amount > 0 && held >= share && is_stalled).then_some((held, since, stream, amount))
        });
        let mut stalled: Vec<_> = stalled.collect();
        stalled.sort_unstable_by_key(|&(held, since, ..)| (Reverse(held), since));
        let mut reclaimed = 0;
        // What accounts hold still, by their addresses.
        let mut left = HashMap::new();
        for (held, _, stream, amount) in stalled {
            let account = Arc::as_ptr(&by_stream[&stream].account);
            let left = left.entry(account).or_insert(held);
            if reclaimed >= lacking {
                break;
            }
            if *left >= share {
                timers.expire(number(stream));
                *left = left.saturating_sub(amount);
                reclaimed += amount;
                pool.reclaimed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if reclaimed > 0 {
            for missed in &pool.missed {
                missed.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// The number of a stream's timer on its event loop.
fn number(stream: u64) -> usize {
    (stream & u64::from(u32::MAX)) as usize
}
