//! What outlives a connection to the server.

use std::collections::HashMap;
use std::sync::Arc;

use async_nats::ServerAddr;
use levity_wire::mailbox::MessageId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::boxes::Boxes;
use super::session::Session;
use crate::budget::Budget;
use crate::name::Name;
use crate::shared::TaskFigures;
use crate::store::Change;

/// What outlives a connection.
pub(super) struct Link {
    pub(super) server: ServerAddr,
    pub(super) budget: Arc<Budget>,
    pub(super) changes: mpsc::UnboundedSender<Change>,
    pub(super) figures: Arc<TaskFigures>,
    /// Distinguishes this process from others.
    pub(super) process: u64,
    /// The number of the next record or call.
    pub(super) number: u64,
    /// The base of the epochs at the last connection.
    pub(super) base: Option<u64>,
    /// The number of the last record of the stream that is known of.
    pub(super) last: u64,
    pub(super) boxes: Boxes,
    /// The last messages that were read, which the server was not told yet.
    pub(super) reads: HashMap<Name, MessageId>,
}

impl Link {
    /// Connects. If the stream has lost its end, all boxes get new epochs.
    pub(super) async fn connect(&self, inbox: &str) -> Result<Session, String> {
        let mut session = Session::new(&self.server, inbox).await?;
        if self.base == Some(session.base) && session.last < self.last {
            session.renew().await?;
        }
        Ok(session)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Notes a message that was read, until the server is told.
    pub(super) fn mark_read(&mut self, name: Name, last: MessageId) {
        let noted = self.reads.entry(name).or_insert(last);
        *noted = last.max(*noted);
    }

    pub(super) fn set_watched(&mut self, name: &Name, is_read: bool) {
        let used = self.boxes.get(name, Instant::now());
        used.watch = is_read.then(|| used.watch.unwrap_or(false));
    }
}
