//! Memory for file bytes: bounded, aligned and used again.
//!
//! A [`Budget`] bounds the bytes that one process spends on them. Bytes are reserved before a read
//! starts, so that a read under way never lacks its memory, and the scheduler keeps a read that finds
//! no room in its queue. The rule that keeps this free of deadlock: nobody who holds a [`Buffer`] may
//! wait for a second one before letting go of the first.

use std::alloc::{Layout, handle_alloc_error};
use std::array;
use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::{Deref, Range};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use crate::arena::{Keeper, Slot};
use crate::pinned::{self, Pinned};

/// In bytes: what `O_DIRECT` asks for at most, and a page on most machines.
pub const ALIGNMENT: usize = 4096;

/// Blocks up to this size, in bytes, are kept for the next read; larger ones go back to the allocator.
pub(crate) const RECYCLED_BYTES_MAX: usize = 1 << 20;

/// Blocks of one size that are kept; the bound on bytes holds besides.
const IDLE_BLOCKS_MAX: usize = 1024;

pub(crate) const SIZE_CLASSES: usize = class_of(RECYCLED_BYTES_MAX) + 1;

/// A bound on the bytes of all [`Buffer`]s that are taken from it. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

/// Without a lock, because event loops drop buffers.
struct Shared {
    bytes_max: usize,
    in_use: AtomicUsize,
    /// Bytes of the blocks in `idle`. Raised before a block is put there and lowered after it has been
    /// taken, so never too low.
    idle_bytes: AtomicUsize,
    /// By size. A push waits for a pop under way only when it needs the very place that is being
    /// emptied: not as long as a list has a place for every block of its size.
    idle: [ArrayQueue<Block>; SIZE_CLASSES],
    /// A reservation failed since bytes were last freed.
    wanted: AtomicBool,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Budget {
    /// A budget of `bytes_max` bytes, none of which is allocated yet.
    pub fn new(bytes_max: usize) -> Budget {
        Budget(Arc::new(Shared {
            bytes_max,
            in_use: AtomicUsize::new(0),
            idle_bytes: AtomicUsize::new(0),
            idle: array::from_fn(|class| {
                let blocks = bytes_max / (ALIGNMENT << class);
                ArrayQueue::new(blocks.clamp(1, IDLE_BLOCKS_MAX))
            }),
            wanted: AtomicBool::new(false),
            freed: OnceLock::new(),
        }))
    }

    /// The bound, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Bytes that are reserved or held by a [`Buffer`]: sizes after rounding up, see [`Budget::cost`].
    pub fn in_use(&self) -> usize {
        self.0.in_use.load(Ordering::SeqCst)
    }

    /// Whether a buffer of `len` bytes may be taken where a smaller one would do: a quarter holds all that
    /// is in use then, so that neither reads that must be made nor those made ahead find less.
    pub fn is_ample(&self, len: usize) -> bool {
        self.in_use().saturating_add(Budget::cost(len)) <= self.ample_max()
    }

    fn ample_max(&self) -> usize {
        self.0.bytes_max / 4
    }

    /// The bytes that a buffer of `len` bytes takes from a budget: a power of two from 4 KiB to
    /// 1 MiB, or a multiple of 4 KiB above; nothing for an empty one.
    pub const fn cost(len: usize) -> usize {
        if len == 0 {
            0
        } else if len <= RECYCLED_BYTES_MAX {
            ALIGNMENT << class_of(len)
        } else {
            len.next_multiple_of(ALIGNMENT)
        }
    }

    /// An empty buffer with room for `len` bytes; `None` when the budget has none left. Does not wait.
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        Some(self.reserve(len)?.buffer(len))
    }

    /// Sets aside what a buffer of `len` bytes takes: only counts, and calls no allocator, because the
    /// scheduler does it under its lock. After a failure the function given to
    /// `on_freed` is called as soon as bytes come back.
    pub(crate) fn reserve(&self, len: usize) -> Option<Reservation> {
        let bytes = Budget::cost(len);
        if !self.0.count(bytes, self.0.bytes_max) {
            self.0.wanted.store(true, Ordering::SeqCst);
            // Whoever frees bytes lowers `in_use` and then looks at `wanted`; this side sets `wanted`
            // and then looks at `in_use` once more. One of the two sees the other: nobody waits for
            // bytes that are there.
            if !self.0.count(bytes, self.0.bytes_max) {
                return None;
            }
        }
        Some(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Calls `freed` when bytes come back after a reservation failed: from whatever thread dropped
    /// the buffer, which may be an event loop, so it must not wait. Only the first caller is heard.
    pub(crate) fn on_freed(&self, freed: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.freed.set(freed);
    }

    /// Memory for bytes that have been reserved.
    fn take_block(&self, bytes: usize) -> Block {
        let block = self.0.reuse(bytes);
        self.0.shed();
        block.unwrap_or_else(|| Block::allocate(bytes))
    }

    /// Gives `bytes` back, and the block that held them, if there is one, to the next read.
    fn release(&self, bytes: usize, block: Option<Block>) {
        if let Some(block) = block {
            self.0.keep(block);
        }
        self.0.in_use.fetch_sub(bytes, Ordering::SeqCst);
        let wanted = &self.0.wanted;
        if wanted.load(Ordering::SeqCst)
            && wanted.swap(false, Ordering::SeqCst)
            && let Some(freed) = self.0.freed.get()
        {
            freed();
        }
    }
}

impl Shared {
    /// Counts `bytes` as used if then at most `max` are.
    fn count(&self, bytes: usize, max: usize) -> bool {
        let count = |in_use: usize| {
            let sum = in_use.checked_add(bytes)?;
            (sum <= max).then_some(sum)
        };
        let (ok, now) = (Ordering::SeqCst, Ordering::SeqCst);
        self.in_use.fetch_update(ok, now, count).is_ok()
    }

    fn reuse(&self, bytes: usize) -> Option<Block> {
        if bytes > RECYCLED_BYTES_MAX {
            return None;
        }
        self.take_idle(class_of(bytes))
    }

    fn take_idle(&self, class: usize) -> Option<Block> {
        let block = self.idle[class].pop()?;
        self.idle_bytes.fetch_sub(block.bytes, Ordering::SeqCst);
        Some(block)
    }

    /// Keeps a block for the next read, or frees it when it is too large or there are many.
    fn keep(&self, block: Block) {
        let bytes = block.bytes;
        if bytes > RECYCLED_BYTES_MAX {
            return;
        }
        self.idle_bytes.fetch_add(bytes, Ordering::SeqCst);
        if let Err(surplus) = self.idle[class_of(bytes)].push(block) {
            drop(surplus);
            self.idle_bytes.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// Frees idle blocks, largest first, until idle and used bytes together are within the bound.
    fn shed(&self) {
        let used = || self.in_use.load(Ordering::SeqCst) + self.idle_bytes.load(Ordering::SeqCst);
        for class in (0..SIZE_CLASSES).rev() {
            while used() > self.bytes_max
                && let Some(block) = self.take_idle(class)
            {
                drop(block);
            }
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {})", self.in_use(), self.bytes_max())
    }
}

/// Bytes set aside for one read. What is not turned into a buffer goes back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    bytes: usize,
}

/// Bytes of memory that it takes to read `len` bytes from `offset` past the page cache: whole blocks
/// of [`ALIGNMENT`], in which these lie.
pub(crate) const fn span(offset: u64, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let skip = (offset % ALIGNMENT as u64) as usize;
    let blocks = skip.saturating_add(len).div_ceil(ALIGNMENT);
    blocks.saturating_mul(ALIGNMENT)
}

impl Reservation {
    /// Turns the reservation into an empty buffer with room for `len` bytes, and gives the rest back.
    ///
    /// # Panics
    /// When less was reserved than `len` takes.
    pub(crate) fn buffer(self, len: usize) -> Buffer {
        self.buffer_behind(0, len)
    }

    /// The same, for `len` bytes from `offset` of a file that are read in whole blocks: see
    /// [`Buffer::blocks`].
    ///
    /// # Panics
    /// When less was reserved than their [`span`] takes.
    pub(crate) fn blocks(self, offset: u64, len: usize) -> Buffer {
        self.buffer_behind((offset % ALIGNMENT as u64) as usize, len)
    }

    /// The same, in a slot that `keeper` has for it; in ordinary memory if there is none of that size.
    ///
    /// # Panics
    /// As [`Reservation::blocks`].
    pub(crate) fn slot(mut self, keeper: &mut Keeper, offset: u64, len: usize) -> Buffer {
        self.cut(span(offset, len));
        match keeper.slot(self) {
            Ok(slot) => Buffer::around(offset, len, Memory::Slot(slot)),
            Err(reservation) => reservation.blocks(offset, len),
        }
    }

    /// The same, in memory that is registered with a ring, if there is a slot for it.
    ///
    /// # Panics
    /// As [`Reservation::blocks`].
    pub(crate) fn pinned(mut self, pinned: &Arc<Pinned>, offset: u64, len: usize) -> Buffer {
        let bytes = span(offset, len);
        self.cut(bytes);
        match pinned.slot(bytes, self) {
            Ok(slot) => Buffer::around(offset, len, Memory::Pinned(slot)),
            Err(reservation) => reservation.blocks(offset, len),
        }
    }

    /// Sets aside what a buffer of `len` bytes takes, instead of less, while there is plenty: see
    /// [`Budget::is_ample`].
    pub(crate) fn raise(&mut self, len: usize) -> bool {
        let bytes = Budget::cost(len);
        let more = bytes.saturating_sub(self.bytes);
        let raised = self.budget.0.count(more, self.budget.ample_max());
        if raised {
            self.bytes += more;
        }
        raised
    }

    fn buffer_behind(mut self, skip: usize, len: usize) -> Buffer {
        self.cut(skip + len);
        let bytes = mem::take(&mut self.bytes);
        if bytes == 0 {
            return Buffer::from(Vec::new());
        }
        Buffer {
            skip,
            len: 0,
            limit: len,
            memory: Memory::Pooled {
                block: Some(self.budget.take_block(bytes)),
                budget: self.budget.clone(),
            },
        }
    }

    /// Gives back what is more than `len` bytes take.
    fn cut(&mut self, len: usize) {
        let bytes = Budget::cost(len);
        assert!(bytes <= self.bytes, "a buffer larger than its reservation");
        let rest = mem::replace(&mut self.bytes, bytes) - bytes;
        if rest > 0 {
            self.budget.release(rest, None);
        }
    }

    /// How many bytes are set aside.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes, None);
        }
    }
}

/// Bytes of a file in our memory. Dereferences to those that have been read.
pub struct Buffer {
    /// Bytes of the memory that lie before the first: only a read of whole blocks and a part of
    /// another buffer have such.
    skip: usize,
    len: usize,
    /// How many bytes were asked for; the memory behind may hold more.
    limit: usize,
    memory: Memory,
}

enum Memory {
    Pooled {
        /// `None` only while the buffer is being dropped.
        block: Option<Block>,
        budget: Budget,
    },
    Owned(Vec<u8>),
    /// Part of another buffer.
    Shared(Arc<Buffer>),
    Slot(Slot),
    /// Registered with a ring.
    Pinned(pinned::Slot),
}

impl Memory {
    /// None of what is owned or shared: that is never read into.
    fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        match self {
            Memory::Pooled {
                block: Some(block), ..
            } => block.as_mut_slice(),
            Memory::Slot(slot) => slot.as_mut_slice(),
            Memory::Pinned(slot) => slot.as_mut_slice(),
            Memory::Pooled { block: None, .. } | Memory::Owned(_) | Memory::Shared(_) => &mut [],
        }
    }
}

impl Buffer {
    /// An empty one for `len` bytes from `offset`, in `memory` with room for the blocks around them.
    fn around(offset: u64, len: usize, memory: Memory) -> Buffer {
        Buffer {
            skip: (offset % ALIGNMENT as u64) as usize,
            len: 0,
            limit: len,
            memory,
        }
    }

    /// Whether it lies in memory that is registered with a ring.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.memory, Memory::Pinned(_))
    }

    /// The bytes `range`, as far as there are as many, without a copy: both share the memory, which is
    /// given back when the last of them is dropped. From now on there is no room to read more.
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

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.limit - self.len
    }

    /// The part that has not been read yet.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let (start, room) = (self.skip + self.len, self.room());
        let memory = self.memory.as_mut_slice();
        memory.get_mut(start..start + room).unwrap_or_default()
    }

    /// The memory behind the first `filled` bytes of it, in whole blocks: for a read of the blocks
    /// around the bytes that are wanted, which begins at [`Buffer::blocks_offset`].
    pub(crate) fn blocks(&mut self, filled: usize) -> &mut [MaybeUninit<u8>] {
        let end = span(self.skip as u64, self.limit);
        let memory = self.memory.as_mut_slice();
        memory.get_mut(filled..end).unwrap_or_default()
    }

    /// Where a read of whole blocks begins, when the wanted bytes begin at `offset`.
    pub(crate) fn blocks_offset(&self, offset: u64) -> u64 {
        offset - self.skip as u64
    }

    /// Says that the first `filled` bytes of [`Buffer::blocks`]`(0)` have been written.
    ///
    /// # Safety
    /// They must have been.
    pub(crate) unsafe fn filled_blocks(&mut self, filled: usize) {
        self.len = filled.saturating_sub(self.skip).min(self.limit);
    }

    /// Says that the first `count` bytes of [`Buffer::spare`] have been written.
    ///
    /// # Safety
    /// They must have been, and `count` must be within it.
    pub(crate) unsafe fn advance(&mut self, count: usize) {
        assert!(count <= self.room(), "more bytes than there was room for");
        self.len += count;
    }

    /// The slot that it lies in, and where in it the first byte is; gives the buffer back when it lies
    /// elsewhere.
    pub(crate) fn into_slot(mut self) -> Result<(Slot, usize), Buffer> {
        match mem::replace(&mut self.memory, Memory::Owned(Vec::new())) {
            Memory::Slot(slot) => Ok((slot, self.skip)),
            other => {
                self.memory = other;
                Err(self)
            }
        }
    }

    /// Forgets all but the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends a copy of `bytes`.
    ///
    /// # Panics
    /// When there is not as much room.
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
            Memory::Pooled {
                block: Some(block), ..
            } => block.written(self.skip, self.len),
            Memory::Pooled { block: None, .. } => &[],
            Memory::Owned(bytes) => &bytes[..self.len],
            Memory::Shared(of) => &of[self.skip..self.skip + self.len],
            Memory::Slot(slot) => &slot.as_slice()[self.skip..self.skip + self.len],
            Memory::Pinned(slot) => &slot.as_slice()[self.skip..self.skip + self.len],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Outside any budget: for small bodies that are made, not read.
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

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Pooled { block, budget } = &mut self.memory
            && let Some(block) = block.take()
        {
            budget.release(block.bytes, Some(block));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Which power of two times [`ALIGNMENT`] holds `len` bytes.
pub(crate) const fn class_of(len: usize) -> usize {
    let pages = len.div_ceil(ALIGNMENT).next_power_of_two();
    pages.trailing_zeros() as usize
}

/// Aligned memory, uninitialised or holding the bytes of an earlier read.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is the only owner of its memory, like a `Box<[MaybeUninit<u8>]>`.
unsafe impl Send for Block {}
// SAFETY: a shared block only lends its memory for reading.
unsafe impl Sync for Block {}

impl Block {
    fn allocate(bytes: usize) -> Block {
        Block::map(bytes).unwrap_or_else(|_| handle_alloc_error(Block::layout(bytes)))
    }

    /// Straight from the kernel: an allocator keeps what one thread allocates and another frees, so
    /// that a bound on the bytes in use would say little about the memory of the process.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn map(bytes: usize) -> io::Result<Block> {
        assert!(bytes > 0);
        let (access, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, private, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Ok(Block { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Without them it is of use as well.
    pub(crate) fn ask_for_huge_pages(&self) {
        let (start, advice) = (self.start.as_ptr().cast(), libc::MADV_HUGEPAGE);
        // SAFETY: advice that changes no byte, for a mapping that is ours.
        let _ = unsafe { libc::madvise(start, self.bytes, advice) };
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGNMENT).expect("a budget is far below isize::MAX")
    }

    fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block owns `bytes` bytes at `start`, and uninitialised ones may be lent as such.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes) }
    }

    /// `len` bytes behind the first `skip`, which the caller knows to have been written:
    /// `Buffer::advance` and `Buffer::filled_blocks` are the only ways to raise a buffer's length.
    fn written(&self, skip: usize, len: usize) -> &[u8] {
        assert!(skip + len <= self.bytes);
        // SAFETY: within the block, and initialised by the contract of those two.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(skip), len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped by `Block::allocate` with the same size, and given back only here.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn cost_rounds_up() {
        let costs: Vec<_> = [0, 1, 4096, 4097, 100_001, 1 << 20, (1 << 20) + 1]
            .map(Budget::cost)
            .into();
        assert_eq!(
            costs,
            [0, 4096, 4096, 8192, 131_072, 1 << 20, (1 << 20) + 4096]
        );
    }

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
    fn idle_memory_counts_towards_the_bound() {
        let budget = Budget::new(1 << 20);
        drop(budget.buffer(1 << 19).unwrap());
        drop(budget.buffer(4096).unwrap());
        let whole = budget.buffer(1 << 20).unwrap();
        assert_eq!(budget.0.idle_bytes.load(Ordering::SeqCst), 0);
        drop(whole);
        assert_eq!(budget.0.idle_bytes.load(Ordering::SeqCst), 1 << 20);
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
    fn a_reservation_gives_the_rest_back() {
        let budget = Budget::new(1 << 20);
        let reservation = budget.reserve(1 << 20).unwrap();
        let buffer = reservation.buffer(100);
        assert_eq!((budget.in_use(), buffer.room()), (4096, 100));
        drop(budget.reserve(8192));
        assert_eq!(budget.in_use(), 4096);
    }

    #[test]
    fn freed_is_called_once_per_failure() {
        let budget = Budget::new(8192);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        budget.on_freed(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let held = [budget.buffer(1), budget.buffer(1)];
        assert!(budget.buffer(1).is_none() && budget.buffer(1).is_none());
        drop(held);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    /// Whoever finds no room and waits for the call gets it: with a lost one this hangs.
    #[test]
    fn freed_is_never_missed() {
        const TURNS: usize = 20_000;
        let budget = Budget::new(4096);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        budget.on_freed(Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        let compete = || {
            for _ in 0..TURNS {
                loop {
                    let before = calls.load(Ordering::SeqCst);
                    if let Some(buffer) = budget.buffer(1) {
                        break drop(buffer);
                    }
                    while calls.load(Ordering::SeqCst) == before {
                        thread::yield_now();
                    }
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(compete);
            scope.spawn(compete);
        });
        assert_eq!(budget.in_use(), 0);
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
        let mut buffer = reservation.blocks(4099, 4096);
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
