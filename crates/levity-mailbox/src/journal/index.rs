//! The index of a segment: which records it has, without what they say.
//!
//! It is a file beside the segment, written when nothing more is added to that. Whatever is wrong with it, the segment has
//! all that it says: then the segment is read instead. It begins with a magic number, the number of the segment, the size
//! of the segment as far as it is valid, the largest epoch, and the CRC-32 of all of it. The segments that are no longer needed
//! follow, and groups of records, one for each epoch of a box, in the order of names and epochs. Numbers of variable length
//! have seven bits in each byte, the lowest first.

use super::record::{Body, Record, Rest};
use super::slot::Slot;

const MAGIC: &[u8; 8] = b"levityi1";

/// The size of what is before the content.
const HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 4;

const REMOVED: u8 = 1;
const DURABLE: u8 = 2;
const BORN: u8 = 4;

const KEPT: u8 = 1;
const WITH_DEADLINE: u8 = 2;
const WITH_DIGEST: u8 = 4;

/// An index in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    pub segment: u32,
    /// The size of the segment in bytes, as far as it is valid.
    pub segment_len: u32,
    /// The largest epoch of a record.
    pub epoch: u64,
    /// Segments that are no longer needed.
    pub dropped: Vec<u32>,
    /// The groups.
    content: Vec<u8>,
}

/// The groups of an index, from one on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Groups<'a>(Rest<'a>);

/// The records of one epoch of a box in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group<'a> {
    pub name: &'a str,
    pub epoch: u64,
    /// The box was removed with this epoch. Then nothing else is in the group but this.
    pub removed: Option<u32>,
    pub is_durable: bool,
    pub is_born: bool,
    pub next: u64,
    pub lost: u64,
    pub read: u64,
    pub idle_ms: u64,
    count: usize,
    slots: Rest<'a>,
}

/// Collects the records of a segment.
#[derive(Default)]
pub(super) struct Builder<'a> {
    entries: Vec<Entry<'a>>,
    dropped: Vec<u32>,
}

struct Entry<'a> {
    record: Record<'a>,
    offset: u32,
}

impl<'a> Builder<'a> {
    /// Adds a record, which begins at `offset`.
    pub(super) fn add(&mut self, record: Record<'a>, offset: u32) {
        match record.body {
            Body::Dropped { segment } => self.dropped.push(segment),
            _ => self.entries.push(Entry { record, offset }),
        }
    }

    /// The index of the segment, which is valid up to `segment_len`.
    pub(super) fn build(mut self, segment: u32, segment_len: u32) -> Index {
        // Records of a box stay in their order.
        self.entries
            .sort_by_key(|entry| (entry.record.head.name, entry.record.head.epoch));
        let mut content = Vec::new();
        let is_same = |a: &Entry<'_>, b: &Entry<'_>| {
            let (a, b) = (&a.record.head, &b.record.head);
            (a.name, a.epoch) == (b.name, b.epoch)
        };
        for group in self.entries.chunk_by(is_same) {
            push_group(&mut content, group);
        }
        let epochs = self.entries.iter().map(|entry| entry.record.head.epoch);
        Index {
            segment,
            segment_len,
            epoch: epochs.max().unwrap_or(0),
            dropped: self.dropped,
            content,
        }
    }
}

fn push_group(out: &mut Vec<u8>, entries: &[Entry<'_>]) {
    let head = entries.last().expect("it is not empty").record.head;
    let heads = || entries.iter().map(|entry| entry.record.head);
    let next = heads().map(|head| head.next).max().unwrap_or(0);
    let lost = heads().map(|head| head.lost).max().unwrap_or(0);
    let read = heads().map(|head| head.read).max().unwrap_or(0);
    let removed = entries.iter().find_map(|entry| match entry.record.body {
        Body::Removed { covers } => Some(covers),
        _ => None,
    });
    let flags = [
        (removed.is_some(), REMOVED),
        (head.is_durable, DURABLE),
        (head.is_born, BORN),
    ];
    push_number(out, head.name.len() as u64);
    out.extend_from_slice(head.name.as_bytes());
    out.extend_from_slice(&head.epoch.to_le_bytes());
    out.push(all(&flags));
    if let Some(covers) = removed {
        return push_number(out, covers.into());
    }
    let slots: Vec<_> = entries.iter().filter_map(slot).collect();
    for number in [next, next - lost, next - read, head.idle_ms] {
        push_number(out, number);
    }
    push_number(out, slots.len() as u64);
    let mut encoded = Vec::new();
    push_slots(&mut encoded, &slots, next);
    push_number(out, encoded.len() as u64);
    out.extend_from_slice(&encoded);
}

fn push_slots(out: &mut Vec<u8>, slots: &[Slot], next: u64) {
    let mut end = 0;
    for slot in slots {
        let flags = [
            (slot.is_kept(), KEPT),
            (slot.deadline_s != 0, WITH_DEADLINE),
            (slot.is_keyed(), WITH_DIGEST),
        ];
        out.push(all(&flags));
        push_number(out, next - slot.sequence);
        push_number(out, u64::from(slot.offset - end));
        push_number(out, slot.len() as u64);
        end = slot.offset + slot.len() as u32;
        if slot.deadline_s != 0 {
            out.extend_from_slice(&slot.deadline_s.to_le_bytes());
        }
        if slot.is_keyed() {
            out.extend_from_slice(&slot.digest.to_le_bytes());
        }
    }
}

fn all(flags: &[(bool, u8)]) -> u8 {
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |all, (_, flag)| all | flag)
}

/// `None` for a record without a message.
fn slot(entry: &Entry<'_>) -> Option<Slot> {
    let Entry { record, offset } = entry;
    let mut slot = match record.body {
        Body::Message(fields) => Slot::new(
            fields.sequence,
            fields.digest(),
            fields.deadline_s(),
            record.len,
        ),
        Body::Key { sequence, digest } => {
            let mut slot = Slot::new(sequence, digest, 0, record.len);
            slot.set_kept(false);
            slot
        }
        _ => return None,
    };
    slot.offset = *offset;
    Some(slot)
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(rest: &mut Rest<'_>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = rest.take()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

impl Index {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + 8 + self.content.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.segment_len.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        push_number(&mut out, self.dropped.len() as u64);
        for segment in &self.dropped {
            push_number(&mut out, u64::from(*segment));
        }
        out.extend_from_slice(&self.content);
        let checksum = checksum(&out);
        out[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads an index; `None` if anything is wrong with it.
    pub(super) fn decode(mut bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() < HEAD_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        let mut rest = Rest(&bytes[MAGIC.len()..]);
        let (segment, segment_len, epoch) = (rest.u32()?, rest.u32()?, rest.u64()?);
        if rest.u32()? != checksum(&bytes) {
            return None;
        }
        let count = number(&mut rest)?;
        let mut dropped = Vec::new();
        for _ in 0..count {
            dropped.push(u32::try_from(number(&mut rest)?).ok()?);
        }
        let start = bytes.len() - rest.0.len();
        bytes.drain(..start);
        Some(Self {
            segment,
            segment_len,
            epoch,
            dropped,
            content: bytes,
        })
    }

    /// The groups.
    pub(super) fn groups(&self) -> Groups<'_> {
        Groups(Rest(&self.content))
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Group<'a>> {
        parse(&mut self.0)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..HEAD_BYTES - 4]);
    hasher.update(&bytes[HEAD_BYTES..]);
    hasher.finalize()
}

/// The next group.
fn parse<'a>(rest: &mut Rest<'a>) -> Option<Group<'a>> {
    let name_len = number(rest)?;
    let name = rest.text(name_len as usize)?;
    let epoch = rest.u64()?;
    let [flags] = rest.take()?;
    let mut group = Group {
        name,
        epoch,
        removed: None,
        is_durable: flags & DURABLE != 0,
        is_born: flags & BORN != 0,
        next: 0,
        lost: 0,
        read: 0,
        idle_ms: 0,
        count: 0,
        slots: Rest(&[]),
    };
    if flags & REMOVED != 0 {
        group.removed = Some(number(rest)? as u32);
        return Some(group);
    }
    group.next = number(rest)?;
    group.lost = group.next.checked_sub(number(rest)?)?;
    group.read = group.next.checked_sub(number(rest)?)?;
    group.idle_ms = number(rest)?;
    group.count = number(rest)? as usize;
    let len = number(rest)? as usize;
    let (slots, after) = rest.0.split_at_checked(len)?;
    (group.slots, rest.0) = (Rest(slots), after);
    Some(group)
}

/// The slot of a record that begins after `end`, and sets where it ends.
fn parse_slot(rest: &mut Rest<'_>, next: u64, end: &mut u32) -> Option<Slot> {
    let [flags] = rest.take()?;
    let sequence = next.checked_sub(number(rest)?)?;
    let offset = u32::try_from(u64::from(*end) + number(rest)?).ok()?;
    let len = number(rest)? as usize;
    *end = offset.checked_add(u32::try_from(len).ok()?)?;
    let deadline_s = if flags & WITH_DEADLINE != 0 {
        rest.u32()?
    } else {
        0
    };
    let digest = if flags & WITH_DIGEST != 0 {
        rest.u64()?
    } else {
        0
    };
    let mut slot = Slot::new(sequence, digest, deadline_s, len);
    slot.offset = offset;
    slot.set_kept(flags & KEPT != 0);
    Some(slot)
}

impl<'a> Group<'a> {
    /// Its messages and keys, in the order of their records. None of them says which segment it is in.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<'a> {
        let (mut rest, mut end) = (self.slots, 0);
        let (count, next) = (self.count, self.next);
        (0..count).map_while(move |_| parse_slot(&mut rest, next, &mut end))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::{Fields, Head, decode, encode};
    use super::*;
    use crate::log::tests::draft;

    fn head(name: &str, epoch: u64, next: u64) -> Head<'_> {
        Head {
            name,
            epoch,
            next,
            lost: next / 2,
            read: 0,
            idle_ms: 60_000,
            is_durable: true,
            is_born: epoch == 1,
        }
    }

    fn segment() -> Vec<u8> {
        let mut bytes = Vec::new();
        let key = draft("text", Some("key"));
        let mut deadline = draft("text", None);
        deadline.deadline = Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(77));
        let mut push = |head: Head<'_>, body| encode(&mut bytes, &head, &body).expect("it fits");
        push(head("s/b", 1, 1), Body::Message(Fields::of(&key, 0)));
        push(
            head("s/a", 1, 500),
            Body::Message(Fields::of(&deadline, 499)),
        );
        push(head("s/b", 1, 2), Body::State);
        push(head("s/c", 9, 2), Body::Removed { covers: 300 });
        push(head("s/b", 2, 3), Body::Message(Fields::of(&key, 2)));
        push(
            head("s/b", 1, 2),
            Body::Key {
                sequence: 1,
                digest: 5,
            },
        );
        push(head("", 0, 0), Body::Dropped { segment: 300 });
        bytes
    }

    fn index(segment: &[u8]) -> Index {
        let (mut builder, mut offset) = (Builder::default(), 0);
        while let Ok(record) = decode(&segment[offset..]) {
            builder.add(record, offset as u32 + 100);
            offset += record.len;
        }
        builder.build(7, 1000)
    }

    /// An index with three boxes, of which one was removed.
    pub(in super::super) fn example() -> Index {
        index(&segment())
    }

    /// An encoded index, whose checksum is set so that it is right.
    pub(in super::super) fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.len() >= HEAD_BYTES {
            let checksum = checksum(&bytes);
            bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_index_has_the_records_by_name_and_epoch() {
        let segment = segment();
        let index = index(&segment);
        let read = Index::decode(index.encode()).expect("an index");
        assert_eq!(read, index);
        assert_eq!((read.segment, read.segment_len), (7, 1000));
        assert_eq!(read.dropped, [300]);
        assert_eq!(read.epoch, 9);
        let groups: Vec<_> = read.groups().collect();
        let names: Vec<_> = groups.iter().map(|g| (g.name, g.epoch)).collect();
        assert_eq!(names, [("s/a", 1), ("s/b", 1), ("s/b", 2), ("s/c", 9)]);
        let a = groups[0];
        assert_eq!(
            (a.next, a.lost, a.idle_ms, a.is_durable),
            (500, 250, 60_000, true)
        );
        let slot = a.slots().next().expect("a message");
        assert_eq!((slot.sequence, slot.deadline_s, slot.digest), (499, 77, 0));
        let b: Vec<_> = groups[1].slots().collect();
        assert_eq!(
            (groups[1].next, groups[1].is_born, groups[2].is_born),
            (2, true, false)
        );
        assert_eq!((b[0].sequence, b[0].is_kept(), b[0].offset), (0, true, 100));
        assert_eq!((b[1].sequence, b[1].is_kept(), b[1].digest), (1, false, 5));
        for slot in &b {
            let at = slot.offset as usize - 100;
            assert_eq!(decode(&segment[at..]).expect("a record").len, slot.len());
        }
        assert_eq!(groups[3].removed, Some(300));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let mut bytes = index(&segment()).encode();
        for end in 0..bytes.len() {
            assert_eq!(Index::decode(bytes[..end].to_vec()), None, "cut at {end}");
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Index::decode(bytes.clone()), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn numbers_have_any_size() {
        for given in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            push_number(&mut bytes, given);
            assert_eq!(number(&mut Rest(&bytes)), Some(given));
            assert_eq!(number(&mut Rest(&bytes[..bytes.len() - 1])), None);
        }
    }
}
