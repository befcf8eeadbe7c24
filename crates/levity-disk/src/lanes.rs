//! The queues of all devices, and who gets memory next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::engine::{Class, Reply};
use crate::flight::{Flight, Planned};
use crate::intake::{Refused, Waiting};
use crate::lane::Lane;
use crate::memory::{Budget, Reservation};
use crate::outage::Outage;
use crate::scheduler::Scheduler;

/// What the scheduler's lock is for.
#[derive(Default)]
pub(crate) struct Lanes {
    by_device: HashMap<u64, Lane>,
    /// KnownDevices whose next job found no memory, the longest waiting first.
    starved: VecDeque<u64>,
    in_flight: usize,
    /// KnownDevices whose outage was reported, and not its end.
    outages: usize,
    closed: bool,
}

/// What came of a new job.
pub(crate) enum Offered {
    Start(Planned, Reservation),
    Queued,
    /// It goes along with another one.
    Joined,
    Refused(Refused),
}

/// What came of looking for a job to start.
enum Taken {
    Start(Planned, Reservation),
    /// Nothing waits, or no slot is free.
    Nothing,
    NoMemory,
}

/// Those who have waited for a dead device for too long.
#[derive(Default)]
pub(crate) struct GivenUp {
    /// They had not started.
    pub(crate) jobs: Vec<Planned>,
    /// What they asked for is still under way.
    pub(crate) replies: Vec<Box<dyn Reply>>,
    /// What is to be reported.
    pub(crate) outages: Vec<Outage>,
}

impl GivenUp {
    fn count(&self) -> usize {
        self.jobs.len() + self.replies.len()
    }
}

impl Lanes {
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the clock may show something new: a device that has stopped answering, or answers again.
    pub(crate) fn needs_checks(&self) -> bool {
        self.in_flight > 0 || self.outages > 0
    }

    pub(crate) fn offer(&mut self, mut waiting: Waiting, scheduler: &Arc<Scheduler>) -> Offered {
        if self.closed {
            return Offered::Refused(Refused::Closed(waiting));
        }
        let bounds = scheduler.bounds();
        let device = waiting.device();
        let lane = self.by_device.entry(device).or_insert_with(|| {
            let load = scheduler.loads().add(device);
            Lane::new(load, bounds.depth.start())
        });
        if scheduler.blocks_on_loop(&waiting.job) {
            // It reads into no buffer, and its caller cannot wait in a queue.
            let planned = Flight::of(waiting, scheduler);
            return self.start(planned, 0, scheduler);
        }
        if waiting.job.class == Class::First && lane.is_hopeless(waiting.since) {
            lane.outage.refused(1);
            return Offered::Refused(Refused::Dead(waiting));
        }
        let age_max = scheduler.open_age_max();
        let waiting = match lane.join(waiting, age_max, bounds.queue_max) {
            Ok(()) => return Offered::Joined,
            Err(waiting) => waiting,
        };
        let (bytes, memory) = (waiting.job.op.bytes(), waiting.job.op.memory());
        let starts = match waiting.job.class {
            Class::First => lane.queued() == 0 && lane.has_slot(bytes),
            Class::Next => false,
            Class::Prefetch
                if lane.has_slot_for_prefetch(bytes) && leaves_half(scheduler.budget(), memory) =>
            {
                true
            }
            Class::Prefetch => return Offered::Refused(Refused::Full(waiting)),
        };
        if lane.queued() >= bounds.queue_max {
            return Offered::Refused(Refused::Full(waiting));
        }
        let planned = Flight::of(waiting, scheduler);
        if starts {
            return self.start(planned, memory, scheduler);
        }
        lane.push(planned);
        Offered::Queued
    }

    /// Starts a job that waits for nothing but `len` bytes of memory, or refuses it.
    fn start(&mut self, planned: Planned, len: usize, scheduler: &Scheduler) -> Offered {
        match self.memory(planned.flight.device, len, scheduler.budget()) {
            Some(memory) => {
                self.lane(planned.flight.device).list(&planned.flight);
                self.started(&planned.flight);
                Offered::Start(planned, memory)
            }
            None => Offered::Refused(Refused::Full(planned.into_waiting())),
        }
    }

    /// The next job to start: of `device`, or else of the first in line for memory. Jobs that nobody
    /// wants any more are put aside.
    pub(crate) fn next(
        &mut self,
        device: Option<u64>,
        scheduler: &Scheduler,
        unwanted: &mut Vec<Planned>,
    ) -> Option<(Planned, Reservation)> {
        if let Some(device) = device
            && let Taken::Start(planned, memory) = self.take(device, scheduler, unwanted)
        {
            return Some((planned, memory));
        }
        while let Some(device) = self.starved.front().copied() {
            match self.take(device, scheduler, unwanted) {
                Taken::Start(planned, memory) => return Some((planned, memory)),
                Taken::NoMemory => return None,
                Taken::Nothing => {}
            }
        }
        None
    }

    fn take(&mut self, device: u64, scheduler: &Scheduler, unwanted: &mut Vec<Planned>) -> Taken {
        let Some(lane) = self.by_device.get_mut(&device) else {
            return Taken::Nothing;
        };
        lane.drop_unwanted(unwanted);
        let Some((class, len)) = lane.next() else {
            self.starved.retain(|starved| *starved != device);
            return Taken::Nothing;
        };
        let Some(memory) = self.memory(device, len, scheduler.budget()) else {
            if !self.starved.contains(&device) {
                self.starved.push_back(device);
            }
            return Taken::NoMemory;
        };
        self.requeue_for_memory(device);
        match self.lane(device).pop(class) {
            Some(planned) => {
                self.started(&planned.flight);
                Taken::Start(planned, memory)
            }
            None => unreachable!("the class was chosen because a job waits in it"),
        }
    }

    /// Whoever has got memory lets the others have theirs before it gets more.
    fn requeue_for_memory(&mut self, device: u64) {
        if self.starved.front() == Some(&device) {
            self.starved.rotate_left(1);
        }
    }

    /// Memory for a job, unless others stand in line for it.
    fn memory(&self, device: u64, len: usize, budget: &Budget) -> Option<Reservation> {
        let others_first = self.starved.front().is_some_and(|first| *first != device);
        if others_first && len > 0 {
            return None;
        }
        budget.reserve(len)
    }

    fn started(&mut self, flight: &Arc<Flight>) {
        self.in_flight += 1;
        self.lane(flight.device).started(flight, Instant::now());
    }

    pub(crate) fn finished(&mut self, flight: &Arc<Flight>) {
        self.in_flight -= 1;
        self.lane(flight.device).finished(flight, Instant::now());
    }

    /// The lane of a device that has had a job.
    fn lane(&mut self, device: u64) -> &mut Lane {
        let lane = self.by_device.get_mut(&device);
        lane.expect("made when its first job was offered")
    }

    /// Looks at the clock: which devices are dead, and who is not to wait for them any longer. The
    /// devices that may now start a job are put into `to_pump`.
    pub(crate) fn check(&mut self, scheduler: &Scheduler, to_pump: &mut Vec<u64>) -> GivenUp {
        let (now, dead_after) = (Instant::now(), scheduler.bounds().dead_after);
        let mut given_up = GivenUp::default();
        for (device, lane) in &mut self.by_device {
            let (jobs, flights) = lane.check(now, dead_after);
            let silent_since = lane.pulse.silent_since();
            let outage = lane.outage.look(*device, now, silent_since);
            given_up.outages.extend(outage);
            let before = given_up.count();
            given_up.jobs.extend(jobs);
            let replies = flights
                .iter()
                .flat_map(|flight| flight.give_up(now, dead_after));
            given_up.replies.extend(replies);
            lane.outage.refused(given_up.count() - before);
            to_pump.extend((lane.queued() > 0).then_some(*device));
        }
        let lanes = self.by_device.values();
        self.outages = lanes.filter(|lane| lane.outage.is_open()).count();
        given_up
    }

    pub(crate) fn close(&mut self) -> Vec<Planned> {
        self.closed = true;
        self.starved.clear();
        let lanes = self.by_device.values_mut();
        lanes.flat_map(Lane::empty).collect()
    }
}

/// Whether `len` bytes more leave half of the memory to those who are waited for: a first chunk that
/// finds none is refused, and bytes that came ahead are held for as long as the client takes for others.
fn leaves_half(budget: &Budget, len: usize) -> bool {
    budget.in_use().saturating_add(Budget::cost(len)) <= budget.bytes_max() / 2
}
