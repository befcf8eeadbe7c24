//! Messages of an inbox that one response brings count as read when it has been sent, and not before: a client that leaves before
//! gets them again.

use std::rc::Rc;
use std::sync::Arc;

use levity_mailbox::{Feed, MessageId};
use levity_telemetry::access_log::End;

use crate::handler::sendfile::completion::CompletionHook;
use crate::http::send::Sent;
use crate::route::Service;
use crate::worker::Worker;

/// What a response brings.
pub(super) struct MarkWhenSent {
    feed: Feed,
    last: MessageId,
}

impl MarkWhenSent {
    /// The messages of `feed` up to `last`.
    pub(super) fn new(feed: Feed, last: MessageId) -> Box<Self> {
        Box::new(Self { feed, last })
    }
}

impl CompletionHook for MarkWhenSent {
    fn completed(self: Box<Self>, _: &Rc<Worker>, _: &Arc<Service>, sent: &Sent) {
        if sent.end == End::Complete {
            self.feed.mark_read(self.last);
        }
    }
}
