//! The open file of a response. It counts to its client from the first wait on: a response that is sent at once pays nothing.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::OpenFile;

use crate::files::cache::EntryRef;
use crate::files::entry::Content;
use crate::http::response::{Body, PartSource};
use crate::loop_core::LoopCore;
use crate::shares::claim::Requester;
use crate::shares::common::CommonHold;

/// The file of a response, if it has one.
#[derive(Default)]
pub(super) struct HeldFile<'s> {
    requester: Option<Requester<'s>>,
    file: Option<Source>,
    hold: OnceCell<CommonHold>,
}

/// What keeps the file open.
enum Source {
    Entry(Rc<EntryRef>),
    File(Arc<OpenFile>),
}

impl Source {
    fn file(&self) -> &Arc<OpenFile> {
        match self {
            Self::File(file) => file,
            Self::Entry(entry) => match &entry.entry.content {
                Content::Memory(_, file) | Content::File(file) => file,
            },
        }
    }
}

impl<'s> HeldFile<'s> {
    /// That of `body`. Without a requester it does not count.
    pub(super) fn of(body: &Body, requester: Option<Requester<'s>>) -> Self {
        let file = match body {
            Body::Memory(cached, _) => Some(Source::Entry(cached.clone())),
            Body::File(file) => Some(Source::File(file.file.clone())),
            Body::Multipart(body) => Some(match &body.source {
                PartSource::Memory(cached) => Source::Entry(cached.clone()),
                PartSource::File(file) => Source::File(file.file.clone()),
            }),
            _ => None,
        };
        Self {
            requester,
            file,
            hold: OnceCell::new(),
        }
    }

    /// `file` is sent from now on.
    pub(super) fn set(&mut self, file: &Arc<OpenFile>) {
        self.release();
        self.file = Some(Source::File(file.clone()));
    }

    /// The file has been sent.
    pub(super) fn release(&mut self) {
        (self.hold, self.file) = (OnceCell::new(), None);
    }

    /// Counts the file, if it does not count yet.
    pub(super) fn count(&self, core: &LoopCore) {
        if let (Some(requester), Some(source)) = (&self.requester, &self.file) {
            self.hold.get_or_init(|| {
                let claims = requester.claims(&core.stakes);
                claims.hold(source.file().clone())
            });
        }
    }
}
