//! A job on its way through an engine: the operation, and a ticket that makes sure that an answer is given
//! once and that the device's slot is freed.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::io::Errno;

use crate::files::{KnownDevices, OpenFile};
use crate::job::{Completion, Done, Op};
use crate::memory::{Reservation, span};

/// The scheduler's side of a [`Ticket`]. Dropping it frees the device's slot.
pub(crate) trait Completions: Send {
    /// Whether anyone still waits.
    fn is_awaited(&self) -> bool;

    /// The devices that the job is charged to: an open must not wait for any other.
    fn devices(&self) -> KnownDevices<'_>;

    /// Whether the job is to read `len` bytes from `offset` of a file that it has just opened past the page
    /// cache.
    fn reads_directly(&self, file: &OpenFile, offset: u64, len: usize) -> bool;

    /// Answers all who wait. At most one of this and [`Completions::cancel`] is called, and once.
    fn complete(&mut self, completion: Completion);

    /// Drops the job without an answer.
    fn cancel(&mut self);
}

/// A job that has its slot and its memory, and may start.
pub struct Work {
    op: Op,
    ticket: Ticket,
}

impl Work {
    /// Work that has waited since `since`. Whether to read past the page cache is `reads_directly`; `None`
    /// for an open, which has no file yet.
    pub(crate) fn new(
        op: Op,
        completions: Box<dyn Completions>,
        since: Instant,
        memory: Reservation,
        reads_directly: Option<bool>,
    ) -> Work {
        let ticket = Ticket {
            completions,
            is_answered: false,
            reads_directly,
            direct: false,
            memory: Some(memory),
            since,
            started: since,
        };
        Work { op, ticket }
    }

    /// The operation.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Whether it is an [`Op::Read`] past the page cache. What an open reads is decided after it.
    pub(crate) fn reads_directly(&self) -> bool {
        self.ticket.reads_directly == Some(true)
    }

    /// Performs the work on the calling thread and finishes it, unless nobody waits for it any more.
    pub(super) fn run(self, perform: impl FnOnce(Op, &mut Ticket) -> io::Result<Done>) {
        if let Some((op, mut ticket)) = self.begin() {
            let result = perform(op, &mut ticket);
            ticket.finish(result);
        }
    }

    /// Call it when a thread starts the work. `None` when nobody waits for it any more.
    pub fn begin(mut self) -> Option<(Op, Ticket)> {
        self.ticket.started = Instant::now();
        if self.ticket.completions.is_awaited() {
            return Some((self.op, self.ticket));
        }
        // Not left to the drop of the ticket, which asks again: a job that has joined in between would be
        // answered ECANCELED instead of being offered anew.
        self.ticket.cancel();
        None
    }
}

/// The right to one of a device's slots, and the duty to answer. Dropped unfinished, it answers ECANCELED
/// to all who still wait.
pub struct Ticket {
    completions: Box<dyn Completions>,
    is_answered: bool,
    reads_directly: Option<bool>,
    /// The bytes come past the page cache.
    direct: bool,
    /// `None` once turned into a buffer.
    memory: Option<Reservation>,
    since: Instant,
    started: Instant,
}

impl Ticket {
    /// The descriptor for reading `len` bytes from `offset` of `file` past the page cache, if that is how
    /// this job is to be done and if the file allows it. It takes whole blocks ([`Buffer::for_blocks`](crate::Buffer::for_blocks)). Call it
    /// once, on a thread that may block, before the read.
    pub(crate) fn direct<'f>(
        &mut self,
        file: &'f OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<BorrowedFd<'f>> {
        let is_direct = self
            .reads_directly
            .unwrap_or_else(|| self.completions.reads_directly(file, offset, len));
        let fd = is_direct.then(|| file.direct()).flatten();
        self.direct = fd.is_some();
        fd
    }

    /// The read past the page cache that [`Ticket::direct`] allowed was refused: it goes through the page
    /// cache.
    pub(crate) fn not_direct(&mut self) {
        self.direct = false;
    }

    /// Reserves memory for `len` bytes from `offset` instead of fewer, if memory is ample.
    pub(super) fn takes_more(&mut self, offset: u64, len: usize) -> bool {
        let memory = self.memory.as_mut();
        memory.is_some_and(|memory| memory.raise(span(offset, len)))
    }

    /// The memory for the bytes that the operation asks for, or for fewer.
    ///
    /// # Panics
    /// If it is called twice.
    pub(super) fn memory(&mut self) -> Reservation {
        self.memory.take().expect("an operation reads once")
    }

    pub(crate) fn devices(&self) -> KnownDevices<'_> {
        self.completions.devices()
    }

    /// Answers, and frees the slot for the next job.
    pub fn finish(mut self, result: io::Result<Done>) {
        self.complete(result);
    }

    fn complete(&mut self, result: io::Result<Done>) {
        self.is_answered = true;
        self.completions.complete(Completion {
            result,
            queued: self.started - self.since,
            service: self.started.elapsed(),
            direct: self.direct,
        });
    }

    fn cancel(&mut self) {
        self.is_answered = true;
        self.completions.cancel();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_answered {
            match self.completions.is_awaited() {
                true => self.complete(Err(Errno::CANCELED.into())),
                false => self.cancel(),
            }
        }
        // Before the slot is free: the next job may wait for these bytes.
        drop(self.memory.take());
    }
}
