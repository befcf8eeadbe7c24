//! Messages that can be verified without having been stored: box, number and length determine every byte.

use std::io::Write;

/// The maximum length of a message in bytes.
pub const BYTES_MAX: usize = 64 * 1024;
/// The length of the longest prefix, `BOX:NUMBER:` of the largest numbers.
const PREFIX_BYTES_MAX: usize = 48;
/// Letters and digits mean the same in JSON and in an event.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Makes and verifies messages.
pub struct Payloads {
    filler: Vec<u8>,
    prefix: Vec<u8>,
}

impl Default for Payloads {
    fn default() -> Self {
        Self {
            filler: ALPHABET.iter().copied().cycle().take(BYTES_MAX).collect(),
            prefix: Vec::with_capacity(PREFIX_BYTES_MAX),
        }
    }
}

impl Payloads {
    /// Appends the message with this number of a box: `BOX:NUMBER:`, filled up to `bytes`.
    pub fn write(&mut self, index: usize, number: u64, bytes: usize, out: &mut Vec<u8>) {
        self.set_prefix(index, number);
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(self.filler_of(bytes));
    }

    /// Whether these bytes are that message.
    #[must_use]
    pub fn is(&mut self, index: usize, number: u64, bytes: usize, message: &[u8]) -> bool {
        self.set_prefix(index, number);
        let rest = message.strip_prefix(&*self.prefix);
        rest.is_some_and(|rest| rest == self.filler_of(bytes))
    }

    fn set_prefix(&mut self, index: usize, number: u64) {
        self.prefix.clear();
        // Writing to memory cannot fail.
        let _ = write!(self.prefix, "{index}:{number}:");
    }

    fn filler_of(&self, bytes: usize) -> &[u8] {
        let length = bytes.saturating_sub(self.prefix.len()).min(BYTES_MAX);
        &self.filler[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_and_is_recognised() {
        let mut payloads = Payloads::default();
        for bytes in [8, 100, 1024, BYTES_MAX] {
            let mut message = Vec::new();
            payloads.write(7, 1234, bytes, &mut message);
            assert_eq!(message.len(), bytes);
            assert!(payloads.is(7, 1234, bytes, &message));
            assert!(!payloads.is(7, 1235, bytes, &message));
            assert!(!payloads.is(8, 1234, bytes, &message));
            assert!(!payloads.is(7, 1234, bytes + 1, &message) || bytes == BYTES_MAX);
        }
    }

    #[test]
    fn every_byte_counts() {
        let mut payloads = Payloads::default();
        let mut message = Vec::new();
        payloads.write(0, 1, 200, &mut message);
        for index in 0..message.len() {
            message[index] ^= 1;
            assert!(!payloads.is(0, 1, 200, &message), "byte {index}");
            message[index] ^= 1;
        }
        message.push(b'a');
        assert!(!payloads.is(0, 1, 200, &message));
    }
}
