//! A job on its way through an engine: what to do, and the ticket that sees to it that an answer is
//! given once and the device's slot is free again.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::{Completion, Done, EngineId, Job, Op, Reply};

use crate::files::{KnownDevices, OpenFile, OtherDevice};
use crate::flight::Flight;
use crate::ghosts::Asker;
use crate::memory::arena::SlotAllocator;
use crate::memory::registered::RegisteredMemory;
use crate::memory::{self, Buffer, Reservation};
use crate::pace::Begun;
use crate::scheduler::Scheduler;

/// A job that has its place and its memory, and may start.
#[derive(Debug)]
pub struct Work {
    op: Op,
    ticket: Ticket,
}

impl Work {
    pub(crate) fn new(op: Op, ticket: Ticket) -> Work {
        Work { op, ticket }
    }

    /// What to do.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Whether it reads a part of a file that is to come past the page cache. What an open reads is
    /// known only then.
    pub(crate) fn reads_directly(&self) -> bool {
        self.ticket.wants_direct == Some(true)
    }

    /// Call it when a thread takes the work up. `None` when nobody waits for it any more.
    pub fn begin(mut self) -> Option<(Op, Ticket)> {
        self.ticket.started = Instant::now();
        if self.ticket.is_wanted() {
            return Some((self.op, self.ticket));
        }
        // Not left to the drop of the ticket, which asks once more: who has come aboard since would be
        // told that the job was canceled, instead of being offered anew.
        self.ticket.drop_reply();
        None
    }
}

/// The right to one of a device's slots, and the duty to answer. Dropped unfinished, it answers
/// ECANCELED to whoever still waits.
pub struct Ticket {
    /// `None` once answered.
    reply: Option<Box<dyn Reply>>,
    asker: Asker,
    /// Whether to read past the page cache; `None` for an open, which has no file yet.
    wants_direct: Option<bool>,
    /// What is read comes past the page cache.
    direct: bool,
    /// `None` once turned into a buffer.
    memory: Option<Reservation>,
    started: Instant,
    flight: Arc<Flight>,
    engine: EngineId,
    scheduler: Arc<Scheduler>,
    /// `None` once it has come back, and for a device that has no place on the list of loads.
    begun: Option<Begun>,
}

impl Ticket {
    /// For a job that starts now, of which the operation comes back.
    pub(crate) fn new(
        scheduler: Arc<Scheduler>,
        flight: Arc<Flight>,
        engine: EngineId,
        job: Job,
        memory: Reservation,
        wants_direct: Option<bool>,
    ) -> (Op, Ticket) {
        let ticket = Ticket {
            asker: Asker::of(&job),
            reply: Some(job.reply),
            wants_direct,
            direct: false,
            memory: Some(memory),
            started: flight.since,
            begun: scheduler.begin(flight.device),
            flight,
            engine,
            scheduler,
        };
        (job.op, ticket)
    }

    /// The descriptor to read `len` bytes from `offset` of `file` with, past the page cache, if that is
    /// how this job is to be done and if it can be; the bytes then belong into [`Ticket::blocks`]. Call
    /// it once, in a thread that may wait, before the read.
    pub(crate) fn direct<'f>(
        &mut self,
        file: &'f OpenFile,
        offset: u64,
        len: usize,
    ) -> Option<BorrowedFd<'f>> {
        let wanted = self
            .wants_direct
            .unwrap_or_else(|| self.scheduler.goes_direct(self.asker, file, offset, len));
        let fd = wanted.then(|| file.direct());
        self.direct = fd.is_some_and(|fd| fd.is_some());
        fd.flatten()
    }

    /// The read past the page cache that [`Ticket::direct`] led to is one through it after all.
    pub(crate) fn not_direct(&mut self) {
        self.direct = false;
    }

    /// A buffer with room for `len` bytes, out of what was reserved. Call it or `Ticket::blocks`,
    /// and once at most.
    ///
    /// # Panics
    /// When `len` is more than the operation asked for.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        Buffer::new(self.memory(), len)
    }

    /// A buffer for `len` bytes from `offset`, with room for the whole blocks around them.
    ///
    /// # Panics
    /// When they are other bytes than the operation asked for.
    pub(crate) fn blocks(&mut self, offset: u64, len: usize) -> Buffer {
        Buffer::for_blocks(self.memory(), offset, len)
    }

    /// The same, in a slot that `allocator` has for it; in ordinary memory if there is none of that size.
    ///
    /// # Panics
    /// As [`Ticket::blocks`].
    pub(crate) fn slot(
        &mut self,
        allocator: &mut SlotAllocator,
        offset: u64,
        len: usize,
    ) -> Buffer {
        Buffer::in_slot(self.memory(), allocator, offset, len)
    }

    /// The same, in memory that is registered with a ring, if there is a slot for it.
    ///
    /// # Panics
    /// As [`Ticket::blocks`].
    pub(crate) fn registered(
        &mut self,
        registered: &Arc<RegisteredMemory>,
        offset: u64,
        len: usize,
    ) -> Buffer {
        Buffer::in_registered(self.memory(), registered, offset, len)
    }

    /// Sets memory aside for `len` bytes from `offset` instead of fewer, if there is plenty.
    pub(super) fn takes_more(&mut self, offset: u64, len: usize) -> bool {
        let memory = self.memory.as_mut();
        memory.is_some_and(|memory| memory.raise(memory::span(offset, len)))
    }

    fn memory(&mut self) -> Reservation {
        self.memory.take().expect("an operation reads once")
    }

    /// The devices that the job is charged to: an open asks no other.
    pub(crate) fn devices(&self) -> KnownDevices<'_> {
        self.flight.devices()
    }

    /// Answers, and frees the slot for the next job.
    pub fn finish(mut self, result: io::Result<Done>) {
        self.answer(result);
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.wanted())
    }

    /// Gives no answer, if none has been given.
    fn drop_reply(&mut self) {
        if let Some(unwanted) = self.reply.take() {
            self.scheduler.count_canceled(1);
            drop(unwanted);
        }
    }

    fn answer(&mut self, result: io::Result<Done>) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        let completion = Completion {
            result,
            queued: self.started - self.flight.since,
            service: self.started.elapsed(),
            direct: self.direct,
        };
        // A job that goes on in another queue has not been answered yet.
        let goes_on = completion
            .result
            .as_ref()
            .is_err_and(|error| OtherDevice::of(error).is_some());
        if !goes_on {
            self.scheduler.count(self.engine, &completion);
        }
        if let Some(begun) = &self.begun {
            begun.count(&completion);
        }
        reply.send(completion);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_wanted() {
            self.answer(Err(Errno::CANCELED.into()));
        } else {
            self.drop_reply();
        }
        drop(self.memory.take());
        drop(self.begun.take());
        self.scheduler.finished(&self.flight);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?})", self.flight.op)
    }
}
