//! `threads`: blocking calls in a pool of threads.
//!
//! A thread opens, calls `fstat` and reads on one trip. It also copies from the page cache, in parallel with
//! other threads.

use std::sync::Arc;

use super::blocking;
use super::contract::{Engine, StartContext, StartError};
use super::pool::{Pool, Queue};
use super::ticket::WorkItem;

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Ok(Box::new(Pooled(Arc::clone(context.pool))))
}

struct Pooled(Arc<Pool>);

impl Engine for Pooled {
    fn submit(&self, work: WorkItem) {
        let queue = Queue::of(work.op());
        self.0.submit(queue, || work.run(blocking::perform));
    }
}
