//! A set of boxes as the configuration describes it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use levity_config::MailboxProtocol;
use levity_mailbox::{Budget, Mode, Name, Settings};
use strum::{IntoStaticStr, VariantArray};

use crate::message::client_prefix::ClientPrefix;
use crate::rate_limit::table::{Key, Table};

/// Memory for the counts of receivers and publishes, in bytes; used as far as there are any.
const COUNT_BYTES: usize = 16 << 20;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// What all sets have in common: those of the configuration, or those of `resume`. A reload does not change it.
pub struct SharedMailboxes {
    /// The memory of messages.
    pub budget: Arc<Budget>,
    /// Who has refused what.
    pub refusals: Refusals,
    /// Receivers that are connected.
    pub receivers: AtomicUsize,
    counts: Table,
    /// Among how many owners boxes are divided.
    owners: usize,
}

/// Counts of what was refused, by reason.
#[derive(Default)]
pub struct Refusals([AtomicU64; Refusal::VARIANTS.len()]);

/// Why something was refused. The names are the words of the metric: the key of the limit, where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Refusal {
    /// A message is longer than `message_bytes`.
    MessageBytes,
    /// `limits.mailbox_memory` is used up.
    MailboxMemory,
    /// There are as many boxes as `boxes`.
    Boxes,
    /// A box has as many receivers as `receivers`.
    Receivers,
    /// A client has as many receivers as `receivers_per_client`.
    ReceiversPerClient,
    /// There are more messages than `publishes_per_second`.
    PublishesPerSecond,
    /// Somebody who may not publish.
    Publisher,
    /// Somebody who may not receive.
    Receiver,
    /// The store is full.
    StoreFull,
    /// The store does not answer. Reasons before it are of mailboxes, those after it of streams that are kept.
    Store,
    /// A client has as many streams that are kept as `streams_per_client`.
    StreamsPerClient,
    /// There are as many streams that are kept as `streams`.
    Streams,
    /// `limits.resume_memory` has no room for one more stream.
    ResumeMemory,
    /// The application answers before it has the whole request.
    UnsentRequest,
    /// The answer is no stream of events.
    NoEvents,
}

impl Refusal {
    /// The reasons of mailboxes.
    pub const OF_MAILBOXES: &[Self] = Self::VARIANTS.split_at(Self::Store as usize + 1).0;

    /// The reasons of streams that are not kept.
    pub const OF_RESUME: &[Self] = Self::VARIANTS.split_at(Self::Store as usize).1;
}

impl Refusals {
    /// Counts one.
    pub fn add(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of these reasons, with the words of the metric.
    pub fn counts(&self, of: &[Refusal]) -> Vec<(&'static str, u64)> {
        let count = |&refusal: &Refusal| {
            let count = self.0[refusal as usize].load(Ordering::Relaxed);
            (refusal.into(), count)
        };
        of.iter().map(count).collect()
    }
}

impl SharedMailboxes {
    /// For boxes that are divided among `owners`, whose messages take `bytes_max`.
    pub fn new(owners: usize, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Budget::new(bytes_max),
            refusals: Refusals::default(),
            receivers: AtomicUsize::new(0),
            counts: Table::new(COUNT_BYTES),
            owners,
        })
    }
}

/// A set of boxes.
pub struct MailboxSet {
    /// As configured.
    pub of: levity_config::Mailbox,
    /// What its boxes may hold.
    pub settings: Arc<Settings>,
    /// What it has in common with others.
    pub shared: Arc<SharedMailboxes>,
}

impl MailboxSet {
    /// The set that `of` describes.
    pub fn new(of: &levity_config::Mailbox, shared: &Arc<SharedMailboxes>) -> Arc<Self> {
        let settings = Settings {
            set: of.name.clone(),
            mode: match of.mode {
                levity_config::MailboxMode::Inbox => Mode::Inbox,
                levity_config::MailboxMode::Topic => Mode::Topic,
            },
            messages_max: of.messages,
            bytes_max: of.bytes,
            lifetime: of.lifetime,
            idle: of.idle,
            boxes_max: match of.protocol {
                MailboxProtocol::Mailbox => of.boxes.div_ceil(shared.owners),
                // All streams of a set have one owner.
                MailboxProtocol::DurableStreams => of.boxes,
            },
            receivers_max: of.receivers,
            keeps_all: of.protocol == MailboxProtocol::DurableStreams,
            is_durable: of.durable,
        };
        Arc::new(Self {
            of: of.clone(),
            settings: Arc::new(settings),
            shared: shared.clone(),
        })
    }

    /// Takes `count` of `publishes_per_second`. A tenth of a second's worth may come at once; the next has to wait for more.
    ///
    /// # Errors
    /// How long to wait.
    pub fn take_publishes(&self, count: usize, now: Instant) -> Result<(), Duration> {
        let counts = &self.shared.counts;
        let rate = self.of.publishes_per_second as u64;
        let cost = NS_PER_SECOND / rate.max(1);
        let tolerance = (NS_PER_SECOND / 10).max(cost);
        let key = counts.key(("publishes", &self.of.name));
        let cost = cost.saturating_mul(count as u64);
        let taken = counts.take(key, counts.time(now), cost, tolerance);
        taken.map_err(Duration::from_nanos)
    }

    /// Counts a stream that is kept in a box of this set for `client`, unless there are `max`.
    pub fn keep_stream(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        max: usize,
        now: Instant,
    ) -> Option<ClientStreamSlot> {
        let counts = &self.shared.counts;
        // Each location with `resume` has a set of its own, all with the same name.
        let key = counts.key(("streams", Arc::as_ptr(self), ClientPrefix::new(client)));
        let is_counted = counts.enter(key, counts.time(now), max as u64);
        is_counted.then(|| ClientStreamSlot {
            shared: self.shared.clone(),
            key,
        })
    }

    /// Counts a receiver of `name`.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn enter(
        self: &Arc<Self>,
        name: &Name,
        client: Option<IpAddr>,
        now: Instant,
    ) -> Result<ReceiverSlot, Refusal> {
        let counts = &self.shared.counts;
        let now = counts.time(now);
        let of_client = counts.key((&self.of.name, ClientPrefix::new(client)));
        let of_box = counts.key(("receivers", name));
        if !counts.enter(of_client, now, self.of.receivers_per_client as u64) {
            return Err(Refusal::ReceiversPerClient);
        }
        if !counts.enter(of_box, now, self.of.receivers as u64) {
            counts.leave(of_client);
            return Err(Refusal::Receivers);
        }
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Ok(ReceiverSlot {
            shared: self.shared.clone(),
            keys: [of_client, of_box],
        })
    }
}

/// A counted stream of a client. Dropping it ends the count.
pub struct ClientStreamSlot {
    shared: Arc<SharedMailboxes>,
    key: Key,
}

impl Drop for ClientStreamSlot {
    fn drop(&mut self) {
        self.shared.counts.leave(self.key);
    }
}

/// A counted receiver. Dropping it ends the count.
pub struct ReceiverSlot {
    shared: Arc<SharedMailboxes>,
    keys: [Key; 2],
}

impl Drop for ReceiverSlot {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::Relaxed);
        self.keys
            .iter()
            .for_each(|&key| self.shared.counts.leave(key));
    }
}
