//! What an event loop holds of the boxes that its receivers read.

mod feed;

pub use self::feed::Feed;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use levity_wire::mailbox::{Cursor, MessageId};
use slab::Slab;
use tokio::sync::{mpsc, oneshot};

use crate::by_name::ByName;
use crate::kept::CopyState;
use crate::name::Name;
use crate::protocol::{BoxEvent, Command};
use crate::settings::Settings;

/// The number of receivers that are woken before others run.
const WOKEN_MAX: usize = 64;

/// The number of places of receivers that are looked at before others run.
const LOOKS_MAX: usize = 1024;

/// The copies of one event loop.
pub struct Copies {
    /// The number of the event loop.
    worker: usize,
    owners: Vec<mpsc::UnboundedSender<Command>>,
    /// Those whose boxes the owners report. Each has a receiver.
    copies: RefCell<ByName<Rc<Copy>>>,
    /// The number of the next copy.
    next_copy: Cell<u64>,
    /// Copies whose receivers have to be woken, each once.
    to_wake: RefCell<VecDeque<Rc<Copy>>>,
    /// The task that wakes them.
    waking: Cell<Option<Waker>>,
}

/// The copy of a box.
pub(crate) struct Copy {
    /// What the events for it are marked with.
    number: u64,
    pub(crate) name: Name,
    /// The number of the owner.
    owner: usize,
    pub(crate) settings: Arc<Settings>,
    state: RefCell<CopyState>,
    /// The wakers of the receivers; `None` for one that does not wait.
    waiting: RefCell<Slab<Option<Waker>>>,
    /// The place at which to continue to wake receivers. It goes round, so that all have their turn while messages come faster
    /// than receivers are woken.
    wake_next: Cell<usize>,
    /// The number of places from there on whose receivers have to be woken.
    wake_left: Cell<usize>,
    /// Several receivers are about to get the last messages.
    is_waking: Cell<bool>,
}

impl Copies {
    /// Without copies. `owners` are all of the process; a box belongs to the one that its name selects.
    #[must_use]
    pub fn new(worker: usize, owners: Vec<mpsc::UnboundedSender<Command>>) -> Self {
        Self {
            worker,
            owners,
            copies: RefCell::default(),
            next_copy: Cell::default(),
            to_wake: RefCell::default(),
            waking: Cell::default(),
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
        self.owner_of_text(name.as_str())
    }

    /// The number of the owner of a stream: the same for all of a set, since a fork and its source change together.
    pub(crate) fn owner_of_stream(&self, name: &Name) -> usize {
        self.owner_of_text(name.set())
    }

    fn owner_of_text(&self, text: &str) -> usize {
        // FNV-1a: the same in all event loops. Whoever picks names may load one owner, as one box may.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash % self.owners.len() as u64) as usize
    }

    /// Passes `command` to the owner of that number. If it has ended, the command is dropped, and with it the sender of its
    /// answer.
    pub fn send(&self, owner: usize, command: Command) {
        let _ = self.owners[owner].send(command);
    }

    /// Passes the command with this sender of its answer to the owner of that number.
    pub fn ask<T>(
        &self,
        owner: usize,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        self.send(owner, command(reply));
        answer
    }

    /// The number of boxes that receivers of the event loop read.
    #[must_use]
    pub fn boxes(&self) -> usize {
        self.copies.borrow().len()
    }

    /// Adds a receiver of a box, which begins at `cursor`; `None` stands for all that was not read of an inbox, and for new
    /// messages of a topic. A cursor behind messages that are gone, of another life of the box, or beyond its last message
    /// begins with a [gap](crate::Next::Gap) and the first message that is kept. `None` when the box has too many receivers.
    pub fn subscribe(
        self: &Rc<Self>,
        name: &Name,
        settings: &Arc<Settings>,
        cursor: Option<Cursor>,
    ) -> Option<Feed> {
        let copy = self.copies.borrow().get(name).cloned();
        let receivers = copy.as_ref().map_or(0, |copy| copy.receivers());
        if receivers >= settings.receivers_max {
            return None;
        }
        let copy = copy.unwrap_or_else(|| self.open(name, settings));
        let feed = Feed::new(self, copy.clone(), cursor);
        self.report_receivers(&copy, copy.receivers());
        Some(feed)
    }

    fn open(&self, name: &Name, settings: &Arc<Settings>) -> Rc<Copy> {
        let number = self.next_copy.replace(self.next_copy.get() + 1);
        let owner = match settings.keeps_all {
            true => self.owner_of_stream(name),
            false => self.owner_of(name),
        };
        let copy = Rc::new(Copy::new(number, name.clone(), owner, settings.clone()));
        self.copies.borrow_mut().insert(name.clone(), copy.clone());
        self.ask_to_open(&copy);
        copy
    }

    fn ask_to_open(&self, copy: &Copy) {
        let command = Command::Open {
            name: copy.name.clone(),
            settings: copy.settings.clone(),
            worker: self.worker,
            copy: copy.number,
        };
        self.send(copy.owner, command);
    }

    /// Asks the owner again what is kept. Returns how often it was by then.
    pub(crate) fn open_again(&self, copy: &Copy) -> u64 {
        self.ask_to_open(copy);
        self.report_receivers(copy, copy.receivers());
        copy.state().ask()
    }

    fn report_receivers(&self, copy: &Copy, receivers: usize) {
        let command = Command::Receivers {
            name: copy.name.clone(),
            worker: self.worker,
            receivers,
        };
        self.send(copy.owner, command);
    }

    pub(crate) fn report_read(&self, copy: &Copy, last: MessageId) {
        let command = Command::Read {
            name: copy.name.clone(),
            worker: self.worker,
            last,
        };
        self.send(copy.owner, command);
    }

    /// A receiver of `copy` has left.
    pub(crate) fn left(&self, copy: &Rc<Copy>) {
        let receivers = copy.receivers();
        // The owner knows nothing of one that has ended.
        let is_current = !copy.state().has_ended();
        if is_current && receivers == 0 {
            self.copies.borrow_mut().remove(&copy.name);
        }
        if is_current {
            self.report_receivers(copy, receivers);
        }
    }

    /// Applies a change that an owner has reported.
    pub fn apply(&self, event: BoxEvent, now: SystemTime) {
        let copy = self.copies.borrow().get(&event.name).cloned();
        let Some(copy) = copy.filter(|copy| copy.number == event.copy) else {
            return;
        };
        let has_to_wake = copy.state().apply(event.kind, now);
        if copy.state().has_ended() {
            // The next receiver opens the box anew.
            self.copies.borrow_mut().remove(&copy.name);
            self.report_receivers(&copy, 0);
        }
        if has_to_wake {
            self.wake_all(copy);
        }
    }

    fn wake_all(&self, copy: Rc<Copy>) {
        if copy.wake_only() {
            return;
        }
        if copy.begin_to_wake() {
            self.to_wake.borrow_mut().push_back(copy);
        }
        if let Some(waker) = self.waking.take() {
            waker.wake();
        }
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
            let done = self.wake_some();
            run_others().await;
            if let Some(copy) = done {
                // Whoever was woken has taken the encoded messages by now.
                copy.is_waking.set(copy.wake_left.get() > 0);
                copy.state().forget_forms();
            }
        }
    }

    /// Wakes receivers of one box. Returns its copy if these were the last.
    fn wake_some(&self) -> Option<Rc<Copy>> {
        let copy = self.to_wake.borrow_mut().pop_front()?;
        copy.wakers().into_iter().for_each(Waker::wake);
        if copy.wake_left.get() == 0 {
            return Some(copy);
        }
        // Boxes take turns.
        self.to_wake.borrow_mut().push_back(copy);
        None
    }
}

impl Copy {
    fn new(number: u64, name: Name, owner: usize, settings: Arc<Settings>) -> Self {
        Self {
            number,
            name,
            owner,
            state: RefCell::new(CopyState::new(settings.keeps_all)),
            settings,
            waiting: RefCell::default(),
            wake_next: Cell::default(),
            wake_left: Cell::default(),
            is_waking: Cell::default(),
        }
    }

    pub(crate) fn state(&self) -> RefMut<'_, CopyState> {
        self.state.borrow_mut()
    }

    fn receivers(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Adds a receiver. Returns its place.
    pub(crate) fn enter(&self) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        let places = waiting.capacity();
        let index = waiting.insert(None);
        if self.wake_left.get() > 0 && waiting.capacity() > places {
            // The way round has become longer.
            self.wake_left.set(waiting.capacity());
        }
        index
    }

    pub(crate) fn leave(&self, index: usize) {
        self.waiting.borrow_mut().remove(index);
    }

    /// Has the receiver at that place woken by the next change.
    pub(crate) fn wait(&self, index: usize, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        match &mut waiting[index] {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    /// Wakes the receiver if there is one only, which needs neither a turn nor forms that others share; whether there is.
    fn wake_only(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        // Where there were many, the one has to be looked for.
        if waiting.len() != 1 || waiting.capacity() > WOKEN_MAX {
            return false;
        }
        let waker = waiting.iter_mut().find_map(|(_, waker)| waker.take());
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Has all receivers woken that wait now; whether none had to be woken before.
    fn begin_to_wake(&self) -> bool {
        let places = self.waiting.borrow().capacity();
        self.is_waking.set(places > 0);
        places > 0 && self.wake_left.replace(places) == 0
    }

    /// The wakers of the next receivers.
    fn wakers(&self) -> Vec<Waker> {
        let mut waiting = self.waiting.borrow_mut();
        let (mut next, mut left) = (self.wake_next.get(), self.wake_left.get());
        let end = left.saturating_sub(LOOKS_MAX);
        let mut wakers = Vec::new();
        while left > end && wakers.len() < WOKEN_MAX {
            if next >= waiting.capacity() {
                next = 0;
            }
            wakers.extend(waiting.get_mut(next).and_then(Option::take));
            (next, left) = (next + 1, left - 1);
        }
        self.wake_next.set(next);
        self.wake_left.set(left);
        wakers
    }
}

/// Lets the tasks run that are ready. Then it continues, where `yield_now` would look for new input first: a system call for each
/// message.
async fn run_others() {
    let mut has_run = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
