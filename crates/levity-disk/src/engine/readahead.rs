//! `readahead`: a thread reads the range into the page cache, and the loop sends it from there.
//!
//! The bytes are not copied to user space: they are spliced into a pipe, which waits for them and reports
//! errors, and from the pipe to `/dev/null`. That is the cheapest way to do both. Per 128 KiB, cached and not
//! cached, in us of processor time on an AMD EPYC with Linux 6.18 and ext4:
//!
//! - `splice` to `/dev/null`: 2.7 and 58
//! - `pread` into 128 KiB of scratch: 10 and 69; into 32 KiB after `readahead`: 14 and 68
//! - `fadvise(WILLNEED)`, then `pread` of one byte of each page: 21 and 76
//! - `mmap` and `madvise(POPULATE_READ)`: 13 and 47, but it takes a lock that a page fault on a loop waits for,
//!   and does not report the errno of a failed read
//!
//! The kernel is told of the whole range before (`fadvise(WILLNEED)`). Otherwise each splice would wait for a read of
//! its own: a mebibyte would take eight times as long as the disk does, and on a busy machine the thread would wait for
//! a processor after each.
//!
//! Limitation: nothing holds the pages until they are sent. If the kernel evicts one in between, the `sendfile`
//! on the loop waits for the disk. Callers count that, see
//! [`usage::slept_during`](crate::thread::usage::slept_during).
//!
//! Files on which `RWF_NOWAIT` does not work (overlayfs, tmpfs, FUSE, another mount beneath the root) are read
//! into memory instead, as in `threads`: a second read of them may block. So are reads past the page cache.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::Advice;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::blocking::{self, ReadBytes};
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::ticket::{Ticket, WorkItem};
use crate::files::OpenFile;
use crate::job::COPIED_BYTES;
use crate::thread::{lock, usage};

/// Bytes per system call, and the size of a pipe. Only root may exceed `/proc/sys/fs/pipe-max-size`, by default
/// 1 MiB.
const STEP_BYTES: usize = 128 * 1024;

pub(super) fn probe() -> Result<(), Unavailable> {
    let drain = Drain::new().map_err(|error| Unavailable::from_error(&error))?;
    let pipe = drain.take();
    pipe.map(drop).ok_or(Unavailable {
        errno: Errno::MFILE.raw_os_error(),
        hint: "raise the limit on open files (ulimit -n) or on pipes (sysctl fs.pipe-user-pages-soft)",
    })
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    let drain = Drain::new().map_err(|error| context.unavailable(&error))?;
    Ok(Box::new(Readahead {
        pool: Arc::clone(context.pool),
        drain: Arc::new(drain),
    }))
}

struct Readahead {
    pool: Arc<Pool>,
    drain: Arc<Drain>,
}

impl Engine for Readahead {
    fn submit(&self, work: WorkItem) {
        let (queue, drain) = (Queue::of(work.op()), Arc::clone(&self.drain));
        self.pool.submit(queue, move || {
            work.run(|op, ticket| {
                blocking::perform_with(op, ticket, |file, offset, len, ticket| {
                    read_bytes(file, offset, len, ticket, &drain)
                })
            });
        });
    }
}

fn read_bytes(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
    drain: &Drain,
) -> io::Result<ReadBytes> {
    if let Some(read) = blocking::read_directly(file, offset, len, ticket)? {
        return Ok(read);
    }
    if len >= COPIED_BYTES
        && file.reads_inline()
        && let Some(pipe) = drain.take()
    {
        // The engine `sendfile` of another location may have turned on the kernel's readahead.
        file.disable_kernel_readahead();
        return drain
            .fetch(pipe, file, offset, len)
            .map(ReadBytes::InPageCache);
    }
    blocking::read_through(file, offset, len, ticket)
}

/// Discards bytes that only have to be in the page cache.
struct Drain {
    /// `/dev/null`.
    nothing: OwnedFd,
    /// Empty pipes that no thread uses. At most as many as threads that have used one at once.
    idle: Mutex<Vec<Pipe>>,
}

/// A pipe of [`STEP_BYTES`].
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Drain {
    fn new() -> io::Result<Drain> {
        Ok(Drain {
            nothing: File::options().write(true).open("/dev/null")?.into(),
            idle: Mutex::default(),
        })
    }

    /// A pipe. `None` if no more can be made: descriptors are exhausted, or the pipes of this user are too large
    /// in total (`/proc/sys/fs/pipe-user-pages-soft`). The bytes are then read into memory.
    fn take(&self) -> Option<Pipe> {
        let idle = lock(&self.idle).pop();
        idle.or_else(|| Pipe::new().ok())
    }

    /// Reads up to `len` bytes from `offset` into the page cache. Returns how many the file has.
    fn fetch(&self, pipe: Pipe, file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        let mut fetched = 0;
        // The kernel starts no more at once than the device likes in one request. If the thread had to wait, there may be
        // more to start.
        let mut may_start = true;
        while fetched < len {
            let (at, left) = (offset.saturating_add(fetched as u64), len - fetched);
            if may_start && left > STEP_BYTES {
                start_reads(file, at, left);
            }
            let step = || self.step(&pipe, file, at, left.min(STEP_BYTES));
            let (count, slept) = usage::slept_during(step);
            may_start = slept;
            match count? {
                0 => break,
                count => fetched += count,
            }
        }
        file.was_read();
        // Not after an error, which leaves bytes in the pipe: then it is closed.
        lock(&self.idle).push(pipe);
        Ok(fetched)
    }

    fn step(&self, pipe: &Pipe, file: &OpenFile, at: u64, len: usize) -> Result<usize, Errno> {
        let (from, to, flags) = (file.as_fd(), pipe.write.as_fd(), SpliceFlags::empty());
        let fill = || rustix::pipe::splice(from, Some(&mut { at }), to, None, len, flags);
        let filled = retry_on_intr(fill)?;
        let (from, to) = (pipe.read.as_fd(), self.nothing.as_fd());
        let mut left = filled;
        while left > 0 {
            let empty = || rustix::pipe::splice(from, None, to, None, left, flags);
            left -= retry_on_intr(empty)?;
        }
        Ok(filled)
    }
}

/// Starts to read a range into the page cache.
fn start_reads(file: &OpenFile, offset: u64, len: usize) {
    // Only a hint: what it does not start, the splices do.
    let _ = rustix::fs::fadvise(
        file.as_fd(),
        offset,
        NonZero::new(len as u64),
        Advice::WillNeed,
    );
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::pipe::fcntl_setpipe_size(&write, STEP_BYTES)?;
        Ok(Pipe { read, write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{KnownDevices, Root, Symlinks};

    /// A range that begins and ends within pages takes more than one splice per step. The pipe is empty after
    /// each step nevertheless.
    #[test]
    fn a_pipe_is_empty_afterwards() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), [7; 700_001]).unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let file = root
            .open_waiting(c"file", KnownDevices::only(root.device()))
            .unwrap();
        let drain = Drain::new().unwrap();
        for (offset, len, held) in [
            (0, 700_001, 700_001),
            (1, 700_000, 700_000),
            (4097, STEP_BYTES, STEP_BYTES),
            (600_000, 1 << 20, 100_001),
            (700_001, 10, 0),
        ] {
            let pipe = drain.take().unwrap();
            assert_eq!(drain.fetch(pipe, &file, offset, len).unwrap(), held);
            let pipe = drain.take().unwrap();
            assert_eq!(rustix::io::ioctl_fionread(&pipe.read).unwrap(), 0);
            lock(&drain.idle).push(pipe);
        }
        assert_eq!(lock(&drain.idle).len(), 1);
    }
}
