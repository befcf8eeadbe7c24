//! `sendfile`: everything on the submitting thread. The baseline: what most servers do.
//!
//! Opens block. A read is not made: the file itself is handed over, for a `sendfile` that blocks on the disk.
//! Uses no threads, no queue and no memory.

use std::io;

use super::blocking::{self, ReadBytes};
use super::contract::{Engine, StartContext, StartError};
use super::ticket::{Ticket, WorkItem};
use crate::job::{COPIED_BYTES, Done, Op};

pub(super) fn start(_: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Inline))
}

struct Inline;

impl Engine for Inline {
    fn submit(&self, work: WorkItem) {
        work.run(perform);
    }
}

fn perform(op: Op, ticket: &mut Ticket) -> io::Result<Done> {
    let is_read = matches!(op, Op::Read { .. });
    blocking::perform_with(op, ticket, |file, offset, len, ticket| {
        if is_read && len < COPIED_BYTES && ticket.try_grow(offset, len) {
            return blocking::read_through(file, offset, len, ticket);
        }
        file.enable_kernel_readahead();
        Ok(ReadBytes::InPageCache(len))
    })
}
