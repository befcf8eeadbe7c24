//! Segments: their names, and the header with which each begins.
//!
//! The header is a manifest: it lists all segments that were needed when this one was made. So the newest one, with the
//! [`Dropped`](super::record::Body::Dropped) records in it, says which ones must be there, and how long they are.

use std::ffi::CString;

use super::record::Rest;

/// The first bytes of a segment: its format.
const MAGIC: &[u8; 8] = b"levityj1";

/// What ends the name of a segment.
const SEGMENT: &str = ".segment";

/// What ends the name of the index of a segment.
const INDEX: &str = ".index";

/// The name of the file that says how far the newest segment has been synced.
pub(super) const SYNCED: &str = "synced";

/// The name of the file that is locked while a process uses the folder.
pub(super) const LOCK: &str = "lock";

/// What a segment begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub number: u32,
    /// The run of the machine in which it was made.
    pub boot: Box<str>,
    /// All epochs that were given before are at most this one.
    pub epoch: u64,
    /// What all boxes may have lost.
    pub all: Loss,
    /// What boxes may have lost that are not durable.
    pub unsynced: Loss,
    /// The other segments: number and size in bytes.
    pub others: Vec<(u32, u32)>,
}

/// Boxes with records in segments before `before` have at least the epoch `epoch`, because messages may be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub before: u32,
    pub epoch: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        for loss in [self.all, self.unsynced] {
            out.extend_from_slice(&loss.before.to_le_bytes());
            out.extend_from_slice(&loss.epoch.to_le_bytes());
        }
        out.extend_from_slice(&(self.boot.len() as u32).to_le_bytes());
        out.extend_from_slice(self.boot.as_bytes());
        out.extend_from_slice(&(self.others.len() as u32).to_le_bytes());
        for (number, len) in &self.others {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
        }
        let len = out.len() as u32 + 4;
        out[8..12].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header with which `bytes` begin, and returns its size too.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let len = Rest(bytes.get(8..)?).u32()? as usize;
        let (content, checksum) = bytes.get(..len)?.split_last_chunk()?;
        let is_right = crc32fast::hash(content) == u32::from_le_bytes(*checksum);
        let mut rest = Rest(content.strip_prefix(MAGIC).filter(|_| is_right)?);
        rest.u32()?;
        let (number, epoch) = (rest.u32()?, rest.u64()?);
        let mut loss = || {
            Some(Loss {
                before: rest.u32()?,
                epoch: rest.u64()?,
            })
        };
        let (all, unsynced) = (loss()?, loss()?);
        let boot_len = rest.u32()?;
        let boot = rest.text(boot_len as usize)?.into();
        let count = rest.u32()?;
        let other = |_| Some((rest.u32()?, rest.u32()?));
        let header = Self {
            number,
            boot,
            epoch,
            all,
            unsynced,
            others: (0..count).map(other).collect::<Option<_>>()?,
        };
        Some((header, len))
    }
}

/// How far the newest segment has been synced. Written without a sync of its own, after each sync of the segment: so it may
/// be behind, but is never ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Synced {
    pub segment: u32,
    /// In bytes.
    pub len: u32,
    /// A sync has failed: what was written after it may be lost although the machine has not crashed.
    pub has_failed: bool,
}

impl Synced {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = self.segment.to_le_bytes().to_vec();
        out.extend_from_slice(&self.len.to_le_bytes());
        out.push(self.has_failed.into());
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk()?;
        if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = Rest(content);
        Some(Self {
            segment: rest.u32()?,
            len: rest.u32()?,
            has_failed: rest.take::<1>()? != [0],
        })
    }
}

/// The name of a segment.
pub(super) fn segment_name(number: u32) -> CString {
    named(number, SEGMENT)
}

/// The name of the index of a segment.
pub(super) fn index_name(number: u32) -> CString {
    named(number, INDEX)
}

fn named(number: u32, end: &str) -> CString {
    CString::new(format!("{number:010}{end}")).expect("no zero byte in it")
}

/// What a file of the folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Segment(u32),
    Index(u32),
}

/// The kind of the file `name`; `None` for a foreign one.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let number = |digits: &str| {
        let is_canonical = digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_canonical)
    };
    let of = |end| name.strip_suffix(end).and_then(number);
    let segment = of(SEGMENT).map(Kind::Segment);
    segment.or_else(|| of(INDEX).map(Kind::Index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_or_not_at_all() {
        let header = Header {
            number: 7,
            boot: "a boot".into(),
            epoch: 1 << 60,
            all: Loss {
                before: 3,
                epoch: 4,
            },
            unsynced: Loss {
                before: 5,
                epoch: 6,
            },
            others: vec![(1, 100), (6, u32::MAX)],
        };
        let mut bytes = header.encode();
        let len = bytes.len();
        bytes.push(1);
        assert_eq!(Header::decode(&bytes), Some((header, len)));
        for end in 0..len {
            assert_eq!(Header::decode(&bytes[..end]), None, "cut at {end}");
        }
        for bit in 0..len * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_position_comes_back_or_not_at_all() {
        let synced = Synced {
            segment: 7,
            len: 1000,
            has_failed: true,
        };
        let mut bytes = synced.encode();
        assert_eq!(Synced::decode(&bytes), Some(synced));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Synced::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Synced::decode(&bytes[..5]), None);
    }

    #[test]
    fn names() {
        assert_eq!(segment_name(7).to_str(), Ok("0000000007.segment"));
        for (name, expected) in [
            ("0000000007.segment", Some(Kind::Segment(7))),
            ("4294967295.index", Some(Kind::Index(u32::MAX))),
            ("4294967296.index", None),
            ("7.segment", None),
            ("+000000007.segment", None),
            ("0000000007.segment.old", None),
            ("synced", None),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
