//! Messages.

use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use crate::budget::Reservation;

/// The memory of a message beside its bytes, about.
pub(crate) const OVERHEAD_BYTES: usize = 160;

/// A message before a box has it. One draft may go to many boxes, which share its memory.
#[derive(Debug, Default)]
pub struct Draft {
    /// The id that its publisher gives it: a box takes one message of an id.
    pub key: Option<Box<str>>,
    /// The name of the event; empty without one.
    pub event: Box<str>,
    /// The media type of the content.
    pub media_type: Box<str>,
    /// The content.
    pub content: Box<[u8]>,
    /// When it is dropped, whether or not somebody has received it.
    pub deadline: Option<SystemTime>,
    /// Its memory. `None` in tests.
    pub reservation: Option<Reservation>,
    /// The store has lost its content: receivers learn of a gap in its place.
    pub is_damaged: bool,
}

impl Draft {
    /// Stands for a message whose content the store has lost.
    pub(crate) fn damaged() -> Self {
        Self {
            is_damaged: true,
            ..Self::default()
        }
    }

    /// The memory that it takes in bytes, about. This counts for the bounds of a box.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| key.len());
        OVERHEAD_BYTES + key + self.event.len() + self.media_type.len() + self.content.len()
    }
}

/// A message of a box. A clone is a reference.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// What it says.
    pub draft: Arc<Draft>,
}

impl Message {
    /// Whether its time is over.
    #[must_use]
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.draft.deadline.is_some_and(|deadline| deadline <= now)
    }
}
