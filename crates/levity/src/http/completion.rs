//! Hooks that run when a response has ended.

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
    /// The status of the response, sent or not.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// How the response ended.
    pub end: End,
    /// When it ended.
    pub ended: Instant,
}

/// A callback for the end of a response.
pub trait CompletionHook: fmt::Debug {
    /// The response failed before its first byte was sent, and another replaces it.
    fn replaced(&mut self);

    /// The response has ended. `service` is the configuration of its request. Must not block.
    fn completed(self: Box<Self>, worker: &Rc<Worker>, service: &Rc<Arc<Service>>, how: Completion);
}
