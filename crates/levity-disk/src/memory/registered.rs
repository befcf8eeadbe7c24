//! Memory that is registered with a ring (`IORING_REGISTER_BUFFERS`), divided into slots.
//!
//! For a read past the page cache the kernel looks up and pins every page that it writes to, and unpins it
//! afterwards. Registered memory stays pinned, which saves time on each read but takes memory that cannot be
//! swapped out. So there is little of it, and only large reads use it.
//!
//! A slot is freed when its bytes are dropped, often by an event loop, which only pushes a number to a queue,
//! without a lock or a system call.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use rustix::mm::Advice;

use super::block::{ALIGNMENT, Block};
use super::budget::{Budget, Reservation};

/// In bytes: the largest chunk read from a fast disk by default, and one block more for a chunk that does not
/// begin at a block.
const SLOT_BYTES: usize = (512 << 10) + ALIGNMENT;

/// In bytes: smaller reads save little and would take slots from others.
const READ_BYTES_MIN: usize = 64 << 10;

/// Bound on all of the memory, in bytes.
const BYTES_MAX: usize = 8 << 20;

/// The memory is a multiple of this, in bytes: a huge page on most machines. A read into few large segments of
/// memory is one request to the device, a read into many small ones is several. The kernel merges segments
/// only in registered memory that consists of huge pages.
pub(crate) const STEP_BYTES: usize = 2 << 20;

/// The memory is at most this part of the budget. It is not part of the budget: the bytes of a slot count while
/// it is used, like other memory, but the memory also exists while it is not.
const PART_OF_BUDGET: usize = 32;

/// The size of the memory for `budget`, in bytes: a multiple of [`STEP_BYTES`], possibly zero.
pub(crate) fn bytes_for(budget: &Budget) -> usize {
    let bytes = BYTES_MAX.min(budget.bytes_max() / PART_OF_BUDGET);
    bytes / STEP_BYTES * STEP_BYTES
}

/// The memory and its free slots.
pub(crate) struct RegisteredMemory {
    block: Block,
    /// Bytes before the first aligned huge page: kernels before 6.7 do not align the mapping.
    skip: usize,
    /// Size from there, in bytes.
    bytes: usize,
    /// Has an entry for each slot, so that no push waits for a pop.
    free: ArrayQueue<usize>,
}

impl RegisteredMemory {
    /// Maps `bytes` bytes, at least one slot. Does not register them.
    ///
    /// # Errors
    /// The errors of `mmap`.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<RegisteredMemory>> {
        let block = Block::map(bytes + STEP_BYTES)?;
        // A failure has no consequence.
        let _ = block.advise(Advice::LinuxHugepage);
        let skip = block.part(0, 0).cast::<u8>().align_offset(STEP_BYTES);
        let free = ArrayQueue::new(bytes / SLOT_BYTES);
        for number in 0..free.capacity() {
            free.push(number).expect("it has a place for each");
        }
        Ok(Arc::new(RegisteredMemory {
            block,
            skip,
            bytes,
            free,
        }))
    }

    /// All of the memory, for registration as one buffer.
    pub(crate) fn as_iovec(&self) -> libc::iovec {
        let all = self.block.part(self.skip, self.bytes);
        libc::iovec {
            iov_base: all.as_ptr().cast(),
            iov_len: all.len(),
        }
    }

    /// A slot for a read of `bytes` bytes. Returns the reservation if the read is too small or too large, or if
    /// no slot is free.
    pub(crate) fn slot(
        self: &Arc<Self>,
        bytes: usize,
        reservation: Reservation,
    ) -> Result<Slot, Reservation> {
        if !(READ_BYTES_MIN..=SLOT_BYTES).contains(&bytes) {
            return Err(reservation);
        }
        match self.free.pop() {
            None => Err(reservation),
            Some(number) => Ok(Slot {
                number,
                of: Arc::clone(self),
                _reservation: reservation,
            }),
        }
    }
}

/// A part of the memory, for one read and for sending its bytes. Keeps the memory mapped.
pub(crate) struct Slot {
    number: usize,
    of: Arc<RegisteredMemory>,
    _reservation: Reservation,
}

impl Slot {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: within the mapping, and this slot's alone until it is dropped.
        unsafe { slice::from_raw_parts_mut(self.part().as_ptr().cast(), SLOT_BYTES) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: within the mapping, where every byte is initialised, because the kernel hands out cleared
        // pages. Only `as_mut_slice` gives write access.
        unsafe { self.part().as_ref() }
    }

    fn part(&self) -> NonNull<[u8]> {
        let offset = self.of.skip + self.number * SLOT_BYTES;
        self.of.block.part(offset, SLOT_BYTES)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Before the reservation is freed, so that a job that gets those bytes finds the slot.
        let pushed = self.of.free.push(self.number);
        debug_assert!(pushed.is_ok(), "there is a place for each");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Buffer;

    fn slot(registered: &Arc<RegisteredMemory>, budget: &Budget, bytes: usize) -> Option<Slot> {
        registered.slot(bytes, budget.reserve(bytes)?).ok()
    }

    #[test]
    fn slots_are_apart_and_come_back() {
        let budget = Budget::new(16 << 20);
        let registered = RegisteredMemory::new(STEP_BYTES).unwrap();
        for _ in 0..3 {
            let taken = || slot(&registered, &budget, SLOT_BYTES);
            let mut all = [(); 3].map(|()| taken().unwrap());
            assert!(taken().is_none(), "no fourth");
            assert_eq!(budget.in_use(), 3 << 20, "a failure gives its bytes back");
            for (number, slot) in (1..).zip(&mut all) {
                assert_eq!(slot.as_slice().len(), SLOT_BYTES);
                slot.as_mut_slice().fill(MaybeUninit::new(number));
            }
            for (number, slot) in (1..).zip(&all) {
                assert!(slot.as_slice().iter().all(|byte| *byte == number));
            }
            drop(all);
            assert_eq!(budget.in_use(), 0);
        }
    }

    #[test]
    fn only_reads_of_some_size_have_one() {
        let budget = Budget::new(16 << 20);
        let registered = RegisteredMemory::new(SLOT_BYTES).unwrap();
        for (bytes, has_one) in [
            (0, false),
            (READ_BYTES_MIN - 1, false),
            (READ_BYTES_MIN, true),
            (SLOT_BYTES, true),
            (SLOT_BYTES + 1, false),
        ] {
            assert_eq!(
                slot(&registered, &budget, bytes).is_some(),
                has_one,
                "{bytes}"
            );
            assert_eq!(budget.in_use(), 0);
        }
    }

    #[test]
    fn a_slot_keeps_the_memory() {
        let budget = Budget::new(1 << 20);
        let registered = RegisteredMemory::new(SLOT_BYTES).unwrap();
        let mut last = slot(&registered, &budget, READ_BYTES_MIN).unwrap();
        drop(registered);
        last.as_mut_slice().fill(MaybeUninit::new(7));
        assert!(last.as_slice().iter().all(|byte| *byte == 7));
    }

    /// The last part of the bytes read keeps the slot.
    #[test]
    fn parts_keep_the_slot() {
        let budget = Budget::new(1 << 20);
        let registered = RegisteredMemory::new(SLOT_BYTES).unwrap();
        let read = || {
            let reservation = budget.reserve(READ_BYTES_MIN).unwrap();
            Buffer::in_registered(reservation, &registered, 8192, READ_BYTES_MIN)
        };
        let mut whole = read();
        whole.extend_from_slice(b"shared bytes");
        assert!(whole.is_registered());
        let part = whole.part(7..12);
        drop(whole);
        assert!(!read().is_registered());
        assert_eq!(&*part, b"bytes");
        drop(part);
        assert!(read().is_registered());
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn there_is_little() {
        let mib = |budget: usize| bytes_for(&Budget::new(budget << 20)) >> 20;
        assert_eq!([mib(1), mib(63), mib(64), mib(128)], [0, 0, 2, 4]);
        assert_eq!([mib(255), mib(256), mib(1 << 20)], [6, 8, 8]);
    }
}
