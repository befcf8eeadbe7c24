//! A receiver of a box.

use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::SystemTime;

use levity_wire::mailbox::{Cursor, MessageId};

use crate::copies::{Copies, Copy};
use crate::kept::{Begin, Entry, Next, Position};
use crate::settings::Mode;
use crate::store::StoreError;

/// A receiver of a box. Dropping it ends the receiver.
pub struct Feed {
    copies: Weak<Copies>,
    copy: Rc<Copy>,
    index: usize,
    place: Place,
}

/// Where a receiver is. There are many, most of which are [`At`](Self::At) a position, so what only others need takes the same
/// memory.
#[derive(Clone, Copy)]
enum Place {
    /// The box is not open yet.
    Before {
        /// Where to begin.
        cursor: Option<Cursor>,
        /// When the owner was asked for what is beyond the copy.
        asked: Option<u64>,
    },
    At(Position),
}

impl Feed {
    /// A receiver of the box of `copy`, which begins at `cursor`.
    pub(crate) fn new(copies: &Rc<Copies>, copy: Rc<Copy>, cursor: Option<Cursor>) -> Self {
        let index = copy.enter();
        let mut feed = Self {
            copies: Rc::downgrade(copies),
            copy,
            index,
            place: Place::Before {
                cursor,
                asked: None,
            },
        };
        feed.begin(false);
        feed
    }

    /// Whether no other receiver of the event loop reads the box.
    #[must_use]
    pub fn is_only(&self) -> bool {
        self.copy.receivers() == 1
    }

    /// Whether other receivers are about to get the last messages too. Forms are kept for them until then.
    #[must_use]
    pub fn keeps_forms(&self) -> bool {
        self.copy.is_waking.get()
    }

    /// Waits until the box is open, or removed. Ready at once afterwards. The receiver gets all messages that the owner is
    /// asked to append from then on.
    ///
    /// # Errors
    /// When the store fails.
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        self.begin(true);
        let state = self.copy.state();
        if let Some(error) = state.failure() {
            return Poll::Ready(Err(error.clone()));
        }
        if matches!(self.place, Place::At(_)) || state.has_ended() {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        self.copy.wait(self.index, context);
        Poll::Pending
    }

    /// The next message, or what has happened to it.
    pub fn poll_next(&mut self, context: &mut Context<'_>, now: SystemTime) -> Poll<Next> {
        match self.next(now) {
            Some(next) => Poll::Ready(next),
            None => {
                self.copy.wait(self.index, context);
                Poll::Pending
            }
        }
    }

    /// As [`poll_next`](Self::poll_next), without a wait.
    pub fn next(&mut self, now: SystemTime) -> Option<Next> {
        self.begin(true);
        let position = match &mut self.place {
            Place::At(position) => Some(position),
            Place::Before { .. } => None,
        };
        self.copy.state().next(position, now)
    }

    /// `is_early` unless the receiver has just come.
    fn begin(&mut self, is_early: bool) {
        let Place::Before { cursor, asked } = self.place else {
            return;
        };
        let mode = self.copy.settings.mode;
        let begin = self.copy.state().begin(cursor, mode, is_early);
        match (begin, asked) {
            (Begin::Later, _) => {}
            (Begin::At(position), _) => self.place = Place::At(position),
            (Begin::Beyond(_), None) => {
                let asked = self.ask();
                self.place = Place::Before { cursor, asked };
            }
            (Begin::Beyond(position), Some(asked)) => {
                if self.copy.state().has_answered(asked) {
                    self.place = Place::At(position);
                }
            }
        }
    }

    /// Asks the owner what is kept by now.
    fn ask(&self) -> Option<u64> {
        let has_ended = self.copy.state().has_ended();
        let copies = self.copies.upgrade().filter(|_| !has_ended)?;
        Some(copies.open_again(&self.copy))
    }

    /// The id after which the receiver continues: `None` until the box is open, and while the next thing is a
    /// [gap](Next::Gap).
    #[must_use]
    pub fn position(&self) -> Option<MessageId> {
        match self.place {
            Place::At(position) => position.last(),
            Place::Before { .. } => None,
        }
    }

    /// What the box keeps, as far as the event loop knows it: all of it once the box is open.
    #[must_use]
    pub fn kept(&self) -> Vec<Rc<Entry>> {
        self.copy.state().entries()
    }

    /// Reports to the owner that the receiver has got all messages up to `last`, also if others had them before: for
    /// [`Command::Progress`](crate::Command::Progress).
    pub fn report_taken(&self, last: MessageId) {
        if let Some(copies) = self.copies.upgrade() {
            copies.report_read(&self.copy, last);
        }
    }

    /// Notes that the receiver has got all messages up to `last`.
    pub fn mark_read(&self, last: MessageId) {
        let is_new = self.copy.settings.mode == Mode::Inbox && self.copy.state().mark_read(last);
        if let (true, Some(copies)) = (is_new, self.copies.upgrade()) {
            copies.report_read(&self.copy, last);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.copy.leave(self.index);
        if let Some(copies) = self.copies.upgrade() {
            copies.left(&self.copy);
        }
    }
}
