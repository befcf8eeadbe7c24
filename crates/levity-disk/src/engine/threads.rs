//! `threads`: blocking calls, in threads that may block.
//!
//! One trip opens, asks and reads. The copy out of the page cache is made by the thread that reads,
//! in parallel with the others.

use std::sync::Arc;

use super::blocking;
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::ticket::Work;

pub(super) fn probe() -> Result<(), Unavailable> {
    Ok(())
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Pooled(Arc::clone(context.pool))))
}

struct Pooled(Arc<Pool>);

impl Engine for Pooled {
    fn submit(&self, work: Work) {
        self.0.submit(Queue::of(work.op()), || perform(work));
    }
}

fn perform(work: Work) {
    if let Some((op, mut ticket)) = work.begin() {
        let result = blocking::perform(op, &mut ticket);
        ticket.finish(result);
    }
}
