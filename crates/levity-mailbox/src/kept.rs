//! What an event loop knows of a box.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::{Cursor, MessageId};

use crate::budget::Reservation;
use crate::making::{Encoded, Making};
use crate::message::Message;
use crate::protocol::EventKind;
use crate::settings::Mode;
use crate::store::{Limit, Opened, StoreError};

/// The number of forms in which a message may be encoded.
pub const FORMS: usize = 5;

/// The number of messages of a box that keep their encoded forms while receivers are woken: the last ones, which several
/// receivers are about to get.
const ENCODED_MAX: usize = 8;

/// What the copy of a stream has of its last messages: a receiver that is behind these reads them from the store.
const OF_STREAM: Limit = Limit {
    messages: 64,
    bytes: 256 * 1024,
};

/// The pause between two looks for messages whose time is over.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a copy has been told by the owner.
#[derive(Default)]
pub(crate) struct CopyState {
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
    /// [`Next::Removed`] or [`Next::Failed`].
    ended: Option<Next>,
    /// How much it has at most, where that is not what the box keeps.
    limit: Option<Limit>,
    /// Messages with smaller numbers that were reported early are gone.
    early_lost: u64,
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
        let (epoch, sequence) = (self.epoch, self.next);
        (!self.is_gap).then(|| MessageId { epoch, sequence }.before())
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
#[derive(Clone)]
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

impl CopyState {
    /// The state of a copy that the owner was asked to open.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self {
            limit: keeps_all.then_some(OF_STREAM),
            asked: 1,
            ..Self::default()
        }
    }

    /// Whether the owner reports nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Why the store failed.
    pub(crate) fn failure(&self) -> Option<&StoreError> {
        match &self.ended {
            Some(Next::Failed(error)) => Some(error),
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
            EventKind::Failed(error) => self.ended = Some(Next::Failed(error)),
            EventKind::Removed => self.ended = Some(Next::Removed),
            EventKind::Appended { message, lost } => match &mut self.kept {
                Some(kept) if self.outdated == 0 => {
                    kept.append(message, lost);
                    kept.lose_beyond(self.limit);
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
            // All messages of another life are new.
            Some(kept) => *kept = Kept::new(opened.lost, opened),
            none => *none = Some(Kept::new(opened.first, opened)),
        }
        if let (0, Some(kept)) = (self.outdated, &mut self.kept) {
            for (message, lost) in std::mem::take(&mut self.early) {
                kept.append(message, lost);
            }
            kept.lose(std::mem::take(&mut self.early_lost));
            kept.lose_beyond(self.limit);
        }
    }

    /// Keeps no more than the box does.
    fn append_early(&mut self, message: Message, lost: u64) {
        let is_lost = |id: MessageId| (id.epoch, id.sequence) < (message.id.epoch, lost);
        while self.early.front().is_some_and(|(old, _)| is_lost(old.id)) {
            self.early.pop_front();
        }
        self.early.push_back((message, lost));
        if self
            .limit
            .is_some_and(|limit| self.early.len() > limit.messages)
        {
            let dropped = self.early.pop_front();
            self.early_lost = dropped.map_or(0, |(message, _)| message.id.sequence + 1);
        }
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
        next.or_else(|| self.ended.clone())
    }

    /// The messages that are known to be kept.
    pub(crate) fn entries(&self) -> Vec<Rc<Entry>> {
        let kept = self.kept.iter();
        kept.flat_map(|kept| &kept.entries).cloned().collect()
    }

    /// Forgets in which forms messages were encoded.
    pub(crate) fn forget_forms(&self) {
        if let Some(kept) = &self.kept {
            kept.recent.forget_forms();
        }
    }

    /// Notes that a receiver has read all messages up to `last`; whether that is new.
    pub(crate) fn mark_read(&mut self, last: MessageId) -> bool {
        self.kept.as_mut().is_some_and(|kept| kept.mark_read(last))
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
    recent: Rc<Recent>,
    /// When to look for messages whose time is over. The owner drops them without a word.
    expiry: Option<SystemTime>,
    /// When that was done last.
    expired_at: SystemTime,
}

impl Kept {
    /// What was kept when the box was opened, of which the messages from the number `first` on are new.
    fn new(first: u64, opened: Opened) -> Self {
        let mut kept = Self {
            epoch: opened.epoch,
            first,
            next: opened.lost,
            lost: opened.lost,
            read: opened.read,
            entries: VecDeque::with_capacity(opened.messages.len()),
            recent: Rc::default(),
            expiry: None,
            expired_at: SystemTime::UNIX_EPOCH,
        };
        kept.merge(opened);
        kept
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
            self.recent.add();
            let entry = Entry::new(message, &self.recent);
            self.entries.push_back(entry);
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

    fn lose_beyond(&mut self, limit: Option<Limit>) {
        let Some(mut limit) = limit else {
            return;
        };
        let last = self.entries.iter().rev();
        let last = last.take_while(|entry| limit.take(entry.message.draft.bytes()));
        let first = self.entries.len() - last.count();
        if let Some(entry) = first.checked_sub(1).map(|index| &self.entries[index]) {
            self.lose(entry.message.id.sequence + 1);
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
        (id.epoch, id.sequence) < (self.epoch, self.next)
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
        let mut following = self.entries.range(self.index_of(position.next)..);
        let next = following.find(|entry| !entry.message.has_expired(now));
        position.next = match next {
            Some(entry) => entry.message.id.sequence + 1,
            None => position.next.max(self.next),
        };
        let next = next?;
        if next.message.draft.is_damaged {
            let sequence = position.next;
            return Some(Next::Gap(MessageId { epoch, sequence }));
        }
        Some(Next::Message(next.clone()))
    }

    /// Where the first message is whose number is not smaller.
    fn index_of(&self, number: u64) -> usize {
        // Most receivers have all but the last message. A search would read many others, which are in no cache.
        let behind = self.next.saturating_sub(number) as usize;
        let is_there = |index: &usize| {
            let entry = self.entries.get(*index);
            behind == 0 || entry.is_some_and(|entry| entry.message.id.sequence == number)
        };
        let index = self.entries.len().checked_sub(behind).filter(is_there);
        index.unwrap_or_else(|| {
            self.entries
                .partition_point(|entry| entry.message.id.sequence < number)
        })
    }
}

/// The last messages of a box, which keep their encoded forms for receivers that are about to get them.
#[derive(Default)]
struct Recent {
    /// How many messages the copy has got.
    count: Cell<u64>,
    /// Those that have forms. A message that the box drops is gone at once.
    encoded: RefCell<Vec<Weak<Entry>>>,
}

impl Recent {
    /// Notes one more message, before which those that are not among the last ones any more forget their forms.
    fn add(&self) {
        self.count.update(|count| count + 1);
        self.encoded.borrow_mut().retain(|entry| {
            let Some(entry) = entry.upgrade() else {
                return false;
            };
            let is_recent = self.has(&entry);
            if !is_recent {
                entry.let_go(|_| false);
            }
            is_recent
        });
    }

    fn has(&self, entry: &Entry) -> bool {
        self.count.get() - entry.place < ENCODED_MAX as u64
    }

    fn forget_forms(&self) {
        self.encoded.borrow_mut().retain(|entry| {
            let entry = entry.upgrade();
            entry.is_some_and(|entry| entry.forget_forms())
        });
    }
}

/// The parts of a long message in some form. They are there as long as receivers send any of them.
pub struct LongForm(Box<[OnceCell<Encoded>]>);

impl LongForm {
    /// A part, which is encoded once for all as long as there is memory for it.
    pub fn part(
        &self,
        number: usize,
        message: &Message,
        encode: impl FnOnce(&Message) -> Vec<u8>,
    ) -> Encoded {
        if let Some(encoded) = self.0[number].get() {
            return encoded.clone();
        }
        match counted(message, encode(message)) {
            Ok(encoded) => self.0[number].get_or_init(|| encoded).clone(),
            Err(bytes) => bytes.into(),
        }
    }
}

/// Reserves the memory of a form of `message`; gives the bytes back if there is none.
fn counted(message: &Message, mut bytes: Vec<u8>) -> Result<Encoded, Vec<u8>> {
    bytes.shrink_to_fit();
    let Some(of_message) = &message.draft.reservation else {
        return Ok(bytes.into());
    };
    match of_message.try_more_for_form(bytes.len()) {
        Some(reservation) => Ok(Encoded::counted(bytes, reservation)),
        None => Err(bytes),
    }
}

/// What was made of a message.
#[derive(Default)]
struct Parts {
    forms: [Option<Encoded>; FORMS],
    long: [Weak<LongForm>; FORMS],
    /// Those that are made off the event loop.
    makings: [Option<Rc<Making>>; FORMS],
    /// What the content says.
    parsed: Option<Rc<dyn Any>>,
}

/// A message, and the forms in which the event loop has encoded it.
pub struct Entry {
    /// The message.
    pub message: Message,
    /// How many messages the copy had got with it.
    place: u64,
    recent: Weak<Recent>,
    /// Nothing of most messages, which few receivers read.
    made: RefCell<Option<Box<Parts>>>,
}

impl Entry {
    fn new(message: Message, recent: &Rc<Recent>) -> Rc<Self> {
        Rc::new(Self {
            message,
            place: recent.count.get(),
            recent: Rc::downgrade(recent),
            made: RefCell::default(),
        })
    }

    /// Forgets all forms but those that are made off the event loop and that `keeps`. Whether there are any of these.
    fn let_go(&self, keeps: impl Fn(&Making) -> bool) -> bool {
        let mut made = self.made.borrow_mut();
        let Some(parts) = &mut *made else {
            return false;
        };
        parts.forms = Default::default();
        parts.parsed = None;
        for making in &mut parts.makings {
            making.take_if(|making| !keeps(making));
        }
        let has_makings = parts.makings.iter().any(Option::is_some);
        let is_sent = parts.long.iter().any(|long| long.strong_count() > 0);
        if !has_makings && !is_sent {
            *made = None;
        }
        has_makings
    }

    /// Whether it is one of the last messages. It keeps what is made of it then.
    fn keeps(self: &Rc<Self>) -> bool {
        let recent = self.recent.upgrade().filter(|recent| recent.has(self));
        if let Some(recent) = &recent {
            let mut encoded = recent.encoded.borrow_mut();
            let own = Rc::as_ptr(self);
            if !encoded.iter().any(|entry| entry.as_ptr() == own) {
                encoded.push(Rc::downgrade(self));
            }
        }
        recent.is_some()
    }

    /// The message in the form of that number, which is below [`FORMS`]. With `keeps` it is encoded once for all receivers of the
    /// event loop that are about to get one of the last messages of a box, as long as there is memory for it.
    pub fn form(
        self: &Rc<Self>,
        form: usize,
        keeps: bool,
        encode: impl FnOnce(&Message) -> Vec<u8>,
    ) -> Encoded {
        if let Some(encoded) = self.encoded(form) {
            return encoded;
        }
        let bytes = encode(&self.message);
        if !keeps || !self.keeps() {
            return bytes.into();
        }
        match counted(&self.message, bytes) {
            Ok(encoded) => {
                self.made.borrow_mut().get_or_insert_default().forms[form] = Some(encoded.clone());
                encoded
            }
            Err(bytes) => bytes.into(),
        }
    }

    /// The same of a message that is sent in `parts`.
    pub fn long_form(&self, form: usize, parts: usize) -> Rc<LongForm> {
        let mut made = self.made.borrow_mut();
        let known = &mut made.get_or_insert_default().long[form];
        known.upgrade().unwrap_or_else(|| {
            let long = Rc::new(LongForm((0..parts).map(|_| OnceCell::new()).collect()));
            *known = Rc::downgrade(&long);
            long
        })
    }

    /// What `parse` makes of the message: as [`form`](Self::form), once for all receivers. All calls have the same `T`.
    pub fn parsed<T: 'static>(self: &Rc<Self>, parse: impl FnOnce(&Message) -> T) -> Rc<T> {
        let made = self.made.borrow();
        let known = made.as_ref().and_then(|parts| parts.parsed.clone());
        drop(made);
        if let Some(parsed) = known.and_then(|parsed| parsed.downcast().ok()) {
            return parsed;
        }
        let parsed = Rc::new(parse(&self.message));
        if self.keeps() {
            self.made.borrow_mut().get_or_insert_default().parsed = Some(parsed.clone());
        }
        parsed
    }

    /// The form of that number, if it is kept.
    pub(crate) fn encoded(&self, form: usize) -> Option<Encoded> {
        let made = self.made.borrow();
        made.as_ref()?.forms[form].clone()
    }

    /// What is made of that form off the event loop: the first receiver starts it, if it can reserve memory. `None` as well for a
    /// message that is not one of the last ones, since each receiver would have it made again.
    pub fn making(
        self: &Rc<Self>,
        form: usize,
        reserve: impl FnOnce() -> Option<Reservation>,
        start: impl FnOnce(Rc<Making>, Reservation),
    ) -> Option<Rc<Making>> {
        if !self.keeps() {
            return None;
        }
        if let Some(making) = &self.made.borrow_mut().get_or_insert_default().makings[form] {
            return Some(making.clone());
        }
        let reservation = reserve()?;
        let making = Rc::new(Making::default());
        self.made.borrow_mut().get_or_insert_default().makings[form] = Some(making.clone());
        start(making.clone(), reservation);
        Some(making)
    }

    /// Forgets its forms, but not those that are being made. Whether any is being made. To be called when a form that
    /// was [made off the event loop](Self::making) has been handed out.
    pub fn forget_forms(&self) -> bool {
        self.let_go(|making| !making.is_made())
    }
}

#[cfg(test)]
mod tests;
