//! `threads`: blocking calls, in threads that may block.
//!
//! One trip opens, asks and reads. The copy out of the page cache is made by the thread that reads,
//! in parallel with the others.

use super::pool::{Pool, Queue};
use super::{Description, Engine, Op, Started, Threads, Unavailable, Work, operation};
use crate::disk::StartError;

pub(super) const DESCRIPTION: Description = Description {
    name: "threads",
    summary: "blocking reads in a pool of threads",
    hidden: false,
    probe,
    start,
};

fn probe() -> Result<(), Unavailable> {
    Ok(())
}

fn start(threads: Threads, _: Option<&str>) -> Started {
    let pool = Pool::start(threads, "disk", perform)
        .map_err(|error| StartError::unavailable(DESCRIPTION.name, &error))?;
    Ok(Box::new(Pooled(pool)))
}

struct Pooled(Pool<Work>);

impl Engine for Pooled {
    fn submit(&self, work: Work) {
        self.0.submit(queue(work.op()), work);
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }
}

/// Which threads an operation may use.
pub(super) fn queue(op: &Op) -> Queue {
    match op {
        Op::Open { .. } | Op::List { .. } => Queue::Stat,
        Op::Read { .. } => Queue::Read,
    }
}

fn perform(work: Work) {
    if let Some((op, mut ticket)) = work.begin() {
        let result = operation::perform(op, &mut ticket);
        ticket.finish(result);
    }
}
