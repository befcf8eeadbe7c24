//! The id of a request, by which a log line, an error page and an application's log are recognised as one.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestId<'a> {
    /// Made here: written with 32 hexadecimal digits.
    Made(u128),
    /// The id that a trusted proxy has given it: 1 to [`TAKEN_BYTES_MAX`](RequestId::TAKEN_BYTES_MAX) visible ASCII
    /// characters.
    Taken(&'a str),
}

impl<'a> RequestId<'a> {
    /// The maximum number of bytes of an id that is taken.
    pub const TAKEN_BYTES_MAX: usize = 128;

    /// The id in a header; `None` if it may not be taken.
    #[must_use]
    pub fn taken(value: &'a [u8]) -> Option<Self> {
        let is_visible = value.iter().all(u8::is_ascii_graphic);
        let fits = (1..=Self::TAKEN_BYTES_MAX).contains(&value.len());
        let text = std::str::from_utf8(value).ok();
        text.filter(|_| is_visible && fits).map(Self::Taken)
    }
}

impl fmt::Display for RequestId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(id) => write!(f, "{id:032x}"),
            Self::Taken(id) => f.write_str(id),
        }
    }
}

/// A number that no other request has, as far as chance allows: 64 random bits of the thread, and a count that is mixed,
/// so that neighbours differ in many digits.
#[must_use]
pub fn next() -> u128 {
    thread_local! {
        static STATE: (u64, Cell<u64>) = {
            let random = RandomState::new();
            (random.hash_one(0), Cell::new(random.hash_one(1)))
        };
    }
    STATE.with(|(thread, count)| {
        let next = count.get().wrapping_add(1);
        count.set(next);
        // An odd factor maps numbers one to one.
        let mixed = next.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        u128::from(*thread) << 64 | u128::from(mixed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_differ_and_have_one_form() {
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        assert_eq!(RequestId::Made(first).to_string().len(), 32);
        let other = std::thread::spawn(next).join().expect("a number");
        assert_ne!(first >> 64, other >> 64);
    }

    #[test]
    fn ids_that_are_taken() {
        let longest = [b'a'; RequestId::TAKEN_BYTES_MAX];
        for id in [&b"a"[..], b"3f-{}", &longest] {
            let taken = RequestId::taken(id).expect("an id");
            assert_eq!(taken.to_string().as_bytes(), id);
        }
        let too_long = [b'a'; RequestId::TAKEN_BYTES_MAX + 1];
        for id in [&b""[..], b"a b", b"a\n", "\u{e9}".as_bytes(), &too_long] {
            assert_eq!(RequestId::taken(id), None);
        }
    }
}
