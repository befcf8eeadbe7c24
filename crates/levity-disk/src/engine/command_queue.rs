//! The queue of commands to a thread that has many reads in progress, and sleeps until one of them completes or
//! a descriptor becomes readable.

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
    /// Written to in order to wake the owner: an eventfd, or the write end of a pipe.
    wake: OwnedFd,
    /// Whether the owner reads a file. Other files are read in the pool.
    takes: fn(&OpenFile) -> bool,
}

pub(super) enum Command {
    /// An [`Op::Read`] that has not begun.
    Work(Work),
    /// A read of the first bytes of a file that the pool has opened.
    Read(AsyncRead),
    /// The last command.
    Stop,
}

impl CommandQueue {
    /// `wake` must be `O_NONBLOCK`.
    pub(super) fn new(wake: OwnedFd, takes: fn(&OpenFile) -> bool) -> Arc<CommandQueue> {
        Arc::new(CommandQueue {
            queue: Mutex::default(),
            wake,
            takes,
        })
    }

    /// Sends `work` to the owner if it is a read, else to the pool. The pool passes the read of an open on to the
    /// owner.
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

    /// On a thread of the pool.
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
            // Fails only if the pipe or the counter is full: then the owner is awake.
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
