//! Memory that a device can write into and `sendfile` can send from: one memory file, in slots.
//!
//! `sendfile` does not copy. The network holds on to the pages themselves, and nothing tells when it lets
//! go of them: the queue of a socket can be empty and the other side still receive what is written into
//! the pages now. So a slot gets new pages before it is used again: a hole is punched into the file
//! where it lies, and the old pages go when the network is done with them.
//!
//! A slot is given back by whoever drops it, often an event loop: that only leaves it in a queue. The
//! [`SlotAllocator`], a thread of an engine, punches the hole; until then the slot counts as used. The budget
//! is what bounds them, there is no second bound: addresses cost nothing, so there are so many that
//! whoever has a reservation finds a slot of that size.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::SegQueue;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Resource;

use super::block::ALIGNMENT;
use super::budget::{Budget, RECYCLED_BYTES_MAX, Reservation, SIZE_CLASSES, class_of};

/// The largest slot, in bytes.
pub(crate) const SLOT_BYTES_MAX: usize = RECYCLED_BYTES_MAX;

/// Called when a slot comes back, from whatever thread dropped it.
type Ring = Box<dyn Fn() + Send + Sync>;

/// The memory file, and where it is mapped.
pub(crate) struct Arena {
    memory: OwnedFd,
    mapping: Mapping,
    /// Slots of each size.
    slots_max: [usize; SIZE_CLASSES],
    returned: SegQueue<(SlotId, Reservation)>,
    /// The allocator has gone: what comes back is not used again.
    closed: AtomicBool,
    ring: Ring,
}

/// Which slot: the how manieth of its size.
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
    /// Slots for what `budget` allows. Nothing is allocated yet.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate` and `mmap`; EFBIG when the limit on the size of files is
    /// too low for so many addresses.
    pub(crate) fn new(budget: &Budget, ring: Ring) -> io::Result<Arc<Arena>> {
        let slots_max = std::array::from_fn(|class| budget.bytes_max() / (ALIGNMENT << class));
        let sizes = slots_max.iter().enumerate();
        let bytes = sizes
            .map(|(class, slots)| slots * (ALIGNMENT << class))
            .sum();
        let memory = memory_file(bytes)?;
        Ok(Arc::new(Arena {
            mapping: Mapping::new(&memory, bytes)?,
            memory,
            slots_max,
            returned: SegQueue::new(),
            closed: AtomicBool::new(false),
            ring,
        }))
    }

    /// In bytes from the start of the memory file.
    fn offset(&self, id: SlotId) -> usize {
        let smaller = self.slots_max[..id.class].iter().enumerate();
        let before: usize = smaller
            .map(|(class, slots)| slots * (ALIGNMENT << class))
            .sum();
        before + id.number * id.bytes()
    }

    /// Frees the pages of a slot, or rather the arena's hold on them.
    fn punch(&self, id: SlotId) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, len) = (self.offset(id) as u64, id.bytes() as u64);
        Ok(rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.memory, mode, offset, len)
        })?)
    }

    fn take_back(&self, id: SlotId, reservation: Reservation) {
        self.returned.push((id, reservation));
        // After the push, as the allocator's last look comes after it has closed: one of the two sees it.
        if self.closed.load(Ordering::SeqCst) {
            self.forget_returned();
        } else {
            (self.ring)();
        }
    }

    fn forget_returned(&self) {
        while self.returned.pop().is_some() {}
    }

    /// Whether slots wait to be given new pages.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }
}

/// Of fixed size, so that nobody who maps it or sends from it finds less.
fn memory_file(bytes: usize) -> io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < bytes as u64) {
        // Asked for all the same, the kernel would end the process with a signal.
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

/// Whether there can be an arena here.
pub(crate) fn probe() -> io::Result<()> {
    let memory = memory_file(ALIGNMENT)?;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(&memory, mode, 0, ALIGNMENT as u64)?)
}

/// Who knows which slots are free. There is one for each arena.
pub(crate) struct SlotAllocator {
    arena: Arc<Arena>,
    free: [Vec<usize>; SIZE_CLASSES],
    /// Slots of each size that have been used at all.
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

    /// A slot of the reserved size; gives the reservation back when it is larger than any slot, or
    /// nothing.
    pub(crate) fn slot(&mut self, reservation: Reservation) -> Result<Slot, Reservation> {
        let bytes = reservation.bytes();
        if bytes == 0 || bytes > SLOT_BYTES_MAX {
            return Err(reservation);
        }
        let class = class_of(bytes);
        let number = match self.free[class].pop() {
            Some(number) => number,
            // Slots that could not be given new pages are lost.
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

    /// Gives new pages to what has come back, and its bytes to the budget. Takes some time: about
    /// 1 us per page.
    pub(crate) fn collect(&mut self) {
        while let Some((id, reservation)) = self.arena.returned.pop() {
            // Never seen to fail; a slot with its old pages must not be used.
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

/// A part of the arena, for one read and those who send what it brought.
pub(crate) struct Slot {
    id: SlotId,
    /// `None` only while it is being dropped.
    reservation: Option<Reservation>,
    arena: Arc<Arena>,
}

impl Slot {
    pub(crate) fn bytes(&self) -> usize {
        self.id.bytes()
    }

    /// In bytes from the start of the memory file.
    pub(crate) fn offset(&self) -> usize {
        self.arena.offset(self.id)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        let (start, bytes) = (self.start(), self.bytes());
        // SAFETY: within the mapping, and this slot's alone until it is dropped.
        unsafe { slice::from_raw_parts_mut(start.as_ptr().cast(), bytes) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: within the mapping, where every byte is that of a file: initialised. Nobody writes to it
        // but through `as_mut_slice`.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.bytes()) }
    }

    fn start(&self) -> NonNull<u8> {
        let offset = self.offset();
        assert!(offset + self.bytes() <= self.arena.mapping.bytes);
        // SAFETY: within the mapping.
        unsafe { self.arena.mapping.start.add(offset) }
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

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only an address; who may touch what behind it is for the slots to say.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(memory: &OwnedFd, bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        };
        let mapping = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Mapping { start, bytes },
            _ => return Err(io::Error::last_os_error()),
        };
        mapping.refuse_huge_pages()?;
        Ok(mapping)
    }

    /// A hole in a part of a huge page may clear that part, and with it what is on its way.
    fn refuse_huge_pages(&self) -> io::Result<()> {
        let (start, advice) = (self.start.as_ptr().cast(), libc::MADV_NOHUGEPAGE);
        // SAFETY: advice that changes no byte, for a mapping that is ours.
        if unsafe { libc::madvise(start, self.bytes, advice) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // A kernel without huge pages does not know the advice.
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            error => Err(error),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::new` with the same size; slots hold the arena, so none is left.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, 0);
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
    fn whoever_has_a_reservation_finds_a_slot() {
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
    fn a_slot_comes_back_without_its_pages() {
        let budget = Budget::new(1 << 20);
        let (arena, mut allocator, rings) = arena(&budget);
        let mut first = slot(&mut allocator, &budget, 8192).unwrap();
        first.as_mut_slice().fill(MaybeUninit::new(7));
        let offset = first.offset();
        assert_eq!(pages(&arena), 2);
        drop(first);
        assert_eq!((rings.load(Ordering::SeqCst), budget.in_use()), (1, 8192));
        assert!(arena.has_returned());
        allocator.collect();
        assert!(!arena.has_returned());
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
    fn bytes_come_back_after_the_keeper_has_gone() {
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
