//! How work gets to a thread that has many reads under way at once, and sleeps until one of them, or a
//! descriptor, tells it to wake up.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use super::async_read::{self, AsyncRead};
use super::pool::{Pool, Queue};
use super::ticket::Work;
use crate::files::OpenFile;
use crate::job::Op;
use crate::thread::lock;

pub(super) struct CommandQueue {
    queue: Mutex<Vec<Command>>,
    /// What the owner of the commands waits for: an eventfd, or the end of a pipe that is written to.
    wake: OwnedFd,
    /// Which files the owner reads. The others are read in the pool.
    takes: fn(&OpenFile) -> bool,
}

pub(super) enum Command {
    /// An [`Op::Read`] that has not begun.
    Work(Work),
    /// The first bytes of a file that the pool has opened.
    Read(AsyncRead),
    /// No other command will come.
    Stop,
}

impl CommandQueue {
    /// `wake` must be open with `O_NONBLOCK`.
    pub(super) fn new(wake: OwnedFd, takes: fn(&OpenFile) -> bool) -> Arc<CommandQueue> {
        Arc::new(CommandQueue {
            queue: Mutex::default(),
            wake,
            takes,
        })
    }

    /// Sends `work` to the owner, or to the pool if it is more than a read; the read that comes of an
    /// open goes on to the owner, so the caller sees one trip.
    pub(super) fn submit(self: &Arc<Self>, work: Work, pool: &Pool) {
        match work.op() {
            Op::Read { file, .. } if (self.takes)(file) => self.push(Command::Work(work)),
            op => {
                let (queue, commands) = (Queue::of(op), Arc::clone(self));
                pool.submit(queue, move || {
                    async_read::begin(work, |read| commands.pass(read))
                });
            }
        }
    }

    /// In a thread of the pool.
    fn pass(&self, read: AsyncRead) {
        match (self.takes)(read.file()) {
            true => self.push(Command::Read(read)),
            false => read.fill(),
        }
    }

    pub(super) fn push(&self, command: Command) {
        let mut queue = lock(&self.queue);
        queue.push(command);
        let first = queue.len() == 1;
        drop(queue);
        if first {
            // Fails only when it is full of such, and then the owner is awake already.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    pub(super) fn take(&self) -> Vec<Command> {
        mem::take(&mut *lock(&self.queue))
    }

    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
