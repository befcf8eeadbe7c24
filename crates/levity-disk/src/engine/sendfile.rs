//! `sendfile`: everything on the submitting thread. The baseline: what most servers do.
//!
//! Opens block. A read is not made: the file itself is handed over, for a `sendfile` that blocks on the disk.
//! Uses no threads, no queue and no memory.

use std::io;
use std::sync::Arc;

use super::blocking::{self, Opening};
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::ticket::{Ticket, Work};
use crate::files::OpenFile;
use crate::job::{COPIED_BYTES, Done, Op, Ready};

pub(super) fn probe() -> Result<(), Unavailable> {
    Ok(())
}

pub(super) fn start(_: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Inline))
}

struct Inline;

impl Engine for Inline {
    fn submit(&self, work: Work) {
        if let Some((op, mut ticket)) = work.begin() {
            let result = perform(op, &mut ticket);
            ticket.finish(result);
        }
    }
}

fn perform(op: Op, ticket: &mut Ticket) -> io::Result<Done> {
    match op {
        Op::Open {
            root,
            path,
            first,
            variants,
            lookup,
        } => {
            let opening = Opening::open(&root, &path, &variants, lookup, ticket.devices())?;
            Ok(match opening.within(first, ticket) {
                None => opening.unread(),
                Some((offset, len)) => opening.handed_over(|file| page_cache(file, offset, len)),
            })
        }
        Op::Read { offset, len, .. } if len < COPIED_BYTES && ticket.takes_more(offset, len) => {
            blocking::perform(op, ticket)
        }
        Op::Read { file, offset, len } => {
            let now = file.refresh()?;
            let left = now.size.saturating_sub(offset);
            let len = usize::try_from(left).unwrap_or(len).min(len);
            Ok(Done::Read(page_cache(&file, offset, len), now))
        }
        op => blocking::perform(op, ticket),
    }
}

fn page_cache(file: &Arc<OpenFile>, offset: u64, len: usize) -> Ready {
    file.let_the_kernel_read_ahead();
    Ready::PageCache {
        file: Arc::clone(file),
        offset,
        len,
    }
}
