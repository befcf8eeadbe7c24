//! A job that an engine has: the operation, and a ticket that makes sure that the job is answered once and that
//! the device's slot is freed.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::files::{KnownDevices, OpenFile};
use crate::job::{Completion, Done, Op, op};
use crate::memory::{Reservation, span};

/// A job in flight, as the scheduler sees it. Dropping it frees the device's slot.
pub(crate) trait InFlightJob: Send {
    /// Whether anyone still waits.
    fn is_awaited(&self) -> bool;

    /// The devices that the job is charged to: an open must not wait for any other.
    fn devices(&self) -> KnownDevices<'_>;

    /// Decides whether a read of `len` bytes from `offset` of the file just opened goes past the page cache, and
    /// records the access.
    fn decide_direct(&self, file: &OpenFile, offset: u64, len: usize) -> bool;

    /// Whether all bytes of a file may be in a pipe.
    fn takes_pipes(&self) -> bool;

    /// Whether pages of the page cache that `file` has may be in it.
    fn takes_references(&self, file: &OpenFile) -> bool;

    /// Answers all who wait. Either this or [`InFlightJob::cancel`] is called, at most once.
    fn complete(&mut self, completion: Completion);

    /// Drops the job without an answer.
    fn cancel(&mut self);
}

/// A job that has its slot and its memory, and may start.
pub struct WorkItem<O = Op> {
    op: O,
    ticket: Ticket,
}

impl WorkItem {
    /// A job that was submitted at `submitted_at`. `is_direct` is whether it reads past the page cache; `None`
    /// for an open, which has no file yet.
    pub(crate) fn new(
        op: Op,
        job: Box<dyn InFlightJob>,
        submitted_at: Instant,
        memory: Reservation,
        is_direct: Option<bool>,
    ) -> WorkItem {
        let ticket = Ticket {
            job,
            is_answered: false,
            decided_direct: is_direct,
            is_direct: false,
            memory: Some(memory),
            submitted_at,
            started_at: submitted_at,
        };
        WorkItem { op, ticket }
    }

    /// A read of a file that the engine `takes`, or the item as it was.
    pub(super) fn into_read(
        self,
        takes: impl FnOnce(&OpenFile) -> bool,
    ) -> Result<WorkItem<op::Read>, WorkItem> {
        let WorkItem { op, ticket } = self;
        match op {
            Op::Read(op) if takes(&op.file) => Ok(WorkItem { op, ticket }),
            op => Err(WorkItem { op, ticket }),
        }
    }

    /// Whether it is a read past the page cache. For an open this is decided once the file is open.
    pub(crate) fn is_direct_read(&self) -> bool {
        self.ticket.decided_direct == Some(true)
    }

    /// Performs the operation on the calling thread and finishes it, unless nobody waits for it any more.
    pub(super) fn run(self, perform: impl FnOnce(Op, &mut Ticket) -> io::Result<Done>) {
        if let Some((op, mut ticket)) = self.begin() {
            let result = perform(op, &mut ticket);
            ticket.finish(result);
        }
    }
}

impl<O> WorkItem<O> {
    /// The operation.
    pub fn op(&self) -> &O {
        &self.op
    }

    /// Call it when a thread starts the operation. `None` when nobody waits for it any more.
    pub fn begin(mut self) -> Option<(O, Ticket)> {
        self.ticket.started_at = Instant::now();
        if self.ticket.job.is_awaited() {
            return Some((self.op, self.ticket));
        }
        // Not left to the drop of the ticket, which checks again: a job that has joined in between would get
        // ECANCELED instead of being submitted again.
        self.ticket.cancel();
        None
    }
}

/// The right to one of a device's slots, and the duty to answer. Dropped unfinished, it answers ECANCELED
/// to all who still wait.
pub struct Ticket {
    job: Box<dyn InFlightJob>,
    is_answered: bool,
    /// `None` for an open: it is decided once the file is open.
    decided_direct: Option<bool>,
    /// The bytes come past the page cache.
    is_direct: bool,
    /// `None` once turned into a buffer.
    memory: Option<Reservation>,
    submitted_at: Instant,
    started_at: Instant,
}

impl Ticket {
    /// Whether it reads the file that it has opened, which has no other user yet.
    pub(super) fn has_new_file(&self) -> bool {
        self.decided_direct.is_none()
    }

    /// Decides whether to read `len` bytes from `offset` of `file` past the page cache. Call it once, on a thread that
    /// may block, before the read.
    pub(super) fn decide_direct(&mut self, file: &OpenFile, offset: u64, len: usize) -> bool {
        self.is_direct = self
            .decided_direct
            .unwrap_or_else(|| self.job.decide_direct(file, offset, len));
        self.is_direct
    }

    /// As [`Ticket::decide_direct`]. If so, and if the file allows it, returns a descriptor for that, which others may use
    /// at the same time; it needs whole blocks ([`Buffer::for_blocks`](crate::Buffer::for_blocks)).
    pub(crate) fn take_direct_fd<'f>(
        &mut self,
        file: &'f OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<BorrowedFd<'f>> {
        let is_direct = self.decide_direct(file, offset, len);
        let fd = is_direct.then(|| file.direct_fd()).flatten();
        self.is_direct = fd.is_some();
        fd
    }

    /// Records that the kernel refused to read `file` past the page cache: this read and further ones go through it.
    pub(crate) fn direct_refused(&mut self, file: &OpenFile) {
        file.direct_refused();
        self.is_direct = false;
    }

    /// Reserves memory for `len` bytes from `offset` instead of fewer, if memory is ample. Returns whether it did.
    pub(super) fn try_grow(&mut self, offset: u64, len: usize) -> bool {
        let memory = self.memory.as_mut();
        memory.is_some_and(|memory| memory.try_grow(span(offset, len)))
    }

    /// Takes the memory reserved for the bytes to read.
    ///
    /// # Panics
    /// If it is called twice.
    pub(super) fn take_memory(&mut self) -> Reservation {
        self.memory.take().expect("an operation reads once")
    }

    pub(super) fn takes_pipes(&self) -> bool {
        self.job.takes_pipes()
    }

    pub(super) fn takes_references(&self, file: &OpenFile) -> bool {
        self.job.takes_pipes() && self.job.takes_references(file)
    }

    pub(crate) fn devices(&self) -> KnownDevices<'_> {
        self.job.devices()
    }

    /// Answers, and frees the slot for the next job.
    pub fn finish(mut self, result: io::Result<Done>) {
        self.complete(result);
    }

    fn complete(&mut self, result: io::Result<Done>) {
        self.is_answered = true;
        self.job.complete(Completion {
            result,
            queued: self.started_at - self.submitted_at,
            service: self.started_at.elapsed(),
            direct: self.is_direct,
        });
    }

    fn cancel(&mut self) {
        self.is_answered = true;
        self.job.cancel();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_answered {
            match self.job.is_awaited() {
                true => self.complete(Err(Errno::CANCELED.into())),
                false => self.cancel(),
            }
        }
        // Before the slot is free: the next job may wait for these bytes.
        drop(self.memory.take());
    }
}
