//! Memory that a ring has registered with the kernel, in slots.
//!
//! A read past the page cache makes the kernel look up and pin every page that it writes to, and let go
//! of it afterwards. Of registered memory it has done so once and for all, which costs less per read
//! and more memory that cannot be swapped out; so there is little of it, and only large reads get some.
//!
//! A slot is free again when whoever has the bytes drops them, often an event loop: that leaves a number
//! in a queue, without a lock or a system call.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use super::block::{ALIGNMENT, Block};
use super::budget::{Budget, Reservation};

/// In bytes: the largest chunk that is asked of a fast disk unless someone wants larger ones, and a block
/// more for one that begins within a block.
const SLOT_BYTES: usize = (512 << 10) + ALIGNMENT;

/// Reads of fewer bytes save little and would keep a slot from others.
const READ_BYTES_MIN: usize = 64 << 10;

/// All of the memory, in bytes.
const BYTES_MAX: usize = 8 << 20;

/// The memory is a multiple of this, in bytes: a huge page, on most machines. A device takes a read into
/// few large pieces of memory as one request, and into many small ones as several; the kernel sees large
/// ones only in registered memory that is nothing but huge pages.
pub(crate) const STEP_BYTES: usize = 2 << 20;

/// Which part of the budget it is at most. It is there besides the budget: the bytes of a slot count when
/// it is used, as those of other memory, but the memory exists also when it is not.
const PART_OF_BUDGET: usize = 32;

/// How much of it there should be beside `budget`, in bytes: a multiple of [`STEP_BYTES`], perhaps none.
pub(crate) fn bytes_for(budget: &Budget) -> usize {
    let bytes = BYTES_MAX.min(budget.bytes_max() / PART_OF_BUDGET);
    bytes / STEP_BYTES * STEP_BYTES
}

/// The memory, and which of its slots are free.
pub(crate) struct RegisteredMemory {
    block: Block,
    /// Bytes before the first that a huge page can begin with: kernels before 6.7 map anywhere.
    skip: usize,
    /// How many there are from there, in bytes.
    bytes: usize,
    /// Has a place for each, so that no push waits for a pop.
    free: ArrayQueue<usize>,
}

impl RegisteredMemory {
    /// `bytes` bytes of it, enough for a slot, which the kernel does not know yet.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<RegisteredMemory>> {
        let block = Block::map(bytes + STEP_BYTES)?;
        block.ask_for_huge_pages();
        let skip = block.start().align_offset(STEP_BYTES);
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

    /// All of it, to be registered as one buffer.
    pub(crate) fn as_iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.at(0).as_ptr().cast(),
            iov_len: self.bytes,
        }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes && self.skip + self.bytes <= self.block.bytes());
        // SAFETY: within the mapping.
        unsafe { self.block.start().add(self.skip + offset) }
    }

    /// A slot for a read of `bytes` bytes, for which there is `reservation`; gives that back when the
    /// read is none for a slot, or none is free.
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

/// A part of the memory, for one read and those who send what it brought. The memory stays as long as
/// there is one.
pub(crate) struct Slot {
    number: usize,
    of: Arc<RegisteredMemory>,
    _reservation: Reservation,
}

impl Slot {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: within the mapping, and this slot's alone until it is dropped.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr().cast(), SLOT_BYTES) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: within the mapping, where every byte is initialised: the kernel hands out cleared pages.
        // Nobody writes to it but through `as_mut_slice`.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), SLOT_BYTES) }
    }

    fn start(&self) -> NonNull<u8> {
        let offset = self.number * SLOT_BYTES;
        assert!(offset + SLOT_BYTES <= self.of.bytes);
        self.of.at(offset)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Before the reservation is given back, so that whoever gets those bytes finds the slot.
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

    /// Whoever has the last part of what was read has the slot.
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
