//! What this process knows of boxes and sets, also while there is no connection.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::time::Instant;

use super::ledger::Ledger;
use super::record::{Author, Summary};
use crate::name::Name;
use crate::settings::Settings;
use crate::shared::{AppendReply, Reply, Request};
use crate::store::{Append, Opened, StoreError};

/// Idle time of a box whose settings are not known.
const IDLE_UNKNOWN: Duration = Duration::from_secs(60);

/// Boxes that are used here.
pub(super) struct Boxes {
    pub(super) boxes: HashMap<Name, Used>,
    /// All of them, in the order in which sweeps look at them.
    pub(super) order: VecDeque<Name>,
    pub(super) sets: HashMap<String, Set>,
}

/// A box that is used here.
pub(super) struct Used {
    /// What is known of it. Out of date without a connection.
    pub(super) ledger: Option<Ledger>,
    pub(super) phase: Phase,
    /// What the server has repeated while records were read.
    pub(super) held: Vec<Repeated>,
    /// Records of this process that have not come back, in their order.
    pub(super) pending: VecDeque<Pending>,
    /// What waits until the ledger is current.
    pub(super) waiting: VecDeque<Request>,
    /// Messages were lost, and this record says so.
    pub(super) renewal: Option<Author>,
    /// Whether receivers of this process read it: then whether they have been told what is kept.
    pub(super) watch: Option<bool>,
    /// Ends the subscription.
    pub(super) feed: Option<AbortHandle>,
    pub(super) idle: Duration,
    pub(super) boxes_max: usize,
    /// When this process has used it.
    pub(super) asked_at: Instant,
    /// When anybody has used it.
    pub(super) used_at: Instant,
}

/// How current a ledger is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no subscription.
    Left,
    /// Records are being read.
    Loading,
    /// The subscription has all that follows.
    Current,
}

/// A record that the server has repeated.
pub(super) struct Repeated {
    pub(super) number: u64,
    /// The number of the record of the box before.
    pub(super) previous: u64,
    pub(super) payload: Vec<u8>,
}

/// Who waits for a record to come back.
pub(super) struct Pending {
    /// The number of the record as this process counts.
    pub(super) number: u64,
    pub(super) what: What,
}

pub(super) enum What {
    Append(Append, AppendReply),
    Open(Reply<Opened>),
    Look(Reply<Option<Opened>>),
    Remove(Reply<bool>),
    /// A box that nobody uses is removed.
    End,
    /// A summary, and the records that it replaces.
    Summary(Summary, Vec<u64>),
    Nobody,
}

impl What {
    pub(super) fn fail(self, error: StoreError) {
        match self {
            Self::Append(_, reply) => reply.send(Err(error)),
            Self::Open(reply) => drop(reply.send(Err(error))),
            Self::Look(reply) => drop(reply.send(Err(error))),
            Self::Remove(reply) => drop(reply.send(Err(error))),
            Self::End | Self::Summary(..) | Self::Nobody => {}
        }
    }

    /// Whether there is a box after the record; `None` if it does not matter for that.
    fn makes(&self) -> Option<bool> {
        match self {
            Self::Append(..) | Self::Open(_) => Some(true),
            Self::Remove(_) | Self::End => Some(false),
            Self::Look(_) | Self::Summary(..) | Self::Nobody => None,
        }
    }
}

/// A set.
pub(super) struct Set {
    /// The number of its boxes, as far as it is known.
    pub(super) count: Option<usize>,
    pub(super) counted_at: Instant,
    /// Whether the server was asked for it.
    pub(super) is_asked: bool,
    /// Boxes that wait for the number.
    pub(super) blocked: Vec<Name>,
    pub(super) idle: Duration,
    /// When its boxes were looked at last.
    pub(super) scanned_at: Instant,
}

impl Boxes {
    pub(super) fn new() -> Self {
        Self {
            boxes: HashMap::new(),
            order: VecDeque::new(),
            sets: HashMap::new(),
        }
    }

    /// A box, which is used now.
    pub(super) fn get(&mut self, name: &Name, now: Instant) -> &mut Used {
        if !self.boxes.contains_key(name) {
            self.order.push_back(name.clone());
        }
        let used = self.boxes.entry(name.clone()).or_insert_with(|| Used {
            ledger: None,
            phase: Phase::Left,
            held: Vec::new(),
            pending: VecDeque::new(),
            waiting: VecDeque::new(),
            renewal: None,
            watch: None,
            feed: None,
            idle: IDLE_UNKNOWN,
            boxes_max: usize::MAX,
            asked_at: now,
            used_at: now,
        });
        used.asked_at = now;
        used
    }

    /// A box and its set, with what the settings say.
    pub(super) fn get_with(&mut self, name: &Name, settings: &Settings, now: Instant) -> &mut Used {
        let set = self
            .sets
            .entry(settings.set.clone())
            .or_insert_with(|| Set {
                count: None,
                counted_at: now,
                is_asked: false,
                blocked: Vec::new(),
                idle: settings.idle,
                scanned_at: now,
            });
        set.idle = settings.idle;
        let used = self.get(name, now);
        (used.idle, used.boxes_max) = (settings.idle, settings.boxes_max);
        used
    }

    /// A connection has ended: nothing is current, and nobody gets an answer.
    pub(super) fn disconnected(&mut self, error: &StoreError) {
        for used in self.boxes.values_mut() {
            used.phase = Phase::Left;
            used.held.clear();
            used.renewal = None;
            if let Some(feed) = used.feed.take() {
                feed.abort();
            }
            for pending in used.pending.drain(..) {
                pending.what.fail(error.clone());
            }
            for request in used.waiting.drain(..) {
                let _ = request.fail(error);
            }
        }
        for set in self.sets.values_mut() {
            (set.count, set.is_asked) = (None, false);
            set.blocked.clear();
        }
    }
}

impl Used {
    /// Whether there will be a box when all that is pending has come back.
    pub(super) fn will_live(&self) -> bool {
        let made = self
            .pending
            .iter()
            .rev()
            .find_map(|pending| pending.what.makes());
        let lives = self.ledger.as_ref().is_some_and(Ledger::is_alive);
        made.unwrap_or(lives)
    }
}
