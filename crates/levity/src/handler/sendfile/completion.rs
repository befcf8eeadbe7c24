//! Hooks that run when a response has ended.

use std::rc::Rc;
use std::sync::Arc;

use crate::http::send::Sent;
use crate::route::Service;
use crate::worker::Worker;

/// A callback for the end of a response. It is dropped uncalled if the response is not sent.
pub trait CompletionHook {
    /// The response failed before its first byte was sent, and another replaces it. Returns whether the hook is for that one too.
    fn replaced(&mut self) -> bool {
        false
    }

    /// The response has ended. `service` is the configuration of its request. Must not block.
    fn completed(self: Box<Self>, worker: &Rc<Worker>, service: &Arc<Service>, sent: &Sent);
}
