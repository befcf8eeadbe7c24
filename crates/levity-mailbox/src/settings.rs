//! What a set of boxes may hold.

use std::time::Duration;

/// The settings of a set of boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the set.
    pub set: String,
    /// Who reads a box.
    pub mode: Mode,
    /// The maximum number of messages that a box keeps.
    pub messages_max: usize,
    /// The maximum size of the messages that a box keeps, in bytes.
    pub bytes_max: usize,
    /// How long a message is kept; `None` as long as the bounds allow.
    pub lifetime: Option<Duration>,
    /// How long a box is kept after its last receiver has left and its last message has come.
    pub idle: Duration,
    /// The maximum number of boxes of the set at one owner.
    pub boxes_max: usize,
    /// The maximum number of receivers of a box at one event loop.
    pub receivers_max: usize,
    /// Boxes are streams: a message is dropped for no bound, but refused, and what expires is a whole box, as its state says.
    pub keeps_all: bool,
    /// Whether a message is on stable storage before its publisher has an answer.
    pub is_durable: bool,
}

/// Who reads a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One logical receiver, which by default gets all that it has not read.
    Inbox,
    /// Any number of receivers, which by default get what arrives from now on.
    Topic,
}
