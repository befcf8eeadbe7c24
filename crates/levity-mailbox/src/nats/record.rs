//! What is written into the stream.
//!
//! A record is a line of words, then what follows them. The words are a letter for the kind, who has written it (the number of
//! the process, and one of the record), when (milliseconds since 1970), and what belongs to the kind.

use std::fmt::Write as _;
use std::str::{FromStr, SplitAsciiWhitespace};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who has written a record. No two records have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Author {
    /// The process.
    pub(super) process: u64,
    /// The number of the record.
    pub(super) number: u64,
}

/// A record of a box.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) author: Author,
    pub(super) time: SystemTime,
    pub(super) kind: Kind<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A message, and the bounds of the box.
    Message {
        messages_max: usize,
        bytes_max: usize,
        encoded: &'a [u8],
    },
    /// The box is used: it is made if there is none.
    Used,
    /// Messages with numbers below `end` were read. The epoch is the number of the record with which it began.
    Read { epoch: u64, end: u64 },
    /// Takes the place of records that are about to be deleted.
    Summary(Summary),
    /// The box is removed.
    Removed,
    /// Messages were lost: the box has another epoch from now on.
    Renewed,
}

/// What was known of a box with its record `upto`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) upto: u64,
    /// The first record of this life.
    pub(super) born: u64,
    /// The record with which the epoch began.
    pub(super) epoch: u64,
    pub(super) next: u64,
    pub(super) lost: u64,
    pub(super) read: u64,
    /// Ids of publishers whose messages are gone.
    pub(super) keys: Vec<(u64, String)>,
}

impl Record<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Author { process, number } = self.author;
        let since = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let words = format!("{process} {number} {}", since.as_millis());
        let line = match &self.kind {
            Kind::Message {
                messages_max,
                bytes_max,
                encoded,
            } => {
                let line = format!("m {words} {messages_max} {bytes_max}\n");
                return [line.as_bytes(), encoded].concat();
            }
            Kind::Used => format!("u {words}\n"),
            Kind::Read { epoch, end } => format!("r {words} {epoch} {end}\n"),
            Kind::Removed => format!("x {words}\n"),
            Kind::Renewed => format!("n {words}\n"),
            Kind::Summary(summary) => {
                let Summary {
                    upto,
                    born,
                    epoch,
                    next,
                    lost,
                    read,
                    keys,
                } = summary;
                let mut text = format!("s {words} {upto} {born} {epoch} {next} {lost} {read}\n");
                for (number, key) in keys {
                    let _ = writeln!(text, "{number} {key}");
                }
                text
            }
        };
        line.into_bytes()
    }
}

impl<'a> Record<'a> {
    /// Reads a record; `None` if it is none.
    pub(super) fn decode(encoded: &'a [u8]) -> Option<Self> {
        let end = encoded.iter().position(|&byte| byte == b'\n')?;
        let (line, rest) = (
            std::str::from_utf8(&encoded[..end]).ok()?,
            &encoded[end + 1..],
        );
        let mut words = line.split_ascii_whitespace();
        let letter = words.next()?;
        let author = Author {
            process: word(&mut words)?,
            number: word(&mut words)?,
        };
        let time = UNIX_EPOCH + Duration::from_millis(word(&mut words)?);
        let kind = match letter {
            "m" => Kind::Message {
                messages_max: word(&mut words)?,
                bytes_max: word(&mut words)?,
                encoded: rest,
            },
            "u" => Kind::Used,
            "r" => Kind::Read {
                epoch: word(&mut words)?,
                end: word(&mut words)?,
            },
            "x" => Kind::Removed,
            "n" => Kind::Renewed,
            "s" => Kind::Summary(Summary {
                upto: word(&mut words)?,
                born: word(&mut words)?,
                epoch: word(&mut words)?,
                next: word(&mut words)?,
                lost: word(&mut words)?,
                read: word(&mut words)?,
                keys: keys(rest)?,
            }),
            _ => return None,
        };
        words
            .next()
            .is_none()
            .then_some(Self { author, time, kind })
    }
}

fn word<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

fn keys(lines: &[u8]) -> Option<Vec<(u64, String)>> {
    let key = |line: &str| {
        let (number, key) = line.split_once(' ')?;
        Some((number.parse().ok()?, key.to_owned()))
    };
    std::str::from_utf8(lines).ok()?.lines().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let summary = Summary {
            upto: 9,
            born: 1,
            epoch: u64::MAX,
            next: 8,
            lost: 3,
            read: 2,
            keys: vec![(1, "k\"".to_owned()), (2, "l".to_owned())],
        };
        let kinds = [
            Kind::Message {
                messages_max: 3,
                bytes_max: usize::MAX,
                encoded: b"\n\0 x\n",
            },
            Kind::Used,
            Kind::Read { epoch: 5, end: 7 },
            Kind::Summary(summary),
            Kind::Removed,
            Kind::Renewed,
        ];
        for kind in kinds {
            let author = Author {
                process: u64::MAX,
                number: 0,
            };
            let time = UNIX_EPOCH + Duration::from_millis(1_800_000_000_123);
            let record = Record { author, time, kind };
            let encoded = record.encode();
            assert_eq!(Record::decode(&encoded), Some(record));
        }
    }

    #[test]
    fn anything_else_is_no_record() {
        for text in [
            "",
            "u 1 2 3",
            "u 1 2\n",
            "u 1 2 3 4\n",
            "q 1 2 3\n",
            "s 1 2 3 4 5 6 7 8 9\nx",
        ] {
            assert_eq!(Record::decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
