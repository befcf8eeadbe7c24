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
use crate::name::Name;
use crate::shared::{Connect, Outage, Request, TaskFigures};

/// How long making all connections may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a process waits for another one that has seen more. Those that live connect, or look at the history, in this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// What outlives a connection.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) budget: Arc<Budget>,
    pub(super) boxes: Boxes,
    pub(super) outage: Outage,
    pub(super) figures: Arc<TaskFigures>,
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

impl Connect for Link {
    const UNAVAILABLE: &'static str = "the Redis server cannot be used at the moment";

    type Session = Session;

    fn outage(&mut self) -> &mut Outage {
        &mut self.outage
    }

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

    async fn serve(
        &mut self,
        session: Session,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        reads: &mut mpsc::UnboundedReceiver<Request>,
    ) -> Result<(), String> {
        Serving::new(self, session).run(requests, reads).await
    }

    fn note(&mut self, request: Request) {
        match request {
            Request::Read(name, last, _) => self.mark_read(name, last),
            Request::Watch(name, is_read) => {
                self.boxes.set_watched(&name, is_read, Instant::now());
            }
            Request::Sweep(_) => {
                self.boxes.sweep(Instant::now());
            }
            _ => {}
        }
    }
}

impl Link {
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
