//! Bytes of a file in memory.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::arena::{Slot, SlotAllocator};
use super::block::ALIGNMENT;
use super::budget::{Budget, PooledBlock, Reservation, span};
use super::registered::{self, RegisteredMemory};

impl Budget {
    /// An empty buffer with room for `len` bytes; `None` if the budget does not have them. Does not block.
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        Some(Buffer::new(self.reserve(len)?, len))
    }
}

/// Bytes of a file in memory. Dereferences to the bytes that have been read.
pub struct Buffer {
    /// Bytes of the memory before the first byte of the buffer: only for a read of whole blocks and a part of
    /// another buffer.
    skip: usize,
    len: usize,
    /// Number of bytes that were requested; the memory may be larger.
    limit: usize,
    memory: Memory,
}

enum Memory {
    Pooled(PooledBlock),
    Owned(Vec<u8>),
    /// Part of another buffer.
    Shared(Arc<Buffer>),
    /// In a memory file.
    Slot(Slot),
    /// Registered with a ring.
    Registered(registered::Slot),
}

impl Memory {
    /// Empty for owned and shared memory, which is never read into.
    fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        match self {
            Memory::Pooled(block) => block.get_mut().as_mut_slice(),
            Memory::Slot(slot) => slot.as_mut_slice(),
            Memory::Registered(slot) => slot.as_mut_slice(),
            Memory::Owned(_) | Memory::Shared(_) => &mut [],
        }
    }
}

impl Buffer {
    /// An empty buffer with room for `len` bytes. Bytes reserved beyond that are freed.
    ///
    /// # Panics
    /// If fewer bytes were reserved than `len` takes.
    pub(crate) fn new(reservation: Reservation, len: usize) -> Buffer {
        Buffer::behind(0, len, reservation)
    }

    /// As [`Buffer::new`], for `len` bytes from `offset` of a file that are read in whole blocks: see
    /// [`Buffer::blocks`].
    ///
    /// # Panics
    /// If fewer bytes were reserved than their [`span`] takes.
    pub(crate) fn for_blocks(reservation: Reservation, offset: u64, len: usize) -> Buffer {
        Buffer::behind((offset % ALIGNMENT as u64) as usize, len, reservation)
    }

    /// As [`Buffer::for_blocks`], in a slot of `allocator`; in ordinary memory if it has none of that size.
    ///
    /// # Panics
    /// As [`Buffer::for_blocks`].
    pub(crate) fn in_slot(
        mut reservation: Reservation,
        allocator: &mut SlotAllocator,
        offset: u64,
        len: usize,
    ) -> Buffer {
        reservation.cut(span(offset, len));
        match allocator.slot(reservation) {
            Ok(slot) => Buffer::around(offset, len, Memory::Slot(slot)),
            Err(reservation) => Buffer::for_blocks(reservation, offset, len),
        }
    }

    /// As [`Buffer::for_blocks`], in memory that is registered with a ring, if a slot is free.
    ///
    /// # Panics
    /// As [`Buffer::for_blocks`].
    pub(crate) fn in_registered(
        mut reservation: Reservation,
        registered: &Arc<RegisteredMemory>,
        offset: u64,
        len: usize,
    ) -> Buffer {
        let bytes = span(offset, len);
        reservation.cut(bytes);
        match registered.slot(bytes, reservation) {
            Ok(slot) => Buffer::around(offset, len, Memory::Registered(slot)),
            Err(reservation) => Buffer::for_blocks(reservation, offset, len),
        }
    }

    fn behind(skip: usize, len: usize, mut reservation: Reservation) -> Buffer {
        reservation.cut(skip + len);
        match reservation.into_block() {
            None => Buffer::from(Vec::new()),
            Some(block) => Buffer {
                skip,
                len: 0,
                limit: len,
                memory: Memory::Pooled(block),
            },
        }
    }

    /// An empty buffer for `len` bytes from `offset`, in `memory` with room for the blocks around them.
    fn around(offset: u64, len: usize, memory: Memory) -> Buffer {
        Buffer {
            skip: (offset % ALIGNMENT as u64) as usize,
            len: 0,
            limit: len,
            memory,
        }
    }

    /// Whether it is in memory that is registered with a ring.
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self.memory, Memory::Registered(_))
    }

    /// The bytes in `range`, cut at the end of the buffer, without a copy: both share the memory, which is freed
    /// when the last of them is dropped. Afterwards neither has room to read more.
    pub(crate) fn part(&mut self, range: Range<usize>) -> Buffer {
        if !matches!(self.memory, Memory::Shared(_)) {
            let whole = std::mem::replace(self, Buffer::from(Vec::new()));
            *self = Buffer {
                skip: 0,
                len: whole.len,
                limit: whole.len,
                memory: Memory::Shared(Arc::new(whole)),
            };
        }
        let Memory::Shared(of) = &self.memory else {
            unreachable!("it has just been made so");
        };
        let (from, to) = (range.start.min(self.len), range.end.min(self.len));
        let len = to.saturating_sub(from);
        Buffer {
            skip: self.skip + from,
            len,
            limit: len,
            memory: Memory::Shared(Arc::clone(of)),
        }
    }

    /// The number of bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.limit - self.len
    }

    /// The part of the memory that has not been read into.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let (start, room) = (self.skip + self.len, self.room());
        let memory = self.memory.as_mut_slice();
        memory.get_mut(start..start + room).unwrap_or_default()
    }

    /// The memory after its first `filled` bytes, in whole blocks: for a read of the blocks around the requested
    /// bytes, which begins at [`Buffer::blocks_offset`].
    pub(crate) fn blocks(&mut self, filled: usize) -> &mut [MaybeUninit<u8>] {
        let end = span(self.skip as u64, self.limit);
        let memory = self.memory.as_mut_slice();
        memory.get_mut(filled..end).unwrap_or_default()
    }

    /// The offset at which a read of whole blocks begins if the requested bytes begin at `offset`.
    pub(crate) fn blocks_offset(&self, offset: u64) -> u64 {
        offset - self.skip as u64
    }

    /// Sets the length, after the first `filled` bytes of [`Buffer::blocks`]`(0)` have been written.
    ///
    /// # Safety
    /// They must have been.
    pub(crate) unsafe fn filled_blocks(&mut self, filled: usize) {
        self.len = filled.saturating_sub(self.skip).min(self.limit);
    }

    /// Raises the length, after the first `count` bytes of [`Buffer::spare`] have been written.
    ///
    /// # Safety
    /// They must have been, and `count` must be within it.
    pub(crate) unsafe fn advance(&mut self, count: usize) {
        assert!(count <= self.room(), "more bytes than there was room for");
        self.len += count;
    }

    /// The memory file that holds the bytes, and the offset of the first one there, for
    /// [`transmit::send_shared`](crate::transmit::send_shared). `None` if they are in other memory.
    pub fn memory_file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let (file, start) = match &self.memory {
            Memory::Slot(slot) => (slot.as_fd(), slot.offset() as u64),
            Memory::Shared(of) => of.memory_file()?,
            Memory::Pooled(_) | Memory::Owned(_) | Memory::Registered(_) => return None,
        };
        Some((file, start + self.skip as u64))
    }

    /// Drops all bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends a copy of `bytes`.
    ///
    /// # Panics
    /// If there is not enough room.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        for (to, from) in self.spare()[..bytes.len()].iter_mut().zip(bytes) {
            to.write(*from);
        }
        // SAFETY: the loop has just written that many bytes at the start of the spare part.
        unsafe { self.advance(bytes.len()) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Pooled(block) => block.get().written(self.skip, self.len),
            Memory::Owned(bytes) => &bytes[..self.len],
            Memory::Shared(of) => &of[self.skip..self.skip + self.len],
            Memory::Slot(slot) => &slot.as_slice()[self.skip..self.skip + self.len],
            Memory::Registered(slot) => &slot.as_slice()[self.skip..self.skip + self.len],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Outside of any budget: for small bodies that are generated, not read.
impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer {
            skip: 0,
            len: bytes.len(),
            limit: bytes.len(),
            memory: Memory::Owned(bytes),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_bounded() {
        let budget = Budget::new(3 * 4096);
        let small = budget.buffer(1).unwrap();
        let large = budget.buffer(8192).unwrap();
        assert_eq!(budget.in_use(), 3 * 4096);
        assert!(budget.buffer(1).is_none());
        drop(small);
        let mut again = budget.buffer(10).unwrap();
        assert_eq!(again.spare().as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(again.room(), 10);
        drop((large, again));
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn memory_is_used_again() {
        let budget = Budget::new(1 << 20);
        let mut first = budget.buffer(5000).unwrap();
        first.extend_from_slice(b"one");
        let address = first.as_ptr();
        drop(first);
        let mut second = budget.buffer(8000).unwrap();
        assert!(second.is_empty());
        second.extend_from_slice(b"two");
        assert_eq!((second.as_ptr(), &*second), (address, &b"two"[..]));
    }

    #[test]
    fn a_buffer_can_be_cut() {
        let budget = Budget::new(4096);
        let mut read = budget.buffer(10).unwrap();
        read.extend_from_slice(b"twelve");
        for mut buffer in [read, Buffer::from(b"twelve".to_vec())] {
            buffer.truncate(100);
            assert_eq!(&*buffer, b"twelve");
            buffer.truncate(2);
            assert_eq!(&*buffer, b"tw");
        }
    }

    #[test]
    fn whole_blocks_around_the_wanted_bytes() {
        assert_eq!([span(0, 0), span(0, 1), span(4095, 2)], [0, 4096, 8192]);
        assert_eq!([span(8192, 4096), span(1, 4096)], [4096, 8192]);
        let budget = Budget::new(8192);
        let reservation = budget.reserve(span(4099, 4096)).unwrap();
        let mut buffer = Buffer::for_blocks(reservation, 4099, 4096);
        assert_eq!(buffer.blocks_offset(4099), 4096);
        let blocks = buffer.blocks(0);
        assert_eq!(blocks.len(), 8192);
        for (at, byte) in blocks.iter_mut().enumerate() {
            byte.write(at as u8);
        }
        // SAFETY: the loop has written them all.
        unsafe { buffer.filled_blocks(2) };
        assert!(buffer.is_empty());
        // SAFETY: as above.
        unsafe { buffer.filled_blocks(5) };
        assert_eq!(&*buffer, [3, 4]);
        assert_eq!(buffer.blocks(4096).len(), 4096);
        // SAFETY: as above.
        unsafe { buffer.filled_blocks(8192) };
        assert_eq!((buffer.len(), buffer.room()), (4096, 0));
    }

    #[test]
    fn parts_share_the_memory() {
        let budget = Budget::new(4096);
        let mut whole = budget.buffer(100).unwrap();
        whole.extend_from_slice(b"shared bytes");
        let address = whole.as_ptr();
        let mut bytes = whole.part(7..1000);
        let last = bytes.part(4..5);
        let none = bytes.part(50..60);
        assert_eq!((&*whole, &*bytes), (&b"shared bytes"[..], &b"bytes"[..]));
        assert_eq!((&*last, &*none), (&b"s"[..], &b""[..]));
        assert_eq!(whole.as_ptr(), address);
        bytes.truncate(1);
        assert_eq!(&*bytes, b"b");
        drop((whole, bytes, none));
        assert_eq!(budget.in_use(), 4096);
        drop(last);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_vector_is_a_buffer() {
        let mut buffer = Buffer::from(b"made".to_vec());
        assert!(buffer.spare().is_empty());
        assert_eq!(&*buffer, b"made");
    }
}
