//! Aligned memory straight from the kernel.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// In bytes: the strictest alignment that `O_DIRECT` requires, and a page on most machines.
pub const ALIGNMENT: usize = 4096;

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping of aligned memory: uninitialised, or with the bytes of an earlier read.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is the only owner of its memory, like a `Box<[MaybeUninit<u8>]>`.
unsafe impl Send for Block {}
// SAFETY: a shared block only lends its memory for reading. `Block::part` returns only an address.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn allocate(bytes: usize) -> Block {
        Block::map(bytes).unwrap_or_else(|_| handle_alloc_error(Block::layout(bytes)))
    }

    /// Maps memory. Not from an allocator: it keeps memory that one thread allocates and another frees, so that
    /// a bound on the bytes in use would not bound the memory of the process.
    ///
    /// # Errors
    /// The errors of `mmap`.
    pub(crate) fn map(bytes: usize) -> io::Result<Block> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ACCESS, MapFlags::PRIVATE)?
        };
        Ok(Block::of(start, bytes))
    }

    /// Maps the first `bytes` bytes of `file`, which must not shrink below them.
    ///
    /// # Errors
    /// The errors of `mmap`.
    pub(crate) fn map_file(file: impl AsFd, bytes: usize) -> io::Result<Block> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, ACCESS, MapFlags::SHARED, file, 0)? };
        Ok(Block::of(start, bytes))
    }

    fn of(start: *mut libc::c_void, bytes: usize) -> Block {
        let start =
            NonNull::new(start.cast()).expect("the kernel never maps at address 0 by choice");
        Block { start, bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `madvise` for all of the memory. The advice must be one that changes no byte.
    pub(crate) fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: advice that changes no byte, for a mapping that is ours.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, advice) }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGNMENT).expect("a budget is far below isize::MAX")
    }

    /// The address of `len` bytes from `offset`, for an owner that lends parts of the block.
    ///
    /// # Panics
    /// If they are not all within the block.
    pub(crate) fn part(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        assert!(offset + len <= self.bytes);
        // SAFETY: within the mapping.
        NonNull::slice_from_raw_parts(unsafe { self.start.add(offset) }, len)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block owns `bytes` bytes at `start`, and uninitialised ones may be lent as such.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes) }
    }

    /// `len` bytes after the first `skip`. The caller knows that they have been written: `Buffer::advance` and
    /// `Buffer::filled_blocks` are the only ways to raise the length of a buffer, and `Pages` has only written bytes.
    pub(crate) fn written(&self, skip: usize, len: usize) -> &[u8] {
        // SAFETY: within the block, and initialised by the contract of those.
        unsafe { self.part(skip, len).as_ref() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped by `Block::map` or `Block::map_file` with the same size, and unmapped only here.
        let result = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, Ok(()));
    }
}
