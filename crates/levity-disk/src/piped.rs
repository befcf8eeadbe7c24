//! Bytes of a file in a pipe, from where a socket takes them without a copy. Bytes in memory are copied once more, from
//! pages that the processor has not seen yet.
//!
//! Either these are pages that were read past the page cache, and to which nothing else refers. Nobody writes to them
//! any more: they stay those of the read, whatever becomes of the file. Or they are those of the page cache: who writes
//! over bytes of the file changes them too.

use std::io;
use std::os::fd::BorrowedFd;

use crossbeam_queue::SegQueue;
use rustix::io::Errno;

use crate::files::OpenFile;
use crate::memory::{ALIGNMENT, Buffer, Reservation, span};
use crate::permits::{Permit, Permits};
use crate::pipe::Pipe;
use crate::syscall;

/// The sizes of pipes in bytes. The kernel bounds the memory of the pipes of a user, so that a small file should not
/// take a large one.
const SIZES: [usize; 4] = [SIZE, 2 * SIZE, 4 * SIZE, 8 * SIZE];
const SIZE: usize = 128 * 1024;

/// Fewer bytes are not read into a pipe: a copy of them costs less than the system calls.
const BYTES_MIN: usize = 64 * 1024 + 1;

/// How often the pipes of the process have [`SIZE`], unless [`set_file_pipes_max`] sets another number.
const PIPES_MAX_DEFAULT: usize = 256;

/// A pipe takes one for each [`SIZE`].
static PIPES: Permits = Permits::new(PIPES_MAX_DEFAULT);

/// Empty pipes of each size.
static IDLE: [SegQueue<(Pipe, Permit)>; SIZES.len()] = [const { SegQueue::new() }; SIZES.len()];

/// Bounds the pipes with bytes of files in this process. `pipes` is their number if each has the minimum size of 128 KiB;
/// one of 1 MiB counts as eight. Each has two descriptors. What is read while all are in use goes to memory.
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
    refers_to_file: bool,
}

/// Whether what is [read past the page cache](EmptyPipe::fill) is not in the page cache: from Linux 6.5 on. Before, a
/// file system that reads through the page cache all the same put its pages into the pipe.
pub(crate) fn has_pages_of_its_own() -> bool {
    syscall::kernel_is_since((6, 5))
}

/// A pipe to read a file into.
pub(crate) struct EmptyPipe {
    pipe: PooledPipe,
    refers_to_file: bool,
}

/// One of the pipes of the process. Goes back to the others when it is dropped, if it is empty.
#[derive(Debug)]
struct PooledPipe(Option<(Pipe, Permit)>);

impl EmptyPipe {
    /// A pipe for `len` bytes. `None` if a pipe is no use for so many, if all are in use, and if this user may have
    /// no more of that size.
    pub(crate) fn take(len: usize) -> Option<EmptyPipe> {
        let size = SIZES.iter().position(|&size| len <= size);
        let size = size.filter(|_| len >= BYTES_MIN)?;
        Some(EmptyPipe {
            pipe: PooledPipe::take(size)?,
            refers_to_file: false,
        })
    }

    /// Reads `len` bytes from the start of a file, or fewer at its end. `fd` reads past the page cache. Blocks.
    ///
    /// # Errors
    /// Those of `splice`; EINVAL if the file system does not support it.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
        let pipe = self.pipe.get();
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

    /// Reads `len` bytes from the start of `file` into the page cache, or fewer at its end, and refers to its pages.
    /// Blocks.
    ///
    /// # Errors
    /// Those of `splice`; EINVAL if the file system does not support it.
    pub(crate) fn refer(&mut self, file: &OpenFile, len: usize) -> Result<(), Errno> {
        self.refers_to_file = true;
        let pipe = self.pipe.get();
        while pipe.len() < len {
            let at = pipe.len();
            match pipe.fill(file.as_fd(), Some(at as u64), len - at) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        Ok(())
    }

    /// The bytes in it, of which `len` at most are wanted, and for which `memory` is reserved.
    pub(crate) fn into_piped(mut self, len: usize, memory: Reservation) -> Piped {
        Piped {
            len: len.min(self.pipe.get().len()),
            pipe: self.pipe,
            memory,
            refers_to_file: self.refers_to_file,
        }
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

    /// Whether these are pages of the page cache: they change with the file, and prove nothing about its version.
    pub fn refers_to_file(&self) -> bool {
        self.refers_to_file
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
    /// One of the size with this number. `None` if all are in use, or if this user may have no more of that size.
    fn take(size: usize) -> Option<PooledPipe> {
        if let Some(idle) = IDLE[size].pop() {
            return Some(PooledPipe(Some(idle)));
        }
        let count = SIZES[size] / SIZE;
        let permit = loop {
            if let Some(permit) = PIPES.take(count) {
                break permit;
            }
            if !PIPES.can_have(count) {
                return None;
            }
            // Those of other sizes are closed for it.
            drop(IDLE.iter().find_map(SegQueue::pop)?);
        };
        let pipe = Pipe::new(SIZES[size]).ok();
        // Descriptors are exhausted, or this user has as many pages in pipes as it may have.
        let pipe = pipe.filter(|pipe| pipe.capacity() >= SIZES[size])?;
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
        if let Some((pipe, permit)) = emptied
            && let Some(size) = SIZES.iter().position(|&size| pipe.capacity() <= size)
        {
            IDLE[size].push((pipe, permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;
    use crate::thread::lock;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    const BYTES_MAX: usize = SIZES[SIZES.len() - 1];

    /// A test that has all pipes leaves none to the others.
    static PIPES_IN_USE: Mutex<()> = Mutex::new(());

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
        let _alone = lock(&PIPES_IN_USE);
        let budget = Budget::new(64 << 20);
        for len in [BYTES_MIN, 100_001, SIZE, SIZE + 1, BYTES_MAX] {
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
        let _alone = lock(&PIPES_IN_USE);
        let budget = Budget::new(64 << 20);
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
        let _alone = lock(&PIPES_IN_USE);
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

    /// Otherwise those of one size could have all for good.
    #[test]
    fn idle_pipes_of_one_size_give_way_to_another() {
        let _alone = lock(&PIPES_IN_USE);
        let budget = Budget::new(64 << 20);
        let file = file(&content(BYTES_MAX));
        for (len, other) in [(SIZE, BYTES_MAX), (BYTES_MAX, SIZE)] {
            let mut held = Vec::new();
            while let Some(mut pipe) = EmptyPipe::take(len) {
                pipe.fill(file.as_fd(), len).unwrap();
                held.push(pipe.into_piped(len, budget.reserve(len).unwrap()));
            }
            for piped in held {
                piped.into_buffer().unwrap();
            }
            let others: Vec<_> = std::iter::from_fn(|| EmptyPipe::take(other)).collect();
            assert!(
                others.len() * other > PIPES_MAX_DEFAULT / 2 * SIZE,
                "{}",
                others.len()
            );
        }
    }
}
