//! The right to send from shared memory.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::arena::Slot;

/// The right to send from a part of a memory file. It ends with the drop, which does not block and takes no
/// lock: the kernel may go on sending the pages that it has taken by then.
pub struct Lease(Of);

enum Of {
    /// A file that is used once.
    File(OwnedFd),
    /// A slot of an arena.
    Slot(Slot),
}

impl Lease {
    /// A lease of a whole memory file, which is closed with it.
    pub(crate) fn of_file(memory: OwnedFd) -> Lease {
        Lease(Of::File(memory))
    }

    /// A lease of a slot, which returns to its arena.
    pub(crate) fn of_slot(slot: Slot) -> Lease {
        Lease(Of::Slot(slot))
    }

    /// `len` bytes from `offset` of the memory file, if they are mapped.
    ///
    /// # Panics
    /// If they are not all part of the lease.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let Of::Slot(slot) = &self.0 else {
            return None;
        };
        let start = usize::try_from(offset).ok()?.checked_sub(slot.offset())?;
        Some(&slot.as_slice()[start..start + len])
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Of::File(memory) => memory.as_fd(),
            Of::Slot(slot) => slot.as_fd(),
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Of::File(memory) => write!(f, "Lease({memory:?})"),
            Of::Slot(slot) => write!(f, "Lease({} bytes at {})", slot.bytes(), slot.offset()),
        }
    }
}
