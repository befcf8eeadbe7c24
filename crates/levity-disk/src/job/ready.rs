//! Bytes that can be sent without waiting for the disk, and their conversion to bytes in memory for
//! transports that cannot send the other forms.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;

use crate::files::{OpenFile, read};
use crate::memory::{Budget, Buffer, Lease};

/// Bytes of a file that are ready to leave without waiting for the disk.
#[derive(Debug)]
pub enum Ready {
    /// In our memory: any transport can send it.
    Bytes(Buffer),
    /// In a pipe: `splice` moves it to a plain socket.
    Pipe {
        /// The pipe's read end; holds exactly `len` bytes.
        pipe: OwnedFd,
        /// In bytes.
        len: usize,
    },
    /// In a memory file, which `sendfile` may read without waiting.
    Shared {
        /// The memory file; to let go of it is to give the memory back.
        memory: Arc<Lease>,
        /// In bytes from the start of the memory file.
        offset: u64,
        /// In bytes.
        len: usize,
    },
    /// Still in the file. Only an engine that may block on the loop, or that has just brought the
    /// range into the page cache, says so.
    PageCache {
        /// The file to send from.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes, never beyond the size that `fstat` told.
        len: usize,
    },
}

/// In bytes: an engine that leaves bytes in the page cache copies fewer than these all the same, while
/// there is memory, as a copy costs less than to send them from there. A page on most machines.
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
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Ready::Bytes(buffer) => buffer.len(),
            Ready::Pipe { len, .. } | Ready::Shared { len, .. } | Ready::PageCache { len, .. } => {
                *len
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// These of the bytes, where they lie in our memory. `None` for a pipe, a file and memory that is not
    /// mapped.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn peek(&self, range: Range<usize>) -> Option<&[u8]> {
        match self {
            Ready::Bytes(buffer) => Some(&buffer[range]),
            Ready::Shared { memory, offset, .. } => {
                memory.bytes(offset + range.start as u64, range.len())
            }
            Ready::Pipe { .. } | Ready::PageCache { .. } => None,
        }
    }

    /// Up to `len` of these bytes, after `skipped` of them, without a copy. `None` for a pipe: what is
    /// read from it is gone.
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

    /// The same bytes in memory. Does not wait, except that a [`Ready::PageCache`] is read from the
    /// disk where the kernel has let go of it.
    ///
    /// # Errors
    /// `OutOfMemory` when `budget` has no room: only [`Ready::Bytes`] needs none. `UnexpectedEof` when
    /// the file has become shorter than it was. Those of `read`.
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

/// Empties a pipe into the buffer's room; it holds that much, so nothing waits.
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

/// Copies out of a memory file through a mapping, a new one if there is none: a `pread`, however harmless on such a file, is what
/// the guard stops.
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

/// The largest page of any Linux, in bytes: a mapping begins at a multiple of it.
const PAGE_BYTES_MAX: u64 = 64 * 1024;

/// A part of a memory file, to be read.
struct Mapping {
    /// At the start of a page.
    start: *mut libc::c_void,
    /// From `start` to what was asked for.
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
