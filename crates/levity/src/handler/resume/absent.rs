//! What stands for `resume` in a build without mailboxes: no proxy has it.

use std::sync::Arc;

use super::{Handling, Outcome};
use crate::message::request::Request;
use crate::upstream::proxy::{Proxy, Resume};

/// Whether the response to `request` would be kept.
pub(super) fn may_resume(_: &Request) -> bool {
    false
}

impl<'a> Handling<'a> {
    /// Answers a request whose response would be kept.
    pub(super) async fn resumed(
        &mut self,
        _: &Request,
        _: &'a Arc<Proxy>,
        resume: &Arc<Resume>,
    ) -> Outcome<'a> {
        match resume.set.never {}
    }
}
