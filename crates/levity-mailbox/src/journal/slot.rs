//! Where the messages of a box are.

/// Where a message is, or was whose key is remembered. A box has one for each, in the order of their numbers; this is most of
/// the memory of a box that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub sequence: u64,
    /// The digest of its key; 0 without one.
    pub digest: u64,
    /// The second since 1970 at which it is over; 0 without a deadline.
    pub deadline_s: u32,
    /// The segment of its record; 0 while it is not in one, or not acknowledged.
    pub segment: u32,
    /// In bytes from the start of the segment.
    pub offset: u32,
    /// The size of its record in bytes, and whether the box keeps the message.
    len: u32,
}

/// The bit of [`Slot::len`] that says that the message is kept.
const KEPT: u32 = 1 << 31;

impl Slot {
    /// The slot of a message that is not in a segment as yet. Its record is smaller than 2 GiB.
    pub(super) fn new(sequence: u64, digest: u64, deadline_s: u32, len: usize) -> Self {
        Self {
            sequence,
            digest,
            deadline_s,
            segment: 0,
            offset: 0,
            len: len as u32 | KEPT,
        }
    }

    /// Whether the box keeps the message, and not only its key.
    pub(super) fn is_kept(&self) -> bool {
        self.len & KEPT != 0
    }

    pub(super) fn set_kept(&mut self, is_kept: bool) {
        self.len = self.len & !KEPT | if is_kept { KEPT } else { 0 };
    }

    /// The size of its record in bytes.
    pub(super) fn len(&self) -> usize {
        (self.len & !KEPT) as usize
    }

    /// Sets the size of its record.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = self.len & KEPT | len as u32;
    }

    /// Whether it has a key.
    pub(super) fn is_keyed(&self) -> bool {
        self.digest != 0
    }

    /// Whether neither the message nor its key is needed.
    pub(super) fn is_gone(&self) -> bool {
        !self.is_kept() && !self.is_keyed()
    }

    /// Whether an [`open`](crate::Store::open) may have it.
    pub(super) fn is_placed(&self) -> bool {
        self.segment != 0
    }

    /// Whether it is over at that time in milliseconds since 1970.
    pub(super) fn has_expired(&self, now_ms: u64) -> bool {
        self.deadline_s != 0 && u64::from(self.deadline_s) * 1000 <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_small_and_keeps_its_bits_apart() {
        assert_eq!(size_of::<Slot>(), 32);
        let mut slot = Slot::new(1, 2, 3, 1 << 30);
        assert!(slot.is_kept() && slot.len() == 1 << 30);
        slot.set_kept(false);
        assert!(!slot.is_kept() && slot.len() == 1 << 30);
        slot.set_len(7);
        assert!(!slot.is_kept() && slot.len() == 7);
        slot.set_kept(true);
        slot.set_len(8);
        assert!(slot.is_kept() && slot.len() == 8 && !slot.is_placed());
        assert!(!slot.has_expired(2_999) && slot.has_expired(3_000));
    }
}
