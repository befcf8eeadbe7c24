//! The mailboxes of one event loop.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use levity_mailbox::memory::MemoryStore;
use levity_mailbox::{
    Command, Copies, Event, Owner, OwnerFigures, Reports, new_epoch, run, steady_time,
};
use tokio::sync::mpsc;
use tokio::task;

/// The maximum of events that are applied before others run.
const EVENTS_MAX: usize = 64;

/// What one event loop needs for mailboxes.
pub struct LocalParts {
    /// The number of the event loop.
    pub worker: usize,
    /// All owners of the process.
    pub owners: Vec<mpsc::UnboundedSender<Command>>,
    /// The changes that owners report.
    pub events: mpsc::UnboundedReceiver<Event>,
    /// The owner that runs on this loop, where messages are kept in memory.
    pub own: Option<OwnParts>,
}

/// An owner of boxes in memory.
pub struct OwnParts {
    /// What it is asked for.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// Where it reports changes, by the number of the event loop.
    pub workers: Vec<mpsc::UnboundedSender<Event>>,
    /// What it counts.
    pub figures: Arc<OwnerFigures>,
}

impl LocalParts {
    /// For an event loop that is the only one.
    pub fn single() -> Self {
        let (owner, commands) = mpsc::unbounded_channel();
        let (reports, events) = mpsc::unbounded_channel();
        Self {
            worker: 0,
            owners: vec![owner],
            events,
            own: Some(OwnParts {
                commands,
                workers: vec![reports],
                figures: Arc::default(),
            }),
        }
    }

    /// The copies of the event loop, and the tasks that keep them up to date.
    pub fn split(self) -> (Rc<Copies>, Upkeep) {
        let copies = Rc::new(Copies::new(self.worker, self.owners));
        let upkeep = Upkeep {
            worker: self.worker,
            copies: copies.clone(),
            events: self.events,
            own: self.own,
        };
        (copies, upkeep)
    }
}

/// The tasks of mailboxes at an event loop.
pub struct Upkeep {
    worker: usize,
    copies: Rc<Copies>,
    events: mpsc::UnboundedReceiver<Event>,
    own: Option<OwnParts>,
}

impl Upkeep {
    /// Starts the tasks on the event loop that runs this.
    pub async fn run(self) {
        if let Some(own) = self.own {
            let store = MemoryStore::new(new_epoch(SystemTime::now()));
            let mut reports: Vec<_> = own.workers.into_iter().map(Reports::Queue).collect();
            reports[self.worker] = Reports::Here(Rc::downgrade(&self.copies));
            let owner = Owner::new(store, reports, own.figures);
            task::spawn_local(run(owner, own.commands));
        }
        let waking = self.copies.clone();
        task::spawn_local(async move { waking.wake_receivers().await });
        apply_events(&self.copies, self.events).await;
    }
}

async fn apply_events(copies: &Copies, mut events: mpsc::UnboundedReceiver<Event>) {
    let mut received = Vec::with_capacity(EVENTS_MAX);
    let mut left = EVENTS_MAX;
    loop {
        let count = events.recv_many(&mut received, left).await;
        if count == 0 {
            return;
        }
        let now = steady_time(Instant::now());
        received
            .drain(..)
            .for_each(|event| copies.apply(event, now));
        left -= count;
        if left == 0 {
            left = EVENTS_MAX;
            task::yield_now().await;
        }
    }
}
