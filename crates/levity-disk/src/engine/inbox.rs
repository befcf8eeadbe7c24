//! How work gets to a thread that has many reads under way at once, and sleeps until one of them, or a
//! descriptor, tells it to wake up.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use super::pool::Pool;
use super::reading::{self, Read};
use super::{Op, Work, threads};
use crate::files::OpenFile;
use crate::lock::lock;

pub(super) struct Inbox {
    letters: Mutex<Vec<Letter>>,
    /// What the owner of the inbox waits for: an eventfd, or the end of a pipe that is written to.
    wake: OwnedFd,
    /// Which files the owner reads. The others are read in the pool.
    takes: fn(&OpenFile) -> bool,
}

pub(super) enum Letter {
    /// An [`Op::Read`] that has not begun.
    Work(Work),
    /// The first bytes of a file that the pool has opened.
    Read(Read),
    /// No other letter will come.
    Stop,
}

impl Inbox {
    /// `wake` must be open with `O_NONBLOCK`.
    pub(super) fn new(wake: OwnedFd, takes: fn(&OpenFile) -> bool) -> Arc<Inbox> {
        Arc::new(Inbox {
            letters: Mutex::default(),
            wake,
            takes,
        })
    }

    /// Sends `work` to the owner, or to the pool if it is more than a read; the read that comes of an
    /// open goes on to the owner, so the caller sees one trip.
    pub(super) fn submit(self: &Arc<Self>, work: Work, pool: &Pool) {
        match work.op() {
            Op::Read { file, .. } if (self.takes)(file) => self.push(Letter::Work(work)),
            op => {
                let (queue, inbox) = (threads::queue(op), Arc::clone(self));
                pool.submit(queue, move || reading::begin(work, |read| inbox.pass(read)));
            }
        }
    }

    /// In a thread of the pool.
    fn pass(&self, read: Read) {
        match (self.takes)(read.file()) {
            true => self.push(Letter::Read(read)),
            false => read.fill(),
        }
    }

    pub(super) fn push(&self, letter: Letter) {
        let mut letters = lock(&self.letters);
        letters.push(letter);
        let first = letters.len() == 1;
        drop(letters);
        if first {
            // Fails only when it is full of such, and then the owner is awake already.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    pub(super) fn take(&self) -> Vec<Letter> {
        mem::take(&mut *lock(&self.letters))
    }

    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
