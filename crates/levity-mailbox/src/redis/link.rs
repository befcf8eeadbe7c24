//! What outlives a connection to the server.

mod serving;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use levity_wire::mailbox::MessageId;
use redis::Client;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use self::serving::Serving;
use super::boxes::Boxes;
use super::session::Session;
use crate::budget::Budget;
use crate::locked::Locked;
use crate::name::Name;
use crate::shared::{Outage, Request};
use crate::store::{Figures, StoreError};

/// The pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long making all connections may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a process waits for another one that has seen more. Those that live connect, or look at the history, in this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// What outlives a connection.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) requests: mpsc::UnboundedReceiver<Request>,
    pub(super) read_requests: mpsc::UnboundedReceiver<Request>,
    pub(super) budget: Arc<Budget>,
    pub(super) boxes: Boxes,
    pub(super) outage: Outage,
    pub(super) figures: Arc<Locked<Figures>>,
    /// Distinguishes this process from others.
    pub(super) process: String,
    /// The history of the server that this process has seen last.
    pub(super) run: String,
    /// Since when others may have seen more.
    pub(super) behind_since: Option<Instant>,
    /// The last messages that were read, which the server was not told yet.
    pub(super) reads: HashMap<Name, MessageId>,
    /// The sets whose boxes were used.
    pub(super) sets: BTreeSet<String>,
}

impl Link {
    /// Serves requests until the store is dropped, and connects again when the connections end.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let ended = match self.connect().await {
                Ok(session) => {
                    self.outage.end();
                    pause = PAUSE_MIN;
                    Serving::new(&mut self, session).run().await
                }
                Err(reason) => Err(reason),
            };
            let Err(reason) = ended else {
                return;
            };
            self.outage.begin(&reason);
            if time::timeout(pause, self.refuse()).await.is_ok() {
                return;
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Connects, or says why not.
    async fn connect(&mut self) -> Result<Session, String> {
        let behind_since = self.behind_since;
        let is_patient = behind_since.is_none_or(|since| since.elapsed() < PATIENCE);
        let connecting = Session::new(&self.client, &self.process, &self.run, is_patient);
        let connected = time::timeout(CONNECT_TIME_MAX, connecting).await;
        let late = |_| Err("the Redis server does not answer in time".to_owned());
        let Some(session) = connected.unwrap_or_else(late)? else {
            self.behind_since.get_or_insert_with(Instant::now);
            let reason = "another server has to say whether the Redis server lacks messages";
            return Err(reason.to_owned());
        };
        self.behind_since = None;
        self.note_run(&session.run);
        Ok(session)
    }

    /// Answers all requests with an error, and notes those that have no answer. Ends when the store is dropped.
    async fn refuse(&mut self) {
        loop {
            let request = tokio::select! {
                request = self.requests.recv() => request,
                read = self.read_requests.recv() => read,
            };
            let Some(request) = request else {
                return;
            };
            match request.fail(&unavailable()) {
                Some(Request::Read(name, last, _)) => self.mark_read(name, last),
                Some(Request::Watch(name, is_read)) => {
                    self.boxes.set_watched(&name, is_read, Instant::now());
                }
                Some(Request::Sweep(_)) => drop(self.boxes.sweep(Instant::now())),
                _ => {}
            }
        }
    }

    /// Notes which history the server writes. If it is another one than before, it may lack messages.
    pub(super) fn note_run(&mut self, run: &str) {
        if self.run != run {
            self.run = run.to_owned();
            self.boxes.check_all();
        }
    }

    /// Notes a message that was read, until the server is told.
    pub(super) fn mark_read(&mut self, name: Name, last: MessageId) {
        let noted = self.reads.entry(name).or_insert(last);
        *noted = last.max(*noted);
    }
}

/// What clients are told while the server cannot be used; why is reported.
fn unavailable() -> StoreError {
    StoreError::Unavailable("the Redis server cannot be used at the moment".to_owned())
}
