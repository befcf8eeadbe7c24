//! What an event loop holds of the boxes that its receivers read.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use levity_wire::mailbox::{Cursor, MessageId};
use slab::Slab;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use crate::message::Message;
use crate::name::Name;
use crate::protocol::{Command, Event};
use crate::settings::{Mode, Settings};
use crate::store::{Opened, StoreError};

/// The number of forms in which a message may be encoded.
pub const FORMS: usize = 4;

/// The number of messages of a box that keep their encoded forms: the last ones, which several receivers are about to get.
const ENCODED_MAX: usize = 8;

/// The number of receivers that are woken before others run.
const WOKEN_MAX: usize = 64;

/// The copies of one event loop.
pub struct Copies {
    /// The number of the event loop.
    worker: usize,
    owners: Vec<mpsc::UnboundedSender<Command>>,
    copies: RefCell<HashMap<Name, Rc<Copy>>>,
    /// Copies whose receivers have to be woken, each with the receiver at which to continue.
    to_wake: RefCell<VecDeque<(Rc<Copy>, usize)>>,
    /// The task that wakes them.
    waking: Cell<Option<Waker>>,
    receivers: Cell<usize>,
}

/// The copy of a box.
struct Copy {
    name: Name,
    settings: Arc<Settings>,
    state: RefCell<State>,
    /// The wakers of the receivers; `None` for one that does not wait.
    waiting: RefCell<Slab<Option<Waker>>>,
    is_to_wake: Cell<bool>,
}

#[derive(Default)]
struct State {
    /// `None` until the owner has opened the box.
    kept: Option<Kept>,
    /// What the owner reported before.
    early: Vec<(Message, u64)>,
    ended: Option<Ended>,
}

struct Kept {
    epoch: u64,
    next: u64,
    lost: u64,
    read: u64,
    entries: VecDeque<Rc<Entry>>,
}

#[derive(Clone)]
enum Ended {
    Removed,
    Failed(StoreError),
}

/// A message, and the forms in which the event loop has encoded it.
pub struct Entry {
    /// The message.
    pub message: Message,
    forms: RefCell<[Option<Rc<[u8]>>; FORMS]>,
}

impl Entry {
    fn new(message: Message) -> Rc<Self> {
        Rc::new(Self {
            message,
            forms: RefCell::default(),
        })
    }

    /// The message in the form of that number, which is below [`FORMS`]. It is encoded once for all receivers of the
    /// event loop that get it at about the same time.
    pub fn form(&self, form: usize, encode: impl FnOnce(&Message) -> Vec<u8>) -> Rc<[u8]> {
        if let Some(encoded) = &self.forms.borrow()[form] {
            return encoded.clone();
        }
        let encoded: Rc<[u8]> = encode(&self.message).into();
        self.forms.borrow_mut()[form] = Some(encoded.clone());
        encoded
    }

    /// The message in the form of that number, if it has been encoded.
    pub fn encoded(&self, form: usize) -> Option<Rc<[u8]>> {
        self.forms.borrow()[form].clone()
    }
}

/// Why a receiver is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeError {
    /// The box has as many receivers as it may.
    TooManyReceivers,
}

impl Copies {
    /// Without copies. `owners` are all of the process; a box belongs to the one that its name selects.
    #[must_use]
    pub fn new(worker: usize, owners: Vec<mpsc::UnboundedSender<Command>>) -> Self {
        Self {
            worker,
            owners,
            copies: RefCell::default(),
            to_wake: RefCell::default(),
            waking: Cell::default(),
            receivers: Cell::default(),
        }
    }

    /// The number of owners.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// The number of the owner of a box.
    #[must_use]
    pub fn owner_of(&self, name: &Name) -> usize {
        // FNV-1a: the same in all event loops. Whoever picks names may load one owner, as one box may.
        let hash = name
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        (hash % self.owners.len() as u64) as usize
    }

    /// Passes `command` to the owner of that number. If it has ended, the command is dropped, and with it the sender of its
    /// answer.
    pub fn send(&self, owner: usize, command: Command) {
        let _ = self.owners[owner].send(command);
    }

    /// Passes `command` to the owner of `name`.
    pub fn send_to_owner_of(&self, name: &Name, command: Command) {
        self.send(self.owner_of(name), command);
    }

    /// The number of receivers of the event loop.
    #[must_use]
    pub fn receivers(&self) -> usize {
        self.receivers.get()
    }

    /// The number of boxes that receivers of the event loop read.
    #[must_use]
    pub fn boxes(&self) -> usize {
        self.copies.borrow().len()
    }

    /// Adds a receiver of a box, which begins at `cursor`; `None` stands for all that was not read of an inbox, and for new
    /// messages of a topic.
    ///
    /// # Errors
    /// When the box has too many.
    pub fn subscribe(
        self: &Rc<Self>,
        name: &Name,
        settings: &Arc<Settings>,
        cursor: Option<Cursor>,
    ) -> Result<Feed, SubscribeError> {
        let copy = self.copies.borrow().get(name).cloned();
        let copy = copy.unwrap_or_else(|| self.open(name, settings));
        let receivers = copy.waiting.borrow().len();
        if receivers >= settings.receivers_max {
            return Err(SubscribeError::TooManyReceivers);
        }
        let index = copy.waiting.borrow_mut().insert(None);
        self.receivers.update(|receivers| receivers + 1);
        self.report_receivers(&copy);
        Ok(Feed {
            copies: Rc::downgrade(self),
            copy,
            index,
            position: Position::Cursor(cursor),
        })
    }

    fn open(&self, name: &Name, settings: &Arc<Settings>) -> Rc<Copy> {
        let copy = Rc::new(Copy {
            name: name.clone(),
            settings: settings.clone(),
            state: RefCell::default(),
            waiting: RefCell::default(),
            is_to_wake: Cell::new(false),
        });
        self.copies.borrow_mut().insert(name.clone(), copy.clone());
        let command = Command::Open {
            name: name.clone(),
            settings: settings.clone(),
            worker: self.worker,
        };
        self.send_to_owner_of(name, command);
        copy
    }

    fn report_receivers(&self, copy: &Copy) {
        let command = Command::Receivers {
            name: copy.name.clone(),
            worker: self.worker,
            receivers: copy.waiting.borrow().len(),
        };
        self.send_to_owner_of(&copy.name, command);
    }

    /// Applies a change that an owner has reported.
    pub fn apply(&self, event: Event) {
        let name = match &event {
            Event::Opened { name, .. }
            | Event::Failed { name, .. }
            | Event::Appended { name, .. }
            | Event::Removed(name) => name,
        };
        let Some(copy) = self.copies.borrow().get(name).cloned() else {
            return;
        };
        let mut state = copy.state.borrow_mut();
        match event {
            Event::Opened { opened, .. } => state.open(opened),
            Event::Appended { message, lost, .. } => match &mut state.kept {
                Some(kept) => kept.append(message, lost),
                None => state.early.push((message, lost)),
            },
            Event::Failed { error, .. } => state.ended = Some(Ended::Failed(error)),
            Event::Removed(name) => {
                state.ended = Some(Ended::Removed);
                // The next receiver opens a new life of the box.
                self.copies.borrow_mut().remove(&name);
            }
        }
        drop(state);
        self.wake_all(copy);
    }

    fn wake_all(&self, copy: Rc<Copy>) {
        // If it is on the way already, all of its receivers get a second look.
        let first = if copy.is_to_wake.replace(true) {
            None
        } else {
            Some(0)
        };
        let mut to_wake = self.to_wake.borrow_mut();
        match first {
            Some(first) => to_wake.push_back((copy, first)),
            None => {
                let mut queued = to_wake.iter_mut();
                if let Some((_, next)) = queued.find(|(queued, _)| Rc::ptr_eq(queued, &copy)) {
                    *next = 0;
                }
            }
        }
        if let Some(waker) = self.waking.take() {
            waker.wake();
        }
    }

    /// Ends all receivers, as their boxes were removed.
    pub fn wake_everyone(&self) {
        let copies: Vec<_> = self.copies.borrow().values().cloned().collect();
        copies.into_iter().for_each(|copy| self.wake_all(copy));
    }

    /// Wakes receivers of changed boxes, a bounded number at a time, forever.
    pub async fn wake_receivers(&self) {
        loop {
            poll_fn(|context| {
                if !self.to_wake.borrow().is_empty() {
                    return Poll::Ready(());
                }
                self.waking.set(Some(context.waker().clone()));
                Poll::Pending
            })
            .await;
            self.wake_some();
            yield_now().await;
        }
    }

    fn wake_some(&self) {
        let Some((copy, first)) = self.to_wake.borrow_mut().pop_front() else {
            return;
        };
        let mut waiting = copy.waiting.borrow_mut();
        let end = waiting.capacity().min(first + WOKEN_MAX);
        for index in first..end {
            if let Some(waker) = waiting.get_mut(index).and_then(Option::take) {
                waker.wake();
            }
        }
        let is_last = end >= waiting.capacity();
        drop(waiting);
        if is_last {
            copy.is_to_wake.set(false);
        } else {
            // Boxes take turns.
            self.to_wake.borrow_mut().push_back((copy, end));
        }
    }
}

impl State {
    /// Takes what the owner knows of the box. A second time it fills in what was missed meanwhile.
    fn open(&mut self, opened: Opened) {
        self.ended = None;
        match &mut self.kept {
            Some(kept) if kept.epoch == opened.epoch => {
                kept.read = kept.read.max(opened.read);
                for message in opened.messages {
                    kept.append(message, opened.lost);
                }
                kept.advance(opened.next, opened.lost);
            }
            kept => {
                *kept = Some(Kept {
                    epoch: opened.epoch,
                    next: opened.next,
                    lost: opened.lost,
                    read: opened.read,
                    entries: opened.messages.into_iter().map(Entry::new).collect(),
                });
            }
        }
        let kept = self.kept.as_mut().expect("it was just set");
        for (message, lost) in self.early.drain(..) {
            kept.append(message, lost);
        }
    }
}

impl Kept {
    fn append(&mut self, message: Message, lost: u64) {
        // It was in what the owner knew when it opened the box.
        if message.id.epoch == self.epoch && message.id.sequence >= self.next {
            self.next = message.id.sequence + 1;
            self.entries.push_back(Entry::new(message));
            if let Some(index) = self.entries.len().checked_sub(ENCODED_MAX + 1) {
                self.entries[index].forms.replace(<[_; FORMS]>::default());
            }
        }
        self.advance(self.next, lost);
    }

    fn advance(&mut self, next: u64, lost: u64) {
        self.next = self.next.max(next);
        self.lost = self.lost.max(lost);
        let is_lost = |entry: &Rc<Entry>| entry.message.id.sequence < self.lost;
        while self.entries.front().is_some_and(is_lost) {
            self.entries.pop_front();
        }
    }

    /// The first number that a receiver at `cursor` gets; the error is the one at which it can continue, if messages
    /// between are gone.
    fn begin(&self, cursor: Option<Cursor>, mode: Mode) -> Result<u64, u64> {
        let cursor = cursor.map_or_else(|| self.default_of(mode), Ok);
        match cursor {
            Err(unread) if unread < self.lost => Err(self.lost),
            Err(unread) => Ok(unread),
            Ok(Cursor::Earliest) => Ok(self.lost),
            Ok(Cursor::New) => Ok(self.next),
            Ok(Cursor::After(id)) if id.epoch != self.epoch || id.sequence >= self.next => {
                Err(self.lost)
            }
            Ok(Cursor::After(id)) if id.sequence + 1 < self.lost => Err(self.lost),
            Ok(Cursor::After(id)) => Ok(id.sequence + 1),
        }
    }

    /// Where a receiver without a cursor begins: a cursor, or a number.
    fn default_of(&self, mode: Mode) -> Result<Cursor, u64> {
        match mode {
            Mode::Topic => Ok(Cursor::New),
            Mode::Inbox => Err(self.read),
        }
    }
}

/// A receiver of a box. Dropping it ends the receiver.
pub struct Feed {
    copies: Weak<Copies>,
    copy: Rc<Copy>,
    index: usize,
    position: Position,
}

#[derive(Debug, Clone, std::marker::Copy)]
enum Position {
    /// The box is not open yet.
    Cursor(Option<Cursor>),
    /// In this life of the box, the number of the next message.
    At { epoch: u64, next: u64 },
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

impl Feed {
    /// The box.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.copy.name
    }

    /// Waits until the box is open. Ready at once afterwards.
    ///
    /// # Errors
    /// When the store fails.
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let state = self.copy.state.borrow();
        match (&state.kept, &state.ended) {
            (_, Some(Ended::Failed(error))) => Poll::Ready(Err(error.clone())),
            (Some(_), _) => Poll::Ready(Ok(())),
            (None, _) => {
                drop(state);
                self.wait(context);
                Poll::Pending
            }
        }
    }

    /// The next message, or what has happened to it.
    pub fn poll_next(&mut self, context: &mut Context<'_>, now: SystemTime) -> Poll<Next> {
        match self.next(now) {
            Some(next) => Poll::Ready(next),
            None => {
                self.wait(context);
                Poll::Pending
            }
        }
    }

    /// As [`poll_next`](Self::poll_next), without a wait.
    pub fn next(&mut self, now: SystemTime) -> Option<Next> {
        let state = self.copy.state.borrow();
        let Some(kept) = &state.kept else {
            return state.ended.as_ref().map(Next::of);
        };
        let next = match self.position {
            Position::At { epoch, next } if epoch == kept.epoch => match next < kept.lost {
                true => Err(kept.lost),
                false => Ok(next),
            },
            Position::At { .. } => Err(kept.lost),
            Position::Cursor(cursor) => kept.begin(cursor, self.copy.settings.mode),
        };
        let epoch = kept.epoch;
        let next = match next {
            Ok(next) => next,
            Err(next) => {
                self.position = Position::At { epoch, next };
                let sequence = next;
                return Some(Next::Gap(MessageId { epoch, sequence }));
            }
        };
        let index = kept
            .entries
            .partition_point(|entry| entry.message.id.sequence < next);
        let mut following = kept.entries.range(index..);
        match following.find(|entry| !entry.message.has_expired(now)) {
            Some(entry) => {
                let next = entry.message.id.sequence + 1;
                self.position = Position::At { epoch, next };
                Some(Next::Message(entry.clone()))
            }
            None => {
                let next = next.max(kept.next);
                self.position = Position::At { epoch, next };
                state.ended.as_ref().map(Next::of)
            }
        }
    }

    /// The id after which the receiver continues, once the box is open.
    #[must_use]
    pub fn position(&self) -> Option<MessageId> {
        match self.position {
            Position::Cursor(_) => None,
            Position::At { epoch, next } => next
                .checked_sub(1)
                .map(|sequence| MessageId { epoch, sequence }),
        }
    }

    /// Notes that the receiver has got all messages up to `id`.
    pub fn mark_read(&self, id: MessageId) {
        let mut state = self.copy.state.borrow_mut();
        let Some(kept) = state.kept.as_mut().filter(|kept| kept.epoch == id.epoch) else {
            return;
        };
        let end = id.sequence.saturating_add(1);
        if self.copy.settings.mode != Mode::Inbox || end <= kept.read {
            return;
        }
        kept.read = end;
        if let Some(copies) = self.copies.upgrade() {
            let (name, last) = (self.copy.name.clone(), id);
            copies.send_to_owner_of(&self.copy.name, Command::Read { name, last });
        }
    }

    fn wait(&self, context: &mut Context<'_>) {
        let mut waiting = self.copy.waiting.borrow_mut();
        match &mut waiting[self.index] {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
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

impl Drop for Feed {
    fn drop(&mut self) {
        self.copy.waiting.borrow_mut().remove(self.index);
        let Some(copies) = self.copies.upgrade() else {
            return;
        };
        copies.receivers.update(|receivers| receivers - 1);
        let is_last = self.copy.waiting.borrow().is_empty();
        let mut known = copies.copies.borrow_mut();
        let is_current = known
            .get(&self.copy.name)
            .is_some_and(|copy| Rc::ptr_eq(copy, &self.copy));
        if is_current && is_last {
            known.remove(&self.copy.name);
        }
        drop(known);
        if is_current {
            copies.report_receivers(&self.copy);
        }
    }
}
