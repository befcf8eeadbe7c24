//! Bytes that can be sent without waiting for the disk, and their conversion to bytes in memory for transports
//! that cannot send the other forms.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;

use crate::files::{OpenFile, read};
use crate::memory::{Budget, Buffer, Lease};

/// Bytes of a file that can be sent without waiting for the disk.
#[derive(Debug)]
pub enum Ready {
    /// In memory: any transport can send them.
    Bytes(Buffer),
    /// In a pipe: `splice` moves it to a plain socket.
    Pipe {
        /// The read end; the pipe holds exactly `len` bytes.
        pipe: OwnedFd,
        /// In bytes.
        len: usize,
    },
    /// In a memory file, from which `sendfile` does not block.
    Shared {
        /// The memory file; its drop frees the memory.
        memory: Arc<Lease>,
        /// In bytes from the start of the memory file.
        offset: u64,
        /// In bytes.
        len: usize,
    },
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

impl From<Buffer> for Ready {
    fn from(buffer: Buffer) -> Ready {
        let len = buffer.len();
        match buffer.into_slot() {
            Ok((slot, skip)) => Ready::Shared {
                offset: (slot.offset() + skip) as u64,
                memory: Arc::new(Lease::of_slot(slot)),
                len,
            },
            Err(buffer) => Ready::Bytes(buffer),
        }
    }
}

impl Ready {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Ready::Bytes(buffer) => buffer.len(),
            Ready::Pipe { len, .. } | Ready::Shared { len, .. } | Ready::PageCache { len, .. } => {
                *len
            }
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in `range`, if they are in mapped memory. `None` for a pipe, a file, and a memory file that is
    /// not mapped.
    ///
    /// # Panics
    /// If `range` is out of bounds.
    pub fn peek(&self, range: Range<usize>) -> Option<&[u8]> {
        match self {
            Ready::Bytes(buffer) => Some(&buffer[range]),
            Ready::Shared { memory, offset, .. } => {
                memory.bytes(offset + range.start as u64, range.len())
            }
            Ready::Pipe { .. } | Ready::PageCache { .. } => None,
        }
    }

    /// Up to `len` bytes after the first `skipped`, without a copy. `None` for a pipe, which can be read only
    /// once.
    pub(crate) fn part(&mut self, skipped: usize, len: usize) -> Option<Ready> {
        let skipped = skipped.min(self.len());
        let part = len.min(self.len() - skipped);
        match self {
            Ready::Bytes(buffer) => Some(Ready::Bytes(buffer.part(skipped..skipped + part))),
            Ready::Pipe { .. } => None,
            Ready::Shared { memory, offset, .. } => Some(Ready::Shared {
                memory: Arc::clone(memory),
                offset: *offset + skipped as u64,
                len: part,
            }),
            Ready::PageCache { file, offset, .. } => Some(Ready::PageCache {
                file: Arc::clone(file),
                offset: *offset + skipped as u64,
                len: part,
            }),
        }
    }

    /// Copies the bytes to memory, unless they are there. Does not block, except that a [`Ready::PageCache`] is
    /// read from the disk if the kernel has evicted it.
    ///
    /// # Errors
    /// `OutOfMemory` if `budget` has no room; [`Ready::Bytes`] needs none. `UnexpectedEof` if the file has
    /// shrunk. Those of `read`.
    pub fn into_bytes(self, budget: &Budget) -> io::Result<Buffer> {
        if let Ready::Bytes(buffer) = self {
            return Ok(buffer);
        }
        let len = self.len();
        let mut buffer = budget.buffer(len).ok_or(io::ErrorKind::OutOfMemory)?;
        match self {
            Ready::Bytes(_) => {}
            Ready::Pipe { pipe, .. } => drain(&pipe, &mut buffer)?,
            Ready::Shared { memory, offset, .. } => copy_shared(&memory, offset, &mut buffer)?,
            Ready::PageCache { file, offset, .. } => {
                read::fill(&file, &mut buffer, offset)?;
                read::cut_at_end(&file, &mut buffer, offset)?;
            }
        }
        if buffer.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(buffer)
    }
}

/// Reads the pipe until the buffer is full. Does not block: the pipe holds that many bytes.
fn drain(pipe: &OwnedFd, buffer: &mut Buffer) -> io::Result<()> {
    while buffer.room() > 0 {
        match rustix::io::read(pipe, buffer.spare()) {
            Ok(([], _)) => break,
            Ok((bytes, _)) => {
                let count = bytes.len();
                // SAFETY: the call has written `count` bytes at the start of the spare part.
                unsafe { buffer.advance(count) };
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Copies from a memory file through a mapping; makes one if there is none. Not by `pread`, which the guard stops
/// also where it cannot block.
fn copy_shared(memory: &Lease, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
    if buffer.room() == 0 {
        return Ok(());
    }
    if let Some(bytes) = memory.bytes(offset, buffer.room()) {
        buffer.extend_from_slice(bytes);
        return Ok(());
    }
    let end = offset.checked_add(buffer.room() as u64);
    let size = u64::try_from(rustix::fs::fstat(memory)?.st_size).unwrap_or(0);
    if end.is_none_or(|end| end > size) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mapping = Mapping::new(memory, offset, buffer.room())?;
    buffer.extend_from_slice(mapping.bytes());
    Ok(())
}

/// The largest page size of Linux, in bytes: the alignment of a mapping.
const PAGE_BYTES_MAX: u64 = 64 * 1024;

/// A readable mapping of a part of a memory file.
struct Mapping {
    /// Aligned to a page.
    start: *mut libc::c_void,
    /// Bytes from `start` to the wanted ones.
    skipped: usize,
    len: usize,
}

impl Mapping {
    fn new(memory: &Lease, offset: u64, len: usize) -> io::Result<Mapping> {
        let skipped = (offset % PAGE_BYTES_MAX) as usize;
        let aligned = offset - offset % PAGE_BYTES_MAX;
        let aligned = libc::off_t::try_from(aligned).map_err(|_| Errno::INVAL)?;
        // SAFETY: a new private mapping, at an address of the kernel's choice, touches no other memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                skipped + len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                memory.as_fd().as_raw_fd(),
                aligned,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            start,
            skipped,
            len,
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped readable from `start` for `skipped + len` bytes, all within the file; the
        // engine that owns the memory file neither shrinks it nor writes to a part handed over.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>().add(self.skipped), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start, self.skipped + self.len) };
    }
}
