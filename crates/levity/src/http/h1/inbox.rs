//! Received bytes that are not parsed yet.

use std::ops::Deref;

use bytes::{Buf, BytesMut};

/// Received bytes that are not parsed yet. It holds memory only while it holds bytes: about as much as it held at most.
#[derive(Default)]
pub struct Inbox(BytesMut);

impl Inbox {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, arrived: &[u8]) {
        // Most requests arrive alone, and to add nothing is not free.
        if !arrived.is_empty() {
            self.0.extend_from_slice(arrived);
        }
    }

    /// Drops the first `count` bytes, which are parsed. The others are not moved: each of a thousand pipelined requests
    /// costs the same.
    pub fn skip(&mut self, count: usize) {
        self.0.advance(count);
        if self.0.is_empty() {
            self.0 = BytesMut::new();
        }
    }

    /// All bytes, for another parser.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into()
    }
}

impl Deref for Inbox {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_bytes_move_no_others_and_the_last_free_the_memory() {
        let mut inbox = Inbox::default();
        inbox.push(b"first second");
        let second = inbox[6..].as_ptr();
        inbox.skip(6);
        assert_eq!((&*inbox, inbox.as_ptr()), (&b"second"[..], second));
        inbox.skip(6);
        assert_eq!((inbox.len(), inbox.0.capacity()), (0, 0));
    }
}
