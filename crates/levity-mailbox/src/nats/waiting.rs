//! What waits for several answers of the server: loads and lists.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::ledger::Ledger;
use super::replay::Read;
use crate::name::Name;
use crate::shared::Reply;
use crate::store::{Opened, StoreError, Summary};

/// Why records of a box are read.
pub(super) enum Purpose {
    /// To bring its ledger up to date: from this record on.
    Ledger(u64),
    /// To say what was kept with this record.
    Open(Reply<Opened>, u64),
    /// To say what is kept.
    Look(Reply<Option<Opened>>),
    /// For this list.
    List(u64),
}

impl Purpose {
    pub(super) fn fail(self, error: &StoreError) {
        match self {
            Self::Open(reply, _) => drop(reply.send(Err(error.clone()))),
            Self::Look(reply) => drop(reply.send(Err(error.clone()))),
            Self::Ledger(_) | Self::List(_) => {}
        }
    }
}

/// Records that are being read.
pub(super) struct Load {
    pub(super) name: Name,
    pub(super) purpose: Purpose,
    pub(super) records: Vec<Read>,
    /// The name of the consumer.
    pub(super) consumer: String,
    /// The server has said that there is one.
    pub(super) is_made: bool,
    pub(super) is_complete: bool,
    /// How often it began again.
    pub(super) restarts: usize,
    /// When the server has said something of it.
    pub(super) progress: Instant,
}

/// A list that is being made.
pub(super) struct Listing {
    pub(super) set: String,
    pub(super) after: Option<Name>,
    pub(super) count_max: usize,
    pub(super) reply: Reply<Vec<Summary>>,
    /// Boxes to look at, in their order.
    pub(super) names: VecDeque<Name>,
    pub(super) summaries: Vec<Summary>,
    /// The number of boxes whose records are being read.
    pub(super) loading: usize,
}

impl Listing {
    pub(super) fn new(
        set: String,
        after: Option<Name>,
        count_max: usize,
        reply: Reply<Vec<Summary>>,
    ) -> Self {
        Self {
            set,
            after,
            count_max,
            reply,
            names: VecDeque::new(),
            summaries: Vec::new(),
            loading: 0,
        }
    }

    pub(super) fn fail(self, error: &StoreError) {
        let _ = self.reply.send(Err(error.clone()));
    }

    pub(super) fn add(&mut self, name: Name, ledger: &Ledger) {
        if let Some((messages, bytes)) = ledger.size() {
            self.summaries.push(Summary {
                name,
                messages,
                bytes,
            });
        }
    }
}
