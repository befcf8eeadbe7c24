//! `sendfile`: opens and reads on the submitting thread. The baseline: what most servers do.
//!
//! Opens block. A read is not made: the file itself is handed over, for a `sendfile` that blocks on the disk.
//! For these it uses no threads, no queue and no memory. Changes go through the queues to the pool, as under every
//! engine: a sync may take seconds, and no server that this one is compared with waits for one on its loop.

use std::io;
use std::sync::Arc;

use super::blocking::{self, ReadBytes};
use super::contract::{Engine, StartContext, StartError};
use super::pool::{Pool, Queue};
use super::ticket::{Ticket, WorkItem};
use crate::job::{COPIED_BYTES, Done, Op};

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Inline(Arc::clone(context.pool))))
}

struct Inline(Arc<Pool>);

impl Engine for Inline {
    fn submit(&self, work: WorkItem) {
        match work.op().is_for_the_pool() {
            true => self.0.submit(Queue::of(work.op()), || work.run(perform)),
            false => work.run(perform),
        }
    }
}

fn perform(op: Op, ticket: &mut Ticket) -> io::Result<Done> {
    let is_read = matches!(op, Op::Read(_));
    blocking::perform_with(op, ticket, |file, offset, len, ticket| {
        if is_read && len < COPIED_BYTES && ticket.try_grow(offset, len) {
            return blocking::read_through(file, offset, len, ticket);
        }
        file.enable_kernel_readahead();
        Ok(ReadBytes::InPageCache(len))
    })
}
