//! What the exchanges of one event loop hold, and how it is reclaimed.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak as ArcWeak};
use std::time::{Duration, Instant};

use levity_net::Timers;
use strum::{EnumCount, VariantArray};
use tokio::sync::Notify;

use super::account::{Account, Amounts, Held};
use super::common::{Common, CommonHold, CommonKey, CommonPart};
use super::holder::Holder;
use super::{Portion, Resource, Shares};

/// What an exchange holds has stalled when its client has moved no byte for this long.
pub const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The exchanges of an event loop that hold something.
pub struct Stakes {
    shares: Arc<Shares>,
    /// By the number of the stream.
    by_stream: RefCell<HashMap<u64, Stake>>,
    /// What exchanges of several clients hold together, by client.
    pub(super) common: RefCell<HashMap<CommonKey, Weak<CommonPart>>>,
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
            common: RefCell::default(),
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

    /// Counts `common` for that exchange. To each client it counts once, and even beyond the bound.
    pub(super) fn hold(
        self: &Rc<Self>,
        (holder, stream): (Holder, u64),
        common: Arc<dyn Common>,
    ) -> CommonHold {
        let (account, amounts) = self.of(holder, stream);
        CommonHold::new(self, account, common, stream, amounts)
    }

    /// Forgets exchanges that hold nothing any more. While somebody waits for a resource that is used up, ends as many waits of
    /// clients as are needed: of what has stalled, first that of the client that holds most, and of one client the oldest. Each
    /// client keeps its share. Then lets all who wait try again.
    pub fn sweep(&self, timers: &Timers, now: Instant) {
        let mut by_stream = self.by_stream.borrow_mut();
        by_stream.retain(|_, stake| stake.amounts.strong_count() > 0);
        for &resource in Resource::VARIANTS {
            let pool = self.shares.pool(resource);
            pool.forget_missed(now);
            let lacking = pool.lacking();
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
        stalled.extend(self.stalled_common(resource, timers, now));
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
        pool.clear_missed();
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

    /// What several clients hold together, where all exchanges of one of them have stalled: it is kept for the last one of them.
    fn stalled_common(&self, resource: Resource, timers: &Timers, now: Instant) -> Vec<Stalled> {
        let common = self.common.borrow();
        let parts = common.values().filter_map(Weak::upgrade);
        let stalled = parts.filter(|part| part.resource() == resource);
        let stalled = stalled.filter_map(|part| {
            let streams = part.streams();
            let since = streams
                .iter()
                .map(|&stream| stalled_since(timers, stream, now));
            let since = since.collect::<Option<Vec<_>>>()?.into_iter().max()?;
            Some(Stalled {
                held: part.account().held(resource),
                account: Arc::as_ptr(part.account()),
                since,
                streams,
                amount: part.free_without(),
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
