//! A read by a thread that has many in progress: what to request from the kernel next, until it is complete. For
//! engines that are notified of completions.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::blocking::{self, Opening};
use super::ticket::{Ticket, WorkItem};
use crate::files::{OpenFile, read};
use crate::job::{Done, Op, Ready, op};
use crate::memory::{ALIGNMENT, Buffer, Reservation};

/// A read that has started. Its owner must keep it until the kernel is done with its file and memory.
pub(super) struct AsyncRead {
    file: Target,
    buffer: Buffer,
    /// The offset of the buffer in the file.
    offset: u64,
    /// Bytes of the whole blocks that have been read, past the page cache; `None` if it reads through it.
    filled: Option<usize>,
    ticket: Ticket,
}

/// The file to read.
enum Target {
    /// The file of an [`op::Read`].
    Shared(Arc<OpenFile>),
    /// The file of an [`op::Open`], which nobody else has yet.
    Opening(Box<Opening>),
}

/// A request to the kernel.
pub(super) struct Request<'a> {
    pub(super) fd: RawFd,
    /// In bytes from the start of the file.
    pub(super) offset: u64,
    pub(super) room: &'a mut [MaybeUninit<u8>],
}

/// The next step after a completion.
pub(super) enum Next {
    /// Request the rest.
    ReadOn,
    /// Read the rest, if any, in the pool.
    Fill,
    Finish(io::Result<()>),
}

/// On a thread of the pool: performs `work`, except for the read of an open, which goes to `pass_on`.
pub(super) fn begin(work: WorkItem, pass_on: impl FnOnce(AsyncRead)) {
    let Some((op, mut ticket)) = work.begin() else {
        return;
    };
    let Op::Open(open) = op else {
        let result = blocking::perform(op, &mut ticket);
        return ticket.finish(result);
    };
    let opening = match Opening::start(&open, ticket.devices()) {
        Ok(opening) => opening,
        Err(error) => return ticket.finish(Err(error)),
    };
    match opening.first_range(open.first, &mut ticket) {
        None => ticket.finish(Ok(Done::Open(opening.unread()))),
        Some((offset, len)) => {
            let target = Target::Opening(Box::new(opening));
            pass_on(AsyncRead::new(
                target,
                offset,
                len,
                ticket,
                Buffer::for_blocks,
            ));
        }
    }
}

impl AsyncRead {
    /// Starts a read. `None` if nobody waits for it any more. `blocks` makes the buffer of a read past
    /// the page cache, for the whole blocks around the bytes at an offset and of a length.
    pub(super) fn begin(
        work: WorkItem<op::Read>,
        blocks: impl FnOnce(Reservation, u64, usize) -> Buffer,
    ) -> Option<AsyncRead> {
        let (op::Read { file, offset, len }, ticket) = work.begin()?;
        let file = Target::Shared(file);
        Some(AsyncRead::new(file, offset, len, ticket, blocks))
    }

    fn new(
        file: Target,
        offset: u64,
        len: usize,
        mut ticket: Ticket,
        blocks: impl FnOnce(Reservation, u64, usize) -> Buffer,
    ) -> AsyncRead {
        let direct = ticket.take_direct_fd(file.get(), offset, len).is_some();
        AsyncRead {
            buffer: match direct {
                true => blocks(ticket.take_memory(), offset, len),
                false => Buffer::new(ticket.take_memory(), len),
            },
            filled: direct.then_some(0),
            file,
            offset,
            ticket,
        }
    }

    /// Whether it reads past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.filled.is_some()
    }

    pub(super) fn file(&self) -> &OpenFile {
        self.file.get()
    }

    /// Whether it reads into memory that is registered with a ring.
    pub(super) fn is_registered(&self) -> bool {
        self.buffer.is_registered()
    }

    /// The request for the bytes that are missing.
    pub(super) fn request(&mut self) -> Request<'_> {
        // Called once: another read of the file may disable direct reads at any moment.
        let direct = self.filled.and_then(|filled| {
            let fd = self.file.get().direct_fd()?;
            Some((fd.as_raw_fd(), filled))
        });
        if direct.is_none() && self.is_direct() {
            self.direct_refused();
        }
        match direct {
            Some((fd, filled)) => Request {
                fd,
                offset: self.buffer.blocks_offset(self.offset) + filled as u64,
                room: self.buffer.blocks(filled),
            },
            None => Request {
                fd: self.file.get().as_fd().as_raw_fd(),
                offset: self.offset.saturating_add(self.buffer.len() as u64),
                room: self.buffer.spare(),
            },
        }
    }

    /// Records the result of [`AsyncRead::request`], the number of bytes written. Returns the next step.
    ///
    /// # Safety
    /// The kernel must have written them.
    pub(super) unsafe fn completed(&mut self, result: Result<usize, Errno>) -> Next {
        match result {
            // SAFETY: by the contract of this function.
            Ok(count) => unsafe { self.written(count) },
            Err(errno) => self.failed(errno),
        }
    }

    /// As [`AsyncRead::completed`].
    ///
    /// # Safety
    /// As [`AsyncRead::completed`].
    unsafe fn written(&mut self, count: usize) -> Next {
        let Some(filled) = self.filled else {
            // SAFETY: `count` bytes at the start of the spare part, by the contract of this function.
            unsafe { self.buffer.advance(count) };
            return match count > 0 && self.buffer.room() > 0 {
                true => Next::ReadOn,
                false => Next::Finish(Ok(())),
            };
        };
        let filled = filled + count;
        // SAFETY: `count` bytes after the first `filled`, by the contract of this function.
        unsafe { self.buffer.filled_blocks(filled) };
        self.filled = Some(filled);
        if self.buffer.room() == 0 {
            Next::Finish(Ok(()))
        } else if count > 0 && filled.is_multiple_of(ALIGNMENT) {
            Next::ReadOn
        } else {
            Next::Fill
        }
    }

    /// The next step after the kernel has returned an error.
    pub(super) fn failed(&mut self, errno: Errno) -> Next {
        match errno {
            Errno::INVAL if self.is_direct() => {
                self.direct_refused();
                Next::ReadOn
            }
            Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP => Next::Fill,
            errno => Next::Finish(Err(errno.into())),
        }
    }

    /// Continues through the page cache, because the kernel refused to read past it.
    fn direct_refused(&mut self) {
        self.ticket.direct_refused(self.file.get());
        self.filled = None;
    }

    /// Reads the missing bytes, blocking: on a thread of the pool.
    pub(super) fn fill(mut self) {
        let result = self.fill_in_place();
        self.finish(result);
    }

    fn fill_in_place(&mut self) -> io::Result<()> {
        if let Some(filled) = self.filled
            && let Some(fd) = self.file.get().direct_fd()
        {
            match read::fill_blocks(fd, &mut self.buffer, self.offset, filled) {
                Ok(()) => {}
                Err(Errno::INVAL) => self.direct_refused(),
                Err(errno) => return Err(errno.into()),
            }
        }
        // Reads the rest if that was refused or ended short.
        read::fill(self.file.get(), &mut self.buffer, self.offset)
    }

    /// Finishes the ticket.
    pub(super) fn finish(self, result: io::Result<()>) {
        let AsyncRead {
            file,
            buffer,
            offset,
            ticket,
            ..
        } = self;
        let ready = Ready::Bytes(buffer);
        ticket.finish(result.and_then(|()| match file {
            Target::Shared(file) => blocking::read(&file, ready, offset).map(Done::Read),
            Target::Opening(opening) => opening.read(ready, offset).map(Done::Open),
        }));
    }
}

impl Target {
    fn get(&self) -> &OpenFile {
        match self {
            Target::Shared(file) => file,
            Target::Opening(opening) => opening.chosen(),
        }
    }
}
