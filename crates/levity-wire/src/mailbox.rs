//! Names of mailboxes, ids of their messages, and cursors into them.

use std::fmt;
use std::str::FromStr;

use crate::decimal;

/// The maximum length of the name of a box in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// The maximum length of the id that a publisher gives a message, in bytes.
pub const KEY_BYTES_MAX: usize = 128;

/// Whether `name` may be the name of a box: letters, digits and `-._~:@+=/`, at most [`NAME_BYTES_MAX`] bytes, no empty
/// segment and none of dots alone. Such a name can stand in a path, in a list of a header and in a key of a database as it
/// is.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:@+=/".contains(byte);
    let mut segments = name.split(|&byte| byte == b'/');
    name.len() <= NAME_BYTES_MAX
        && name.iter().all(is_plain)
        && segments.all(|segment| !segment.iter().all(|&byte| byte == b'.'))
}

/// Whether `key` may be the id that a publisher gives a message: visible ASCII without commas, at most [`KEY_BYTES_MAX`]
/// bytes.
#[must_use]
pub fn is_key(key: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_graphic() && byte != b',';
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(is_plain)
}

/// Whether `event` may be the name of an event: one line of at most [`KEY_BYTES_MAX`] bytes without control characters.
#[must_use]
pub fn is_event(event: &str) -> bool {
    event.len() <= KEY_BYTES_MAX && !event.chars().any(char::is_control)
}

/// Whether `name` is one of those that `pattern` stands for: `*` is any text, also none, and all else itself. Takes time linear in
/// the length of the name for each part of the pattern.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

/// The id of a message within its box, written `EPOCH-SEQUENCE` in decimal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// The life of the box that the message belongs to. A box that was lost and made anew has another one, so that a
    /// cursor of the old one is recognised.
    pub epoch: u64,
    /// The number of the message. Later messages have larger numbers, not necessarily the next ones.
    pub sequence: u64,
}

impl MessageId {
    /// The id before this one: a receiver that has got it continues with this one.
    #[must_use]
    pub const fn before(self) -> Self {
        let sequence = self.sequence.saturating_sub(1);
        Self { sequence, ..self }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.epoch, self.sequence)
    }
}

/// A text that is no id of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoId;

impl FromStr for MessageId {
    type Err = NoId;

    /// Accepts only what [`fmt::Display`] writes, so that an id has one spelling.
    fn from_str(text: &str) -> Result<Self, NoId> {
        let (epoch, sequence) = text.split_once('-').ok_or(NoId)?;
        Ok(Self {
            epoch: number(epoch)?,
            sequence: number(sequence)?,
        })
    }
}

fn number(digits: &str) -> Result<u64, NoId> {
    decimal::parse_canonical(digits.as_bytes()).ok_or(NoId)
}

/// Where a receiver begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// With the oldest message that is kept.
    Earliest,
    /// With the messages that arrive from now on.
    New,
    /// With what follows this message.
    After(MessageId),
}

impl FromStr for Cursor {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "new" => Ok(Self::New),
            id => id.parse().map(Self::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "a",
            "chat/room-1",
            "user:7@example.org",
            "a.b",
            "...a",
            "x/.y",
        ] {
            assert!(is_name(name.as_bytes()), "{name}");
        }
        for name in [
            "", "/a", "a/", "a//b", ".", "a/../b", "a b", "a,b", "é", "a%20", "a\n",
        ] {
            assert!(!is_name(name.as_bytes()), "{name}");
        }
        assert!(is_name(&[b'a'; NAME_BYTES_MAX]));
        assert!(!is_name(&[b'a'; NAME_BYTES_MAX + 1]));
    }

    #[test]
    fn keys_and_events() {
        assert!(is_key(&[b'k'; KEY_BYTES_MAX]));
        assert!(!is_key(&[b'k'; KEY_BYTES_MAX + 1]));
        for key in [&b""[..], b"a b", b"a,b", b"\x7f", "é".as_bytes()] {
            assert!(!is_key(key), "{key:?}");
        }
        assert!(is_event("") && is_event("über alles") && !is_event("a\nb"));
        assert!(!is_event(&"e".repeat(KEY_BYTES_MAX + 1)));
    }

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", "a/b"),
            ("room-*", "room-"),
            ("room-*", "room-1"),
            ("*-1", "room-1"),
            ("a*b*c", "abc"),
            ("a*b*c", "a1b2b3c"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("room-*", "rooms"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "a"),
            ("*b*b", "ab"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = MessageId {
            epoch: u64::MAX,
            sequence: 0,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "01-1",
            "1-01",
            "+1-1",
            "1-1 ",
            "1-1-1",
            "18446744073709551616-0",
            "1_0-0",
        ] {
            assert_eq!(text.parse::<MessageId>(), Err(NoId), "{text}");
        }
    }

    #[test]
    fn cursors() {
        assert_eq!("earliest".parse(), Ok(Cursor::Earliest));
        assert_eq!("new".parse(), Ok(Cursor::New));
        let (epoch, sequence) = (3, 4);
        let id = MessageId { epoch, sequence };
        assert_eq!("3-4".parse(), Ok(Cursor::After(id)));
        assert_eq!("latest".parse::<Cursor>(), Err(NoId));
    }
}
