//! The memory of the library: from the allocator of the program, and counted.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment of what `malloc` returns, and the bytes before it that keep its size.
const ALIGN: usize = 16;

/// The memory that an encoder uses, in bytes.
#[derive(Debug, Default)]
pub struct Used {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl Used {
    #[cfg(test)]
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// The most that was used at once.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.max.fetch_max(now, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(ALIGN)?, ALIGN).ok()
}

/// Allocates for the library; null if there is no memory.
///
/// # Safety
/// `used` points to a `Used`.
pub unsafe extern "C" fn allocate(used: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(layout) = layout(bytes) else {
        return ptr::null_mut();
    };
    // SAFETY: the size is not 0. The start has room for the size, and is aligned for it. For `used` see above.
    unsafe {
        let start = alloc(layout);
        if start.is_null() {
            return ptr::null_mut();
        }
        start.cast::<usize>().write(bytes);
        (*used.cast::<Used>()).add(bytes);
        start.add(ALIGN).cast()
    }
}

/// Releases what `allocate` returned, or null.
///
/// # Safety
/// `used` is that of the allocation, which is not used afterwards.
pub unsafe extern "C" fn release(used: *mut c_void, allocated: *mut c_void) {
    if allocated.is_null() {
        return;
    }
    // SAFETY: `allocate` wrote the size, and made the layout from it. For `used` see above.
    unsafe {
        let start = allocated.cast::<u8>().sub(ALIGN);
        let bytes = start.cast::<usize>().read();
        (*used.cast::<Used>()).subtract(bytes);
        dealloc(start, layout(bytes).expect("it was allocated"));
    }
}
