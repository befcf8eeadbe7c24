//! Memory that goes from one value to the next.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;

/// Keeps the memory of the last value for the next one of the same layout.
///
/// An allocator gives the blocks of one size in turn: a value that is made and dropped with each request then visits
/// a different block each time, and none of them stays in the processor's first cache.
#[derive(Default)]
pub struct SpareMemory(Cell<Option<Block>>);

impl SpareMemory {
    /// Makes a value on the heap, in the memory of the last value that was dropped. What `make` returns is written
    /// there directly where the compiler can do so; `Box::pin` would make it on the stack and move it. Aborts the
    /// process when there is no memory, as a box does.
    pub fn pin<T>(&self, make: impl FnOnce() -> T) -> Pin<Placed<'_, T>> {
        const { assert!(size_of::<T>() > 0, "a value without size needs no memory") };
        let layout = Layout::new::<T>();
        let spare = self.0.take().filter(|block| block.layout == layout);
        let block = spare.unwrap_or_else(|| Block::new(layout));
        let at = block.at.cast::<T>();
        // SAFETY: the block has the layout of `T` and nobody else uses it.
        unsafe { at.write(make()) };
        mem::forget(block);
        // SAFETY: the value is on the heap and has no way out of `Placed`. Its drop runs before its memory is used
        // again, because only the drop of `Placed` gives that back.
        unsafe { Pin::new_unchecked(Placed { at, from: self }) }
    }
}

/// A value in memory that it gives back to [`SpareMemory`] when it is dropped.
pub struct Placed<'a, T> {
    at: NonNull<T>,
    from: &'a SpareMemory,
}

impl<T> Deref for Placed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is a value until the drop.
        unsafe { self.at.as_ref() }
    }
}

impl<T> DerefMut for Placed<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is a value until the drop, and nobody else refers to it.
        unsafe { self.at.as_mut() }
    }
}

impl<T> Drop for Placed<'_, T> {
    fn drop(&mut self) {
        // SAFETY: nobody sees the value after this.
        unsafe { self.at.drop_in_place() };
        self.from.0.set(Some(Block {
            at: self.at.cast(),
            layout: Layout::new::<T>(),
        }));
    }
}

/// Memory for one value.
struct Block {
    at: NonNull<u8>,
    layout: Layout,
}

impl Block {
    fn new(layout: Layout) -> Self {
        // SAFETY: the layout is that of a value with a size.
        match NonNull::new(unsafe { alloc(layout) }) {
            Some(at) => Self { at, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{self, AssertUnwindSafe};
    use std::ptr;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_next_value_has_the_memory_of_the_last() {
        let spare = SpareMemory::default();
        let first = spare.pin(|| [1_u64; 50]);
        let at = ptr::from_ref(&*first);
        let second = spare.pin(|| [2_u64; 50]);
        assert_ne!(ptr::from_ref(&*second), at, "the first value still lives");
        assert_eq!((first[49], second[0]), (1, 2));
        drop(first);
        let third = spare.pin(|| [3_u64; 50]);
        assert_eq!(ptr::from_ref(&*third), at);
        assert_eq!((third[0], second[49]), (3, 2));
    }

    #[test]
    fn each_value_is_dropped_once_and_fits_its_memory() {
        let spare = SpareMemory::default();
        let counted = Rc::new(());
        for _ in 0..3 {
            let mut small = spare.pin(|| (counted.clone(), 7_u8));
            small.1 += 1;
            assert_eq!((Rc::strong_count(&counted), small.1), (2, 8));
            let large = spare.pin(|| (counted.clone(), [0_u8; 3000]));
            assert_eq!(Rc::strong_count(&counted), 3);
            drop(small);
            drop(large);
            assert_eq!(Rc::strong_count(&counted), 1);
        }
    }

    #[test]
    fn a_value_that_is_not_made_costs_no_memory() {
        let spare = SpareMemory::default();
        drop(spare.pin(|| 5_u64));
        let make = || -> u64 { panic!("on purpose") };
        let made = panic::catch_unwind(AssertUnwindSafe(|| drop(spare.pin(make))));
        made.unwrap_err();
        assert!(spare.0.take().is_none(), "the block was freed");
    }
}
