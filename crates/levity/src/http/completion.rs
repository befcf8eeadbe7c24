//! What is done when a response has ended.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_telemetry::access_log::End;

use crate::route::Service;
use crate::worker::Worker;

/// How a response ended.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// The status that left, or would have.
    pub status: u16,
    /// Bytes of the body that left.
    pub bytes: u64,
    /// How it ended.
    pub end: End,
    /// When.
    pub ended: Instant,
}

/// Is told of the end of a response by whoever made it.
pub trait CompletionHook: fmt::Debug {
    /// An error goes out in place of the response.
    fn replaced(&mut self);

    /// The response has ended. The request was answered with `service`. Does not wait.
    fn completed(self: Box<Self>, worker: &Rc<Worker>, service: &Rc<Arc<Service>>, how: Completion);
}
