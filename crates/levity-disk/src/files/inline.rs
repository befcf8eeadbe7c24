//! System calls on an open file that do not block an event loop.
//!
//! `fstat` and `preadv2(RWF_NOWAIT)` are answered from memory on some file systems and wait for a server on
//! others, and a directory may contain mounts of both kinds. So the decision is made for each open file,
//! and an [`Inline`] is the proof of it: there is no other way to make a system call on the descriptor of a
//! served file outside of this crate.

use std::io;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::{NonblockingCalls, OpenFile};
use crate::syscall;

/// An open file whose metadata is in memory. Made only by [`OpenFile::inline`].
#[derive(Debug, Clone, Copy)]
pub struct Inline<'a>(&'a OpenFile);

impl OpenFile {
    /// The calls that an event loop may make. `None` if even `fstat` of the open file may block.
    pub fn inline(&self) -> Option<Inline<'_>> {
        (self.nonblocking_calls != NonblockingCalls::None).then_some(Inline(self))
    }
}

impl Inline<'_> {
    /// The metadata as of now (`fstat`). Does not block.
    ///
    /// # Errors
    /// The errors of `fstat`.
    pub fn refresh(self) -> io::Result<Meta> {
        Ok(self.0.refresh()?)
    }

    /// Appends up to `len` bytes from `offset` to `buffer` if they are in the page cache
    /// (`preadv2(RWF_NOWAIT)`). Returns the number of bytes, and the metadata from an `fstat` after the read
    /// (0.3 us). There are fewer bytes than `len` if a later page is not cached or the file has shrunk, and
    /// none only at or beyond the size in `meta`. They are cut at the size that the `fstat` reports, so no
    /// bytes are returned that a truncation has cut off.
    ///
    /// Does not block. From Linux 6.12 on a miss starts a disk read of `len` bytes on the calling thread (34
    /// to 102 us were measured).
    ///
    /// # Errors
    /// `WouldBlock` if the first byte is not in memory, if the file system cannot tell, or if the read would
    /// update the access time, which may wait for the journal: an engine's read updates it. That applies to
    /// files of other owners whose access time is due (once a day and after a change; always on a
    /// `strictatime` mount). Else the errors of `preadv2` and `fstat`.
    pub fn read_cached(
        self,
        buffer: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> io::Result<(usize, Meta)> {
        if !self.0.reads_inline() || self.would_set_atime()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let start = buffer.len();
        match self.append_cached(buffer, len, offset) {
            // Linux 5.9 and 5.10 may return 0 at the edge of a page that is not cached (fixed by
            // 06c0444290 in 5.11), so 0 is trusted only at the expected end of the file. For a file that
            // has shrunk an engine's read decides.
            Ok((0, _)) if len > 0 && offset < self.0.meta.size => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Ok(read) => Ok(read),
            Err(Errno::OPNOTSUPP | Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => {
                buffer.truncate(start);
                Err(errno.into())
            }
        }
    }

    fn would_set_atime(self) -> Result<bool, Errno> {
        let access = self.0.access();
        Ok(access.may_be_set() && access.would_be_set(&rustix::fs::fstat(self.0.as_fd())?))
    }

    /// Appends cached bytes, and cuts them at the size that the file has afterwards.
    fn append_cached(
        self,
        buffer: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> Result<(usize, Meta), Errno> {
        let start = buffer.len();
        let count = syscall::append_cached(self.0.as_fd(), buffer, len, offset)?;
        let now = self.0.refresh()?;
        let held = usize::try_from(now.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = count.min(held);
        buffer.truncate(start + count);
        Ok((count, now))
    }
}
