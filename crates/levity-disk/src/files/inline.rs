//! What an event loop may ask of an open file without waiting.
//!
//! `fstat` and `preadv2(RWF_NOWAIT)` answer from memory on some file systems and wait for a server on
//! others, and a folder may hold mounts of both kinds. So the question belongs to each open file, and
//! an [`Inline`] is the proof that the file was asked: nothing else outside of this crate makes a call
//! on the descriptor of a served file.

use std::io;

use rustix::io::Errno;

use super::meta::Meta;
use super::open_file::{Answers, OpenFile};
use crate::syscall;

/// An open file whose metadata is in memory. Only [`OpenFile::inline`] makes one.
#[derive(Debug, Clone, Copy)]
pub struct Inline<'a>(&'a OpenFile);

impl OpenFile {
    /// What an event loop may ask of it: `None` where even `fstat` of the open file may wait.
    pub fn inline(&self) -> Option<Inline<'_>> {
        (self.answers() != Answers::Nothing).then_some(Inline(self))
    }
}

impl Inline<'_> {
    /// What `fstat` says now. Never blocks.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn refresh(self) -> io::Result<Meta> {
        Ok(self.0.refresh()?)
    }

    /// Appends up to `len` bytes from `offset` to `buffer`, if they are in the page cache
    /// (`preadv2(RWF_NOWAIT)`). Returns how many: fewer than `len` when a later page is missing or the
    /// file has become shorter; 0 only at or beyond the size in `meta`. What a truncation cuts off in
    /// the meantime is never among them: an `fstat` after the read (0.3 us) tells the end. What it said
    /// comes along.
    ///
    /// Never blocks. From Linux 6.12 on a miss starts a disk read of `len` bytes on the calling thread
    /// (34 to 102 us were measured).
    ///
    /// # Errors
    /// `WouldBlock` when the first byte is not in memory, when the file system cannot tell, or when the
    /// read would set the time of last access, which may wait for the journal: an engine's read sets
    /// it. That is so for files of other owners, whose time is due (once a day and after a change;
    /// always on a `strictatime` mount). The others are those of `preadv2` and `fstat`.
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
            // Linux 5.9 and 5.10 may say 0 at the edge of a missing page (fixed by 06c0444290 in
            // 5.11), so the end of the file is only believed where it is expected. A file that has
            // shrunk costs a trip to the pool.
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

    /// Appends cached bytes, and cuts them where the file ends afterwards.
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
