//! The records of a segment.
//!
//! A record is complete in itself: it names its box and says what the box was like when it was written. Numbers are little
//! endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | the length of the record, these bytes included |
//! | 4..8 | the CRC-32 of the length and of all that follows |
//! | 8, 9 | kind and flags |
//! | 10..12 | the length of the name |
//! | 12..20 | the epoch of the box |
//! | 20..28 | the number of its next message |
//! | 28..32, 32..36 | how far before that number the first ones are that were not lost, and not read |
//! | 36..40 | how long the box may be idle, in tenths of a second |
//! | 40.. | the name, then what the kind needs |

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use crate::message::Draft;

/// The size of what all records have, in bytes.
pub(super) const HEAD_BYTES: usize = 40;

/// The size of what a message adds, without its texts, in bytes.
pub(super) const MESSAGE_BYTES: usize = 4 + 8 + 3 * 2;

/// The size of what a key adds, in bytes.
pub(super) const KEY_BYTES: usize = 4 + 8;

/// The maximum size of a record in bytes: no message is nearly as large.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 20;

/// The unit of idle times.
const IDLE_UNIT_MS: u64 = 100;

const DURABLE: u8 = 1;
const BORN: u8 = 4;

/// What all records have: the box, as it was when the record was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub name: &'a str,
    pub epoch: u64,
    /// The number of the next message.
    pub next: u64,
    /// Messages with smaller numbers are gone because of a bound.
    pub lost: u64,
    /// Messages with smaller numbers were read.
    pub read: u64,
    /// In milliseconds, rounded up to tenths of a second.
    pub idle_ms: u64,
    /// Its messages are acknowledged after a sync.
    pub is_durable: bool,
    /// The epoch is that with which the box was made: records of the name with smaller ones are of earlier boxes.
    pub is_born: bool,
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// A message.
    Message(Fields<'a>),
    /// The message of this number had a key with this digest. The message is gone.
    Key { sequence: u64, digest: u64 },
    /// Nothing but the head.
    State,
    /// The box was removed, and with it all that has its epoch or a smaller one. Such records are in segments up to
    /// `covers`.
    Removed { covers: u32 },
    /// The segment of this number is no longer needed. The name is empty.
    Dropped { segment: u32 },
}

/// The fields of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub sequence: u64,
    /// In nanoseconds since 1970; 0 without one.
    pub deadline_ns: u64,
    /// Empty without one.
    pub key: &'a str,
    pub event: &'a str,
    pub media_type: &'a str,
    pub content: &'a [u8],
}

/// A record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub head: Head<'a>,
    pub body: Body<'a>,
    /// Its size in bytes.
    pub len: usize,
}

/// Why there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// The bytes end before it does, or it has no possible length.
    Cut,
    /// Its checksum or a field is wrong. The next one would begin after this number of bytes.
    Wrong(usize),
}

/// Appends a record to `out`, and returns its size in bytes; `None` if a text is too long for it.
pub(super) fn encode(out: &mut Vec<u8>, head: &Head<'_>, body: &Body<'_>) -> Option<usize> {
    let start = out.len();
    let kind = match body {
        Body::Message(_) => 1,
        Body::Key { .. } => 2,
        Body::State => 3,
        Body::Removed { .. } => 4,
        Body::Dropped { .. } => 5,
    };
    let back = |from: u64| u32::try_from(head.next.saturating_sub(from)).unwrap_or(u32::MAX);
    let idle = head.idle_ms.div_ceil(IDLE_UNIT_MS);
    let flags = [(head.is_durable, DURABLE), (head.is_born, BORN)];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let flags = flags.fold(0, |flags, (_, flag)| flags | flag);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&u16::try_from(head.name.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&head.epoch.to_le_bytes());
    out.extend_from_slice(&head.next.to_le_bytes());
    out.extend_from_slice(&back(head.lost).to_le_bytes());
    out.extend_from_slice(&back(head.read).to_le_bytes());
    out.extend_from_slice(&u32::try_from(idle).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(head.name.as_bytes());
    match body {
        Body::Message(fields) => {
            out.extend_from_slice(&back(fields.sequence).to_le_bytes());
            if !push_message(out, fields) {
                out.truncate(start);
                return None;
            }
        }
        Body::Key { sequence, digest } => {
            out.extend_from_slice(&back(*sequence).to_le_bytes());
            out.extend_from_slice(&digest.to_le_bytes());
        }
        Body::State => {}
        Body::Removed { covers: number } | Body::Dropped { segment: number } => {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let len = out.len() - start;
    let record = &mut out[start..];
    record[..4].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    let checksum = checksum(record);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
    Some(len)
}

/// False if a text is too long.
fn push_message(out: &mut Vec<u8>, fields: &Fields<'_>) -> bool {
    out.extend_from_slice(&fields.deadline_ns.to_le_bytes());
    let texts = [fields.key, fields.event, fields.media_type];
    for text in texts {
        let Ok(len) = u16::try_from(text.len()) else {
            return false;
        };
        out.extend_from_slice(&len.to_le_bytes());
    }
    for text in texts {
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(fields.content);
    true
}

/// Of a record with its length.
fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// Reads the record with which `bytes` begin.
pub(super) fn decode(bytes: &[u8]) -> Result<Record<'_>, Bad> {
    let len = bytes.get(..4).ok_or(Bad::Cut)?;
    let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
    if !(HEAD_BYTES..=RECORD_BYTES_MAX).contains(&len) {
        return Err(Bad::Cut);
    }
    let record = bytes.get(..len).ok_or(Bad::Cut)?;
    if record[4..8] != checksum(record).to_le_bytes() {
        return Err(Bad::Wrong(len));
    }
    parse(record).ok_or(Bad::Wrong(len))
}

/// The fields of a record whose checksum is right.
fn parse(record: &[u8]) -> Option<Record<'_>> {
    let mut rest = Rest(&record[8..]);
    let [kind, flags] = rest.take()?;
    let name_len = rest.u16()?;
    let (epoch, next) = (rest.u64()?, rest.u64()?);
    let lost = next.checked_sub(rest.u32()?.into())?;
    let read = next.checked_sub(rest.u32()?.into())?;
    let idle_ms = u64::from(rest.u32()?) * IDLE_UNIT_MS;
    let name = rest.text(name_len)?;
    let head = Head {
        name,
        epoch,
        next,
        lost,
        read,
        idle_ms,
        is_durable: flags & DURABLE != 0,
        is_born: flags & BORN != 0,
    };
    let body = match kind {
        1 => Body::Message(parse_message(rest, next)?),
        2 => Body::Key {
            sequence: next.checked_sub(rest.u32()?.into())?,
            digest: rest.u64()?,
        },
        3 => Body::State,
        4 => Body::Removed {
            covers: rest.u32()?,
        },
        5 => Body::Dropped {
            segment: rest.u32()?,
        },
        _ => return None,
    };
    Some(Record {
        head,
        body,
        len: record.len(),
    })
}

fn parse_message(mut rest: Rest<'_>, next: u64) -> Option<Fields<'_>> {
    let sequence = next.checked_sub(rest.u32()?.into())?;
    let deadline_ns = rest.u64()?;
    let lens = [rest.u16()?, rest.u16()?, rest.u16()?];
    let [key, event, media_type] = lens.map(|len| rest.text(len));
    Some(Fields {
        sequence,
        deadline_ns,
        key: key?,
        event: event?,
        media_type: media_type?,
        content: rest.0,
    })
}

/// Bytes that have not been read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest<'a>(pub &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<usize> {
        self.take()
            .map(|bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self, len: usize) -> Option<&'a str> {
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

/// The digest of a key that a publisher has given a message; never 0. Of 64 bits: that two of the few hundred keys of a box
/// share one is less likely than an error that the checksum of a record does not find.
pub(super) fn digest(key: &str) -> u64 {
    let hash = Sha256::digest(key);
    let (first, _) = hash.split_first_chunk().expect("it has 32 bytes");
    u64::from_le_bytes(*first).max(1)
}

impl<'a> Fields<'a> {
    /// The fields of a message with this number.
    pub(super) fn of(draft: &'a Draft, sequence: u64) -> Self {
        Self {
            sequence,
            deadline_ns: draft.deadline.map_or(0, nanoseconds),
            key: draft.key.as_deref().unwrap_or(""),
            event: &draft.event,
            media_type: &draft.media_type,
            content: &draft.content,
        }
    }

    /// The message.
    pub(super) fn draft(&self) -> Draft {
        let since = Duration::from_nanos(self.deadline_ns);
        Draft {
            key: (!self.key.is_empty()).then(|| self.key.into()),
            event: self.event.into(),
            media_type: self.media_type.into(),
            content: self.content.into(),
            deadline: (self.deadline_ns != 0).then(|| UNIX_EPOCH + since),
            reservation: None,
            is_damaged: false,
        }
    }

    /// The digest of its key; 0 without one.
    pub(super) fn digest(&self) -> u64 {
        match self.key {
            "" => 0,
            key => digest(key),
        }
    }

    /// The second from which on it is over; 0 if it never is.
    pub(super) fn deadline_s(&self) -> u32 {
        let seconds = self.deadline_ns.div_ceil(1_000_000_000);
        u32::try_from(seconds).unwrap_or(0)
    }
}

/// At least 1, as 0 stands for no deadline.
fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The size that a [draft](Draft::bytes) has in memory whose record has `len` bytes, for a name of `name_len` bytes.
pub(super) fn draft_bytes(len: usize, name_len: usize) -> usize {
    (len + crate::message::OVERHEAD_BYTES).saturating_sub(HEAD_BYTES + MESSAGE_BYTES + name_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::draft;

    fn head() -> Head<'static> {
        Head {
            name: "set/name",
            epoch: u64::MAX,
            next: 1 << 40,
            lost: (1 << 40) - 7,
            read: 1 << 40,
            idle_ms: 60_000,
            is_durable: true,
            is_born: true,
        }
    }

    fn bodies(draft: &Draft) -> Vec<Body<'_>> {
        let sequence = (1 << 40) - 1;
        vec![
            Body::Message(Fields::of(draft, sequence)),
            Body::Key {
                sequence: sequence - 5,
                digest: 99,
            },
            Body::State,
            Body::Removed { covers: 7 },
            Body::Dropped { segment: u32::MAX },
        ]
    }

    #[test]
    fn records_come_back_as_they_were() {
        let draft = Draft {
            deadline: Some(UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789)),
            event: "größer".into(),
            ..draft("content\0", Some("key"))
        };
        let mut bytes = Vec::new();
        for body in bodies(&draft) {
            encode(&mut bytes, &head(), &body).expect("it fits");
        }
        let mut rest = &bytes[..];
        for body in bodies(&draft) {
            let record = decode(rest).expect("a record");
            assert_eq!((record.head, record.body), (head(), body));
            rest = &rest[record.len..];
            if let Body::Message(fields) = record.body {
                let read = fields.draft();
                assert_eq!(read.deadline, draft.deadline);
                assert_eq!((&read.key, &read.event), (&draft.key, &draft.event));
                assert_eq!(read.content, draft.content);
                assert_eq!(draft_bytes(record.len, 8), draft.bytes());
            }
        }
        assert_eq!(decode(rest), Err(Bad::Cut));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let draft = draft("content", Some("key"));
        for body in bodies(&draft) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &head(), &body).expect("it fits");
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Err(Bad::Cut), "cut at {end}");
            }
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_text_that_is_too_long_leaves_nothing() {
        let mut draft = draft("x", None);
        draft.media_type = "m".repeat(1 << 16).into();
        let mut bytes = vec![7];
        let body = Body::Message(Fields::of(&draft, 0));
        assert_eq!(encode(&mut bytes, &head(), &body), None);
        assert_eq!(bytes, [7]);
    }
}
