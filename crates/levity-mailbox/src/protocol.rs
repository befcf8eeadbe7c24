//! What event loops and owners say to each other.

use std::sync::Arc;

use levity_wire::mailbox::MessageId;
use tokio::sync::oneshot;

use crate::message::Message;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{Append, Limit, Opened, StoreError, Summary};

/// A command of an event loop to an owner. An answer that nobody waits for any more is dropped.
#[derive(Debug)]
pub enum Command {
    /// Append messages to boxes of this owner. The deliveries are in the same order.
    Publish {
        /// The messages.
        appends: Vec<Append>,
        /// Where the results go.
        reply: oneshot::Sender<Vec<Delivery>>,
    },
    /// Send an event loop what is kept of a box, and all its changes from now on. It replaces an earlier copy of this event
    /// loop, and counts no receivers yet.
    Open {
        /// The box.
        name: Name,
        /// The settings of its set.
        settings: Arc<Settings>,
        /// The number of the event loop.
        worker: usize,
        /// The number of the copy at the event loop, with which all events for it are marked.
        copy: u64,
    },
    /// An event loop has this number of receivers of the box that it opened last; with none it needs no more changes.
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
        /// The number of the event loop, which knows of it.
        worker: usize,
        /// The last message that was read.
        last: MessageId,
    },
    /// Begin the idle time of a box anew: somebody reads it who does not stay.
    Use {
        /// The box.
        name: Name,
    },
    /// Wait until the progress of a box differs from `known`. It reads no content. A later command for the same box takes the
    /// place of this one.
    Progress {
        /// The box.
        name: Name,
        /// The last answer; `None` for one that comes at once.
        known: Option<Progress>,
        /// Where the result goes. Dropped without one if there is no receiver, or when the last one leaves.
        reply: oneshot::Sender<Progress>,
    },
    /// What is known of a box, which is not made.
    Summary {
        /// The box.
        name: Name,
        /// Where the result goes: `None` if the box is not known.
        reply: oneshot::Sender<Result<Option<Info>, StoreError>>,
    },
    /// What is kept of a box, which is not made, as [`Store::read`](crate::Store::read) says.
    ReadAfter {
        /// The box.
        name: Name,
        /// The messages after this one.
        after: Option<MessageId>,
        /// How much of them.
        limit: Limit,
        /// Where the result goes: `None` if the box is not known.
        reply: oneshot::Sender<Result<Option<Opened>, StoreError>>,
    },
    /// Remove a box, and end its receivers.
    Remove {
        /// The box.
        name: Name,
        /// The life that is meant; `None` for any.
        epoch: Option<u64>,
        /// Where the result goes: whether the box was known.
        reply: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// List boxes of a set.
    List {
        /// The set.
        set: String,
        /// The last name that is known already.
        after: Option<Name>,
        /// The maximum number of names.
        count_max: usize,
        /// Where the result goes.
        reply: oneshot::Sender<Result<Vec<Info>, StoreError>>,
    },
    /// End, once everything that was asked before has been done.
    End,
}

/// What is known of a box.
#[derive(Debug)]
pub struct Info {
    /// What the store knows.
    pub summary: Summary,
    /// The number of receivers in this process.
    pub receivers: usize,
}

/// How far the receivers of a box in this process are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Their number.
    pub receivers: usize,
    /// The number of the message up to which the receiver has got all that was the last to say so. `None` if none has since the
    /// last one came.
    pub taken: Option<u64>,
}

/// What became of a message for one box.
pub type Delivery = (Name, Result<Published, StoreError>);

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

/// What an owner reports to a copy.
#[derive(Debug, Clone)]
pub struct BoxEvent {
    /// The box.
    pub name: Name,
    /// The number of the copy, as [`Command::Open`] gave it. What was on its way to an earlier copy of the event loop is not
    /// for the present one.
    pub copy: u64,
    /// What it is.
    pub kind: EventKind,
}

/// What has happened to a box.
#[derive(Debug, Clone)]
pub enum EventKind {
    /// What is kept of it, once for each command. Changes that were reported before may be in it.
    Opened(Opened),
    /// The store does not open the box. The owner waits for [`Command::Receivers`] with none.
    Failed(StoreError),
    /// Messages may be missing before the ones that are reported from now on.
    Outdated,
    /// What is kept of it, once for each [`EventKind::Outdated`]: what was missing is in it.
    Updated(Opened),
    /// It has got a message.
    Appended {
        /// The message.
        message: Message,
        /// Messages with smaller numbers are gone because of a bound.
        lost: u64,
    },
    /// A receiver of another event loop has read all messages up to this one.
    Read(MessageId),
    /// It was removed. The owner waits for [`Command::Receivers`] with none.
    Removed,
}
