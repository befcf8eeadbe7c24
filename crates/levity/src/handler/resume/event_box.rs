//! The box that keeps the events of a stream. It is in the memory of one of the event loops.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_mailbox::{Append, Command, Cursor, Draft, Feed, Name, Progress};
use tokio::sync::oneshot;

use crate::mailboxes::set::ReceiverSlot;
use crate::message::client::Client;
use crate::upstream::proxy::Resume;
use crate::worker::Worker;

/// The box of one stream.
pub struct EventBox {
    pub worker: Rc<Worker>,
    pub resume: Arc<Resume>,
    pub name: Name,
    /// The part of all ids that only clients of the stream know.
    pub token: String,
}

impl EventBox {
    /// A draft of an event after which the client has the id `of_application`.
    pub fn draft(&self, content: Vec<u8>, of_application: &str) -> Draft {
        Draft {
            event: self.token.as_str().into(),
            media_type: of_application.into(),
            content: content.into(),
            ..Draft::default()
        }
    }

    /// Adds `client` as a receiver; `None` if there are too many.
    pub fn subscribe(&self, client: &Client, from: Cursor) -> Option<(Feed, ReceiverSlot)> {
        let set = &self.resume.set;
        let slot = set.enter(&self.name, client.ip, Instant::now()).ok()?;
        let copies = &self.worker.resume;
        let feed = copies.subscribe(&self.name, &set.settings, Some(from));
        Some((feed?, slot))
    }

    /// Appends events. Returns the number of receivers; `None` if the box does not take them.
    pub async fn append(&self, appends: Vec<Append>) -> Option<usize> {
        let answer = self.ask(|reply| Command::Publish { appends, reply });
        let (_, last) = answer.await.ok()?.pop()?;
        last.ok().map(|published| published.receivers)
    }

    /// Waits until the progress of the receivers differs from `known`, or there is none.
    pub async fn progress(&self, known: Option<Progress>) -> Progress {
        let name = self.name.clone();
        let answer = self.ask(|reply| Command::Progress { name, known, reply });
        answer.await.unwrap_or_default()
    }

    /// Whether there is such a box.
    pub async fn is_known(&self) -> bool {
        let name = self.name.clone();
        let answer = self.ask(|reply| Command::Summary { name, reply });
        matches!(answer.await, Ok(Ok(Some(_))))
    }

    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> oneshot::Receiver<T> {
        let boxes = &self.worker.resume;
        boxes.ask(boxes.owner_of(&self.name), command)
    }
}
