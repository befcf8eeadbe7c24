//! Memory that a device can write into and `sendfile` can send from: a memory file, divided into slots.
//!
//! `sendfile` does not copy. The network stack holds references to the pages, and nothing reports when it
//! releases them: the send queue of a socket can be empty, and the peer still receive bytes that are written
//! into the pages now. So a slot gets new pages before it is reused: a hole is punched into the file at the
//! slot, and the old pages are freed when the network stack releases them.
//!
//! A slot is returned by whoever drops it, often an event loop, which only pushes it to a queue. The
//! [`SlotAllocator`], owned by a thread of an engine, punches the hole; until then the slot counts as used.
//! Only the budget bounds the slots in use. Addresses cost nothing, so there are enough slots of each size for
//! the whole budget.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::SegQueue;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::process::Resource;

use super::block::{ALIGNMENT, Block};
use super::budget::{Budget, RECYCLED_BYTES_MAX, Reservation, SIZE_CLASSES, class_of};

/// Called when a slot is returned, on the thread that dropped it.
type OnReturn = Box<dyn Fn() + Send + Sync>;

/// The memory file and its mapping.
pub(crate) struct Arena {
    memory: OwnedFd,
    /// All of the memory file.
    mapping: Block,
    /// Number of slots of each size.
    slots_max: [usize; SIZE_CLASSES],
    returned: SegQueue<(SlotId, Reservation)>,
    /// The allocator was dropped: returned slots are not reused.
    closed: AtomicBool,
    on_return: OnReturn,
}

/// The size class of a slot, and its number among those of that class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotId {
    class: usize,
    number: usize,
}

impl SlotId {
    fn bytes(self) -> usize {
        ALIGNMENT << self.class
    }
}

impl Arena {
    /// An arena with slots for all of `budget`. Allocates no pages yet.
    ///
    /// # Errors
    /// The errors of `memfd_create`, `ftruncate` and `mmap`; EFBIG if the limit on the size of files is too low for
    /// the memory file.
    pub(crate) fn new(budget: &Budget, on_return: OnReturn) -> io::Result<Arc<Arena>> {
        let slots_max = std::array::from_fn(|class| budget.bytes_max() / (ALIGNMENT << class));
        let sizes = slots_max.iter().enumerate();
        let bytes = sizes
            .map(|(class, slots)| slots * (ALIGNMENT << class))
            .sum();
        let memory = memory_file(bytes)?;
        let mapping = Block::map_file(&memory, bytes)?;
        refuse_huge_pages(&mapping)?;
        Ok(Arc::new(Arena {
            mapping,
            memory,
            slots_max,
            returned: SegQueue::new(),
            closed: AtomicBool::new(false),
            on_return,
        }))
    }

    /// The offset of a slot in the memory file, in bytes.
    fn offset(&self, id: SlotId) -> usize {
        let smaller = self.slots_max[..id.class].iter().enumerate();
        let before: usize = smaller
            .map(|(class, slots)| slots * (ALIGNMENT << class))
            .sum();
        before + id.number * id.bytes()
    }

    /// Releases the arena's references to the pages of a slot.
    fn punch(&self, id: SlotId) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, len) = (self.offset(id) as u64, id.bytes() as u64);
        Ok(rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.memory, mode, offset, len)
        })?)
    }

    fn take_back(&self, id: SlotId, reservation: Reservation) {
        self.returned.push((id, reservation));
        // After the push: the allocator empties the queue once more after it has set `closed`, so one of
        // the two sees the slot.
        if self.closed.load(Ordering::SeqCst) {
            self.forget_returned();
        } else {
            (self.on_return)();
        }
    }

    fn forget_returned(&self) {
        while self.returned.pop().is_some() {}
    }
}

/// A memory file of fixed size: it cannot shrink below a mapping or a send in progress.
fn memory_file(bytes: usize) -> io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < bytes as u64) {
        // `ftruncate` would end the process with a signal.
        return Err(Errno::FBIG.into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(c"levity-slots", flags)?;
    rustix::fs::ftruncate(&memory, bytes as u64)?;
    rustix::fs::fcntl_add_seals(
        &memory,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(memory)
}

/// Punching a hole into a part of a huge page may clear that part while it is being sent.
fn refuse_huge_pages(mapping: &Block) -> Result<(), Errno> {
    match mapping.advise(Advice::LinuxNoHugepage) {
        // A kernel without huge pages does not know the advice.
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}

/// Checks whether an arena works here.
pub(crate) fn probe() -> io::Result<()> {
    let memory = memory_file(ALIGNMENT)?;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(&memory, mode, 0, ALIGNMENT as u64)?)
}

/// Allocates the slots of an arena. There is one for each arena.
pub(crate) struct SlotAllocator {
    arena: Arc<Arena>,
    free: [Vec<usize>; SIZE_CLASSES],
    /// Number of slots of each size that have ever been used.
    used: [usize; SIZE_CLASSES],
}

impl SlotAllocator {
    pub(crate) fn new(arena: Arc<Arena>) -> SlotAllocator {
        SlotAllocator {
            arena,
            free: Default::default(),
            used: [0; SIZE_CLASSES],
        }
    }

    /// A slot of the reserved size. Returns the reservation if it is empty or larger than any slot.
    pub(crate) fn slot(&mut self, reservation: Reservation) -> Result<Slot, Reservation> {
        let bytes = reservation.bytes();
        if bytes == 0 || bytes > RECYCLED_BYTES_MAX {
            return Err(reservation);
        }
        let class = class_of(bytes);
        let number = match self.free[class].pop() {
            Some(number) => number,
            // Slots that could not get new pages are lost.
            None if self.used[class] == self.arena.slots_max[class] => return Err(reservation),
            None => {
                self.used[class] += 1;
                self.used[class] - 1
            }
        };
        Ok(Slot {
            id: SlotId { class, number },
            reservation: Some(reservation),
            arena: Arc::clone(&self.arena),
        })
    }

    /// Whether returned slots wait for new pages.
    pub(crate) fn has_returned(&self) -> bool {
        !self.arena.returned.is_empty()
    }

    /// Gives new pages to returned slots, and frees their bytes in the budget. Takes about 1 us per page.
    pub(crate) fn collect(&mut self) {
        while let Some((id, reservation)) = self.arena.returned.pop() {
            // A slot with its old pages must not be reused. No failure was ever seen.
            if self.arena.punch(id).is_ok() {
                self.free[id.class].push(id.number);
            }
            drop(reservation);
        }
    }
}

impl Drop for SlotAllocator {
    fn drop(&mut self) {
        self.arena.closed.store(true, Ordering::SeqCst);
        self.arena.forget_returned();
    }
}

/// A part of the arena, for one read and for sending its bytes.
pub(crate) struct Slot {
    id: SlotId,
    /// `None` only during the drop.
    reservation: Option<Reservation>,
    arena: Arc<Arena>,
}

impl Slot {
    /// The offset in the memory file, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.arena.offset(self.id)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        let part = self.part();
        // SAFETY: within the mapping, and this slot's alone until it is dropped.
        unsafe { slice::from_raw_parts_mut(part.as_ptr().cast(), part.len()) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: within the mapping, where every byte is that of a file and so initialised. Only
        // `as_mut_slice` gives write access.
        unsafe { self.part().as_ref() }
    }

    fn part(&self) -> NonNull<[u8]> {
        self.arena.mapping.part(self.offset(), self.id.bytes())
    }
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arena.memory.as_fd()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.arena.take_back(self.id, reservation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn arena(budget: &Budget) -> (Arc<Arena>, SlotAllocator, Arc<AtomicUsize>) {
        let rings = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&rings);
        let ring = Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let arena = Arena::new(budget, ring).unwrap();
        (Arc::clone(&arena), SlotAllocator::new(arena), rings)
    }

    fn slot(allocator: &mut SlotAllocator, budget: &Budget, len: usize) -> Option<Slot> {
        allocator.slot(budget.reserve(len)?).ok()
    }

    /// Blocks of memory behind a file.
    fn pages(arena: &Arena) -> i64 {
        rustix::fs::fstat(&arena.memory).unwrap().st_blocks * 512 / 4096
    }

    #[test]
    fn there_is_a_slot_for_every_reservation() {
        let budget = Budget::new(1 << 20);
        let (_arena, mut allocator, _) = arena(&budget);
        for len in [4096, 8192, 100_000, 1 << 20] {
            let count = (1 << 20) / Budget::cost(len);
            let mut all: Vec<_> = (0..count)
                .map(|_| slot(&mut allocator, &budget, len).unwrap())
                .collect();
            assert!(slot(&mut allocator, &budget, 1).is_none(), "no more memory");
            for (number, slot) in all.iter_mut().enumerate() {
                slot.as_mut_slice().fill(MaybeUninit::new(number as u8));
            }
            for (number, slot) in all.iter().enumerate() {
                assert!(slot.as_slice().iter().all(|byte| *byte == number as u8));
            }
            drop(all);
            allocator.collect();
            assert_eq!(budget.in_use(), 0);
        }
    }

    #[test]
    fn a_returned_slot_loses_its_pages() {
        let budget = Budget::new(1 << 20);
        let (arena, mut allocator, rings) = arena(&budget);
        let mut first = slot(&mut allocator, &budget, 8192).unwrap();
        first.as_mut_slice().fill(MaybeUninit::new(7));
        let offset = first.offset();
        assert_eq!(pages(&arena), 2);
        drop(first);
        assert_eq!((rings.load(Ordering::SeqCst), budget.in_use()), (1, 8192));
        assert!(allocator.has_returned());
        allocator.collect();
        assert!(!allocator.has_returned());
        assert_eq!((pages(&arena), budget.in_use()), (0, 0));
        let second = slot(&mut allocator, &budget, 5000).unwrap();
        assert_eq!(second.offset(), offset);
        assert!(second.as_slice().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn large_ones_have_no_slot() {
        let budget = Budget::new(4 << 20);
        let (_arena, mut allocator, _) = arena(&budget);
        let reservation = budget.reserve((1 << 20) + 1).unwrap();
        assert!(allocator.slot(reservation).is_err());
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn bytes_are_freed_after_the_allocator_was_dropped() {
        let budget = Budget::new(1 << 20);
        let (arena, mut allocator, rings) = arena(&budget);
        let slots = [(); 3].map(|()| slot(&mut allocator, &budget, 4096).unwrap());
        let [one, two, three] = slots;
        drop(one);
        drop(allocator);
        assert_eq!(budget.in_use(), 8192);
        drop((two, arena));
        assert_eq!((rings.load(Ordering::SeqCst), budget.in_use()), (1, 4096));
        assert_eq!(three.as_slice()[0], 0);
        drop(three);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn the_file_keeps_its_size() {
        let budget = Budget::new(1 << 20);
        let (arena, ..) = arena(&budget);
        let resized = rustix::fs::ftruncate(&arena.memory, 0);
        assert_eq!(resized, Err(Errno::PERM));
        probe().unwrap();
    }
}
