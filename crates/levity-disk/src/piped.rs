//! Bytes of a file in a pipe: pages that were read past the page cache, and to which nothing else refers.
//!
//! A socket takes them from there without a copy, while bytes in memory are copied once more, from pages that the
//! processor has not seen yet. Nobody writes to them any more: they stay those of the read, whatever becomes of the
//! file. Only from Linux 6.5 on: before, a file system that reads through the page cache all the same put its pages
//! into the pipe.

use std::io;
use std::os::fd::BorrowedFd;

use crossbeam_queue::SegQueue;
use rustix::io::Errno;

use crate::memory::{ALIGNMENT, Buffer, Reservation, span};
use crate::permits::{Permit, Permits};
use crate::pipe::Pipe;
use crate::syscall;

/// The number of bytes in one pipe, at most and at least. A copy of fewer costs less than the system calls.
pub(crate) const BYTES_MAX: usize = 128 * 1024;
pub(crate) const BYTES_MIN: usize = 64 * 1024 + 1;

/// The number of pipes in the process, unless [`set_file_pipes_max`] sets another one.
const PIPES_MAX_DEFAULT: usize = 256;

static PIPES: Permits = Permits::new(PIPES_MAX_DEFAULT);

/// Empty pipes.
static IDLE: SegQueue<(Pipe, Permit)> = SegQueue::new();

/// Bounds the number of pipes with bytes of files in this process. Each has two descriptors and 128 KiB. What is read
/// while all are in use goes to memory.
pub fn set_file_pipes_max(pipes: usize) {
    PIPES.set_max(pipes);
}

/// Bytes of a file in a pipe.
#[derive(Debug)]
pub struct Piped {
    pipe: PooledPipe,
    /// The bytes that belong to the file; the pipe may hold more.
    len: usize,
    memory: Reservation,
}

/// A pipe to read a file into.
pub(crate) struct EmptyPipe(PooledPipe);

/// One of the pipes of the process. Goes back to the others when it is dropped, if it is empty.
#[derive(Debug)]
struct PooledPipe(Option<(Pipe, Permit)>);

impl EmptyPipe {
    /// A pipe for `len` bytes. `None` if a pipe is no use for so many, if all are in use, and if this user may have
    /// no more of that size.
    pub(crate) fn take(len: usize) -> Option<EmptyPipe> {
        let is_of_use = (BYTES_MIN..=BYTES_MAX).contains(&len) && syscall::kernel_is_since((6, 5));
        is_of_use.then(PooledPipe::take).flatten().map(EmptyPipe)
    }

    /// Reads `len` bytes from the start of a file, or fewer at its end. `fd` reads past the page cache. Waits for the
    /// disk.
    ///
    /// # Errors
    /// Those of `splice`; EINVAL if the file system does not support it.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
        let pipe = self.0.get();
        // Whole blocks, of which the last may be beyond the end of the file.
        while pipe.len() < len && pipe.len().is_multiple_of(ALIGNMENT) {
            let at = pipe.len();
            match pipe.fill(fd, Some(at as u64), span(0, len - at)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        Ok(())
    }

    /// The bytes in it, of which `len` at most are wanted, and for which `memory` is reserved.
    pub(crate) fn into_piped(mut self, len: usize, memory: Reservation) -> Piped {
        let len = len.min(self.0.get().len());
        let pipe = self.0;
        Piped { pipe, len, memory }
    }
}

impl Piped {
    /// The number of bytes that are left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Moves up to `len` bytes to `socket`, which must be non-blocking. Returns how many. Does not block.
    ///
    /// # Errors
    /// Those of `splice`; `WouldBlock` if the socket accepts none.
    pub fn send(&mut self, socket: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
        let len = len.min(self.len);
        let sent = self.pipe.get().drain(socket, len, false)?;
        self.len -= sent;
        Ok(sent)
    }

    /// Takes the next `len` bytes out of it, or what is left. Does not block.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let len = len.min(self.len);
        let mut taken = Vec::with_capacity(len);
        while taken.len() < len {
            let left = len - taken.len();
            let room = &mut taken.spare_capacity_mut()[..left];
            let count = self.pipe.get().take(room)?;
            // SAFETY: the call has written so many bytes behind those that are there.
            unsafe { taken.set_len(taken.len() + count) };
            self.len -= count;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(taken)
    }

    /// Copies the bytes to memory, of which they have enough. Does not block.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn into_buffer(mut self) -> io::Result<Buffer> {
        let mut buffer = Buffer::new(self.memory, self.len);
        while buffer.room() > 0 {
            match self.pipe.get().take(buffer.spare())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                // SAFETY: the call has written so many bytes at the start of the spare part.
                count => unsafe { buffer.advance(count) },
            }
        }
        Ok(buffer)
    }
}

impl PooledPipe {
    /// `None` if all are in use, or if this user may have no more of that size.
    fn take() -> Option<PooledPipe> {
        if let Some(idle) = IDLE.pop() {
            return Some(PooledPipe(Some(idle)));
        }
        let permit = PIPES.take()?;
        let pipe = Pipe::new(BYTES_MAX).ok();
        // Descriptors are exhausted, or this user has as many pages in pipes as it may have.
        let pipe = pipe.filter(|pipe| pipe.capacity() >= BYTES_MAX)?;
        Some(PooledPipe(Some((pipe, permit))))
    }

    fn get(&mut self) -> &mut Pipe {
        let (pipe, _) = self.0.as_mut().expect("taken by the drop only");
        pipe
    }
}

impl Drop for PooledPipe {
    fn drop(&mut self) {
        let emptied = self.0.take().filter(|(pipe, _)| pipe.is_empty());
        emptied.into_iter().for_each(|pipe| IDLE.push(pipe));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn file(content: &[u8]) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        File::open(file.path()).unwrap()
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn read(budget: &Budget, file: &File, len: usize) -> Piped {
        let mut pipe = EmptyPipe::take(len).unwrap();
        pipe.fill(file.as_fd(), len).unwrap();
        pipe.into_piped(len, budget.reserve(len).unwrap())
    }

    #[test]
    fn bytes_are_copied_or_sent() {
        let budget = Budget::new(1 << 20);
        for len in [BYTES_MIN, 100_001, BYTES_MAX] {
            let content = content(len);
            let file = file(&content);
            assert_eq!(&*read(&budget, &file, len).into_buffer().unwrap(), content);
            let mut cut = read(&budget, &file, len);
            cut.truncate(len - 1);
            assert_eq!(&*cut.into_buffer().unwrap(), &content[..len - 1]);
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut piped = read(&budget, &file, len);
            assert_eq!(read(&budget, &file, len).take(700).unwrap(), content[..700]);
            while !piped.is_empty() {
                let sent = piped.send(ours.as_fd(), 10_000).unwrap();
                let mut received = vec![0; sent];
                theirs.read_exact(&mut received).unwrap();
                let at = len - piped.len() - sent;
                assert_eq!(received, &content[at..at + sent]);
            }
        }
        assert_eq!(budget.in_use(), 0);
    }

    /// A file that is shorter than it was when it was opened has fewer bytes, one that is longer no more.
    #[test]
    fn a_file_may_have_changed() {
        let budget = Budget::new(1 << 20);
        let content = content(BYTES_MAX);
        for (has, wanted) in [
            (BYTES_MIN, BYTES_MAX),
            (BYTES_MAX, BYTES_MIN),
            (4096, BYTES_MAX),
        ] {
            let piped = read(&budget, &file(&content[..has]), wanted);
            assert_eq!(piped.len(), has.min(wanted));
            assert_eq!(&*piped.into_buffer().unwrap(), &content[..has.min(wanted)]);
        }
    }

    /// Those that are left full are closed, and others take their place.
    #[test]
    fn the_number_of_pipes_is_bounded() {
        let budget = Budget::new(64 << 20);
        let file = file(&content(BYTES_MAX));
        for _ in 0..2 {
            let mut held = Vec::new();
            while let Some(mut pipe) = EmptyPipe::take(BYTES_MAX) {
                pipe.fill(file.as_fd(), BYTES_MAX).unwrap();
                held.push(pipe.into_piped(BYTES_MAX, budget.reserve(BYTES_MAX).unwrap()));
            }
            assert!((1..=PIPES_MAX_DEFAULT).contains(&held.len()));
        }
        assert_eq!(budget.in_use(), 0);
        assert!(EmptyPipe::take(BYTES_MIN - 1).is_none());
        assert!(EmptyPipe::take(BYTES_MAX + 1).is_none());
    }
}
