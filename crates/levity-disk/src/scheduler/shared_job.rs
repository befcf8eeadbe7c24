//! One operation, however many jobs ask for it.
//!
//! A job that a device queue accepts becomes a [`SharedJob`]. Another job with the same purpose (bytes that a
//! read in progress covers, an open of the same path) joins it: it costs no slot, no thread and no memory, and
//! the disk sees one read. When the operation is done, all jobs are answered, with the same bytes. If it is given up because the device is dead, those of class `Later` are submitted
//! again: the first becomes a new operation, which the others join.
//!
//! Operations that change something (creation, writing, renaming, removal) are done for each job, and so are opens
//! that have to be fresh. Syncs share a call by rules of their own ([`syncs`](super::syncs)).
//!
//! An error is shared too: a job that joined a read gets the error of the first job. A client that goes away
//! leaves the operation to the others, even if it asked first.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::direct_policy::{DirectPolicy, Reader};
use super::submissions::PendingJob;
use crate::files::{KnownDevices, OtherDevice};
use crate::job::{
    Class, Completion, Done, Job, Lookup, Op, Opened, ReadOptions, Refusal, Reply, is_dead, op,
};
use crate::thread::lock;

/// An operation of one device, queued or in flight, and the jobs that wait for it.
pub(super) struct SharedJob {
    pub(super) op: Op,
    /// The device whose queue it is in.
    pub(super) device: u64,
    /// The devices whose queues its jobs have been in before.
    previous_devices: Vec<u64>,
    pub(super) class: Class,
    /// The stream of the job that asked first, which is charged.
    pub(super) stream: u64,
    options: ReadOptions,
    /// When the first job was submitted.
    pub(super) submitted_at: Instant,
    /// Bytes that were read or written.
    delivered: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    /// When the engine received it.
    started_at: Option<Instant>,
    /// `None` once all have been answered.
    waiters: Option<Waiters>,
}

#[derive(Default)]
struct Waiters {
    /// The job that asked first, unless it has been answered already.
    first: Option<Box<dyn Reply>>,
    joined: Vec<PendingJob>,
}

impl SharedJob {
    /// Turns a job into an operation of `device` that others can join.
    pub(super) fn new(pending: PendingJob, device: u64) -> Arc<SharedJob> {
        let PendingJob {
            job,
            submitted_at,
            previous_devices,
            ..
        } = pending;
        let waiters = Waiters {
            first: Some(job.reply),
            joined: Vec::new(),
        };
        Arc::new(SharedJob {
            op: job.op,
            device,
            previous_devices,
            class: job.class,
            stream: job.stream,
            options: job.options,
            submitted_at,
            delivered: AtomicUsize::new(0),
            state: Mutex::new(State {
                started_at: None,
                waiters: Some(waiters),
            }),
        })
    }

    /// Whether the outcome could answer a job that asks for `op`.
    fn covers(&self, op: &Op) -> bool {
        match (&self.op, op) {
            (Op::Read(read), Op::Read(wanted)) => {
                let (file, other) = (&read.file, &wanted.file);
                // The same file, opened by another path or at another moment: inode numbers mean something
                // on local file systems only. The version must be the same, because the read may have begun
                // before the other open.
                let same = Arc::ptr_eq(file, other)
                    || file.reads_inline()
                        && other.reads_inline()
                        && file.meta.same_version(&other.meta);
                // After a write in between there is more to read than a read that began before it finds.
                let same = same && !file.is_written();
                let end = |read: &op::Read| read.offset.saturating_add(read.len as u64);
                same && wanted.offset >= read.offset && end(wanted) <= end(read)
            }
            (Op::Open(open), Op::Open(other)) => {
                [open.lookup, other.lookup] == [Lookup::Shared; 2]
                    && Arc::ptr_eq(&open.root, &other.root)
                    && (&open.path, open.first, &open.variants)
                        == (&other.path, other.first, &other.variants)
            }
            (Op::CheckRoot(check), Op::CheckRoot(other)) => Arc::ptr_eq(&check.root, &other.root),
            _ => false,
        }
    }

    /// Lets `pending` join if the outcome covers what it asks for, and `pending` is not more urgent. An open must
    /// not have been in progress for longer than `open_age_max`: its outcome may be as old as that.
    pub(super) fn join(
        &self,
        pending: PendingJob,
        open_age_max: Duration,
        joined_max: usize,
    ) -> Result<(), PendingJob> {
        if !self.options.suit(&pending.job.options) || !self.covers(&pending.job.op) {
            return Err(pending);
        }
        let mut state = lock(&self.state);
        let fits = match (state.started_at, &self.op) {
            (None, _) => pending.job.class >= self.class,
            // A second check would wait where this one waits.
            (Some(_), Op::Read(_) | Op::CheckRoot(_)) => true,
            (Some(started), _) => {
                pending.submitted_at.saturating_duration_since(started) <= open_age_max
            }
        };
        match &mut state.waiters {
            Some(waiters) if fits && waiters.joined.len() < joined_max => {
                waiters.joined.push(pending);
                Ok(())
            }
            _ => Err(pending),
        }
    }

    /// Lets a sync of the same file join, if this one has not started. Its class does not matter: a second call beside
    /// this one is what has to be avoided.
    pub(super) fn join_sync(
        &self,
        pending: PendingJob,
        joined_max: usize,
    ) -> Result<(), PendingJob> {
        match &mut lock(&self.state).waiters {
            Some(waiters) if waiters.joined.len() < joined_max => {
                waiters.joined.push(pending);
                Ok(())
            }
            _ => Err(pending),
        }
    }

    /// The devices that it may wait for: those that it is charged to.
    pub(super) fn devices(&self) -> KnownDevices<'_> {
        KnownDevices {
            previous: &self.previous_devices,
            charged: self.device,
        }
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            direct: self.options.direct,
            class: self.class,
            stream: self.stream,
        }
    }

    pub(super) fn options(&self) -> ReadOptions {
        self.options
    }

    pub(super) fn started(&self, now: Instant) {
        lock(&self.state).started_at = Some(now);
    }

    /// The time from its start to `now`.
    pub(super) fn latency(&self, now: Instant) -> Duration {
        let started_at = lock(&self.state).started_at;
        started_at.map_or(Duration::ZERO, |started_at| {
            now.saturating_duration_since(started_at)
        })
    }

    /// Bytes that were read or written.
    pub(super) fn delivered(&self) -> usize {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Takes out the jobs of class `First` that have waited for `age`, because their device is dead. The other
    /// jobs still wait for the outcome.
    pub(super) fn give_up(&self, now: Instant, age: Duration) -> Vec<Box<dyn Reply>> {
        let is_old = |submitted_at: Instant| now.saturating_duration_since(submitted_at) >= age;
        let mut state = lock(&self.state);
        let Some(waiters) = &mut state.waiters else {
            return Vec::new();
        };
        let mut given_up = Vec::new();
        if self.class == Class::First && is_old(self.submitted_at) {
            given_up.extend(waiters.first.take());
        }
        let is_overdue = |joined: &mut PendingJob| {
            joined.job.class == Class::First && is_old(joined.submitted_at)
        };
        let joined = waiters.joined.extract_if(.., is_overdue);
        given_up.extend(joined.map(|joined| joined.job.reply));
        given_up
    }

    /// Whether any job still waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        let state = lock(&self.state);
        state.waiters.as_ref().is_some_and(Waiters::is_awaited)
    }

    /// Drops the first job without an answer. Returns the jobs that have joined.
    pub(super) fn cancel(&self) -> Vec<PendingJob> {
        self.take_waiters().joined
    }

    /// Answers all who wait. Returns the jobs that have to be submitted again.
    pub(super) fn answer(
        &self,
        mut completion: Completion,
        policy: &DirectPolicy,
    ) -> Vec<PendingJob> {
        if let Some(device) = completion.result.as_ref().err().and_then(OtherDevice::of) {
            return self.move_to(device);
        }
        let read = completion.ready().map(|ready| ready.len());
        let bytes = completion.written().or(read).unwrap_or(0);
        self.delivered.store(bytes, Ordering::Relaxed);
        let Waiters { first, joined } = self.take_waiters();
        let mut resubmitted = Vec::new();
        for pending in joined {
            match share(&mut completion, &self.op, &pending) {
                Some(shared) => {
                    record_access(&shared, &pending, policy);
                    pending.job.reply.send(shared);
                }
                None => resubmitted.push(pending),
            }
        }
        if let Some(first) = first {
            first.send(completion);
        }
        resubmitted
    }

    /// Takes all jobs, for the queue of `device`, which their path leads to.
    fn move_to(&self, device: u64) -> Vec<PendingJob> {
        let Waiters { first, joined } = self.take_waiters();
        let first = first.map(|reply| PendingJob {
            job: Job {
                op: self.op.clone(),
                class: self.class,
                stream: self.stream,
                options: self.options,
                reply,
            },
            submitted_at: self.submitted_at,
            device: None,
            previous_devices: Vec::new(),
        });
        let previous_devices = [&self.previous_devices[..], &[self.device]].concat();
        let all = first.into_iter().chain(joined);
        all.map(|pending| PendingJob {
            device: Some(device),
            previous_devices: previous_devices.clone(),
            ..pending
        })
        .collect()
    }

    /// From now on nobody can join.
    fn take_waiters(&self) -> Waiters {
        lock(&self.state).waiters.take().unwrap_or_default()
    }
}

impl Waiters {
    fn is_awaited(&self) -> bool {
        let first = self.first.iter().any(|reply| reply.is_awaited());
        first || self.joined.iter().any(PendingJob::is_awaited)
    }
}

/// Records that a second stream has read the file: further reads of it go through the page cache.
fn record_access(shared: &Completion, pending: &PendingJob, policy: &DirectPolicy) {
    if let (true, Op::Read(read)) = (shared.direct, &pending.job.op) {
        policy.record(&read.file.meta, pending.job.stream, read.offset, read.len);
    }
}

/// The answer for `joined` when `op` is done. `None` if `joined` has to be submitted again: the device is dead,
/// and jobs of class `Later` wait for it.
fn share(completion: &mut Completion, op: &Op, joined: &PendingJob) -> Option<Completion> {
    let result = match (&mut completion.result, op, &joined.job.op) {
        (Err(error), ..) if is_dead(error) && joined.job.class == Class::Later => return None,
        (Err(error), ..) => Err(copy_of(error)),
        (Ok(Done::Read((ready, now))), Op::Read(read), Op::Read(wanted)) => {
            wanted.file.was_read();
            let skipped = usize::try_from(wanted.offset - read.offset).unwrap_or(usize::MAX);
            Ok(Done::Read((ready.part(skipped, wanted.len), *now)))
        }
        (Ok(Done::Open(opened)), ..) => {
            let first = opened.first.as_mut();
            Ok(Done::Open(Opened {
                file: Arc::clone(&opened.file),
                variants: opened.variants.clone(),
                first: first.map(|ready| ready.part(0, ready.len())),
                stable: opened.stable,
                // An open that removes the name is not shared.
                not_removed: None,
            }))
        }
        (Ok(Done::CheckRoot(root)), ..) => Ok(Done::CheckRoot(root.clone())),
        (Ok(Done::Sync(())), ..) => Ok(Done::Sync(())),
        (Ok(done), ..) => unreachable!("not shared: {done:?}"),
    };
    // A job that joined late may have waited for less than the disk took. It gets the whole service time.
    Some(Completion {
        result,
        queued: joined
            .submitted_at
            .elapsed()
            .saturating_sub(completion.service),
        service: completion.service,
        direct: completion.direct,
    })
}

/// A copy of an error, with its mark if it has one.
fn copy_of(error: &io::Error) -> io::Error {
    if is_dead(error) {
        return Refusal::Dead.into();
    }
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
