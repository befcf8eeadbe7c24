//! One device: what waits for it, what it works on, and whose turn it is.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::depth::{Depth, Sample};
use crate::engine::{Class, Op};
use crate::fair::FairQueue;
use crate::flight::{Flight, Planned};
use crate::intake::Waiting;
use crate::loads::Load;
use crate::outage::Account;
use crate::pulse::Pulse;

/// Jobs of class `First` in a row before one of class `Next` gets its turn.
const FIRST_IN_A_ROW_MAX: usize = 3;

/// Flights of one file that a new job is compared with: the youngest. A search among thousands, under
/// the lock, would cost more than it saves.
const COMPARED_MAX: usize = 32;

/// The queue of one device. Kept once made: their number is that of the mounts ever seen.
pub(crate) struct Lane {
    /// Where others read how full it is.
    load: Arc<Load>,
    depth: Depth,
    pub(crate) pulse: Pulse,
    pub(crate) outage: Account,
    first: FairQueue<Planned>,
    next: FairQueue<Planned>,
    /// All that wait or are in flight, by what they are about; see [`about`].
    flights: HashMap<u64, Vec<Arc<Flight>>>,
    in_flight: usize,
    /// Of these, of class `First`.
    first_in_flight: usize,
    /// That those in flight may read or write.
    bytes_in_flight: usize,
    /// Jobs of class `First` started since the last of class `Next`.
    first_in_a_row: usize,
}

impl Lane {
    pub(crate) fn new(load: Arc<Load>, depth: Depth) -> Lane {
        let lane = Lane {
            load,
            depth,
            pulse: Pulse::default(),
            outage: Account::default(),
            first: FairQueue::default(),
            next: FairQueue::default(),
            flights: HashMap::new(),
            in_flight: 0,
            first_in_flight: 0,
            bytes_in_flight: 0,
            first_in_a_row: 0,
        };
        lane.tell();
        lane
    }

    /// Call it after every change, before the lock is let go.
    pub(crate) fn tell(&self) {
        self.load.set(self.queued(), self.in_flight);
        self.load.set_depth(self.depth.limit());
        self.load.set_dead(self.pulse.is_dead());
    }

    pub(crate) fn queued(&self) -> usize {
        self.first.len() + self.next.len()
    }

    /// Whether a job that reads or writes `len` bytes may start besides those in flight.
    pub(crate) fn has_slot(&self, len: usize) -> bool {
        let (jobs, bytes) = (self.in_flight, self.bytes_in_flight);
        self.depth.admits(jobs, bytes, len) && self.pulse.may_start()
    }

    /// Whether a prefetch may start: when nothing else wants the device, and in the half of its slots
    /// that is not for clients who have seen nothing yet.
    pub(crate) fn has_slot_for_prefetch(&self, len: usize) -> bool {
        let others = self.in_flight - self.first_in_flight;
        self.queued() == 0
            && others < self.depth.limit() / 2
            && self.has_slot(len)
            && !self.pulse.is_dead()
    }

    /// Whether the device is dead, and nothing better than that will be known soon.
    pub(crate) fn is_hopeless(&self, now: Instant) -> bool {
        let room = self.depth.admits(self.in_flight, self.bytes_in_flight, 0);
        self.pulse.is_hopeless(now, room)
    }

    /// Lets a job go along with one that brings what it asks for. On a dead device it would only be
    /// held up by that.
    #[allow(
        clippy::result_large_err,
        reason = "what is refused comes back whole; a box would cost an allocation for each job"
    )]
    pub(crate) fn join(
        &self,
        mut waiting: Waiting,
        open_age_max: Duration,
        others_max: usize,
    ) -> Result<(), Waiting> {
        let flights = self.flights.get(&about(&waiting.job.op));
        let Some(flights) = flights.filter(|_| !self.pulse.is_dead()) else {
            return Err(waiting);
        };
        for flight in flights.iter().rev().take(COMPARED_MAX) {
            match flight.join(waiting, open_age_max, others_max) {
                Ok(()) => return Ok(()),
                Err(refused) => waiting = refused,
            }
        }
        Err(waiting)
    }

    pub(crate) fn push(&mut self, planned: Planned) {
        self.list(&planned.flight);
        let (stream, len) = (planned.job.stream, planned.job.op.bytes());
        self.queue(planned.job.class).push(stream, len, planned);
        self.tell();
    }

    /// From now on others can find a flight and join it.
    pub(crate) fn list(&mut self, flight: &Arc<Flight>) {
        let flights = self.flights.entry(about(&flight.op)).or_default();
        flights.push(Arc::clone(flight));
    }

    fn unlist(&mut self, flight: &Arc<Flight>) {
        let about = about(&flight.op);
        if let Some(flights) = self.flights.get_mut(&about) {
            flights.retain(|listed| !Arc::ptr_eq(listed, flight));
            if flights.is_empty() {
                self.flights.remove(&about);
            }
        }
    }

    fn queue(&mut self, class: Class) -> &mut FairQueue<Planned> {
        match class {
            Class::First => &mut self.first,
            Class::Next => &mut self.next,
            Class::Prefetch => unreachable!("a prefetch starts at once or never"),
        }
    }

    /// Takes the jobs that nobody waits for off the heads of both queues.
    pub(crate) fn drop_unwanted(&mut self, unwanted: &mut Vec<Planned>) {
        for class in [Class::First, Class::Next] {
            let is_unwanted = |head: &Planned| !head.job.reply.wanted();
            while self.queue(class).front().is_some_and(is_unwanted) {
                let head = self.queue(class).pop();
                head.iter().for_each(|head| self.unlist(&head.flight));
                unwanted.extend(head);
            }
        }
        self.tell();
    }

    /// The class whose turn it is, and the memory that its job needs, if it may start.
    ///
    /// Jobs of class `First` get at least half of the slots as long as any wait: not more than every
    /// fourth that starts is of class `Next` then, and none while those have half. Where none wait the
    /// others have all of them.
    pub(crate) fn next(&self) -> Option<(Class, usize)> {
        let others = self.in_flight - self.first_in_flight;
        let others_turn =
            self.first_in_a_row >= FIRST_IN_A_ROW_MAX && others < (self.depth.limit() / 2).max(1);
        let (class, head) = match (self.first.front(), self.next.front()) {
            (Some(_), Some(next)) if others_turn => (Class::Next, next),
            (Some(first), _) => (Class::First, first),
            (None, next) => (Class::Next, next?),
        };
        let op = &head.job.op;
        self.has_slot(op.bytes()).then(|| (class, op.memory()))
    }

    /// Takes the job whose turn it is.
    pub(crate) fn pop(&mut self, class: Class) -> Option<Planned> {
        match class {
            Class::First => self.first_in_a_row += 1,
            _ => self.first_in_a_row = 0,
        }
        self.queue(class).pop()
    }

    /// `flight` is on its way to the engine.
    pub(crate) fn started(&mut self, flight: &Arc<Flight>, now: Instant) {
        flight.started(now);
        self.pulse.started(now);
        self.in_flight += 1;
        self.first_in_flight += usize::from(flight.class == Class::First);
        self.bytes_in_flight += flight.op.bytes();
        self.tell();
    }

    /// `flight` has been answered, or dropped by the engine.
    pub(crate) fn finished(&mut self, flight: &Arc<Flight>, now: Instant) {
        self.unlist(flight);
        self.in_flight -= 1;
        self.first_in_flight -= usize::from(flight.class == Class::First);
        self.bytes_in_flight -= flight.op.bytes();
        self.pulse.came_back(now, self.in_flight == 0);
        self.charge(flight);
        let sample = Sample {
            latency: flight.latency(now),
            bytes: flight.delivered(),
            limited: self.queued() > 0,
        };
        self.depth.came_back(now, sample);
        self.tell();
    }

    /// An open may have brought more than it was taken for.
    fn charge(&mut self, flight: &Flight) {
        let surplus = flight.delivered().saturating_sub(flight.op.bytes());
        // What was read ahead stood in no queue.
        if surplus > 0 && flight.class != Class::Prefetch {
            self.queue(flight.class).charge(flight.stream, surplus);
        }
    }

    /// Looks at the clock. If the device is dead, the jobs of class `First` that wait are taken out when
    /// there is no hope for them, and the flights are given that may hold others up.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        dead_after: Duration,
    ) -> (Vec<Planned>, Vec<Arc<Flight>>) {
        let dead = self.pulse.check(now, dead_after);
        let hopeless: Vec<_> = match dead && self.is_hopeless(now) {
            true => self.first.drain().collect(),
            false => Vec::new(),
        };
        hopeless
            .iter()
            .for_each(|planned| self.unlist(&planned.flight));
        let flights = self.flights.values().flatten().filter(|_| dead);
        let flights = flights.map(Arc::clone).collect();
        self.tell();
        (hopeless, flights)
    }

    /// All that wait.
    pub(crate) fn empty(&mut self) -> Vec<Planned> {
        let all: Vec<_> = self.first.drain().chain(self.next.drain()).collect();
        all.iter().for_each(|planned| self.unlist(&planned.flight));
        self.tell();
        all
    }
}

/// What an operation is about, as a number: those for one file or one name have the same. Others may
/// have it too.
fn about(op: &Op) -> u64 {
    match op {
        Op::Read { file, .. } | Op::Write { file, .. } | Op::Unlink { file, .. } => file.meta.inode,
        Op::List { directory, .. } => directory.meta.inode,
        Op::Create { spool } => spool.device(),
        Op::Look { root } => Arc::as_ptr(root).addr() as u64,
        Op::Open { root, path, .. } => {
            let mut hasher = DefaultHasher::new();
            (Arc::as_ptr(root), path).hash(&mut hasher);
            hasher.finish()
        }
    }
}
