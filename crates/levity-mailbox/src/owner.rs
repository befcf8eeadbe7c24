//! The owner of boxes: the only one that asks the store for them.

mod appends;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use levity_wire::mailbox::MessageId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Interval, MissedTickBehavior};

use self::appends::Appends;
use crate::by_name::ByName;
use crate::clock::{follow_wall, steady_time};
use crate::copies::Copies;
use crate::name::Name;
use crate::protocol::{BoxEvent, Command, Delivery, EventKind, Info, Progress, Published};
use crate::settings::Settings;
use crate::store::{Append, Appended, Change, Store, StoreError, Summary};
use crate::stream_state::Refused;

/// The maximum number of commands before the owner lets others run.
pub(crate) const COMMANDS_MAX: usize = 32;

/// The maximum number of answers and changes of the store before the owner lets others run.
const STEPS_MAX: usize = 128;

/// The pause between two sweeps.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Figures of an owner, for other threads.
#[derive(Debug, Default)]
pub struct OwnerFigures {
    /// Boxes that the store knows.
    pub boxes: AtomicUsize,
    /// Boxes with a receiver in this process.
    pub watched: AtomicUsize,
    /// Messages that boxes have got.
    pub published: AtomicU64,
    /// Messages that boxes had already.
    pub duplicates: AtomicU64,
    /// Messages that the store did not take.
    pub failed: AtomicU64,
    /// Messages that were dropped because of a bound.
    pub lost: AtomicU64,
    /// Messages whose time was over.
    pub expired: AtomicU64,
    /// Boxes that were removed because they were idle.
    pub idle_boxes: AtomicU64,
    /// The store can do nothing at the moment.
    pub is_down: AtomicBool,
}

/// Where the changes for an event loop are reported.
pub enum Reports {
    /// To the event loop that runs the owner: at once.
    Here(Weak<Copies>),
    /// To another one.
    Queue(mpsc::UnboundedSender<BoxEvent>),
}

impl Reports {
    fn report(&self, event: BoxEvent, now: SystemTime) {
        match self {
            Self::Here(copies) => {
                if let Some(copies) = copies.upgrade() {
                    copies.apply(event, now);
                }
            }
            // An error means that the loop has ended.
            Self::Queue(queue) => drop(queue.send(event)),
        }
    }
}

/// Owns the boxes of a store: all of the process, or those of one event loop.
pub struct Owner<S> {
    store: S,
    /// Where changes are reported, by the number of the event loop.
    workers: Vec<Reports>,
    /// Boxes with receivers.
    watched: ByName<Watched>,
    /// Messages of a box are reported in the order of their numbers.
    appends: Appends,
    /// Everything else that the store was asked for.
    asked: FuturesUnordered<Pin<Box<dyn Future<Output = Continuation<S>>>>>,
    figures: Arc<OwnerFigures>,
    /// Nothing more is asked.
    is_ending: bool,
}

/// What follows an answer of the store.
type Continuation<S> = Box<dyn FnOnce(&Owner<S>, SystemTime)>;

type Replies = oneshot::Sender<Vec<Delivery>>;

/// A copy of a box.
#[derive(Debug, Clone, Copy)]
struct CopyAt {
    /// The number of the event loop.
    worker: usize,
    /// The number that the event loop has given it.
    copy: u64,
}

struct Watched {
    settings: Arc<Settings>,
    /// The copies, at most one of each event loop, and the numbers of their receivers.
    copies: Vec<(CopyAt, usize)>,
    /// As in [`Progress`].
    taken: Option<u64>,
    /// Who waits for progress, and what it knows.
    follower: Option<(Option<Progress>, oneshot::Sender<Progress>)>,
}

impl Watched {
    fn copies(&self) -> Vec<CopyAt> {
        self.copies.iter().map(|(copy, _)| *copy).collect()
    }

    fn receivers(&self) -> usize {
        self.copies.iter().map(|(_, receivers)| receivers).sum()
    }

    /// Answers who waits for progress, if there is some.
    fn report_progress(&mut self) {
        let progress = Progress {
            receivers: self.receivers(),
            taken: self.taken,
        };
        let is_new = |(known, _): &mut (Option<Progress>, _)| *known != Some(progress);
        if let Some((_, reply)) = self.follower.take_if(is_new) {
            let _ = reply.send(progress);
        }
    }
}

impl<S: Store> Owner<S> {
    /// The owner of what `store` keeps. It reports changes to `workers`.
    pub fn new(store: S, workers: Vec<Reports>, figures: Arc<OwnerFigures>) -> Self {
        Self {
            store,
            workers,
            watched: ByName::default(),
            appends: Appends::default(),
            asked: FuturesUnordered::new(),
            figures,
            is_ending: false,
        }
    }

    /// Begins what `command` asks for.
    pub fn command(&mut self, command: Command, now: SystemTime) {
        match command {
            Command::Publish { appends, reply } => self.publish(appends, reply, now),
            Command::Open {
                name,
                settings,
                worker,
                copy,
            } => self.open(name, settings, CopyAt { worker, copy }, now),
            Command::Receivers {
                name,
                worker,
                receivers,
            } => self.set_receivers(&name, worker, receivers, now),
            Command::Read { name, worker, last } => self.mark_read(&name, worker, last, now),
            Command::Use { name } => {
                let is_watched = self.watched.get(&name).is_some();
                self.store.watch(&name, is_watched, now);
            }
            Command::Progress { name, known, reply } => {
                if let Some(watched) = self.watched.get_mut(&name) {
                    watched.follower = Some((known, reply));
                    watched.report_progress();
                }
            }
            Command::Summary { name, reply } => {
                let summing = self.store.summary(&name);
                self.ask(summing, |owner, found, _| {
                    let found = found.map(|found| found.map(|summary| owner.info(summary)));
                    let _ = reply.send(found);
                });
            }
            Command::ReadAfter {
                name,
                after,
                limit,
                reply,
            } => {
                let reading = self.store.read(&name, after, limit);
                self.ask(reading, |_, found, _| drop(reply.send(found)));
            }
            Command::Remove { name, epoch, reply } => self.remove(name, epoch, reply),
            Command::List {
                set,
                after,
                count_max,
                reply,
            } => {
                let listing = self.store.list(&set, after.as_ref(), count_max);
                self.ask(listing, |owner, listed, _| {
                    let infos =
                        |list: Vec<_>| list.into_iter().map(|one| owner.info(one)).collect();
                    let _ = reply.send(listed.map(infos));
                });
            }
            Command::End => self.is_ending = true,
        }
    }

    /// Continues with what the store answers.
    fn ask<T: 'static>(
        &self,
        asking: impl Future<Output = T> + 'static,
        then: impl FnOnce(&Self, T, SystemTime) + 'static,
    ) {
        self.asked.push(Box::pin(async move {
            let answer = asking.await;
            Box::new(move |owner: &Self, now| then(owner, answer, now)) as Continuation<S>
        }));
    }

    fn publish(&mut self, appends: Vec<Append>, reply: Replies, now: SystemTime) {
        let names = appends.iter().map(|append| append.name.clone()).collect();
        let appending = self.store.append(appends, now);
        self.appends.push(names, appending, reply);
    }

    fn open(&mut self, name: Name, settings: Arc<Settings>, opened: CopyAt, now: SystemTime) {
        self.store.watch(&name, true, now);
        let opening = self.store.open(&name, &settings, now);
        let watched = self.watched.get_or_insert_with(&name, || Watched {
            settings: settings.clone(),
            copies: Vec::new(),
            taken: None,
            follower: None,
        });
        watched.settings = settings;
        let known = &mut watched.copies;
        known.retain(|(copy, _)| copy.worker != opened.worker);
        known.push((opened, 0));
        self.ask(opening, move |owner, answer, now| {
            let kind = answer.map_or_else(EventKind::Failed, EventKind::Opened);
            owner.report(&name, [opened], &kind, now);
        });
    }

    fn remove(
        &mut self,
        name: Name,
        epoch: Option<u64>,
        reply: oneshot::Sender<Result<bool, StoreError>>,
    ) {
        let removing = self.store.remove(&name, epoch);
        // A copy that is opened from now on is one of the next life.
        let copies = self.copies_of(&name);
        self.ask(removing, move |owner, removed, now| {
            if removed == Ok(true) {
                owner.report(&name, copies, &EventKind::Removed, now);
            }
            let _ = reply.send(removed);
        });
    }

    fn set_receivers(&mut self, name: &Name, worker: usize, receivers: usize, now: SystemTime) {
        let Some(watched) = self.watched.get_mut(name) else {
            return;
        };
        let mut known = watched.copies.iter_mut();
        if let Some((_, count)) = known.find(|(copy, _)| copy.worker == worker) {
            if receivers > *count {
                // The new one may be behind.
                watched.taken = None;
            }
            *count = receivers;
        }
        if receivers == 0 {
            watched.copies.retain(|(copy, _)| copy.worker != worker);
        }
        if watched.copies.is_empty() {
            self.watched.remove(name);
            self.store.watch(name, false, now);
        } else {
            watched.report_progress();
        }
    }

    fn mark_read(&mut self, name: &Name, worker: usize, last: MessageId, now: SystemTime) {
        self.store.mark_read(name, last);
        if let Some(watched) = self.watched.get_mut(name) {
            watched.taken = Some(last.sequence);
            watched.report_progress();
        }
        let copies = self.copies_of(name).into_iter();
        let others = copies.filter(|copy| copy.worker != worker);
        self.report(name, others, &EventKind::Read(last), now);
    }

    fn copies_of(&self, name: &Name) -> Vec<CopyAt> {
        self.watched
            .get(name)
            .map_or_else(Vec::new, Watched::copies)
    }

    fn receivers(&self, name: &Name) -> usize {
        self.watched.get(name).map_or(0, Watched::receivers)
    }

    fn report(
        &self,
        name: &Name,
        copies: impl IntoIterator<Item = CopyAt>,
        kind: &EventKind,
        now: SystemTime,
    ) {
        for CopyAt { worker, copy } in copies {
            let event = BoxEvent {
                name: name.clone(),
                copy,
                kind: kind.clone(),
            };
            self.workers[worker].report(event, now);
        }
    }

    /// Reports to the event loops that receive from the box.
    fn report_to_all(&self, name: &Name, kind: &EventKind, now: SystemTime) {
        if let Some(watched) = self.watched.get(name) {
            let copies = watched.copies.iter().map(|(copy, _)| *copy);
            self.report(name, copies, kind, now);
        }
    }

    /// Continues what is pending, a bounded part at a time.
    pub fn poll(&mut self, context: &mut Context<'_>, now: SystemTime) {
        for _ in 0..STEPS_MAX {
            if self.poll_step(context, now).is_pending() {
                return;
            }
        }
        context.waker().wake_by_ref();
    }

    fn poll_step(&mut self, context: &mut Context<'_>, now: SystemTime) -> Poll<()> {
        // Changes that the store noted before an append has ended come before its result.
        if let Poll::Ready(change) = self.store.poll_change(context) {
            self.change(change, now);
        } else if let Some(ended) = self.appends.take() {
            let results = ended.results.into_iter().flatten();
            let results = ended.names.into_iter().zip(results);
            let deliveries = results.map(|(name, result)| {
                let result = self.appended(&name, result, now);
                (name, result)
            });
            let _ = ended.reply.send(deliveries.collect());
        } else if self.appends.poll_end(context).is_pending() {
            let Poll::Ready(Some(then)) = self.asked.poll_next_unpin(context) else {
                return Poll::Pending;
            };
            then(self, now);
        }
        Poll::Ready(())
    }

    fn info(&self, summary: Summary) -> Info {
        let receivers = self.receivers(&summary.name);
        Info { summary, receivers }
    }

    fn appended(
        &self,
        name: &Name,
        result: Result<Appended, StoreError>,
        now: SystemTime,
    ) -> Result<Published, StoreError> {
        let figures = &self.figures;
        let receivers = self.receivers(name);
        let count = |figure: &AtomicU64| figure.fetch_add(1, Ordering::Relaxed);
        let (id, is_duplicate) = match result {
            Ok(Appended::New { message, lost }) => {
                count(&figures.published);
                let id = message.id;
                if !self.store.reports_appends() {
                    let kind = EventKind::Appended { message, lost };
                    self.report_to_all(name, &kind, now);
                }
                (id, false)
            }
            Ok(Appended::Duplicate(id)) => {
                count(&figures.duplicates);
                (id, true)
            }
            Err(error) => {
                match &error {
                    StoreError::Refused(Refused::Duplicate(_)) => count(&figures.duplicates),
                    StoreError::Refused(_) => 0,
                    _ => count(&figures.failed),
                };
                return Err(error);
            }
        };
        Ok(Published {
            id,
            receivers,
            is_duplicate,
        })
    }

    /// Reports a change of another process.
    fn change(&mut self, change: Change, now: SystemTime) {
        match change {
            Change::Appended {
                name,
                message,
                lost,
            } => self.report_to_all(&name, &EventKind::Appended { message, lost }, now),
            Change::Removed(name) => self.report_to_all(&name, &EventKind::Removed, now),
            Change::Outdated(name) => {
                let Some(watched) = self.watched.get(&name) else {
                    return;
                };
                let copies = watched.copies();
                let opening = self.store.open(&name, &watched.settings, now);
                self.report_to_all(&name, &EventKind::Outdated, now);
                self.ask(opening, move |owner, opened, now| {
                    let kind = opened.map_or_else(EventKind::Failed, EventKind::Updated);
                    owner.report(&name, copies, &kind, now);
                });
            }
        }
    }

    /// Has the store drop what has expired, and publishes figures.
    pub fn sweep(&mut self, now: SystemTime) {
        self.store.sweep(now);
        let of_store = self.store.figures();
        let figures = &self.figures;
        figures.boxes.store(of_store.boxes, Ordering::Relaxed);
        figures.watched.store(self.watched.len(), Ordering::Relaxed);
        figures.lost.store(of_store.lost, Ordering::Relaxed);
        figures.expired.store(of_store.expired, Ordering::Relaxed);
        figures
            .idle_boxes
            .store(of_store.idle_boxes, Ordering::Relaxed);
        figures.is_down.store(of_store.is_down, Ordering::Relaxed);
    }

    /// Whether somebody waits for a change.
    fn is_busy(&self) -> bool {
        !self.appends.is_empty() || !self.asked.is_empty()
    }
}

/// Runs an owner until [`Command::End`], or until all senders of `commands` are gone, and everything that was asked has ended.
pub async fn run<S: Store>(mut owner: Owner<S>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut ticks = time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    poll_fn(|context| {
        let now = steady_time(Instant::now());
        if poll_tick(&mut ticks, context) {
            owner.sweep(now);
        }
        let mut received = 0;
        while !owner.is_ending && received < COMMANDS_MAX {
            match commands.poll_recv(context) {
                Poll::Ready(Some(command)) => owner.command(command, now),
                Poll::Ready(None) => owner.is_ending = true,
                Poll::Pending => break,
            }
            received += 1;
        }
        if received == COMMANDS_MAX {
            context.waker().wake_by_ref();
        }
        owner.poll(context, now);
        match owner.is_ending && !owner.is_busy() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Whether a sweep is due. If so, the clock has followed that on the wall.
pub(crate) fn poll_tick(ticks: &mut Interval, context: &mut Context<'_>) -> bool {
    let mut is_due = false;
    while ticks.poll_tick(context).is_ready() {
        is_due = true;
    }
    if is_due {
        follow_wall();
    }
    is_due
}

#[cfg(test)]
mod tests;
