//! `sendfile`: everything on the submitting thread. The baseline: what most servers do.
//!
//! Opens block. A read is not made: the file itself is handed over, for a `sendfile` that blocks on the disk.
//! Uses no threads, no queue and no memory.

use std::io;

use super::blocking::{self, Brought};
use super::contract::{Engine, StartContext, StartError};
use super::ticket::{Ticket, Work};
use crate::job::{COPIED_BYTES, Done, Op};

pub(super) fn start(_: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Inline))
}

struct Inline;

impl Engine for Inline {
    fn submit(&self, work: Work) {
        work.run(perform);
    }
}

fn perform(op: Op, ticket: &mut Ticket) -> io::Result<Done> {
    let is_read = matches!(op, Op::Read { .. });
    blocking::perform_with(op, ticket, |file, offset, len, ticket| {
        if is_read && len < COPIED_BYTES && ticket.takes_more(offset, len) {
            return blocking::read_through(file, offset, len, ticket);
        }
        file.let_the_kernel_read_ahead();
        Ok(Brought::Cached(len))
    })
}
