//! The task that keeps the connections to the server.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::MessageId;
use redis::Client;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{self, Instant};

use super::boxes::Boxes;
use super::serving::Serving;
use super::session::Session;
use crate::budget::Budget;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{Append, Appended, Opened, StoreError, Summary};

/// How long making both connections may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// The pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Where the result of an append goes. The permit is given back then.
pub(super) struct AppendReply {
    reply: Reply<Appended>,
    _permit: OwnedSemaphorePermit,
}

impl AppendReply {
    pub(super) fn new(reply: Reply<Appended>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            reply,
            _permit: permit,
        }
    }

    pub(super) fn send(self, result: Result<Appended, StoreError>) {
        let _ = self.reply.send(result);
    }
}

/// What the store asks for.
pub(super) enum Request {
    Append(Append, SystemTime, AppendReply),
    Open(Name, Arc<Settings>, Reply<Opened>),
    Look(Name, Reply<Option<Opened>>),
    Remove(Name, Reply<bool>),
    List(String, Option<Name>, usize, Reply<Vec<Summary>>),
    Read(Name, MessageId),
    Watch(Name, bool),
    Sweep(SystemTime),
}

/// Figures that the store reads.
#[derive(Debug, Default)]
pub(super) struct LinkFigures {
    pub(super) boxes: AtomicUsize,
    pub(super) lost: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) idle_boxes: AtomicU64,
}

/// What outlives a connection.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) budget: Arc<Budget>,
    pub(super) requests: mpsc::UnboundedReceiver<Request>,
    pub(super) boxes: Boxes,
    pub(super) figures: Arc<LinkFigures>,
    /// Distinguishes this process from others.
    pub(super) process: String,
    /// The last messages that were read, which the server was not told yet.
    pub(super) reads: HashMap<Name, MessageId>,
    /// The sets whose boxes were used.
    pub(super) sets: BTreeSet<String>,
}

/// Asks the server until the store is dropped, and connects again when a connection ends.
pub(super) async fn run(mut link: Link) {
    let mut pause = PAUSE_MIN;
    loop {
        let connecting = Session::new(&link.client, &link.process);
        let reason = match time::timeout(CONNECT_TIME_MAX, connecting).await {
            Ok(Ok(session)) => {
                pause = PAUSE_MIN;
                match Serving::new(&mut link, session).run().await {
                    Some(reason) => reason,
                    None => return,
                }
            }
            Ok(Err(reason)) => reason,
            Err(_) => "the Redis server does not answer in time".to_owned(),
        };
        let error = StoreError::Unavailable(reason);
        let has_ended = time::timeout(pause, link.refuse(&error)).await.is_ok();
        if has_ended {
            return;
        }
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

impl Link {
    /// Answers all requests with an error. Ends when the store is dropped.
    async fn refuse(&mut self, error: &StoreError) {
        while let Some(request) = self.requests.recv().await {
            match request {
                Request::Append(_, _, reply) => reply.send(Err(error.clone())),
                Request::Open(_, _, reply) => drop(reply.send(Err(error.clone()))),
                Request::Look(_, reply) => drop(reply.send(Err(error.clone()))),
                Request::Remove(_, reply) => drop(reply.send(Err(error.clone()))),
                Request::List(_, _, _, reply) => drop(reply.send(Err(error.clone()))),
                Request::Read(name, last) => self.mark_read(name, last),
                Request::Watch(name, is_read) => {
                    self.boxes.set_watched(&name, is_read, Instant::now());
                }
                Request::Sweep(_) => {
                    self.boxes.sweep(Instant::now());
                }
            }
        }
    }

    /// Notes a message that was read, until the server is told.
    pub(super) fn mark_read(&mut self, name: Name, last: MessageId) {
        let noted = self.reads.entry(name).or_insert(last);
        *noted = last.max(*noted);
    }
}

impl LinkFigures {
    pub(super) fn add(figure: &AtomicU64, more: u64) {
        figure.fetch_add(more, Ordering::Relaxed);
    }
}
