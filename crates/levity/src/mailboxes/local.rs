//! The mailboxes of one event loop.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::loop_core;
use levity_mailbox::memory::MemoryStore;
use levity_mailbox::{
    BoxEvent, Command, Copies, Owner, OwnerFigures, Reports, new_epoch, run, steady_time,
};
use tokio::sync::mpsc;
use tokio::task;

/// The maximum number of events that are applied before others run.
const EVENTS_MAX: usize = 64;

/// What one event loop needs for mailboxes.
pub struct LocalParts {
    /// The number of the event loop.
    pub worker: usize,
    /// All owners of the process.
    pub owners: Vec<mpsc::UnboundedSender<Command>>,
    /// The changes that owners report.
    pub events: mpsc::UnboundedReceiver<BoxEvent>,
    /// The owner that runs on this loop, where messages are kept in memory.
    pub own: Option<OwnParts>,
}

/// An owner of boxes in memory.
pub struct OwnParts {
    /// What it is asked for.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// Where it reports changes, by the number of the event loop.
    pub workers: Vec<mpsc::UnboundedSender<BoxEvent>>,
    /// What it counts.
    pub figures: Arc<OwnerFigures>,
}

impl LocalParts {
    /// The copies of the event loop, and the task that keeps them up to date.
    pub fn split(self) -> (Rc<Copies>, impl Future<Output = ()> + 'static) {
        let copies = Rc::new(Copies::new(self.worker, self.owners));
        let upkeep = keep_up(copies.clone(), self.worker, self.own, self.events);
        (copies, upkeep)
    }
}

async fn keep_up(
    copies: Rc<Copies>,
    worker: usize,
    own: Option<OwnParts>,
    events: mpsc::UnboundedReceiver<BoxEvent>,
) {
    if let Some(own) = own {
        let store = MemoryStore::new(new_epoch(SystemTime::now()));
        let mut reports: Vec<_> = own.workers.into_iter().map(Reports::Queue).collect();
        reports[worker] = Reports::Here(Rc::downgrade(&copies));
        let owner = Owner::new(store, reports, own.figures);
        loop_core::spawn(run(owner, own.commands));
    }
    let waking = copies.clone();
    loop_core::spawn(async move { waking.wake_receivers().await });
    apply_events(&copies, events).await;
}

async fn apply_events(copies: &Copies, mut events: mpsc::UnboundedReceiver<BoxEvent>) {
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
