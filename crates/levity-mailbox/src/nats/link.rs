//! What outlives a connection to the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ServerAddr;
use levity_wire::mailbox::MessageId;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use super::boxes::Boxes;
use super::serving::Serving;
use super::session::Session;
use crate::budget::Budget;
use crate::name::Name;
use crate::shared::{Connect, Ended, Request, TaskFigures};
use crate::store::{Change, StoreError};

/// How long connecting may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(4);

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

impl Connect for Link {
    async fn serve(&mut self, requests: &mut mpsc::UnboundedReceiver<Request>) -> Ended {
        let number = self.next_number();
        let inbox = format!("_INBOX.levity-{}-{number}", self.process);
        let connecting = self.connect(&inbox);
        let connected = time::timeout(CONNECT_TIME_MAX, connecting).await;
        let late = |_| Err("the NATS server does not answer in time".to_owned());
        let (reason, was_connected) = match connected.unwrap_or_else(late) {
            Ok(session) => match Serving::new(self, requests, session, inbox).run().await {
                Ok(()) => return Ended::Dropped,
                Err(reason) => (reason, true),
            },
            Err(reason) => (reason, false),
        };
        let error = StoreError::Unavailable(reason.clone());
        self.boxes.disconnected(&error);
        Ended::Broken {
            reason,
            was_connected,
        }
    }

    fn note(&mut self, request: Request) {
        match request {
            Request::Read(name, last) => self.mark_read(name, last),
            Request::Watch(name, is_read) => self.set_watched(&name, is_read),
            _ => {}
        }
    }
}

impl Link {
    /// Connects. If the stream has lost its end, all boxes get new epochs.
    async fn connect(&self, inbox: &str) -> Result<Session, String> {
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
