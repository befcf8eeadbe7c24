//! Aligned memory straight from the kernel.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

/// In bytes: the strictest alignment that `O_DIRECT` requires, and a page on most machines.
pub const ALIGNMENT: usize = 4096;

/// A mapping of aligned memory: uninitialised, or with the bytes of an earlier read.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is the only owner of its memory, like a `Box<[MaybeUninit<u8>]>`.
unsafe impl Send for Block {}
// SAFETY: a shared block only lends its memory for reading.
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
        assert!(bytes > 0);
        let (access, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, private, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => Ok(Block { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests huge pages. A failure has no consequence.
    pub(crate) fn ask_for_huge_pages(&self) {
        let (start, advice) = (self.start.as_ptr().cast(), libc::MADV_HUGEPAGE);
        // SAFETY: advice that changes no byte, for a mapping that is ours.
        let _ = unsafe { libc::madvise(start, self.bytes, advice) };
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGNMENT).expect("a budget is far below isize::MAX")
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the block owns `bytes` bytes at `start`, and uninitialised ones may be lent as such.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes) }
    }

    /// `len` bytes after the first `skip`. The caller knows that they have been written: `Buffer::advance` and
    /// `Buffer::filled_blocks` are the only ways to raise the length of a buffer.
    pub(crate) fn written(&self, skip: usize, len: usize) -> &[u8] {
        assert!(skip + len <= self.bytes);
        // SAFETY: within the block, and initialised by the contract of those two.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(skip), len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped by `Block::map` with the same size, and unmapped only here.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, 0);
    }
}
