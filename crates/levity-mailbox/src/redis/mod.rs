//! The store on a Redis or Valkey server, which several processes share.
//!
//! The messages of a box are a stream whose ids are those of the messages. Beside it there are a hash with the state of the
//! box, the keys of publishers and the deadlines; all of them end together when the box is idle. Lua scripts change them, each
//! atomically, and publish each message to a channel of the box, on which the processes with receivers get them in one order.
//! What a process has missed it asks for by number. A reading command that waits for many streams (`XREAD BLOCK`) would have to
//! name all of them again after each message; subscriptions to channels are made once, and cost nothing while nobody publishes.
//!
//! # Loss
//! A server that restarts or fails over may have lost messages that it had acknowledged. A box knows which run of the server
//! has written it last, and what its next number was then; a process says what it knows of the box, and of which run. If the
//! box lacks what the process knows, it gets a new epoch, in which the messages that are left keep their numbers.
//!
//! # Durability
//! A message is acknowledged when the server has taken it. Whether it is on a disk or on a replica by then is a matter of the
//! server: `appendonly yes` with `appendfsync always` for a disk. The store does not wait for replicas (`WAIT`).

mod boxes;
mod link;
mod scripts;
mod serving;
mod session;

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;
use redis::{Client, IntoConnectionInfo, ProtocolVersion};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::boxes::Boxes;
use self::link::{AppendReply, Link, LinkFigures, Reply, Request};
use crate::budget::Budget;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{
    Append, Appending, Change, Figures, Listing, Looking, Opening, Removing, Store, StoreError,
    new_epoch,
};

/// The maximum of messages that wait for the server to take them.
const APPENDS_MAX: usize = 4096;

/// Keeps messages on a Redis or Valkey server, version 6.2 of Redis or later.
pub struct RedisStore {
    requests: mpsc::UnboundedSender<Request>,
    changes: mpsc::UnboundedReceiver<Change>,
    /// One permit for each message that waits.
    permits: Arc<Semaphore>,
    figures: Arc<LinkFigures>,
}

impl RedisStore {
    /// A store on the server at `url`: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` or `redis+unix:///PATH`. Messages that
    /// are read take memory of `budget`. The store connects by itself, now and after each failure; meanwhile it is
    /// [unavailable](StoreError::Unavailable).
    ///
    /// # Errors
    /// If the URL is wrong.
    ///
    /// # Panics
    /// If it is called outside a runtime of tokio.
    pub fn new(url: &str, budget: Arc<Budget>) -> Result<Self, String> {
        let client = client(url)?;
        let (requests, receiver) = mpsc::unbounded_channel();
        let (sender, changes) = mpsc::unbounded_channel();
        let figures = Arc::<LinkFigures>::default();
        let link = Link {
            client,
            budget,
            requests: receiver,
            boxes: Boxes::new(sender),
            figures: figures.clone(),
            process: new_epoch(SystemTime::now()).to_string(),
            reads: HashMap::new(),
            sets: BTreeSet::new(),
        };
        tokio::spawn(link::run(link));
        Ok(Self {
            requests,
            changes,
            permits: Arc::new(Semaphore::new(APPENDS_MAX)),
            figures,
        })
    }

    /// Asks the server. The future ends with an error if the task is gone.
    fn ask<T: 'static>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Asking<T> {
        let (reply, answer) = oneshot::channel();
        let _ = self.requests.send(request(reply));
        Box::pin(answered(answer))
    }
}

type Asking<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    let ended = |_| Err(StoreError::Unavailable("the store has ended".to_owned()));
    answer.await.unwrap_or_else(ended)
}

/// Checks the URL of a server, which is not connected to.
///
/// # Errors
/// What is wrong with it. The text does not have the password.
pub fn validate_url(url: &str) -> Result<(), String> {
    client(url).map(drop)
}

fn client(url: &str) -> Result<Client, String> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => {}
        "rediss" | "valkeys" => return Err("connections with TLS are not supported".to_owned()),
        _ => return Err("the URL has to begin with redis:// or redis+unix://".to_owned()),
    }
    let wrong = |error: redis::RedisError| error.to_string();
    let info = url.into_connection_info().map_err(wrong)?;
    let settings = info.redis_settings().clone();
    // With it, a connection can do more than receive what comes through channels.
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings)).map_err(wrong)
}

impl Store for RedisStore {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, _: SystemTime) -> Opening {
        let (name, settings) = (name.clone(), settings.clone());
        self.ask(move |reply| Request::Open(name, settings, reply))
    }

    fn look(&mut self, name: &Name) -> Looking {
        let name = name.clone();
        self.ask(move |reply| Request::Look(name, reply))
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let mut answers = Vec::with_capacity(appends.len());
        for append in appends {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            let request = match self.permits.clone().try_acquire_owned() {
                Ok(permit) => Request::Append(append, now, AppendReply::new(reply, permit)),
                Err(_) => {
                    let reason = "too many messages wait for the Redis server";
                    let _ = reply.send(Err(StoreError::Unavailable(reason.to_owned())));
                    continue;
                }
            };
            let _ = self.requests.send(request);
        }
        Box::pin(async move {
            let mut results = Vec::with_capacity(answers.len());
            for answer in answers {
                results.push(answered(answer).await);
            }
            results
        })
    }

    fn remove(&mut self, name: &Name) -> Removing {
        let name = name.clone();
        self.ask(move |reply| Request::Remove(name, reply))
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        let _ = self.requests.send(Request::Read(name.clone(), last));
    }

    fn watch(&mut self, name: &Name, is_read: bool, _: SystemTime) {
        let _ = self.requests.send(Request::Watch(name.clone(), is_read));
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        let (set, after) = (set.to_owned(), after.cloned());
        self.ask(move |reply| Request::List(set, after, count_max, reply))
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        match ready!(self.changes.poll_recv(context)) {
            Some(change) => Poll::Ready(change),
            // The task has ended.
            None => Poll::Pending,
        }
    }

    fn reports_appends(&self) -> bool {
        true
    }

    fn sweep(&mut self, now: SystemTime) {
        let _ = self.requests.send(Request::Sweep(now));
    }

    fn figures(&self) -> Figures {
        Figures {
            boxes: self.figures.boxes.load(Ordering::Relaxed),
            lost: self.figures.lost.load(Ordering::Relaxed),
            expired: self.figures.expired.load(Ordering::Relaxed),
            idle_boxes: self.figures.idle_boxes.load(Ordering::Relaxed),
        }
    }
}
