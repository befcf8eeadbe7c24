//! Figures of mailboxes.

/// What mailboxes hold, and what has become of messages. All but the first four since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MailboxFigures {
    /// Where messages are kept: the value of `mailbox_store.store`.
    pub store: &'static str,
    /// Boxes.
    pub boxes: usize,
    /// Boxes with a receiver in this process.
    pub boxes_read: usize,
    /// Receivers.
    pub receivers: usize,
    /// The memory of messages in bytes.
    pub bytes: usize,
    /// The maximum of that.
    pub bytes_max: usize,
    /// Messages, by what has become of them.
    pub messages: Vec<(&'static str, u64)>,
    /// Messages that boxes have dropped, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Messages and receivers that were refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Boxes that were removed because nobody used them.
    pub idle_boxes: u64,
    /// The store can do nothing at the moment.
    pub is_down: bool,
    /// What `resume` keeps.
    pub resume: ResumeFigures,
}

/// The event streams of applications that are kept for clients that come back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResumeFigures {
    /// Streams, with those that have ended and are still kept.
    pub streams: usize,
    /// The memory of their events in bytes.
    pub bytes: usize,
    /// The maximum of that.
    pub bytes_max: usize,
    /// Answers that were not kept, by reason, since the start of the process.
    pub refused: Vec<(&'static str, u64)>,
}
