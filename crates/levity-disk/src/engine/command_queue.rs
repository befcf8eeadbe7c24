//! The queue of commands to a thread that has many reads in progress, and sleeps until one of them completes or
//! a descriptor becomes readable.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use super::async_read::{self, AsyncRead};
use super::contract::Engine;
use super::pool::{Pool, Queue};
use super::ticket::WorkItem;
use crate::files::OpenFile;
use crate::job::op;
use crate::memory::{Buffer, Reservation};
use crate::thread::{DiskThread, lock};

pub(super) struct CommandQueue {
    queue: Mutex<Vec<Command>>,
    /// Written to in order to wake the owner: an eventfd, or the write end of a pipe.
    wake: OwnedFd,
    /// Whether the owner reads a file. Other files are read in the pool.
    takes: fn(&OpenFile) -> bool,
    pool: Arc<Pool>,
}

pub(super) enum Command {
    Read(QueuedRead),
    /// The last command.
    Stop,
}

/// A read that the kernel does not have yet.
pub(super) enum QueuedRead {
    /// Dropped if nobody waits for it any more.
    Work(WorkItem<op::Read>),
    /// A read of the first bytes of a file that the pool has opened.
    Begun(AsyncRead),
}

impl QueuedRead {
    pub(super) fn file(&self) -> &OpenFile {
        match self {
            QueuedRead::Begun(read) => read.file(),
            QueuedRead::Work(work) => &work.op().file,
        }
    }

    /// See [`AsyncRead::begin`].
    pub(super) fn begin(
        self,
        blocks: impl FnOnce(Reservation, u64, usize) -> Buffer,
    ) -> Option<AsyncRead> {
        match self {
            QueuedRead::Work(work) => AsyncRead::begin(work, blocks),
            QueuedRead::Begun(read) => Some(read),
        }
    }
}

impl CommandQueue {
    /// `wake` must be `O_NONBLOCK`.
    pub(super) fn new(
        wake: OwnedFd,
        takes: fn(&OpenFile) -> bool,
        pool: &Arc<Pool>,
    ) -> Arc<CommandQueue> {
        Arc::new(CommandQueue {
            queue: Mutex::default(),
            wake,
            takes,
            pool: Arc::clone(pool),
        })
    }

    /// Sends `work` to the owner if it is a read, otherwise to the pool. The pool passes the read of an open on to the
    /// owner.
    fn submit(self: &Arc<Self>, work: WorkItem) {
        match work.into_read(self.takes) {
            Ok(read) => self.push(Command::Read(QueuedRead::Work(read))),
            Err(work) => {
                let (queue, commands) = (Queue::of(work.op()), Arc::clone(self));
                self.pool.submit(queue, move || {
                    async_read::begin(work, |read| commands.pass(read))
                });
            }
        }
    }

    /// On a thread of the pool.
    fn pass(&self, read: AsyncRead) {
        match (self.takes)(read.file()) {
            true => self.push(Command::Read(QueuedRead::Begun(read))),
            false => read.fill(),
        }
    }

    fn push(&self, command: Command) {
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

    /// Leaves the rest of a read to the pool.
    pub(super) fn to_pool(&self, read: AsyncRead) {
        self.pool.submit(Queue::Read, || read.fill());
    }

    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// An engine that consists of the queue and its owner.
pub(super) struct QueueEngine {
    pub(super) commands: Arc<CommandQueue>,
    pub(super) owner: DiskThread,
    pub(super) note: Option<String>,
}

impl Engine for QueueEngine {
    fn submit(&self, work: WorkItem) {
        self.commands.submit(work);
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn shutdown(&self) {
        self.commands.push(Command::Stop);
        self.owner.join();
    }
}
