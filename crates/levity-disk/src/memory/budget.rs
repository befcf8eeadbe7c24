//! A bound on the memory for file bytes.
//!
//! Bytes are reserved before a read starts, so that a read in progress never lacks memory; the scheduler
//! keeps a read without memory in its queue. To prevent deadlock, nobody who holds a
//! [`Buffer`](crate::Buffer) may wait for a second one before dropping the first.

use std::array;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use super::block::{ALIGNMENT, Block};

/// Blocks up to this size, in bytes, are kept for later reads; larger ones are unmapped.
pub(crate) const RECYCLED_BYTES_MAX: usize = 1 << 20;

/// The maximum number of blocks of one size that are kept, in addition to the maximum number of bytes.
const IDLE_BLOCKS_MAX: usize = 1024;

pub(crate) const SIZE_CLASSES: usize = class_of(RECYCLED_BYTES_MAX) + 1;

/// A bound on the bytes of all [`Buffer`](crate::Buffer)s that are made from it. Cheap to clone; clones share
/// the bound.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

/// Lock-free, because event loops drop buffers.
struct Shared {
    bytes_max: usize,
    in_use: AtomicUsize,
    /// Bytes of the blocks in `idle`. Raised before a block is added and lowered after one is taken, so never
    /// too low.
    idle_bytes: AtomicUsize,
    /// By size class. A push waits for a concurrent pop only if it needs the very entry that is being emptied,
    /// which does not happen while a list has an entry for every block of its size.
    idle: [ArrayQueue<Block>; SIZE_CLASSES],
    /// A reservation failed since bytes were last freed.
    failed: AtomicBool,
    on_freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Budget {
    /// A budget of `bytes_max` bytes. Allocates no memory for them yet.
    pub fn new(bytes_max: usize) -> Budget {
        Budget(Arc::new(Shared {
            bytes_max,
            in_use: AtomicUsize::new(0),
            idle_bytes: AtomicUsize::new(0),
            idle: array::from_fn(|class| {
                let blocks = bytes_max / (ALIGNMENT << class);
                ArrayQueue::new(blocks.clamp(1, IDLE_BLOCKS_MAX))
            }),
            failed: AtomicBool::new(false),
            on_freed: OnceLock::new(),
        }))
    }

    /// The bound, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Bytes that are reserved or held by a [`Buffer`](crate::Buffer), rounded up as by [`Budget::cost`].
    pub fn in_use(&self) -> usize {
        self.0.in_use.load(Ordering::SeqCst)
    }

    /// Whether a buffer of `len` bytes may be used where a smaller one would do: total use would stay within a
    /// quarter of the budget, so that other reads do not lack memory.
    pub fn is_ample(&self, len: usize) -> bool {
        self.in_use().saturating_add(Budget::cost(len)) <= self.ample_max()
    }

    fn ample_max(&self) -> usize {
        self.0.bytes_max / 4
    }

    /// The bytes that a buffer of `len` bytes takes from a budget: a power of two from 4 KiB to 1 MiB, or above
    /// that a multiple of 4 KiB; zero for an empty buffer.
    pub const fn cost(len: usize) -> usize {
        if len == 0 {
            0
        } else if len <= RECYCLED_BYTES_MAX {
            ALIGNMENT << class_of(len)
        } else {
            len.next_multiple_of(ALIGNMENT)
        }
    }

    /// Reserves the bytes that a buffer of `len` bytes takes. Only counts and does not allocate, because the
    /// scheduler calls it under its lock. After a failure the function given to [`Budget::on_freed`] is called
    /// as soon as bytes are freed.
    pub(crate) fn reserve(&self, len: usize) -> Option<Reservation> {
        let bytes = Budget::cost(len);
        if !self.0.count(bytes, self.0.bytes_max) {
            self.0.failed.store(true, Ordering::SeqCst);
            // The freeing side lowers `in_use` and then reads `failed`; this side sets `failed` and then
            // reads `in_use` again. One of the two sees the other, so nobody waits for free bytes.
            if !self.0.count(bytes, self.0.bytes_max) {
                return None;
            }
        }
        Some(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Sets the function that is called when bytes are freed after a reservation has failed. It is called on the
    /// thread that drops the buffer, which may be an event loop, so it must not block. Only the first call
    /// has an effect.
    pub(crate) fn on_freed(&self, on_freed: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.on_freed.set(on_freed);
    }

    /// Memory for reserved bytes.
    fn take_block(&self, bytes: usize) -> Block {
        let block = self.0.reuse(bytes);
        self.0.shed();
        block.unwrap_or_else(|| Block::allocate(bytes))
    }

    fn release(&self, bytes: usize) {
        self.0.in_use.fetch_sub(bytes, Ordering::SeqCst);
        let failed = &self.0.failed;
        if failed.load(Ordering::SeqCst)
            && failed.swap(false, Ordering::SeqCst)
            && let Some(on_freed) = self.0.on_freed.get()
        {
            on_freed();
        }
    }
}

impl Shared {
    /// Counts `bytes` as used, unless that would be more than `max`.
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
        self.idle_bytes.fetch_sub(block.bytes(), Ordering::SeqCst);
        Some(block)
    }

    /// Keeps a block for later reads, or unmaps it if it is too large or there are too many.
    fn keep(&self, block: Block) {
        let bytes = block.bytes();
        if bytes > RECYCLED_BYTES_MAX {
            return;
        }
        self.idle_bytes.fetch_add(bytes, Ordering::SeqCst);
        if let Err(surplus) = self.idle[class_of(bytes)].push(block) {
            drop(surplus);
            self.idle_bytes.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// Unmaps idle blocks, largest first, until idle and used bytes together are within the bound.
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

/// Bytes reserved for one read. Freed on drop unless they were turned into a buffer.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    bytes: usize,
}

/// Bytes of memory for reading `len` bytes from `offset` past the page cache: the whole blocks of
/// [`ALIGNMENT`] that contain them.
pub(crate) const fn span(offset: u64, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let skip = (offset % ALIGNMENT as u64) as usize;
    let blocks = skip.saturating_add(len).div_ceil(ALIGNMENT);
    blocks.saturating_mul(ALIGNMENT)
}

impl Reservation {
    /// Reserves the bytes for a buffer of `len` bytes instead of fewer, if memory is ample: see
    /// [`Budget::is_ample`]. Returns whether it did.
    pub(crate) fn try_grow(&mut self, len: usize) -> bool {
        let bytes = Budget::cost(len);
        let more = bytes.saturating_sub(self.bytes);
        let raised = self.budget.0.count(more, self.budget.ample_max());
        if raised {
            self.bytes += more;
        }
        raised
    }

    /// The reserved memory, which counts until it is dropped. `None` if no bytes are reserved.
    pub(crate) fn into_block(self) -> Option<PooledBlock> {
        (self.bytes > 0).then(|| PooledBlock {
            block: Some(self.budget.take_block(self.bytes)),
            reservation: self,
        })
    }

    /// Frees the bytes beyond those that a buffer of `len` bytes takes.
    ///
    /// # Panics
    /// If fewer were reserved.
    pub(crate) fn cut(&mut self, len: usize) {
        let bytes = Budget::cost(len);
        assert!(bytes <= self.bytes, "a buffer larger than its reservation");
        let rest = mem::replace(&mut self.bytes, bytes) - bytes;
        if rest > 0 {
            self.budget.release(rest);
        }
    }

    /// The number of reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

/// A block that counts towards a budget until it is dropped.
pub(crate) struct PooledBlock {
    /// `None` only during the drop.
    block: Option<Block>,
    /// Freed after the block is kept for later reads.
    reservation: Reservation,
}

impl PooledBlock {
    pub(crate) fn get(&self) -> &Block {
        self.block.as_ref().expect("only the drop takes it")
    }

    pub(crate) fn get_mut(&mut self) -> &mut Block {
        self.block.as_mut().expect("only the drop takes it")
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.reservation.budget.0.keep(block);
        }
    }
}

/// The exponent of the power of two that, times [`ALIGNMENT`], holds `len` bytes.
pub(crate) const fn class_of(len: usize) -> usize {
    let pages = len.div_ceil(ALIGNMENT).next_power_of_two();
    pages.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Buffer;
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
    fn a_reservation_gives_the_rest_back() {
        let budget = Budget::new(1 << 20);
        let reservation = budget.reserve(1 << 20).unwrap();
        let buffer = Buffer::new(reservation, 100);
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

    /// A lost call hangs the test.
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
}
