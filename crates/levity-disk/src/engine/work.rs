//! A job on its way through an engine: what to do, and the ticket that sees to it that an answer is
//! given once and the device's slot is free again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::{Completion, Done, EngineId, Op, Reply};
use crate::buffer::{Buffer, Reservation};
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

    /// Call it when a thread takes the work up. `None` when nobody waits for it any more.
    pub fn begin(mut self) -> Option<(Op, Ticket)> {
        self.ticket.started = Instant::now();
        self.ticket.is_wanted().then_some((self.op, self.ticket))
    }
}

/// The right to one of a device's slots, and the duty to answer. Dropped unfinished, it answers
/// ECANCELED to whoever still waits.
pub struct Ticket {
    /// `None` once answered.
    reply: Option<Box<dyn Reply>>,
    /// `None` once turned into a buffer.
    memory: Option<Reservation>,
    submitted: Instant,
    started: Instant,
    device: u64,
    engine: EngineId,
    scheduler: Arc<Scheduler>,
}

impl Ticket {
    pub(crate) fn new(
        scheduler: Arc<Scheduler>,
        device: u64,
        engine: EngineId,
        reply: Box<dyn Reply>,
        memory: Reservation,
        submitted: Instant,
    ) -> Ticket {
        Ticket {
            reply: Some(reply),
            memory: Some(memory),
            submitted,
            started: submitted,
            device,
            engine,
            scheduler,
        }
    }

    /// A buffer with room for `len` bytes, out of what was reserved. Call it once at most.
    ///
    /// # Panics
    /// When `len` is more than the operation asked for.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        let memory = self.memory.take().expect("an operation reads once");
        memory.buffer(len)
    }

    /// Answers, and frees the slot for the next job.
    pub fn finish(mut self, result: io::Result<Done>) {
        self.answer(result);
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.wanted())
    }

    fn answer(&mut self, result: io::Result<Done>) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        let completion = Completion {
            result,
            queued: self.started - self.submitted,
            service: self.started.elapsed(),
        };
        self.scheduler.count(self.engine, &completion);
        reply.send(completion);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_wanted() {
            self.answer(Err(Errno::CANCELED.into()));
        } else if let Some(unwanted) = self.reply.take() {
            self.scheduler.count_canceled(1);
            drop(unwanted);
        }
        drop(self.memory.take());
        self.scheduler.finished(self.device);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket(device {:#x})", self.device)
    }
}
