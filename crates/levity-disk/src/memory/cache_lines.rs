//! Memory of atomics that takes no page before its first use.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Eight atomics in a cache line of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct CacheLine(pub [AtomicU64; 8]);

/// Lines of zeros, for all threads. A large number of them takes memory as far as it is used: the kernel gives a page at the first
/// store to it. The standard library has no safe way to this: a vector of atomics is filled by a loop, which touches all pages.
pub struct CacheLines {
    lines: NonNull<CacheLine>,
    len: usize,
}

// SAFETY: it owns its lines, which are atomics.
unsafe impl Send for CacheLines {}
// SAFETY: shared access is by atomics only.
unsafe impl Sync for CacheLines {}

impl CacheLines {
    /// `len` lines, at least one. Aborts the process when there is no memory, as a vector does.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        assert!(len > 0, "at least one line");
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let lines = unsafe { alloc_zeroed(layout) }.cast::<CacheLine>();
        match NonNull::new(lines) {
            Some(lines) => Self { lines, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::array::<CacheLine>(len).expect("less than the address space")
    }
}

impl Deref for CacheLines {
    type Target = [CacheLine];

    fn deref(&self) -> &[CacheLine] {
        // SAFETY: the allocation has `len` lines, and zeros are valid atomics.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr(), self.len) }
    }
}

impl Drop for CacheLines {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; atomics need no drop.
        unsafe { std::alloc::dealloc(self.lines.as_ptr().cast(), Self::layout(self.len)) }
    }
}

impl fmt::Debug for CacheLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheLines({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn lines_are_zero_aligned_and_apart() {
        let lines = CacheLines::zeroed(3);
        assert_eq!(lines.len(), 3);
        for line in lines.iter() {
            assert_eq!(std::ptr::from_ref(line).addr() % 64, 0);
            assert!(line.0.iter().all(|one| one.load(Ordering::Relaxed) == 0));
        }
        lines[1].0[7].store(5, Ordering::Relaxed);
        assert_eq!(lines[2].0[0].load(Ordering::Relaxed), 0);
        assert_eq!(lines[1].0[7].load(Ordering::Relaxed), 5);
    }
}
