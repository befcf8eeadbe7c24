//! A process: owners and event loops, which run when the scheduler says so.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::SystemTime;

use levity_mailbox::{BoxEvent, Command, Copies, Name, Owner, OwnerFigures, Reports};
use tokio::sync::{mpsc, oneshot};

use crate::simulated::{Random, Server, Simulated};

/// Whether somebody was woken. At first everybody is.
pub struct Bell(AtomicBool);

impl Bell {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub fn has_rung(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct OwnerTask {
    owner: Owner<Simulated>,
    commands: mpsc::UnboundedReceiver<Command>,
    figures: Arc<OwnerFigures>,
    bell: Arc<Bell>,
}

struct EventLoop {
    copies: Rc<Copies>,
    events: mpsc::UnboundedReceiver<BoxEvent>,
    waking: Pin<Box<dyn Future<Output = ()>>>,
    bell: Arc<Bell>,
}

pub struct Process {
    owners: Vec<OwnerTask>,
    loops: Vec<EventLoop>,
}

impl Process {
    pub fn new(stores: Vec<Simulated>, loops: usize) -> Self {
        let (senders, mut commands): (Vec<_>, Vec<_>) =
            stores.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let (workers, events): (Vec<_>, Vec<_>) =
            (0..loops).map(|_| mpsc::unbounded_channel()).unzip();
        let loop_of = |(number, events): (usize, _)| {
            let copies = Rc::new(Copies::new(number, senders.clone()));
            let woken = copies.clone();
            EventLoop {
                copies,
                events,
                waking: Box::pin(async move { woken.wake_receivers().await }),
                bell: Bell::new(),
            }
        };
        let loops: Vec<EventLoop> = events.into_iter().enumerate().map(loop_of).collect();
        let owner_of = |(number, store): (usize, _)| {
            let mut reports: Vec<_> = workers.iter().cloned().map(Reports::Queue).collect();
            // As in the server, an owner runs at an event loop.
            if let Some(own) = loops.get(number) {
                reports[number] = Reports::Here(Rc::downgrade(&own.copies));
            }
            let figures = Arc::default();
            OwnerTask {
                owner: Owner::new(store, reports, Arc::clone(&figures)),
                commands: commands.remove(0),
                figures,
                bell: Bell::new(),
            }
        };
        let owners = stores.into_iter().enumerate().map(owner_of).collect();
        Self { owners, loops }
    }

    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    pub fn copies(&self, number: usize) -> &Rc<Copies> {
        &self.loops[number].copies
    }

    pub fn owner_of(&self, name: &Name) -> usize {
        self.loops[0].copies.owner_of(name)
    }

    /// Sends a command from some event loop.
    pub fn send(&self, random: &mut Random, name: &Name, command: Command) {
        let copies = &random.of(&self.loops).copies;
        copies.send(copies.owner_of(name), command);
    }

    pub fn run_owner(&mut self, random: &mut Random, now: SystemTime) {
        let index = random.below(self.owners.len());
        let owner = &mut self.owners[index];
        owner.receive(random.below(6), now);
        if random.one_in(2) {
            owner.poll(now);
        }
        if random.one_in(8) {
            owner.owner.sweep(now);
        }
    }

    pub fn run_loop(&mut self, random: &mut Random, now: SystemTime) {
        let index = random.below(self.loops.len());
        let event_loop = &mut self.loops[index];
        event_loop.receive(random.below(6), now);
        if random.one_in(2) {
            event_loop.wake();
        }
    }

    /// Runs what has something to do; whether anything had.
    pub fn run_all(&mut self, now: SystemTime) -> bool {
        let mut is_busy = false;
        for owner in &mut self.owners {
            is_busy |= owner.receive(usize::MAX, now) > 0;
            // Changes of the simulated store wake nobody.
            owner.poll(now);
            is_busy |= owner.bell.has_rung();
        }
        for event_loop in &mut self.loops {
            is_busy |= event_loop.receive(usize::MAX, now) > 0;
            is_busy |= event_loop.wake();
        }
        is_busy
    }

    /// The number of receivers of a box, which event loops and the owner agree on.
    pub fn receivers(&mut self, name: &Name, server: &Server, now: SystemTime) -> usize {
        let (reply, mut answer) = oneshot::channel();
        let command = Command::Summary {
            name: name.clone(),
            reply,
        };
        let copies = &self.loops[0].copies;
        copies.send(copies.owner_of(name), command);
        while self.run_all(now) || server.step() {}
        let info = answer.try_recv().expect("an answer").expect("no fault");
        info.expect("a box").receivers
    }

    pub fn has(&self, copies: &Rc<Copies>) -> bool {
        self.loops.iter().any(|one| Rc::ptr_eq(&one.copies, copies))
    }

    /// Nobody receives any more.
    pub fn check_is_empty(&mut self, now: SystemTime) {
        for event_loop in &self.loops {
            let copies = &event_loop.copies;
            assert_eq!(copies.boxes(), 0, "at a loop");
        }
        for owner in &mut self.owners {
            owner.owner.sweep(now);
            let watched = owner.figures.watched.load(Ordering::Relaxed);
            assert_eq!(watched, 0, "watched boxes");
        }
    }
}

impl OwnerTask {
    fn receive(&mut self, count_max: usize, now: SystemTime) -> usize {
        let mut count = 0;
        while count < count_max
            && let Ok(command) = self.commands.try_recv()
        {
            self.owner.command(command, now);
            count += 1;
        }
        count
    }

    fn poll(&mut self, now: SystemTime) {
        self.bell.has_rung();
        let waker = Waker::from(self.bell.clone());
        self.owner.poll(&mut Context::from_waker(&waker), now);
    }
}

impl EventLoop {
    fn receive(&mut self, count_max: usize, now: SystemTime) -> usize {
        let mut count = 0;
        while count < count_max
            && let Ok(event) = self.events.try_recv()
        {
            self.copies.apply(event, now);
            count += 1;
        }
        count
    }

    /// Polls the task that wakes receivers, if it was woken itself.
    fn wake(&mut self) -> bool {
        let is_due = self.bell.has_rung();
        if is_due {
            let waker = Waker::from(self.bell.clone());
            let polled = self.waking.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        is_due
    }
}
