//! The box that keeps the events of a stream. It has one owner among the workers.

use std::rc::Rc;
use std::sync::Arc;

use levity_mailbox::{Append, Command, Draft, Name};
use tokio::sync::oneshot;

use crate::route::Resume;
use crate::worker::Worker;

/// The memory of an event beside its bytes, about.
pub const OVERHEAD_BYTES: usize = 512;

/// The box of one stream.
pub struct EventBox {
    pub worker: Rc<Worker>,
    pub resume: Arc<Resume>,
    pub name: Name,
    /// The part of all ids that only clients of the stream know.
    pub token: String,
}

impl EventBox {
    /// A draft of an event after which the client has the id `of_application`; `None` if `limits.mailbox_memory` is used up.
    pub fn draft(&self, content: Vec<u8>, of_application: &str) -> Option<Draft> {
        let budget = &self.resume.set.shared.budget;
        let reservation = budget.try_reserve(content.len() + OVERHEAD_BYTES)?;
        Some(Draft {
            event: self.token.as_str().into(),
            media_type: of_application.into(),
            content: content.into(),
            reservation: Some(reservation),
            ..Draft::default()
        })
    }

    /// Appends events. Returns the number of receivers; `None` if the box does not take them.
    pub async fn append(&self, drafts: Vec<Draft>) -> Option<usize> {
        let (reply, answer) = oneshot::channel();
        let appends = drafts.into_iter().map(|draft| Append {
            name: self.name.clone(),
            settings: self.resume.set.settings.clone(),
            draft: Arc::new(draft),
        });
        let appends = appends.collect();
        self.send(Command::Publish { appends, reply });
        let (_, last) = answer.await.ok()?.pop()?;
        last.ok().map(|published| published.receivers)
    }

    /// The number of receivers.
    pub async fn receivers(&self) -> usize {
        let (reply, answer) = oneshot::channel();
        let name = self.name.clone();
        self.send(Command::Summary { name, reply });
        let found = answer.await.ok().and_then(Result::ok).flatten();
        found.map_or(0, |info| info.receivers)
    }

    fn send(&self, command: Command) {
        self.worker.mailboxes.send_to_owner_of(&self.name, command);
    }
}
