//! What event loops and owners say to each other.

use std::sync::Arc;

use levity_wire::mailbox::MessageId;
use tokio::sync::oneshot;

use crate::message::Message;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{Append, Opened, StoreError, Summary};

/// A command of an event loop to an owner. An answer that nobody waits for any more is dropped.
#[derive(Debug)]
pub enum Command {
    /// Append messages to boxes of this owner. The results are in the same order.
    Publish {
        /// The messages.
        appends: Vec<Append>,
        /// Where the results go.
        reply: oneshot::Sender<Vec<Result<Published, PublishError>>>,
    },
    /// Send an event loop what is kept of a box, and all its changes from now on.
    Open {
        /// The box.
        name: Name,
        /// The settings of its set.
        settings: Arc<Settings>,
        /// The number of the event loop.
        worker: usize,
    },
    /// An event loop has this number of receivers of a box; with none it needs no more changes.
    Receivers {
        /// The box.
        name: Name,
        /// The number of the event loop.
        worker: usize,
        /// The number of receivers.
        receivers: usize,
    },
    /// A receiver has read all messages up to one.
    Read {
        /// The box.
        name: Name,
        /// The last message that was read.
        last: MessageId,
    },
    /// What is kept of a box, which is not made.
    Look {
        /// The box.
        name: Name,
        /// Where the result goes: `None` if the box is not known.
        reply: oneshot::Sender<Result<Option<Info>, StoreError>>,
    },
    /// Remove a box, and end its receivers.
    Remove {
        /// The box.
        name: Name,
        /// Where the result goes: whether the box was known.
        reply: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// List boxes of a set.
    List {
        /// The set.
        set: String,
        /// The last name that is known already.
        after: Option<Name>,
        /// The maximum of names.
        count_max: usize,
        /// Where the result goes.
        reply: oneshot::Sender<Result<Vec<(Summary, usize)>, StoreError>>,
    },
}

/// What is known of a box.
#[derive(Debug)]
pub struct Info {
    /// What is kept of it.
    pub opened: Opened,
    /// The number of receivers in this process.
    pub receivers: usize,
}

/// A box has a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The id of the message.
    pub id: MessageId,
    /// The number of receivers in this process at that time.
    pub receivers: usize,
    /// The box had it already.
    pub is_duplicate: bool,
}

/// Why a box does not have a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishError {
    /// The store.
    Store(StoreError),
    /// The server ends.
    Ended,
}

/// A change that an owner reports to an event loop.
#[derive(Debug, Clone)]
pub enum Event {
    /// What is kept of a box. Changes that were reported before may be in it.
    Opened {
        /// The box.
        name: Name,
        /// What is kept of it.
        opened: Opened,
    },
    /// The store does not open the box.
    Failed {
        /// The box.
        name: Name,
        /// Why.
        error: StoreError,
    },
    /// A box has got a message.
    Appended {
        /// The box.
        name: Name,
        /// The message.
        message: Message,
        /// Messages with smaller numbers are gone because of a bound.
        lost: u64,
    },
    /// A box was removed.
    Removed(Name),
}
