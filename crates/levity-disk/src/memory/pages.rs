//! Bytes in pages of their own, which the kernel may send without a copy.

use std::fmt;
use std::io;
use std::ops::Deref;

use super::block::Block;

/// Bytes that never change, in a mapping of their own.
///
/// The network stack may refer to the pages until the other side has acknowledged them, which may be long after the
/// drop. So the memory is never written to again and never reused: the drop unmaps it, and the kernel frees each page
/// with its last reference.
pub struct Pages {
    block: Block,
    len: usize,
}

impl Pages {
    /// A copy of `bytes`, of which there is at least one.
    ///
    /// # Errors
    /// The errors of `mmap`; ENOMEM also when the process has too many mappings (`/proc/sys/vm/max_map_count`).
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut block = Block::map(bytes.len())?;
        for (to, from) in block.as_mut_slice().iter_mut().zip(bytes) {
            to.write(*from);
        }
        let len = bytes.len();
        Ok(Self { block, len })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.written(0, self.len)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} bytes)", self.len)
    }
}
