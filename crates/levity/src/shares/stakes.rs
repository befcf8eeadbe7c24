//! What the exchanges of one event loop hold, and how it is reclaimed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak as ArcWeak};
use std::time::{Duration, Instant};

use levity_net::Timers;
use strum::{EnumCount, VariantArray};
use tokio::sync::Notify;

use super::account::{Account, Amounts, Held};
use super::common::{Common, CommonHold, CommonParts};
use super::holder::Holder;
use super::{Portion, Resource, Shares};

/// What an exchange holds has stalled when its client has moved no byte for this long.
pub const STALLED_AFTER: Duration = Duration::from_secs(5);

/// How often the kernel is asked what a client has taken, and for how many exchanges at most in one sweep, which may not hold up the loop.
const ASKED_AFTER: Duration = Duration::from_millis(250);
const ASKED_MAX: usize = 500;

/// The exchanges of an event loop that hold something.
pub struct Stakes {
    shares: Arc<Shares>,
    /// By the number of the stream.
    by_stream: RefCell<HashMap<u64, Stake>>,
    /// What exchanges of several clients hold together, by client.
    common: Rc<CommonParts>,
    /// Notified after each sweep, for those who wait.
    pub(super) swept: Notify,
}

/// A request and its response.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Who answers for what it takes.
    pub holder: Holder,
    /// The number of its connection.
    pub connection: u64,
    /// The number of its stream, which is that of its timer.
    pub stream: u64,
}

/// What one exchange holds.
struct Stake {
    account: Arc<Account>,
    exchange: Exchange,
    /// Gone when it holds nothing any more.
    amounts: ArcWeak<[AtomicUsize; Resource::COUNT]>,
    progress: Cell<Option<Progress>>,
}

/// What the client of an exchange takes of the bytes that the kernel has for it. A write comes only after it has taken many.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// Since when the exchange waits for it.
    wait_since: Instant,
    asked: Instant,
    /// What the kernel had then.
    bytes: usize,
    /// When that was last seen to have changed.
    changed: Instant,
}

impl Stake {
    fn stream(&self) -> usize {
        number(self.exchange.stream)
    }

    /// Asks the kernel again, if that is due; returns whether it has.
    fn ask(&self, timers: &Timers, now: Instant) -> bool {
        let Some(wait_since) = timers.client_awaited_since(self.stream()) else {
            return false;
        };
        let before = self.progress.get();
        let before = before.filter(|progress| progress.wait_since == wait_since);
        if before.is_some_and(|before| now.saturating_duration_since(before.asked) < ASKED_AFTER) {
            return false;
        }
        let socket = timers.socket(number(self.exchange.connection));
        let bytes = socket.and_then(|socket| levity_disk::unacknowledged_bytes(socket).ok());
        let bytes = bytes.unwrap_or(0);
        let is_same = |before: &Progress| before.bytes == bytes;
        self.progress.set(Some(Progress {
            wait_since,
            asked: now,
            bytes,
            changed: match (bytes, before.filter(is_same)) {
                // It waits for something else than a write.
                (0, _) => wait_since,
                (_, Some(before)) => before.changed,
                (_, None) => now,
            },
        }));
        true
    }

    /// Since when its client has moved no byte, if that is long enough.
    fn stalled_since(&self, timers: &Timers, now: Instant) -> Option<Instant> {
        let wait_since = timers.client_awaited_since(self.stream())?;
        let progress = self.progress.get();
        let progress = progress.filter(|progress| progress.wait_since == wait_since);
        let since = progress.map_or(wait_since, |progress| progress.changed);
        (now.saturating_duration_since(since) >= STALLED_AFTER).then_some(since)
    }
}

/// What may be reclaimed at a time.
struct Stalled {
    /// What its client holds in all; of several clients the one that holds most.
    held: usize,
    account: *const Account,
    since: Instant,
    /// How many would lose it.
    clients: usize,
    streams: Vec<u64>,
    /// What becomes free.
    amount: usize,
}

impl Stakes {
    /// Those of an event loop on which nothing is held.
    pub fn new(shares: Arc<Shares>) -> Rc<Self> {
        Rc::new(Self {
            common: CommonParts::new(shares.clone()),
            shares,
            by_stream: RefCell::default(),
            swept: Notify::new(),
        })
    }

    /// The resources.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// The stake of that exchange.
    fn of(&self, exchange: Exchange) -> (Arc<Account>, Amounts) {
        let Exchange { holder, stream, .. } = exchange;
        let mut by_stream = self.by_stream.borrow_mut();
        let known = by_stream.get(&stream);
        let known = known.filter(|it| it.exchange.holder == holder);
        if let Some((stake, amounts)) = known.and_then(|it| Some((it, it.amounts.upgrade()?))) {
            return (stake.account.clone(), amounts);
        }
        let known = known.map(|stake| stake.account.clone());
        let account = known.unwrap_or_else(|| self.shares.accounts.get(holder));
        let amounts = Amounts::default();
        let stake = Stake {
            account: account.clone(),
            exchange,
            amounts: Arc::downgrade(&amounts),
            progress: Cell::default(),
        };
        by_stream.insert(stream, stake);
        (account, amounts)
    }

    /// Nothing of `resource` yet, for that exchange.
    pub(super) fn nothing(&self, exchange: Exchange, resource: Resource, portion: Portion) -> Held {
        let (account, amounts) = self.of(exchange);
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
    pub(super) fn hold(self: &Rc<Self>, exchange: Exchange, common: Arc<dyn Common>) -> CommonHold {
        let (account, amounts) = self.of(exchange);
        CommonHold::new(&self.common, account, common, exchange.stream, amounts)
    }

    /// Forgets exchanges that hold nothing any more. While somebody waits for a resource that is used up, ends as many waits of
    /// clients as are needed: of what has stalled, first that of the client that holds most, and of one client the oldest. Each
    /// client keeps its share. Then lets all who wait try again.
    pub fn sweep(&self, timers: &Timers, now: Instant) {
        let mut by_stream = self.by_stream.borrow_mut();
        by_stream.retain(|_, stake| stake.amounts.strong_count() > 0);
        let is_plenty = |&resource: &Resource| self.shares.is_plenty(resource);
        if !Resource::VARIANTS.iter().all(is_plenty) {
            Self::ask(&by_stream, timers, now);
        }
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

    /// Asks the kernel what clients have taken that are due.
    fn ask(by_stream: &HashMap<u64, Stake>, timers: &Timers, now: Instant) {
        let mut left = ASKED_MAX;
        for stake in by_stream.values() {
            left -= usize::from(stake.ask(timers, now));
            if left == 0 {
                break;
            }
        }
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
        stalled.extend(self.stalled_common(by_stream, resource, timers, now));
        stalled.retain(|stalled| stalled.held >= share);
        if stalled.is_empty() || !pool.claim_round(now) {
            return;
        }
        stalled.sort_unstable_by_key(|stalled| {
            (Reverse(stalled.held), stalled.clients, stalled.since)
        });
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
            let since = stake.stalled_since(timers, now).filter(|_| amount > 0)?;
            Some(Stalled {
                held: stake.account.held(resource),
                account: Arc::as_ptr(&stake.account),
                since,
                clients: 1,
                streams: vec![stream],
                amount,
            })
        });
        stalled.collect()
    }

    /// What several clients hold together, where the exchanges of all of them have stalled. It is ended for all at once, or it would
    /// stay with the last one of them.
    fn stalled_common(
        &self,
        by_stream: &HashMap<u64, Stake>,
        resource: Resource,
        timers: &Timers,
        now: Instant,
    ) -> Vec<Stalled> {
        let parts = self.common.of(resource).into_iter();
        let judged = parts.filter_map(|part| {
            let streams = part.streams();
            let since = streams
                .iter()
                .map(|stream| by_stream.get(stream)?.stalled_since(timers, now));
            let since = since.collect::<Option<Vec<_>>>();
            part.set_stalled(since.is_some());
            let since = since?.into_iter().max()?;
            Some((part, streams, since))
        });
        // Judged before any of them is asked about all.
        let judged: Vec<_> = judged.collect();
        let mut stalled: HashMap<*const (), Stalled> = HashMap::new();
        for (part, streams, since) in judged {
            if !part.is_stalled_for_all() {
                continue;
            }
            let held = part.account().held(resource);
            let of_thing = stalled.entry(part.thing()).or_insert_with(|| Stalled {
                held,
                account: Arc::as_ptr(part.account()),
                since,
                clients: 0,
                streams: Vec::new(),
                amount: part.amount(),
            });
            of_thing.held = of_thing.held.max(held);
            of_thing.since = of_thing.since.max(since);
            of_thing.clients += 1;
            of_thing.streams.extend(streams);
        }
        stalled.into_values().collect()
    }
}

/// The number of the timer of a stream or connection on its event loop.
fn number(stream: u64) -> usize {
    (stream & u64::from(u32::MAX)) as usize
}
