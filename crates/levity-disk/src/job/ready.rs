//! Bytes that can be sent without waiting for the disk.

use std::io;
use std::mem;
use std::sync::Arc;

use crate::files::{OpenFile, read};
use crate::memory::{Budget, Buffer};
use crate::piped::Piped;

/// Bytes of a file that can be sent without waiting for the disk.
#[derive(Debug)]
pub enum Ready {
    /// In memory: any transport can send them. Where they are in a [memory file](Buffer::memory_file), a plain
    /// socket takes them without a copy.
    Bytes(Buffer),
    /// In a pipe, from which a plain TCP socket takes them without a copy. Only for a job with
    /// [`ReadOptions::to_pipe`](crate::ReadOptions::to_pipe).
    Piped(Piped),
    /// In the file. Only from an engine that may block on the loop, or that has just read the range into the page
    /// cache.
    PageCache {
        /// The file to send from.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes, not beyond the size that `fstat` has reported.
        len: usize,
    },
}

/// In bytes: an engine that leaves bytes in the page cache nevertheless copies fewer than these, while there is
/// memory, because a copy costs less than sending them from there. A page on most machines.
pub const COPIED_BYTES: usize = 4096;

impl Ready {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Ready::Bytes(buffer) => buffer.len(),
            Ready::Piped(piped) => piped.len(),
            Ready::PageCache { len, .. } => *len,
        }
    }

    /// Drops all bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Ready::Bytes(buffer) => buffer.truncate(len),
            Ready::Piped(piped) => piped.truncate(len),
            Ready::PageCache { len: all, .. } => *all = len.min(*all),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `len` bytes after the first `skipped`. Copies only what is in a pipe: each byte leaves that once. If
    /// this fails, no bytes are left, and the reader has to read them again.
    pub(crate) fn part(&mut self, skipped: usize, len: usize) -> Ready {
        *self = match mem::replace(self, Ready::Bytes(Vec::new().into())) {
            Ready::Piped(piped) => {
                Ready::Bytes(piped.into_buffer().unwrap_or_else(|_| Vec::new().into()))
            }
            other => other,
        };
        let skipped = skipped.min(self.len());
        let part = len.min(self.len() - skipped);
        match self {
            Ready::Piped(_) => unreachable!("they have just been copied"),
            Ready::Bytes(buffer) => Ready::Bytes(buffer.part(skipped..skipped + part)),
            Ready::PageCache { file, offset, .. } => Ready::PageCache {
                file: Arc::clone(file),
                offset: *offset + skipped as u64,
                len: part,
            },
        }
    }

    /// Copies the bytes to memory, unless they are there. Does not block, except that a [`Ready::PageCache`] is
    /// read from the disk if the kernel has evicted it.
    ///
    /// # Errors
    /// `OutOfMemory` if `budget` has no room; only [`Ready::PageCache`] needs any. `UnexpectedEof` if the file has
    /// shrunk. Those of `read`.
    pub fn into_bytes(self, budget: &Budget) -> io::Result<Buffer> {
        let (file, offset, len) = match self {
            Ready::Bytes(buffer) => return Ok(buffer),
            Ready::Piped(piped) => return piped.into_buffer(),
            Ready::PageCache { file, offset, len } => (file, offset, len),
        };
        let mut buffer = budget.buffer(len).ok_or(io::ErrorKind::OutOfMemory)?;
        read::fill(&file, &mut buffer, offset)?;
        buffer.truncate(read::held(offset, &file.meta, &file.refresh()?));
        if buffer.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(buffer)
    }
}
