//! One operation, however many ask for it.
//!
//! A job that a lane takes becomes a [`Flight`]. Another job that asks for the same (a read of bytes
//! that a read under way covers, an open of the same name) goes along with it instead of being done:
//! it costs no slot, no thread and no memory, and the disk sees one read. When the flight lands, all are
//! answered, with the same bytes where they can be shared. Those that cannot be (bytes in a pipe
//! can be read once) are offered to the lane anew, and the first of them takes the others along.
//!
//! What changes something (a file that is made, written to or removed) is done for each who asks, and so
//! is an open that has to be fresh.
//!
//! An error is shared too: whoever was with a read that failed learns the same as the one who asked
//! first. A passenger that goes away leaves the flight to the others, and so does the first.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::engine::{self, Class, Completion, Dead, Done, Job, Lookup, Op, Reply, Terms};
use crate::files::{KnownDevices, OtherDevice};
use crate::intake::Waiting;
use crate::lock::lock;
use crate::scheduler::Scheduler;

/// An operation in a lane, waiting or with the engine.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) op: Op,
    /// Whose lane it is in.
    pub(crate) device: u64,
    /// In whose lanes its jobs have been before.
    passed: Vec<u64>,
    pub(crate) class: Class,
    /// For whom it is done: the first who asked.
    pub(crate) stream: u64,
    terms: Terms,
    /// When the first asked.
    pub(crate) since: Instant,
    /// Bytes that came back, or were written.
    delivered: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the engine got it.
    started: Option<Instant>,
    /// `None` once it has landed.
    aboard: Option<Aboard>,
}

/// Who waits for it.
#[derive(Default)]
struct Aboard {
    /// The one whose job it is, unless answered.
    first: Option<Box<dyn Reply>>,
    others: Vec<Waiting>,
}

impl Flight {
    /// Turns a job into a flight: it is done in the job's name, and answers to all aboard.
    pub(crate) fn of(mut waiting: Waiting, scheduler: &Arc<Scheduler>) -> Planned {
        let device = waiting.device();
        let Waiting {
            mut job,
            since,
            passed,
            ..
        } = waiting;
        let flight = Arc::new(Flight {
            op: job.op.clone(),
            device,
            passed,
            class: job.class,
            stream: job.stream,
            terms: job.terms,
            since,
            delivered: AtomicUsize::new(0),
            state: Mutex::default(),
        });
        let landing = Landing {
            flight: Arc::clone(&flight),
            scheduler: Arc::clone(scheduler),
        };
        let first = std::mem::replace(&mut job.reply, Box::new(landing));
        lock(&flight.state).aboard = Some(Aboard {
            first: Some(first),
            others: Vec::new(),
        });
        Planned { job, flight }
    }

    /// Whether a job that asks for `op` could be answered with what this brings.
    fn covers(&self, op: &Op) -> bool {
        match (&self.op, op) {
            (
                Op::Read { file, offset, len },
                Op::Read {
                    file: other,
                    offset: from,
                    len: wanted,
                },
            ) => {
                // A file that another path, or another moment, has opened: its inode number means
                // something on local file systems. Of one version, because the read may have begun
                // before the other looked.
                let same = Arc::ptr_eq(file, other)
                    || file.reads_inline()
                        && other.reads_inline()
                        && file.meta.same_version(&other.meta);
                // What is written to in between has more than a read finds that began before.
                let same = same && !file.is_spooled();
                let end = offset.saturating_add(*len as u64);
                same && from >= offset && from.saturating_add(*wanted as u64) <= end
            }
            (
                Op::Open {
                    root,
                    path,
                    first,
                    variants,
                    lookup: Lookup::Shared,
                },
                Op::Open {
                    root: other_root,
                    path: other_path,
                    first: other_first,
                    variants: other_variants,
                    lookup: Lookup::Shared,
                },
            ) => {
                Arc::ptr_eq(root, other_root)
                    && (path, first, variants) == (other_path, other_first, other_variants)
            }
            (Op::Look { root }, Op::Look { root: other }) => Arc::ptr_eq(root, other),
            _ => false,
        }
    }

    /// Takes `waiting` along if this brings what it wants, is not less urgent, and, being an open, has not
    /// been under way for longer than `age_max`: what it tells may be as old as that.
    #[allow(
        clippy::result_large_err,
        reason = "what is refused comes back whole; a box would cost an allocation for each job"
    )]
    pub(crate) fn join(
        &self,
        waiting: Waiting,
        age_max: Duration,
        others_max: usize,
    ) -> Result<(), Waiting> {
        if waiting.job.terms != self.terms || !self.covers(&waiting.job.op) {
            return Err(waiting);
        }
        let mut state = lock(&self.state);
        let fits = match (state.started, &self.op) {
            (None, _) => waiting.job.class >= self.class,
            // A second look would wait where this one waits.
            (Some(_), Op::Read { .. } | Op::Look { .. }) => true,
            (Some(started), _) => waiting.since.saturating_duration_since(started) <= age_max,
        };
        match &mut state.aboard {
            Some(aboard) if fits && aboard.others.len() < others_max => {
                aboard.others.push(waiting);
                Ok(())
            }
            _ => Err(waiting),
        }
    }

    /// What it may ask.
    pub(crate) fn devices(&self) -> KnownDevices<'_> {
        KnownDevices {
            passed: &self.passed,
            charged: self.device,
        }
    }

    pub(crate) fn started(&self, now: Instant) {
        lock(&self.state).started = Some(now);
    }

    /// How long the engine has had it by `now`.
    pub(crate) fn latency(&self, now: Instant) -> Duration {
        let started = lock(&self.state).started;
        started.map_or(Duration::ZERO, |started| {
            now.saturating_duration_since(started)
        })
    }

    /// Bytes that it brought, or wrote.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Those of class `First` who have waited for `age`, to be told that their device is dead. What the
    /// engine does then goes to the others.
    pub(crate) fn give_up(&self, now: Instant, age: Duration) -> Vec<Box<dyn Reply>> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= age;
        let mut state = lock(&self.state);
        let Some(aboard) = &mut state.aboard else {
            return Vec::new();
        };
        let mut given_up = Vec::new();
        if self.class == Class::First && is_old(self.since) {
            given_up.extend(aboard.first.take());
        }
        let urgent = |other: &mut Waiting| other.job.class == Class::First && is_old(other.since);
        let others = aboard.others.extract_if(.., urgent);
        given_up.extend(others.map(|other| other.job.reply));
        given_up
    }

    fn wanted(&self) -> bool {
        let state = lock(&self.state);
        state.aboard.as_ref().is_some_and(Aboard::is_wanted)
    }

    /// From now on nobody can join.
    fn land(&self) -> Aboard {
        lock(&self.state).aboard.take().unwrap_or_default()
    }
}

impl Aboard {
    fn is_wanted(&self) -> bool {
        let first = self.first.iter().any(|reply| reply.wanted());
        first || self.others.iter().any(|other| other.job.reply.wanted())
    }
}

impl std::fmt::Debug for Aboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aboard({} others)", self.others.len())
    }
}

/// A job whose reply is that of its flight.
pub(crate) struct Planned {
    pub(crate) job: Job,
    pub(crate) flight: Arc<Flight>,
}

impl Planned {
    /// To be answered as a whole.
    pub(crate) fn into_waiting(self) -> Waiting {
        Waiting {
            job: self.job,
            since: self.flight.since,
            device: Some(self.flight.device),
            passed: self.flight.passed.clone(),
        }
    }
}

/// Answers all who are aboard.
struct Landing {
    flight: Arc<Flight>,
    scheduler: Arc<Scheduler>,
}

impl Landing {
    /// A file that a second stream has asked for is no longer one to keep out of the page cache.
    fn note_touch(&self, shared: &Completion, other: &Waiting) {
        if let (true, Op::Read { file, offset, len }) = (shared.direct, &other.job.op) {
            let ghosts = self.scheduler.ghosts();
            ghosts.touch(&file.meta, other.job.stream, *offset, *len);
        }
    }
}

impl Landing {
    /// All who are aboard go on in the queue of `device`, which their path leads to.
    fn goes_on(&self, device: u64) {
        let flight = &self.flight;
        let Aboard { first, others } = flight.land();
        let first = first.map(|reply| Waiting {
            job: Job {
                op: flight.op.clone(),
                class: flight.class,
                stream: flight.stream,
                terms: flight.terms,
                reply,
            },
            since: flight.since,
            device: None,
            passed: Vec::new(),
        });
        for waiting in first.into_iter().chain(others) {
            let passed = flight.passed.iter().copied().chain([flight.device]);
            self.scheduler.admit(Waiting {
                device: Some(device),
                passed: passed.collect(),
                ..waiting
            });
        }
    }
}

impl Reply for Landing {
    fn wanted(&self) -> bool {
        self.flight.wanted()
    }

    fn send(self: Box<Self>, mut completion: Completion) {
        let flight = &self.flight;
        if let Some(device) = completion.result.as_ref().err().and_then(OtherDevice::of) {
            return self.goes_on(device);
        }
        flight
            .delivered
            .store(bytes(&completion), Ordering::Relaxed);
        let Aboard { first, others } = flight.land();
        let mut again = Vec::new();
        for other in others {
            match share(&mut completion, &flight.op, &other) {
                Some(shared) => {
                    self.note_touch(&shared, &other);
                    other.job.reply.send(shared);
                }
                None => again.push(other),
            }
        }
        if let Some(first) = first {
            first.send(completion);
        }
        again
            .into_iter()
            .for_each(|other| self.scheduler.admit(other));
    }
}

impl Drop for Landing {
    /// Nobody wanted it when its turn came. Somebody may have come aboard since.
    fn drop(&mut self) {
        for other in self.flight.land().others {
            match other.job.reply.wanted() {
                true => self.scheduler.admit(other),
                false => self.scheduler.count_canceled(1),
            }
        }
    }
}

fn bytes(completion: &Completion) -> usize {
    match &completion.result {
        Ok(Done::Read(ready, _)) => ready.len(),
        Ok(Done::Opened { first, .. }) => first.as_ref().map_or(0, |ready| ready.len()),
        Ok(Done::Written(bytes)) => *bytes,
        _ => 0,
    }
}

/// What `other` is answered when `op` was done. `None` when it is to be offered anew: the bytes cannot
/// be shared, or it waits for a dead device and the one that it went along with does not.
fn share(completion: &mut Completion, op: &Op, other: &Waiting) -> Option<Completion> {
    let result = match &mut completion.result {
        Err(error) if engine::is_dead(error) && other.job.class == Class::Next => return None,
        Err(error) => Err(same(error)),
        Ok(Done::Read(ready, now)) => {
            let (
                Op::Read { offset, .. },
                Op::Read {
                    file,
                    offset: from,
                    len,
                },
            ) = (op, &other.job.op)
            else {
                unreachable!("a read covers reads only");
            };
            file.was_read();
            let skipped = usize::try_from(from - offset).unwrap_or(usize::MAX);
            Ok(Done::Read(ready.part(skipped, *len)?, *now))
        }
        Ok(Done::Opened {
            file,
            variants,
            first,
            stable,
            ..
        }) => {
            let first = match first {
                Some(ready) => Some(ready.part(0, ready.len())?),
                None => None,
            };
            Ok(Done::Opened {
                file: Arc::clone(file),
                variants: variants.clone(),
                first,
                stable: *stable,
                // Who takes the name away goes alone.
                not_removed: None,
            })
        }
        Ok(Done::Looked(root)) => Ok(Done::Looked(root.clone())),
        Ok(Done::Listed(_) | Done::Created(_) | Done::Written(_) | Done::Unlinked) => {
            unreachable!("only reads, opens and looks cover anything")
        }
    };
    // One that came late has waited for less than the disk took, but what it learns is how long the
    // disk takes.
    Some(Completion {
        result,
        queued: other.since.elapsed().saturating_sub(completion.service),
        service: completion.service,
        direct: completion.direct,
    })
}

/// The same error once more, with its mark if it has one.
fn same(error: &io::Error) -> io::Error {
    if engine::is_dead(error) {
        return Dead.into();
    }
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
