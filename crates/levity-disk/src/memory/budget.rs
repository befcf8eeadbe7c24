//! A bound on the memory for file bytes.
//!
//! A [`Budget`] bounds the bytes that one process spends on them. Bytes are reserved before a read
//! starts, so that a read under way never lacks its memory, and the scheduler keeps a read that finds
//! no room in its queue. The rule that keeps this free of deadlock: nobody who holds a
//! [`Buffer`](crate::Buffer) may wait for a second one before letting go of the first.

use std::array;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use super::block::{ALIGNMENT, Block};

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
        self.idle_bytes.fetch_sub(block.bytes(), Ordering::SeqCst);
        Some(block)
    }

    /// Keeps a block for the next read, or frees it when it is too large or there are many.
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

    /// The memory that was set aside, which counts until it is dropped. `None` when that is nothing.
    pub(crate) fn into_block(mut self) -> Option<PooledBlock> {
        let bytes = mem::take(&mut self.bytes);
        (bytes > 0).then(|| PooledBlock {
            block: Some(self.budget.take_block(bytes)),
            budget: self.budget.clone(),
        })
    }

    /// Gives back what is more than `len` bytes take.
    ///
    /// # Panics
    /// When less was reserved.
    pub(crate) fn cut(&mut self, len: usize) {
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

/// A block that counts towards a budget until it is dropped.
pub(crate) struct PooledBlock {
    /// `None` only while it is being dropped.
    block: Option<Block>,
    budget: Budget,
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
            self.budget.release(block.bytes(), Some(block));
        }
    }
}

/// Which power of two times [`ALIGNMENT`] holds `len` bytes.
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
}
