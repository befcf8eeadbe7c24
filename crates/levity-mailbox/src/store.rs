//! The contract of what keeps the messages of boxes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use crate::clock::since_1970;
use crate::message::{Draft, Message};
use crate::name::Name;
use crate::settings::Settings;
use crate::stream_state::{Refused, Source, StreamState, Update};

/// Where messages are kept. One [`Owner`](crate::Owner) drives it, on one thread.
///
/// No method waits: what takes time is a future, which does not borrow the store, so that any number may be pending. What was
/// asked for is done whether or not the future is polled, and also if it is dropped. Calls for the same box take effect in the
/// order of the calls. Each future ends within a bounded time, if need be with [`StoreError::Unavailable`]. Times are those of
/// the caller.
///
/// Messages of a box have growing numbers within one epoch, from 1 on and not necessarily contiguous ones. Epochs of a box grow with each
/// of its lives: also that of a box which is removed and made again at once is larger than the one before. A store that has
/// lost messages which it had acknowledged begins a new epoch for the box, so that receivers learn of it. A store that outlives
/// the process keeps what it has acknowledged, with ids, keys, epochs and [`Opened::lost`], also if the process is killed.
///
/// A box is removed when it is idle: nobody [watches](Self::watch) it, and neither a message came nor did a watch end for the
/// time of [`Settings::idle`]. Idle boxes may stay for longer. One that is not watched and has never had a message gives way earlier:
/// when its set has as many boxes as it may and another one is to be made. Otherwise those who only read could keep messages from
/// new boxes. On a server that several processes use, none of these watches it; one that was killed may count for a while.
///
/// A box that [keeps all](Settings::keeps_all) is a stream if it has a [state](StreamState). Its idle time is what that says. One
/// that others inherit from is not removed: its state says that it was, and it goes with the last of these.
pub trait Store: 'static {
    /// What is kept of a box, but of one that [keeps all](Settings::keeps_all) no message;
    /// [`StoreError::Memory`] if it has to be read and the memory of messages is used up. A box that is not known is made, without a message and with a new epoch;
    /// [`StoreError::TooManyBoxes`] if there are [too many](Settings::boxes_max) of the set and none gives way. All appends that have ended are in
    /// it. One that has not ended may be in it or not; [`Opened::first`] says where those may be that begin later.
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, now: SystemTime) -> Opening;

    /// What is known of a box without its messages; `None` if it is not known. Changes nothing, and reads little however much
    /// the box keeps. Calls of the box that have not ended may be in it or not.
    fn summary(&mut self, name: &Name) -> Summing;

    /// What is kept of a box, but of its messages only the first ones after the id `after`: no more than `limit` says. Those after `None`, and after an id of another life, are all. `None` if the box is not known, or
    /// [`StoreError::Memory`]. Changes nothing. Calls of the box that have not ended may be in it or not.
    fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Reading;

    /// Appends messages in this order, and drops what then exceeds the bounds of a box, the oldest first and no more than
    /// necessary; makes a box as [`open`](Self::open) does. The results are in the same order, and each is for itself. A draft
    /// whose key the box remembers is not appended again: its result is the id of the first, as [`Appended::Duplicate`]. A box
    /// remembers the keys of the messages that it keeps, and at least those of the last 256 messages, also if these are gone.
    /// An append with an [update](Append::update) changes the state of a stream too, or does nothing and fails with
    /// [`StoreError::Refused`].
    /// For [durable](Settings::is_durable) sets the future ends when a crash of the machine can no longer take the messages.
    /// The owner takes the results of a box in the order of its calls, whichever future ends first.
    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending;

    /// Removes a box with all that is kept of it, but of another life than `epoch`, if that is given, nothing; whether it did. A
    /// stream that others inherit from stays, as removed.
    fn remove(&mut self, name: &Name, epoch: Option<u64>) -> Removing;

    /// Notes that a receiver has read all messages of the box up to `last`. The position does not go back, nor beyond the
    /// [next](Opened::next) number. An id of another life of the box is ignored. May be lost in a crash.
    fn mark_read(&mut self, name: &Name, last: MessageId);

    /// Whether somebody receives from the box here. Called with `true` before [`open`](Self::open), so the box may not be
    /// known. A watch is of a name: it lasts until a call with `false`, also if the box is removed and made again. Calls do not
    /// add up.
    fn watch(&mut self, name: &Name, is_read: bool, now: SystemTime);

    /// At most `count_max` boxes of `set` whose names follow `after`, in an order in which the last name of a list is the
    /// `after` of the next one: lists that are asked for in turn have every box once. The box of `after` may be gone.
    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing;

    /// Waits for a change of a watched box that no call of this process has made, or whose call has failed: a message may have
    /// been appended although its future said that it was not. A store that no other process uses, and that knows what it has
    /// done, is never ready.
    ///
    /// Changes of a box are reported in the order of the numbers, and without a hole: where messages are missing, for example
    /// after a lost connection, [`Change::Outdated`] is reported before the ones that follow. The same or [`Change::Removed`]
    /// comes before the first message of another life. The owner takes all changes that are ready before it looks at the
    /// result of an append, so a change that is noted before the future ends comes before its messages.
    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change>;

    /// Whether [`poll_change`](Self::poll_change) reports messages of watched boxes that this process has appended, too.
    /// Otherwise the owner reports these when their futures end, those of a box in the order of the calls. That is right only if no other
    /// process appends to the box between: a store that is shared says `true`, or lets the futures wait for earlier changes.
    fn reports_appends(&self) -> bool {
        false
    }

    /// Drops what has expired at `now`, and idle boxes. A call computes for well below a millisecond, and the next one
    /// continues. Called about ten times a second.
    fn sweep(&mut self, now: SystemTime);

    /// Figures for metrics.
    fn figures(&self) -> Figures;
}

/// A result of [`Store::open`].
pub type Opening = Pin<Box<dyn Future<Output = Result<Opened, StoreError>>>>;

/// A result of [`Store::summary`].
pub type Summing = Pin<Box<dyn Future<Output = Result<Option<Summary>, StoreError>>>>;

/// A result of [`Store::read`].
pub type Reading = Pin<Box<dyn Future<Output = Result<Option<Opened>, StoreError>>>>;

/// A result of [`Store::append`].
pub type Appending = Pin<Box<dyn Future<Output = Vec<Result<Appended, StoreError>>>>>;

/// A result of [`Store::remove`].
pub type Removing = Pin<Box<dyn Future<Output = Result<bool, StoreError>>>>;

/// A result of [`Store::list`].
pub type Listing = Pin<Box<dyn Future<Output = Result<Vec<Summary>, StoreError>>>>;

/// A bound on what is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of messages.
    pub messages: usize,
    /// After messages of this size in bytes there is no further one.
    pub bytes: usize,
}

impl Limit {
    /// No bound.
    pub const NONE: Self = Self {
        messages: usize::MAX,
        bytes: usize::MAX,
    };

    /// What [`Store::open`] reads.
    pub(crate) const fn to_open(keeps_all: bool) -> Self {
        match keeps_all {
            true => Self::NOTHING,
            false => Self::NONE,
        }
    }

    /// No message.
    pub const NOTHING: Self = Self {
        messages: 0,
        bytes: 0,
    };

    /// Whether there is room for one more message.
    pub(crate) fn has_room(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }

    /// Takes a message of `bytes` out of the limit; false if there was no room for one more.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.messages -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        has_room
    }
}

/// What is known of a box without its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub name: Name,
    /// As in [`Opened`].
    pub epoch: u64,
    /// As in [`Opened`].
    pub next: u64,
    /// As in [`Opened`].
    pub lost: u64,
    /// As in [`Opened`].
    pub read: u64,
    /// The number of messages that are kept.
    pub messages: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// As in [`Opened`].
    pub state: Option<Arc<StreamState>>,
}

/// Figures of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Boxes that are known here.
    pub boxes: usize,
    /// Messages that were dropped because of a bound.
    pub lost: u64,
    /// Messages whose time was over.
    pub expired: u64,
    /// Boxes that were removed because they were idle.
    pub idle_boxes: u64,
    /// Everything that was asked for is [unavailable](StoreError::Unavailable) at the moment.
    pub is_down: bool,
}

/// An epoch for a store that begins at `now`: milliseconds since 1970 and 20 random bits, so that two stores do not share one
/// and later ones are larger.
///
/// # Panics
/// If the kernel has no random numbers.
#[must_use]
pub fn new_epoch(now: SystemTime) -> u64 {
    let random = getrandom::u32().expect("random numbers of the kernel");
    (since_1970(now).as_millis() as u64) << 20 | u64::from(random >> 12)
}

/// A message on its way to a store.
#[derive(Debug, Clone)]
pub struct Append {
    /// The box.
    pub name: Name,
    /// The settings of its set.
    pub settings: Arc<Settings>,
    /// The message.
    pub draft: Arc<Draft>,
    /// What it makes of the state of a stream; `None` for a box that is none.
    pub update: Option<Arc<Update>>,
}

impl Append {
    /// What becomes of a stream in the state `known`, whose next message has the number `next` at least, and the number of the
    /// message. `None` for a box that is none.
    ///
    /// # Errors
    /// Why nothing is appended.
    pub(crate) fn updated(
        &self,
        known: Option<&StreamState>,
        next: u64,
    ) -> Result<Option<(StreamState, u64)>, StoreError> {
        let (bytes, bytes_max) = (self.draft.content.len(), self.settings.bytes_max);
        let update = self.update.as_ref();
        let updated = update.map(|update| update.apply(known, next, bytes, bytes_max));
        updated.transpose().map_err(StoreError::Refused)
    }

    /// The stream that has to be there as well, which a new one inherits from.
    pub(crate) fn source(&self) -> Option<&Source> {
        self.update.as_ref().and_then(|update| update.source())
    }
}

/// What became of an append.
#[derive(Debug, Clone)]
pub enum Appended {
    /// The box has the message.
    New {
        /// The message with its id.
        message: Message,
        /// Messages of the box with smaller numbers are gone because of a bound.
        lost: u64,
    },
    /// The box had got the message before, under this id.
    Duplicate(MessageId),
}

/// What is kept of a box.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The life of the box.
    pub epoch: u64,
    /// The next message has at least this number.
    pub next: u64,
    /// Messages from this number on may have been appended since the store was asked: a receiver that has waited since then has to
    /// get them.
    pub first: u64,
    /// Messages with smaller numbers are gone because of a bound.
    pub lost: u64,
    /// Messages with smaller numbers were read by a receiver. Smaller than `lost` only if messages were lost that nobody had
    /// read.
    pub read: u64,
    /// The messages that are kept, in order. Some may be [over](Message::has_expired).
    pub messages: Vec<Message>,
    /// The state of a stream, which may have been there before the last of the messages.
    pub state: Option<Arc<StreamState>>,
}

impl Opened {
    /// The same for receivers, which read all before [`next`](Self::next) elsewhere if the box keeps all.
    pub(crate) fn for_receivers(mut self, keeps_all: bool) -> Self {
        if keeps_all {
            self.messages.clear();
            self.lost = self.next;
        }
        self
    }

    /// Takes memory for messages that were just read, or fails with [`StoreError::Memory`].
    #[cfg(feature = "redis")]
    pub(crate) fn reserve(mut self, budget: &Arc<crate::Budget>) -> Result<Self, StoreError> {
        for message in &mut self.messages {
            let draft = Arc::get_mut(&mut message.draft).expect("nobody else has it yet");
            let reservation = budget.try_reserve_to_read(draft.bytes());
            draft.reservation = Some(reservation.ok_or(StoreError::Memory)?);
        }
        Ok(self)
    }
}

/// A change that no command of this process has made.
#[derive(Debug)]
pub enum Change {
    /// Another process has appended this message.
    Appended {
        /// The box.
        name: Name,
        /// The message.
        message: Message,
        /// As in [`Appended::New`].
        lost: u64,
    },
    /// Another process has removed the box.
    Removed(Name),
    /// Messages may be missing, or the epoch is another one: open the box again.
    Outdated(Name),
}

/// Why a store does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The set has as many boxes as it may.
    TooManyBoxes,
    /// There is no memory for the messages that are to be read.
    Memory,
    /// There is no room: the disk is full, or a bound of the store is reached. What was acknowledged is still there.
    Full(String),
    /// The store cannot be reached, or takes too long. Whether a message was appended may be unknown: a publisher that tries
    /// again with the same key does no harm.
    Unavailable(String),
    /// The state of the stream does not permit the append.
    Refused(Refused),
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyBoxes => formatter.write_str("there are too many boxes"),
            Self::Memory => formatter.write_str("the memory of mailboxes is used up"),
            Self::Full(reason) | Self::Unavailable(reason) => formatter.write_str(reason),
            Self::Refused(reason) => write!(formatter, "the stream does not take it: {reason:?}"),
        }
    }
}

impl std::error::Error for StoreError {}
