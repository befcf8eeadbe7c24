//! Stores of which others do the work: tasks with connections to a server, or threads with a file.
//!
//! The store passes on what is asked, in its order, and gets changes back. What only reads has a queue of its own, so that it
//! need not wait behind what writes.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use levity_wire::mailbox::MessageId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time;

use crate::locked::Locked;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Opened, Opening, Reading,
    Removing, Store, StoreError, Summary, Summing,
};

/// The maximum number of messages that wait to be taken, and of other questions that wait for an answer.
const WAITING_MAX: usize = 4096;

/// How long a call waits for those who do the work.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Keeps messages in the way of `S`.
pub struct SharedStore<S> {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) reads: mpsc::UnboundedSender<Request>,
    /// Boxes that are being removed, while somebody has the other reference: a later `open` has to be of the next life.
    removing: HashMap<Name, Weak<()>>,
    /// What was read last of boxes of which that is not written yet, as above.
    reading: HashMap<Name, (MessageId, Weak<()>)>,
    /// How many messages were appended to a box since the calls of `open` that have not ended.
    opening: HashMap<Name, Vec<Weak<AtomicU64>>>,
    /// Only of a kind that opens by reading.
    watched: Watched,
    changes: mpsc::UnboundedReceiver<Change>,
    /// One permit for each message that waits.
    appends: Arc<Semaphore>,
    /// One for each other question.
    questions: Arc<Semaphore>,
    figures: Arc<Locked<Figures>>,
    /// Whether the queue of reads takes [`Request::Open`], too, unless the box is being removed.
    opens_by_reading: bool,
    /// Dropped after the queues, whose end it may wait for.
    pub(crate) kind: S,
}

/// Where a result goes. The permit is given back then.
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    pub(crate) fn send(self, result: Result<T, StoreError>) {
        // An error means that nobody waits any more.
        let _ = self.sender.send(result);
    }

    /// Whether nobody waits for the result.
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Dropped when a request is done.
pub(crate) type Pending = Arc<()>;

/// Boxes with receivers in this process. A receiver is noted before the request to open its box is sent, so whoever has changed
/// a box, and then asks whether it is watched, reports the change or is seen by the reader.
#[derive(Clone, Default)]
pub(crate) struct Watched(Arc<Locked<HashMap<Name, bool>>>);

impl Watched {
    fn set(&self, name: &Name, is_read: bool) {
        let mut names = self.0.lock();
        match (is_read, names.get_mut(name)) {
            (true, _) => drop(names.insert(name.clone(), true)),
            // What was asked before still is of a box with a receiver.
            (false, Some(is_watched)) => *is_watched = false,
            (false, None) => {}
        }
    }

    /// The request that says so has come: the last receiver has left, unless there is another one by now.
    pub(crate) fn end(&self, name: &Name) {
        let mut names = self.0.lock();
        if names.get(name) == Some(&false) {
            names.remove(name);
        }
    }

    pub(crate) fn contains(&self, name: &Name) -> bool {
        self.0.lock().contains_key(name)
    }

    pub(crate) fn all(&self) -> Vec<Name> {
        self.0.lock().keys().cloned().collect()
    }
}

/// What the store asks for.
pub(crate) enum Request {
    Append(Append, SystemTime, Reply<Appended>),
    Open(Name, Arc<Settings>, Reply<Opened>),
    Summary(Name, Reply<Option<Summary>>),
    ReadAfter(Name, Option<MessageId>, Limit, Reply<Option<Opened>>),
    Remove(Name, Option<u64>, Reply<bool>, Pending),
    List(String, Option<Name>, usize, Reply<Vec<Summary>>),
    Read(Name, MessageId, Pending),
    Watch(Name, bool),
    Sweep(SystemTime),
}

/// Whether those who do the work can do it. The begin and the end of an outage are reported once each, however many attempts fail
/// meanwhile.
pub(crate) struct Outage {
    since: Option<Instant>,
    /// Something was refused since it began to work.
    has_refused: bool,
    figures: Arc<Locked<Figures>>,
    report: Box<dyn Fn(&str) + Send>,
}

impl Outage {
    /// There is none yet. `report` logs a line and must not block.
    pub(crate) fn new(
        figures: Arc<Locked<Figures>>,
        report: impl Fn(&str) + Send + 'static,
    ) -> Self {
        Self {
            since: None,
            has_refused: false,
            figures,
            report: Box::new(report),
        }
    }

    /// The work cannot be done any more, or still not.
    pub(crate) fn begin(&mut self, reason: &str) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            self.figures.lock().is_down = true;
            (self.report)(&format!("the store is down: {reason}"));
        }
    }

    /// Something is refused, but the work goes on. Only the first time is reported.
    #[cfg(feature = "redis")]
    pub(crate) fn refused(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_refused, true) {
            (self.report)(&format!("the store refuses something: {reason}"));
        }
    }

    /// It can be done.
    pub(crate) fn end(&mut self) {
        self.has_refused = false;
        if let Some(since) = self.since.take() {
            self.figures.lock().is_down = false;
            (self.report)(&format!("the store is back after {:.1?}", since.elapsed()));
        }
    }
}

/// What the task is given.
pub(crate) struct Ends {
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    pub(crate) reads: mpsc::UnboundedReceiver<Request>,
    pub(crate) changes: mpsc::UnboundedSender<Change>,
    pub(crate) figures: Arc<Locked<Figures>>,
    pub(crate) watched: Watched,
}

impl Request {
    /// Whether nobody waits for what was read of a box.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Open(.., reply) => reply.is_closed(),
            Self::ReadAfter(.., reply) => reply.is_closed(),
            _ => false,
        }
    }

    /// Answers it with an error; gives it back if it has no answer.
    pub(crate) fn fail(self, error: &StoreError) -> Option<Self> {
        match self {
            Self::Append(_, _, reply) => reply.send(Err(error.clone())),
            Self::Open(_, _, reply) => reply.send(Err(error.clone())),
            Self::Summary(_, reply) => reply.send(Err(error.clone())),
            Self::ReadAfter(_, _, _, reply) => reply.send(Err(error.clone())),
            Self::Remove(_, _, reply, _) => reply.send(Err(error.clone())),
            Self::List(_, _, _, reply) => reply.send(Err(error.clone())),
            other => return Some(other),
        }
        None
    }
}

impl<S> SharedStore<S> {
    /// A store, and what its task is given.
    pub(crate) fn with_ends(kind: S, opens_by_reading: bool) -> (Self, Ends) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (reads_sender, reads) = mpsc::unbounded_channel();
        let (changes, receiver) = mpsc::unbounded_channel();
        let (figures, watched) = (Arc::<Locked<Figures>>::default(), Watched::default());
        let store = Self {
            requests: sender,
            reads: reads_sender,
            removing: HashMap::new(),
            reading: HashMap::new(),
            opening: HashMap::new(),
            watched: watched.clone(),
            changes: receiver,
            appends: Arc::new(Semaphore::new(WAITING_MAX)),
            questions: Arc::new(Semaphore::new(WAITING_MAX)),
            figures: figures.clone(),
            opens_by_reading,
            kind,
        };
        let ends = Ends {
            requests,
            reads,
            changes,
            figures,
            watched,
        };
        (store, ends)
    }

    fn is_removing(&self, name: &Name) -> bool {
        let removing = self.removing.get(name);
        removing.is_some_and(|removing| removing.strong_count() > 0)
    }

    /// What was read of a box, unless it is written.
    fn last_read(&self, name: &Name) -> Option<MessageId> {
        let (last, pending) = self.reading.get(name)?;
        (pending.strong_count() > 0).then_some(*last)
    }

    /// Passes a question on. The future ends with an error if those who do the work are gone, or take too long.
    fn ask<T: 'static>(
        &self,
        queue: &mpsc::UnboundedSender<Request>,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Asking<T> {
        match waiting(&self.questions) {
            Ok((reply, answer)) => {
                let _ = queue.send(request(reply));
                Box::pin(async { answered(answer, answer_end()).await })
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Where a result goes, and where it comes from.
type Waiting<T> = (Reply<T>, oneshot::Receiver<Result<T, StoreError>>);

fn waiting<T>(permits: &Arc<Semaphore>) -> Result<Waiting<T>, StoreError> {
    let too_many = |_| StoreError::Unavailable("too much waits for the store".to_owned());
    let permit = permits.clone().try_acquire_owned().map_err(too_many)?;
    let (sender, answer) = oneshot::channel();
    let reply = Reply {
        sender,
        _permit: permit,
    };
    Ok((reply, answer))
}

type Asking<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

fn answer_end() -> time::Instant {
    time::Instant::now() + ANSWER_TIME_MAX
}

async fn answered<T>(
    answer: oneshot::Receiver<Result<T, StoreError>>,
    end: time::Instant,
) -> Result<T, StoreError> {
    let unavailable = |reason: &str| Err(StoreError::Unavailable(reason.to_owned()));
    match time::timeout_at(end, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => unavailable("the store has ended"),
        Err(_) => unavailable("the store does not answer in time"),
    }
}

impl<S: 'static> Store for SharedStore<S> {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, _: SystemTime) -> Opening {
        let queue = match self.opens_by_reading && !self.is_removing(name) {
            true => &self.reads,
            false => &self.requests,
        };
        let request = |reply| Request::Open(name.clone(), settings.clone(), reply);
        // In this order: what is not pending any more is there when the box is read.
        let last_read = self.last_read(name);
        let asking = self.ask(queue, request);
        let since = Arc::new(AtomicU64::new(0));
        let opening = self.opening.entry(name.clone()).or_default();
        opening.push(Arc::downgrade(&since));
        Box::pin(async move {
            let mut opened = asking.await?;
            let first = opened.next.saturating_sub(since.load(Ordering::Relaxed));
            opened.first = first.max(opened.lost);
            if let Some(last) = last_read.filter(|last| last.epoch == opened.epoch) {
                opened.read = opened
                    .read
                    .max(last.sequence.saturating_add(1).min(opened.next));
            }
            Ok(opened)
        })
    }

    fn summary(&mut self, name: &Name) -> Summing {
        self.ask(&self.reads, |reply| Request::Summary(name.clone(), reply))
    }

    fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Reading {
        self.ask(&self.reads, |reply| {
            Request::ReadAfter(name.clone(), after, limit, reply)
        })
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let mut answers = Vec::with_capacity(appends.len());
        for append in appends {
            let opening = self.opening.get(&append.name).into_iter().flatten();
            for since in opening.filter_map(Weak::upgrade) {
                since.fetch_add(1, Ordering::Relaxed);
            }
            answers.push(waiting(&self.appends).map(|(reply, answer)| {
                let _ = self.requests.send(Request::Append(append, now, reply));
                answer
            }));
        }
        Box::pin(async move {
            // One for all of them.
            let end = answer_end();
            let mut results = Vec::with_capacity(answers.len());
            for answer in answers {
                results.push(match answer {
                    Ok(answer) => answered(answer, end).await,
                    Err(error) => Err(error),
                });
            }
            results
        })
    }

    fn remove(&mut self, name: &Name, epoch: Option<u64>) -> Removing {
        let removing = Pending::default();
        self.removing
            .insert(name.clone(), Arc::downgrade(&removing));
        self.ask(&self.requests, |reply| {
            Request::Remove(name.clone(), epoch, reply, removing)
        })
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        let pending = Pending::default();
        let highest = self.last_read(name).map_or(last, |known| known.max(last));
        let reading = (highest, Arc::downgrade(&pending));
        self.reading.insert(name.clone(), reading);
        let request = Request::Read(name.clone(), last, pending);
        let _ = self.requests.send(request);
    }

    fn watch(&mut self, name: &Name, is_read: bool, _: SystemTime) {
        if self.opens_by_reading {
            self.watched.set(name, is_read);
        }
        let _ = self.requests.send(Request::Watch(name.clone(), is_read));
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        self.ask(&self.reads, |reply| {
            Request::List(set.to_owned(), after.cloned(), count_max, reply)
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
        self.removing
            .retain(|_, removing| removing.strong_count() > 0);
        self.reading
            .retain(|_, (_, pending)| pending.strong_count() > 0);
        self.opening.retain(|_, opening| {
            opening.retain(|since| since.strong_count() > 0);
            !opening.is_empty()
        });
        let _ = self.requests.send(Request::Sweep(now));
    }

    fn figures(&self) -> Figures {
        *self.figures.lock()
    }
}
