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

use super::account::{Account, Amounts, Held};
use super::holder::Holder;
use super::{Portion, Resource, Shares};

/// What an exchange holds has stalled when its client has moved no byte for this long.
pub const STALLED_AFTER: Duration = Duration::from_secs(5);

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
    account: Arc<Account>,
    /// Kept open, so that no other file gets its address.
    file: Arc<OpenFile>,
    /// The streams of these exchanges.
    streams: RefCell<Vec<u64>>,
}

impl FileUnit {
    fn key(&self) -> FileKey {
        (Arc::as_ptr(&self.account), Arc::as_ptr(&self.file))
    }
}

impl Drop for FileUnit {
    fn drop(&mut self) {
        self.account.release_file(&self.stakes.shares, &self.file);
        self.stakes.files.borrow_mut().remove(&self.key());
    }
}

/// The part of an exchange in an open file.
pub struct FileHold {
    stream: u64,
    unit: Rc<FileUnit>,
    /// Keeps the stake of the exchange, by which its account is found.
    _amounts: Amounts,
}

impl Drop for FileHold {
    fn drop(&mut self) {
        let mut streams = self.unit.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|&stream| stream == self.stream) {
            streams.swap_remove(at);
        }
    }
}

/// What may be reclaimed at a time.
struct Stalled {
    /// What its client holds in all.
    held: usize,
    account: *const Account,
    since: Instant,
    streams: Vec<u64>,
    /// What becomes free.
    amount: usize,
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
            account.hold_file(&self.shares, file);
            let unit = Rc::new(FileUnit {
                stakes: self.clone(),
                account,
                file: file.clone(),
                streams: RefCell::default(),
            });
            self.files.borrow_mut().insert(key, Rc::downgrade(&unit));
            unit
        });
        unit.streams.borrow_mut().push(stream);
        FileHold {
            stream,
            unit,
            _amounts: amounts,
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
        let mut stalled = Self::stalled_stakes(by_stream, resource, timers, now);
        if resource == Resource::Files {
            stalled.extend(self.stalled_files(timers, now));
        }
        stalled.retain(|stalled| stalled.held >= share);
        if stalled.is_empty() || !pool.claim_round(now) {
            return;
        }
        stalled.sort_unstable_by_key(|stalled| (Reverse(stalled.held), stalled.since));
        let mut reclaimed = 0;
        // What accounts hold still.
        let mut left = HashMap::new();
        for stalled in stalled {
            if reclaimed >= lacking {
                break;
            }
            let left = left.entry(stalled.account).or_insert(stalled.held);
            if *left >= share {
                let streams = stalled.streams.iter();
                streams.for_each(|&stream| timers.expire(number(stream)));
                *left = left.saturating_sub(stalled.amount);
                reclaimed += stalled.amount;
                pool.reclaimed.fetch_add(1, Ordering::Relaxed);
            }
        }
        for missed in &pool.missed {
            missed.store(0, Ordering::Relaxed);
        }
    }

    /// The exchanges that hold some of `resource` and have stalled.
    fn stalled_stakes(
        by_stream: &HashMap<u64, Stake>,
        resource: Resource,
        timers: &Timers,
        now: Instant,
    ) -> Vec<Stalled> {
        let stalled = by_stream.iter().filter_map(|(&stream, stake)| {
            let amount = stake.amounts.upgrade()?[resource as usize].load(Ordering::Relaxed);
            let since = stalled_since(timers, stream, now).filter(|_| amount > 0)?;
            Some(Stalled {
                held: stake.account.held(resource),
                account: Arc::as_ptr(&stake.account),
                since,
                streams: vec![stream],
                amount,
            })
        });
        stalled.collect()
    }

    /// The open files of which all exchanges of a client have stalled: a file stays open for the last one of them.
    fn stalled_files(&self, timers: &Timers, now: Instant) -> Vec<Stalled> {
        let files = self.files.borrow();
        let stalled = files.values().filter_map(|unit| {
            let unit = unit.upgrade()?;
            let streams = unit.streams.borrow().clone();
            let since = streams
                .iter()
                .map(|&stream| stalled_since(timers, stream, now));
            let since = since.collect::<Option<Vec<_>>>()?.into_iter().max()?;
            Some(Stalled {
                held: unit.account.held(Resource::Files),
                account: Arc::as_ptr(&unit.account),
                since,
                streams,
                amount: usize::from(unit.file.has_one_holder()),
            })
        });
        stalled.collect()
    }
}

/// Since when the client of a stream has moved no byte, if that is long enough.
fn stalled_since(timers: &Timers, stream: u64, now: Instant) -> Option<Instant> {
    let since = timers.client_awaited_since(number(stream))?;
    (now.saturating_duration_since(since) >= STALLED_AFTER).then_some(since)
}

/// The number of a stream's timer on its event loop.
fn number(stream: u64) -> usize {
    (stream & u64::from(u32::MAX)) as usize
}
