//! What an event loop knows of a box.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::{Rc, Weak};
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::{Cursor, MessageId};

use crate::making::{Encoded, Making};
use crate::message::Message;
use crate::protocol::EventKind;
use crate::settings::Mode;
use crate::store::{Opened, StoreError};

/// The number of forms in which a message may be encoded.
pub const FORMS: usize = 5;

/// The number of messages of a box that keep their encoded forms while receivers are woken: the last ones, which several
/// receivers are about to get.
const ENCODED_MAX: usize = 8;

/// The pause between two looks for messages whose time is over.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a copy has been told by the owner.
pub(crate) struct State {
    /// `None` until the owner has opened the box.
    kept: Option<Kept>,
    /// Messages, and the number below which all are lost, that were reported while others may have been missing.
    early: VecDeque<(Message, u64)>,
    /// How often the owner was asked what is kept.
    asked: u64,
    /// How often it has answered, in any order.
    answered: u64,
    /// How often it has yet to report what is kept because messages may be missing before new ones.
    outdated: usize,
    ended: Option<Ended>,
}

#[derive(Clone)]
enum Ended {
    Removed,
    Failed(StoreError),
}

/// Where a receiver is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    epoch: u64,
    /// The number of the next message.
    next: u64,
    /// Messages before it are gone, which the receiver does not know yet.
    is_gap: bool,
}

impl Position {
    /// The id after which the receiver continues. `None` while it does not know of a gap: otherwise it would not learn of it
    /// when it comes back with the id.
    pub(crate) fn last(self) -> Option<MessageId> {
        let last = MessageId {
            epoch: self.epoch,
            sequence: self.next.saturating_sub(1),
        };
        (!self.is_gap).then_some(last)
    }
}

/// Where a receiver begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begin {
    /// That will be known when the owner has reported what is kept.
    Later,
    /// Here.
    At(Position),
    /// Here, if the copy has everything: the cursor is beyond what it knows, and may come from another process that has told
    /// more.
    Beyond(Position),
}

/// What a receiver gets.
pub enum Next {
    /// A message.
    Message(Rc<Entry>),
    /// Messages before those that follow are gone. The next message has at least this id.
    Gap(MessageId),
    /// The box was removed.
    Removed,
    /// The store failed.
    Failed(StoreError),
}

impl State {
    /// The state of a copy that the owner was asked to open.
    pub(crate) fn new() -> Self {
        Self {
            kept: None,
            early: VecDeque::new(),
            asked: 1,
            answered: 0,
            outdated: 0,
            ended: None,
        }
    }

    /// Whether the owner reports nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Why the store failed.
    pub(crate) fn failure(&self) -> Option<&StoreError> {
        match &self.ended {
            Some(Ended::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Takes what the owner has reported; whether receivers have to look.
    pub(crate) fn apply(&mut self, event: EventKind, now: SystemTime) -> bool {
        match event {
            EventKind::Opened(opened) => {
                self.answered += 1;
                self.open(opened);
            }
            EventKind::Updated(opened) => {
                self.outdated = self.outdated.saturating_sub(1);
                self.open(opened);
            }
            EventKind::Failed(error) => self.ended = Some(Ended::Failed(error)),
            EventKind::Removed => self.ended = Some(Ended::Removed),
            EventKind::Appended { message, lost } => match &mut self.kept {
                Some(kept) if self.outdated == 0 => {
                    kept.append(message, lost);
                    kept.expire(now);
                }
                _ => {
                    self.append_early(message, lost);
                    return false;
                }
            },
            EventKind::Outdated => {
                self.outdated += 1;
                return false;
            }
            EventKind::Read(last) => {
                if let Some(kept) = &mut self.kept {
                    kept.mark_read(last);
                }
                return false;
            }
        }
        true
    }

    /// Takes what is kept of the box. A second time it adds what was not known.
    fn open(&mut self, opened: Opened) {
        match &mut self.kept {
            // The store was asked several times, and answers in any order.
            Some(kept) if opened.epoch < kept.epoch => {}
            Some(kept) if opened.epoch == kept.epoch => kept.merge(opened),
            Some(kept) => *kept = Kept::of_another_life(opened),
            none => *none = Some(Kept::new(opened)),
        }
        if let (0, Some(kept)) = (self.outdated, &mut self.kept) {
            for (message, lost) in std::mem::take(&mut self.early) {
                kept.append(message, lost);
            }
        }
    }

    /// Keeps no more than the box does.
    fn append_early(&mut self, message: Message, lost: u64) {
        let first = MessageId {
            epoch: message.id.epoch,
            sequence: lost,
        };
        while self.early.front().is_some_and(|(old, _)| old.id < first) {
            self.early.pop_front();
        }
        self.early.push_back((message, lost));
    }

    /// Where a receiver begins that has [this cursor](Kept::begin). `is_early` for one that has been there since before the
    /// box was open.
    pub(crate) fn begin(&self, cursor: Option<Cursor>, mode: Mode, is_early: bool) -> Begin {
        let Some(kept) = &self.kept else {
            return Begin::Later;
        };
        let new = if is_early { kept.first } else { kept.next };
        let position = kept.begin(cursor, mode, new);
        match cursor {
            Some(Cursor::After(id)) if !kept.knows(id) => Begin::Beyond(position),
            _ => Begin::At(position),
        }
    }

    /// Notes that the owner is asked again what is kept. Returns how often it was by then.
    pub(crate) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Whether an answer has come that was asked for at that time or later.
    pub(crate) fn has_answered(&self, asked: u64) -> bool {
        self.answered >= asked
    }

    /// What comes at `position`, which then moves on. `None` if it has to be waited for.
    pub(crate) fn next(
        &mut self,
        position: Option<&mut Position>,
        now: SystemTime,
    ) -> Option<Next> {
        let kept = self.kept.as_mut().zip(position);
        let next = kept.and_then(|(kept, position)| kept.next(position, now));
        next.or_else(|| self.ended.as_ref().map(Next::of))
    }

    /// Forgets in which forms messages were encoded.
    pub(crate) fn forget_forms(&self) {
        let entries = self.kept.iter().flat_map(|kept| kept.entries.iter().rev());
        entries
            .take(ENCODED_MAX)
            .for_each(|entry| entry.forget_forms());
    }

    /// Notes that a receiver has read all messages up to `last`; whether that is new.
    pub(crate) fn mark_read(&mut self, last: MessageId) -> bool {
        self.kept.as_mut().is_some_and(|kept| kept.mark_read(last))
    }
}

impl Next {
    fn of(ended: &Ended) -> Self {
        match ended {
            Ended::Removed => Self::Removed,
            Ended::Failed(error) => Self::Failed(error.clone()),
        }
    }
}

/// The messages of a life of the box.
struct Kept {
    epoch: u64,
    /// Where new messages began when the box was opened.
    first: u64,
    next: u64,
    lost: u64,
    read: u64,
    entries: VecDeque<Rc<Entry>>,
    /// When to look for messages whose time is over. The owner drops them without a word.
    expiry: Option<SystemTime>,
    /// When that was done last.
    expired_at: SystemTime,
}

impl Kept {
    fn new(opened: Opened) -> Self {
        let mut kept = Self {
            epoch: opened.epoch,
            first: opened.next,
            next: opened.lost,
            lost: opened.lost,
            read: opened.read,
            entries: VecDeque::with_capacity(opened.messages.len()),
            expiry: None,
            expired_at: SystemTime::UNIX_EPOCH,
        };
        kept.merge(opened);
        kept
    }

    /// All of its messages are new.
    fn of_another_life(opened: Opened) -> Self {
        let first = opened.lost;
        Self {
            first,
            ..Self::new(opened)
        }
    }

    /// Takes what is kept as well.
    fn merge(&mut self, opened: Opened) {
        self.read = self.read.max(opened.read);
        for message in opened.messages {
            self.append(message, opened.lost);
        }
        self.next = self.next.max(opened.next);
        self.lose(opened.lost);
    }

    /// Takes a message that it does not have already.
    fn append(&mut self, message: Message, lost: u64) {
        if message.id.epoch != self.epoch {
            return;
        }
        if message.id.sequence >= self.next {
            self.next = message.id.sequence + 1;
            if let Some(deadline) = message.draft.deadline {
                self.look_at(deadline);
            }
            self.entries.push_back(Entry::new(message));
            if let Some(index) = self.entries.len().checked_sub(ENCODED_MAX + 1) {
                let entry = &self.entries[index];
                entry.keeps_forms.set(false);
                entry.let_go_of_forms();
                entry.parsed.take();
                entry.makings.take();
            }
        }
        self.lose(lost);
    }

    fn lose(&mut self, lost: u64) {
        self.lost = self.lost.max(lost);
        let is_lost = |entry: &Rc<Entry>| entry.message.id.sequence < self.lost;
        while self.entries.front().is_some_and(is_lost) {
            self.entries.pop_front();
        }
    }

    /// Has [`expire`](Self::expire) look for messages at `deadline`, or as soon as it may.
    fn look_at(&mut self, deadline: SystemTime) {
        let at = deadline.max(self.expired_at + EXPIRY_INTERVAL);
        self.expiry = Some(self.expiry.map_or(at, |expiry| expiry.min(at)));
    }

    /// Drops messages whose time is over, from time to time.
    fn expire(&mut self, now: SystemTime) {
        if self.expiry.is_none_or(|expiry| now < expiry) {
            return;
        }
        self.entries.retain(|entry| !entry.message.has_expired(now));
        (self.expiry, self.expired_at) = (None, now);
        let deadlines = self.entries.iter();
        let deadlines = deadlines.filter_map(|entry| entry.message.draft.deadline);
        if let Some(deadline) = deadlines.min() {
            self.look_at(deadline);
        }
    }

    fn mark_read(&mut self, last: MessageId) -> bool {
        let end = last.sequence.saturating_add(1);
        let is_new = last.epoch == self.epoch && end > self.read;
        if is_new {
            self.read = end;
        }
        is_new
    }

    /// Where a receiver begins. Without a cursor it gets all that was not read of an inbox, and new messages of a topic: those
    /// from the number `new` on.
    fn begin(&self, cursor: Option<Cursor>, mode: Mode, new: u64) -> Position {
        let next = match (cursor, mode) {
            (Some(Cursor::Earliest), _) => self.lost,
            (Some(Cursor::New), _) | (None, Mode::Topic) => new,
            (None, Mode::Inbox) => self.read,
            (Some(Cursor::After(id)), _) if id.epoch == self.epoch && self.knows(id) => {
                id.sequence + 1
            }
            (Some(Cursor::After(_)), _) => return self.gap(),
        };
        let epoch = self.epoch;
        match next < self.lost {
            true => self.gap(),
            false => Position {
                epoch,
                next,
                is_gap: false,
            },
        }
    }

    /// Whether there may have been such a message, as far as is known.
    fn knows(&self, id: MessageId) -> bool {
        let next = MessageId {
            epoch: self.epoch,
            sequence: self.next,
        };
        id < next
    }

    /// With the first message, which is not the one that a receiver expects.
    fn gap(&self) -> Position {
        Position {
            epoch: self.epoch,
            next: self.lost,
            is_gap: true,
        }
    }

    fn next(&mut self, position: &mut Position, now: SystemTime) -> Option<Next> {
        self.expire(now);
        let epoch = self.epoch;
        if position.epoch != epoch || position.next < self.lost {
            *position = self.gap();
        }
        if std::mem::take(&mut position.is_gap) {
            let sequence = position.next;
            return Some(Next::Gap(MessageId { epoch, sequence }));
        }
        let entries = &self.entries;
        let index = entries.partition_point(|entry| entry.message.id.sequence < position.next);
        let mut following = entries.range(index..);
        let next = following.find(|entry| !entry.message.has_expired(now));
        position.next = match next {
            Some(entry) => entry.message.id.sequence + 1,
            None => position.next.max(self.next),
        };
        next.cloned().map(Next::Message)
    }
}

/// What is known of a form.
#[derive(Default)]
enum Form {
    #[default]
    Unknown,
    /// Receivers are about to get it.
    Kept(Encoded),
    /// It is there as long as a receiver sends it.
    Sent(Weak<Vec<u8>>),
}

impl Form {
    fn encoded(&self) -> Option<Encoded> {
        match self {
            Self::Unknown => None,
            Self::Kept(encoded) => Some(encoded.clone()),
            Self::Sent(encoded) => encoded.upgrade(),
        }
    }

    fn let_go(&mut self) {
        *self = match mem::take(self) {
            Self::Kept(encoded) => Self::Sent(Rc::downgrade(&encoded)),
            Self::Sent(encoded) if encoded.strong_count() == 0 => Self::Unknown,
            other => other,
        };
    }
}

/// A message, and the forms in which the event loop has encoded it.
pub struct Entry {
    /// The message.
    pub message: Message,
    keeps_forms: Cell<bool>,
    forms: RefCell<[Form; FORMS]>,
    /// Those that are made off the event loop.
    makings: RefCell<[Option<Rc<Making>>; FORMS]>,
    /// What the content says.
    parsed: RefCell<Option<Rc<dyn Any>>>,
}

impl Entry {
    fn new(message: Message) -> Rc<Self> {
        Rc::new(Self {
            message,
            keeps_forms: Cell::new(true),
            forms: RefCell::default(),
            makings: RefCell::default(),
            parsed: RefCell::default(),
        })
    }

    /// The message in the form of that number, which is below [`FORMS`]. It is encoded once for all receivers of the event loop
    /// that send it at the same time, and one of the last messages of a box for those that are about to.
    pub fn form(&self, form: usize, encode: impl FnOnce(&Message) -> Vec<u8>) -> Encoded {
        if let Some(encoded) = self.encoded(form) {
            return encoded;
        }
        let mut bytes = encode(&self.message);
        bytes.shrink_to_fit();
        let encoded = Rc::new(bytes);
        self.forms.borrow_mut()[form] = match self.keeps_forms.get() {
            true => Form::Kept(encoded.clone()),
            false => Form::Sent(Rc::downgrade(&encoded)),
        };
        encoded
    }

    /// What `parse` makes of the message: as [`form`](Self::form), once for all receivers. All calls have the same `T`.
    pub fn parsed<T: 'static>(&self, parse: impl FnOnce(&Message) -> T) -> Rc<T> {
        let known = self.parsed.borrow().clone();
        if let Some(parsed) = known.and_then(|parsed| parsed.downcast().ok()) {
            return parsed;
        }
        let parsed = Rc::new(parse(&self.message));
        if self.keeps_forms.get() {
            *self.parsed.borrow_mut() = Some(parsed.clone());
        }
        parsed
    }

    /// The message in the form of that number, if it has been encoded.
    pub fn encoded(&self, form: usize) -> Option<Encoded> {
        self.forms.borrow()[form].encoded()
    }

    /// What is made of that form off the event loop: the first receiver starts it. `None` for a message that is not one of
    /// the last ones, since each receiver would have it made again.
    pub fn making(&self, form: usize, start: impl FnOnce(Rc<Making>)) -> Option<Rc<Making>> {
        if !self.keeps_forms.get() {
            return None;
        }
        if let Some(making) = &self.makings.borrow()[form] {
            return Some(making.clone());
        }
        let making = Rc::new(Making::default());
        self.makings.borrow_mut()[form] = Some(making.clone());
        start(making.clone());
        Some(making)
    }

    /// Keeps its forms only as long as receivers send them.
    fn let_go_of_forms(&self) {
        self.forms.borrow_mut().iter_mut().for_each(Form::let_go);
    }

    /// Forgets its forms, but not those that are being made or sent.
    fn forget_forms(&self) {
        self.let_go_of_forms();
        self.parsed.take();
        for making in self.makings.borrow_mut().iter_mut() {
            making.take_if(|making| making.is_made());
        }
    }
}

#[cfg(test)]
mod tests;
