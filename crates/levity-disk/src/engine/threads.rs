//! `threads`: blocking calls, in threads that may block.
//!
//! One trip opens, asks and reads. The copy out of the page cache is made by the thread that reads,
//! in parallel with the others.

use std::sync::Arc;

use super::pool::{Pool, Queue};
use super::{Description, Engine, Given, Op, Started, Unavailable, Work, operation};

pub(super) const DESCRIPTION: Description = Description {
    name: "threads",
    aliases: &["gthread-aio"],
    summary: "blocking reads in a pool of threads",
    hidden: false,
    probe,
    start,
};

fn probe() -> Result<(), Unavailable> {
    Ok(())
}

fn start(given: &Given<'_>) -> Started {
    Ok(Box::new(Pooled(Arc::clone(given.pool))))
}

struct Pooled(Arc<Pool>);

impl Engine for Pooled {
    fn submit(&self, work: Work) {
        self.0.submit(queue(work.op()), || perform(work));
    }
}

/// Which threads an operation may use.
pub(super) fn queue(op: &Op) -> Queue {
    match op {
        Op::Open { .. }
        | Op::List { .. }
        | Op::Create { .. }
        | Op::Unlink { .. }
        | Op::Look { .. } => Queue::Stat,
        Op::Read { .. } | Op::Write { .. } => Queue::Read,
    }
}

fn perform(work: Work) {
    if let Some((op, mut ticket)) = work.begin() {
        let result = operation::perform(op, &mut ticket);
        ticket.finish(result);
    }
}
