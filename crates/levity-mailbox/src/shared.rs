//! Stores of which others do the work: tasks with connections to a server, or threads with a file.
//!
//! The store passes on what is asked, in its order, and gets changes back. What only reads has a queue of its own, so that it
//! need not wait behind what writes.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use levity_wire::mailbox::MessageId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time;

use crate::name::Name;
use crate::settings::Settings;
use crate::store::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Opened, Opening, Reading,
    Removing, Store, StoreError, Summary, Summing,
};

/// The maximum of messages that wait for the server to take them.
const APPENDS_MAX: usize = 4096;

/// The pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a call waits for those who do the work.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Keeps messages in a way of the kind `S`.
pub struct SharedStore<S> {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) reads: mpsc::UnboundedSender<Request>,
    /// Boxes with a pending call that a later `open` has to see, while somebody has the other reference.
    pending: HashMap<Name, Weak<()>>,
    changes: mpsc::UnboundedReceiver<Change>,
    /// One permit for each message that waits.
    permits: Arc<Semaphore>,
    figures: Arc<TaskFigures>,
    /// Dropped after the queues, whose end it may wait for.
    pub(crate) kind: S,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Where the result of an append goes. The permit is given back then.
pub(crate) struct AppendReply {
    reply: Reply<Appended>,
    _permit: OwnedSemaphorePermit,
}

impl AppendReply {
    pub(crate) fn send(self, result: Result<Appended, StoreError>) {
        let _ = self.reply.send(result);
    }
}

/// Dropped when a request is done.
pub(crate) type Pending = Arc<()>;

/// What the store asks for.
pub(crate) enum Request {
    Append(Append, SystemTime, AppendReply),
    Open(Name, Arc<Settings>, Reply<Opened>),
    Summary(Name, Reply<Option<Summary>>),
    ReadAfter(Name, Option<MessageId>, Limit, Reply<Option<Opened>>),
    Remove(Name, Reply<bool>, Pending),
    List(String, Option<Name>, usize, Reply<Vec<Summary>>),
    Read(Name, MessageId, Pending),
    Watch(Name, bool),
    Sweep(SystemTime),
}

/// Figures that the store reads.
#[derive(Debug, Default)]
pub(crate) struct TaskFigures {
    pub(crate) boxes: AtomicUsize,
    pub(crate) lost: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) idle_boxes: AtomicU64,
    /// Only [`Outage`] sets it.
    is_down: AtomicBool,
}

impl TaskFigures {
    pub(crate) fn add(figure: &AtomicU64, more: u64) {
        figure.fetch_add(more, Ordering::Relaxed);
    }
}

/// Whether those who do the work can do it. The begin and the end of an outage are reported once each, however many attempts fail
/// meanwhile.
pub(crate) struct Outage {
    since: Option<Instant>,
    figures: Arc<TaskFigures>,
    report: Box<dyn Fn(&str) + Send>,
}

impl Outage {
    /// There is none yet. `report` logs a line and must not block.
    pub(crate) fn new(figures: Arc<TaskFigures>, report: impl Fn(&str) + Send + 'static) -> Self {
        Self {
            since: None,
            figures,
            report: Box::new(report),
        }
    }

    /// The work cannot be done any more, or still not.
    pub(crate) fn begin(&mut self, reason: &str) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            self.figures.is_down.store(true, Ordering::Relaxed);
            (self.report)(&format!("the store is down: {reason}"));
        }
    }

    /// It can be done.
    pub(crate) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.figures.is_down.store(false, Ordering::Relaxed);
            (self.report)(&format!("the store is back after {:.1?}", since.elapsed()));
        }
    }
}

/// What the task is given.
pub(crate) struct Ends {
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    pub(crate) reads: mpsc::UnboundedReceiver<Request>,
    pub(crate) changes: mpsc::UnboundedSender<Change>,
    pub(crate) figures: Arc<TaskFigures>,
}

/// What connects to a server.
pub(crate) trait Connect: Send + 'static {
    /// Connections to the server.
    type Session: Send;

    /// Connects, or says why not.
    fn connect(&mut self) -> impl Future<Output = Result<Self::Session, String>> + Send;

    /// Serves requests until the store is dropped, or says why the connections have ended.
    fn serve(
        &mut self,
        session: Self::Session,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        reads: &mut mpsc::UnboundedReceiver<Request>,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Notes a request that has no reply while there is no connection.
    fn note(&mut self, request: Request);
}

/// Serves requests until the store is dropped, and connects again when the connections end.
pub(crate) async fn run(
    mut server: impl Connect,
    mut requests: mpsc::UnboundedReceiver<Request>,
    mut reads: mpsc::UnboundedReceiver<Request>,
    mut outage: Outage,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let ended = match server.connect().await {
            Ok(session) => {
                outage.end();
                pause = PAUSE_MIN;
                server.serve(session, &mut requests, &mut reads).await
            }
            Err(reason) => Err(reason),
        };
        let Err(reason) = ended else {
            return;
        };
        outage.begin(&reason);
        let error = StoreError::Unavailable(reason);
        let refusing = refuse(&mut server, &mut requests, &mut reads, &error);
        if time::timeout(pause, refusing).await.is_ok() {
            return;
        }
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Answers all requests with an error. Ends when the store is dropped.
async fn refuse(
    server: &mut impl Connect,
    requests: &mut mpsc::UnboundedReceiver<Request>,
    reads: &mut mpsc::UnboundedReceiver<Request>,
    error: &StoreError,
) {
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            read = reads.recv() => read,
        };
        let Some(request) = request else {
            return;
        };
        if let Some(other) = request.fail(error) {
            server.note(other);
        }
    }
}

impl Request {
    /// Answers it with an error; gives it back if it has no answer.
    pub(crate) fn fail(self, error: &StoreError) -> Option<Self> {
        match self {
            Self::Append(_, _, reply) => reply.send(Err(error.clone())),
            Self::Open(_, _, reply) => drop(reply.send(Err(error.clone()))),
            Self::Summary(_, reply) => drop(reply.send(Err(error.clone()))),
            Self::ReadAfter(_, _, _, reply) => drop(reply.send(Err(error.clone()))),
            Self::Remove(_, reply, _) => drop(reply.send(Err(error.clone()))),
            Self::List(_, _, _, reply) => drop(reply.send(Err(error.clone()))),
            other => return Some(other),
        }
        None
    }
}

impl<S> SharedStore<S> {
    /// A store, and what its task is given.
    pub(crate) fn with_ends(kind: S) -> (Self, Ends) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (reads_sender, reads) = mpsc::unbounded_channel();
        let (changes, receiver) = mpsc::unbounded_channel();
        let figures = Arc::<TaskFigures>::default();
        let store = Self {
            requests: sender,
            reads: reads_sender,
            pending: HashMap::new(),
            changes: receiver,
            permits: Arc::new(Semaphore::new(APPENDS_MAX)),
            figures: figures.clone(),
            kind,
        };
        let ends = Ends {
            requests,
            reads,
            changes,
            figures,
        };
        (store, ends)
    }

    fn is_pending(&self, name: &Name) -> bool {
        let pending = self.pending.get(name);
        pending.is_some_and(|pending| pending.strong_count() > 0)
    }

    fn pend(&mut self, name: &Name) -> Pending {
        let pending = Pending::default();
        self.pending.insert(name.clone(), Arc::downgrade(&pending));
        pending
    }
}

/// Passes a request on. The future ends with an error if those who do the work are gone, or take too long.
fn ask<T: 'static>(
    queue: &mpsc::UnboundedSender<Request>,
    request: impl FnOnce(Reply<T>) -> Request,
) -> Asking<T> {
    let (reply, answer) = oneshot::channel();
    let _ = queue.send(request(reply));
    Box::pin(answered(answer))
}

type Asking<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    let unavailable = |reason: &str| Err(StoreError::Unavailable(reason.to_owned()));
    match time::timeout(ANSWER_TIME_MAX, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => unavailable("the store has ended"),
        Err(_) => unavailable("the store does not answer in time"),
    }
}

/// What distinguishes the ways to keep messages.
pub(crate) trait Kind: 'static {
    /// Whether the queue of reads takes [`Request::Open`], too, unless the box has a [pending](Pending) call.
    const OPENS_BY_READING: bool;
}

impl<S: Kind> Store for SharedStore<S> {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, _: SystemTime) -> Opening {
        let queue = match S::OPENS_BY_READING && !self.is_pending(name) {
            true => &self.reads,
            false => &self.requests,
        };
        let (name, settings) = (name.clone(), settings.clone());
        ask(queue, move |reply| Request::Open(name, settings, reply))
    }

    fn summary(&mut self, name: &Name) -> Summing {
        let name = name.clone();
        ask(&self.reads, |reply| Request::Summary(name, reply))
    }

    fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Reading {
        let name = name.clone();
        ask(&self.reads, |reply| {
            Request::ReadAfter(name, after, limit, reply)
        })
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let mut answers = Vec::with_capacity(appends.len());
        for append in appends {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            let request = match self.permits.clone().try_acquire_owned() {
                Ok(permit) => Request::Append(
                    append,
                    now,
                    AppendReply {
                        reply,
                        _permit: permit,
                    },
                ),
                Err(_) => {
                    let reason = "too many messages wait for the server of the store";
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
        let (name, pending) = (name.clone(), self.pend(name));
        ask(&self.requests, |reply| {
            Request::Remove(name, reply, pending)
        })
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        let pending = self.pend(name);
        let _ = self
            .requests
            .send(Request::Read(name.clone(), last, pending));
    }

    fn watch(&mut self, name: &Name, is_read: bool, _: SystemTime) {
        let _ = self.requests.send(Request::Watch(name.clone(), is_read));
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        let (set, after) = (set.to_owned(), after.cloned());
        ask(&self.reads, |reply| {
            Request::List(set, after, count_max, reply)
        })
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
        self.pending.retain(|_, pending| pending.strong_count() > 0);
        let _ = self.requests.send(Request::Sweep(now));
    }

    fn figures(&self) -> Figures {
        Figures {
            boxes: self.figures.boxes.load(Ordering::Relaxed),
            lost: self.figures.lost.load(Ordering::Relaxed),
            expired: self.figures.expired.load(Ordering::Relaxed),
            idle_boxes: self.figures.idle_boxes.load(Ordering::Relaxed),
            is_down: self.figures.is_down.load(Ordering::Relaxed),
        }
    }
}
