//! The owner of boxes: the only one that asks the store for them.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Interval, MissedTickBehavior};

use crate::message::Message;
use crate::name::Name;
use crate::protocol::{Command, Event, Info, PublishError, Published};
use crate::settings::Settings;
use crate::store::{Append, Appended, Appending, Change, Opened, Store, StoreError, Summary};

/// The maximum of commands before the owner lets others run.
const COMMANDS_MAX: usize = 32;

/// The pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

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
}

/// Owns the boxes of a store: all of the process, or those of one event loop.
pub struct Owner<S> {
    store: S,
    /// Where changes are reported, by the number of the event loop.
    workers: Vec<mpsc::UnboundedSender<Event>>,
    /// Boxes with receivers.
    watched: HashMap<Name, Watched>,
    /// In the order of the calls: messages are reported in the order of their numbers.
    appending: VecDeque<Pending>,
    /// Everything else that the store was asked for.
    asked: FuturesUnordered<Pin<Box<dyn Future<Output = Answer>>>>,
    figures: Arc<OwnerFigures>,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// An answer of the store, and who waits for it.
enum Answer {
    Opened(Name, usize, Result<Opened, StoreError>),
    Looked(
        Name,
        Result<Option<Opened>, StoreError>,
        Reply<Option<Info>>,
    ),
    Removed(Name, Result<bool, StoreError>, Reply<bool>),
    Listed(
        Result<Vec<Summary>, StoreError>,
        Reply<Vec<(Summary, usize)>>,
    ),
}

struct Pending {
    names: Vec<Name>,
    appending: Appending,
    reply: oneshot::Sender<Vec<Result<Published, PublishError>>>,
}

struct Watched {
    settings: Arc<Settings>,
    /// Event loops with receivers, and the number of these.
    receivers: Vec<(usize, usize)>,
}

impl Watched {
    fn count(&self) -> usize {
        self.receivers.iter().map(|(_, receivers)| receivers).sum()
    }
}

impl<S: Store> Owner<S> {
    /// The owner of what `store` keeps. It reports changes to `workers`.
    pub fn new(
        store: S,
        workers: Vec<mpsc::UnboundedSender<Event>>,
        figures: Arc<OwnerFigures>,
    ) -> Self {
        Self {
            store,
            workers,
            watched: HashMap::new(),
            appending: VecDeque::new(),
            asked: FuturesUnordered::new(),
            figures,
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
            } => self.open(name, settings, worker, now),
            Command::Receivers {
                name,
                worker,
                receivers,
            } => self.set_receivers(&name, worker, receivers, now),
            Command::Read { name, last } => self.store.mark_read(&name, last),
            Command::Look { name, reply } => {
                let looking = self.store.look(&name);
                self.ask(async move { Answer::Looked(name, looking.await, reply) });
            }
            Command::Remove { name, reply } => {
                let removing = self.store.remove(&name);
                self.ask(async move { Answer::Removed(name, removing.await, reply) });
            }
            Command::List {
                set,
                after,
                count_max,
                reply,
            } => {
                let listing = self.store.list(&set, after.as_ref(), count_max);
                self.ask(async move { Answer::Listed(listing.await, reply) });
            }
        }
    }

    fn ask(&self, answer: impl Future<Output = Answer> + 'static) {
        self.asked.push(Box::pin(answer));
    }

    fn publish(
        &mut self,
        appends: Vec<Append>,
        reply: oneshot::Sender<Vec<Result<Published, PublishError>>>,
        now: SystemTime,
    ) {
        let names = appends.iter().map(|append| append.name.clone()).collect();
        let appending = self.store.append(appends, now);
        self.appending.push_back(Pending {
            names,
            appending,
            reply,
        });
    }

    fn open(&mut self, name: Name, settings: Arc<Settings>, worker: usize, now: SystemTime) {
        self.store.watch(&name, true, now);
        let opening = self.store.open(&name, &settings, now);
        let watched = self.watched.entry(name.clone()).or_insert_with(|| Watched {
            settings: settings.clone(),
            receivers: Vec::new(),
        });
        watched.settings = settings;
        let is_known = watched.receivers.iter().any(|(known, _)| *known == worker);
        if !is_known {
            watched.receivers.push((worker, 0));
        }
        self.ask(async move { Answer::Opened(name, worker, opening.await) });
    }

    fn set_receivers(&mut self, name: &Name, worker: usize, receivers: usize, now: SystemTime) {
        let Some(watched) = self.watched.get_mut(name) else {
            return;
        };
        let mut known = watched.receivers.iter_mut();
        if let Some((_, count)) = known.find(|(known, _)| *known == worker) {
            *count = receivers;
        }
        if receivers == 0 {
            watched.receivers.retain(|(known, _)| *known != worker);
        }
        if watched.receivers.is_empty() {
            self.watched.remove(name);
            self.store.watch(name, false, now);
        }
    }

    /// Reports to the event loops that receive from the box.
    fn report(&self, name: &Name, event: &Event) {
        let Some(watched) = self.watched.get(name) else {
            return;
        };
        for (worker, _) in &watched.receivers {
            // An error means that the loop has ended.
            let _ = self.workers[*worker].send(event.clone());
        }
    }

    fn receivers(&self, name: &Name) -> usize {
        self.watched.get(name).map_or(0, Watched::count)
    }

    /// Continues everything that is pending.
    pub fn poll(&mut self, context: &mut Context<'_>, now: SystemTime) {
        self.poll_appends(context);
        while let Poll::Ready(Some(answer)) = self.asked.poll_next_unpin(context) {
            self.answer(answer);
        }
        while let Poll::Ready(change) = self.store.poll_change(context) {
            self.change(change, now);
        }
    }

    fn poll_appends(&mut self, context: &mut Context<'_>) {
        while let Some(first) = self.appending.front_mut() {
            let Poll::Ready(results) = first.appending.as_mut().poll(context) else {
                return;
            };
            let ended = self.appending.pop_front().expect("there is one");
            let results = ended.names.into_iter().zip(results);
            let results = results.map(|(name, result)| self.appended(name, result));
            let _ = ended.reply.send(results.collect());
        }
    }

    fn answer(&self, answer: Answer) {
        match answer {
            Answer::Opened(name, worker, opened) => {
                let event = match opened {
                    Ok(opened) => Event::Opened { name, opened },
                    Err(error) => Event::Failed { name, error },
                };
                let _ = self.workers[worker].send(event);
            }
            Answer::Looked(name, found, reply) => {
                let receivers = self.receivers(&name);
                let info = |opened| Info { opened, receivers };
                let _ = reply.send(found.map(|found| found.map(info)));
            }
            Answer::Removed(name, removed, reply) => {
                if removed.is_ok() {
                    self.report(&name, &Event::Removed(name.clone()));
                }
                let _ = reply.send(removed);
            }
            Answer::Listed(listed, reply) => {
                let with_receivers = |summary: Summary| {
                    let receivers = self.receivers(&summary.name);
                    (summary, receivers)
                };
                let list = listed.map(|list| list.into_iter().map(with_receivers).collect());
                let _ = reply.send(list);
            }
        }
    }

    fn appended(
        &self,
        name: Name,
        result: Result<Appended, StoreError>,
    ) -> Result<Published, PublishError> {
        let figures = &self.figures;
        let receivers = self.receivers(&name);
        match result {
            Ok(Appended::New { message, lost }) => {
                figures.published.fetch_add(1, Ordering::Relaxed);
                let id = message.id;
                if !self.store.reports_appends() {
                    self.report_message(name, message, lost);
                }
                Ok(Published {
                    id,
                    receivers,
                    is_duplicate: false,
                })
            }
            Ok(Appended::Duplicate(id)) => {
                figures.duplicates.fetch_add(1, Ordering::Relaxed);
                Ok(Published {
                    id,
                    receivers,
                    is_duplicate: true,
                })
            }
            Err(error) => {
                figures.failed.fetch_add(1, Ordering::Relaxed);
                Err(PublishError::Store(error))
            }
        }
    }

    fn report_message(&self, name: Name, message: Message, lost: u64) {
        let event = Event::Appended {
            name: name.clone(),
            message,
            lost,
        };
        self.report(&name, &event);
    }

    /// Reports a change of another process.
    fn change(&mut self, change: Change, now: SystemTime) {
        match change {
            Change::Appended {
                name,
                message,
                lost,
            } => self.report_message(name, message, lost),
            Change::Removed(name) => self.report(&name, &Event::Removed(name.clone())),
            Change::Outdated(name) => {
                let Some(watched) = self.watched.get(&name) else {
                    return;
                };
                for (worker, _) in &watched.receivers {
                    let opening = self.store.open(&name, &watched.settings, now);
                    let (name, worker) = (name.clone(), *worker);
                    self.ask(async move { Answer::Opened(name, worker, opening.await) });
                }
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
    }

    /// Whether somebody waits for a change.
    fn is_busy(&self) -> bool {
        !self.appending.is_empty() || !self.asked.is_empty()
    }
}

/// Runs an owner until all senders of `commands` are gone and everything that was asked has ended.
pub async fn run<S: Store>(mut owner: Owner<S>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut ticks = time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_ended = false;
    poll_fn(|context| {
        let now = SystemTime::now();
        if poll_tick(&mut ticks, context) {
            owner.sweep(now);
        }
        let mut received = 0;
        while !has_ended && received < COMMANDS_MAX {
            match commands.poll_recv(context) {
                Poll::Ready(Some(command)) => owner.command(command, now),
                Poll::Ready(None) => has_ended = true,
                Poll::Pending => break,
            }
            received += 1;
        }
        if received == COMMANDS_MAX {
            context.waker().wake_by_ref();
        }
        owner.poll(context, now);
        match has_ended && !owner.is_busy() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

fn poll_tick(ticks: &mut Interval, context: &mut Context<'_>) -> bool {
    let mut is_due = false;
    while ticks.poll_tick(context).is_ready() {
        is_due = true;
    }
    is_due
}
