//! The headers of requests.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::offset::Offset;
use super::time::parse_time;
use crate::http1::is_token;
use crate::{Reject, decimal, mime};

/// The maximum length of the id of a producer and of a Stream-Seq in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// The largest epoch and sequence number of a producer: JavaScript has no larger integers.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The values of the headers that this protocol reads. `None` for a header that is not sent.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "named as the headers")]
pub struct Headers<'a> {
    pub content_type: Option<&'a [u8]>,
    pub stream_ttl: Option<&'a [u8]>,
    pub stream_expires_at: Option<&'a [u8]>,
    pub stream_closed: Option<&'a [u8]>,
    pub stream_seq: Option<&'a [u8]>,
    pub stream_forked_from: Option<&'a [u8]>,
    pub stream_fork_offset: Option<&'a [u8]>,
    pub stream_fork_sub_offset: Option<&'a [u8]>,
    pub producer_id: Option<&'a [u8]>,
    pub producer_epoch: Option<&'a [u8]>,
    pub producer_seq: Option<&'a [u8]>,
}

/// How long a stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// For this time after the last read or append: Stream-TTL.
    Idle(Duration),
    /// Until this time: Stream-Expires-At.
    Until(SystemTime),
}

/// Who appends, and the number of the append (section 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// Its id.
    pub id: Box<str>,
    /// The number of its restarts.
    pub epoch: u64,
    /// The number of the append since then.
    pub sequence: u64,
}

/// What a stream is a fork of (section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork<'a> {
    /// The path of the source as it was sent.
    pub source: &'a [u8],
    /// Where the fork begins; `None` for the end of the source.
    pub offset: Option<Offset>,
    /// What it inherits after `offset`: messages of JSON, bytes of others.
    pub sub_offset: u64,
}

impl<'a> Headers<'a> {
    /// The headers for which `value` returns a value, by name in lower case.
    pub fn new(value: impl Fn(&'static str) -> Option<&'a [u8]>) -> Self {
        Self {
            content_type: value("content-type"),
            stream_ttl: value("stream-ttl"),
            stream_expires_at: value("stream-expires-at"),
            stream_closed: value("stream-closed"),
            stream_seq: value("stream-seq"),
            stream_forked_from: value("stream-forked-from"),
            stream_fork_offset: value("stream-fork-offset"),
            stream_fork_sub_offset: value("stream-fork-sub-offset"),
            producer_id: value("producer-id"),
            producer_epoch: value("producer-epoch"),
            producer_seq: value("producer-seq"),
        }
    }

    /// Whether the stream ends with this request. Any value but `true` counts for nothing (section 4.1).
    #[must_use]
    pub fn closes(&self) -> bool {
        self.stream_closed
            .is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
    }

    /// How long the stream is kept; `None` if the request does not say so.
    ///
    /// # Errors
    /// 400 for both headers, or one that is malformed.
    pub fn lifetime(&self) -> Result<Option<Lifetime>, Reject> {
        match (self.stream_ttl, self.stream_expires_at) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Reject::bad("both Stream-TTL and Stream-Expires-At")),
            (Some(ttl), None) => integer(ttl)
                .map(|seconds| Some(Lifetime::Idle(Duration::from_secs(seconds))))
                .ok_or(Reject::bad("Stream-TTL is no number of seconds")),
            (None, Some(time)) => parse_time(time)
                .map(|time| Some(Lifetime::Until(time)))
                .ok_or(Reject::bad("Stream-Expires-At is no time of RFC 3339")),
        }
    }

    /// The application's own number of the append, which is compared byte by byte.
    ///
    /// # Errors
    /// 400 if it is empty or too long.
    pub fn sequence(&self) -> Result<Option<&'a [u8]>, Reject> {
        match self.stream_seq {
            Some(value) if value.is_empty() || value.len() > ID_BYTES_MAX => {
                Err(Reject::bad("Stream-Seq is empty or longer than 256 bytes"))
            }
            value => Ok(value),
        }
    }

    /// Who appends; `None` if the request does not say so.
    ///
    /// # Errors
    /// 400 if one of the headers is missing or malformed.
    pub fn producer(&self) -> Result<Option<Producer>, Reject> {
        let (id, epoch, sequence) = match (self.producer_id, self.producer_epoch, self.producer_seq)
        {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(sequence)) => (id, epoch, sequence),
            _ => return Err(Reject::bad("not all of the three headers of a producer")),
        };
        let id = str::from_utf8(id).ok().filter(|id| !id.is_empty());
        let id = id.filter(|id| id.len() <= ID_BYTES_MAX);
        Ok(Some(Producer {
            id: id
                .ok_or(Reject::bad("Producer-Id is empty or longer than 256 bytes"))?
                .into(),
            epoch: integer(epoch).ok_or(Reject::bad("Producer-Epoch is no integer"))?,
            sequence: integer(sequence).ok_or(Reject::bad("Producer-Seq is no integer"))?,
        }))
    }

    /// What the stream is a fork of; `None` if it is none.
    ///
    /// # Errors
    /// 400 for headers without the ones that they refine, and for malformed ones.
    pub fn fork(&self) -> Result<Option<Fork<'a>>, Reject> {
        let Some(source) = self.stream_forked_from else {
            return match (self.stream_fork_offset, self.stream_fork_sub_offset) {
                (None, None) => Ok(None),
                _ => Err(Reject::bad(
                    "an offset of a fork without Stream-Forked-From",
                )),
            };
        };
        let offset = match self.stream_fork_offset {
            None => None,
            Some(value) => {
                let offset = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                Some(offset.ok_or(Reject::bad("Stream-Fork-Offset is no offset"))?)
            }
        };
        let sub_offset = self.stream_fork_sub_offset.map_or(Some(0), integer);
        let sub_offset = sub_offset.ok_or(Reject::bad("Stream-Fork-Sub-Offset is no integer"))?;
        if sub_offset > 0 && offset.is_none() {
            return Err(Reject::bad(
                "Stream-Fork-Sub-Offset without Stream-Fork-Offset",
            ));
        }
        Ok(Some(Fork {
            source,
            offset,
            sub_offset,
        }))
    }
}

/// A decimal integer without sign and leading zeros.
fn integer(digits: &[u8]) -> Option<u64> {
    decimal::parse_canonical(digits).filter(|&number| number <= INTEGER_MAX)
}

/// The media type of a Content-Type in lower case, without parameters. Two values that have the same one are the same for this
/// protocol. `None` if the value is not of the form `type/subtype`.
#[must_use]
pub fn essence(content_type: &[u8]) -> Option<String> {
    let media_type = str::from_utf8(mime::essence(content_type)).ok()?;
    let (main, sub) = media_type.split_once('/')?;
    let are_tokens = is_token(main.as_bytes()) && is_token(sub.as_bytes());
    are_tokens.then(|| media_type.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers<'a>(pairs: &[(&str, &'a str)]) -> Headers<'a> {
        Headers::new(|name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_bytes())
        })
    }

    #[test]
    fn all_headers_have_a_name() {
        let value = |name: &'static str| Some(name.as_bytes());
        let headers = format!("{:?}", Headers::new(value));
        assert!(!headers.contains("None"), "{headers}");
        assert!(
            format!("{:?}", Headers::new(|_| None))
                .matches("None")
                .count()
                == 11
        );
    }

    #[test]
    fn only_true_closes() {
        for (value, closes) in [
            ("true", true),
            ("TRUE", true),
            ("True", true),
            ("false", false),
            ("yes", false),
            ("1", false),
            ("", false),
            ("true ", false),
        ] {
            assert_eq!(headers(&[("stream-closed", value)]).closes(), closes);
        }
        assert!(!headers(&[]).closes());
    }

    #[test]
    fn lifetimes() {
        assert_eq!(headers(&[]).lifetime(), Ok(None));
        let of = |ttl| headers(&[("stream-ttl", ttl)]).lifetime();
        for (ttl, seconds) in [("0", 0), ("3600", 3600), ("9007199254740991", INTEGER_MAX)] {
            let lifetime = Lifetime::Idle(Duration::from_secs(seconds));
            assert_eq!(of(ttl), Ok(Some(lifetime)));
        }
        for ttl in [
            "",
            "abc",
            "-1",
            "00060",
            "+60",
            "60.5",
            "1e3",
            " 60",
            "9007199254740992",
        ] {
            assert_eq!(of(ttl).map_err(|reject| reject.status), Err(400), "{ttl}");
        }
        let until = headers(&[("stream-expires-at", "1970-01-01T00:01:00Z")]).lifetime();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        assert_eq!(until, Ok(Some(Lifetime::Until(time))));
        assert!(
            headers(&[("stream-expires-at", "soon")])
                .lifetime()
                .is_err()
        );
        let both = [
            ("stream-ttl", "60"),
            ("stream-expires-at", "1970-01-01T00:01:00Z"),
        ];
        assert!(headers(&both).lifetime().is_err());
    }

    #[test]
    fn a_producer_has_three_headers() {
        let names = ["producer-id", "producer-epoch", "producer-seq"];
        let of = |values: [Option<&'static str>; 3]| {
            let pairs = names.into_iter().zip(values);
            let pairs: Vec<_> = pairs
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            headers(&pairs).producer().map_err(|reject| reject.status)
        };
        assert_eq!(of([None; 3]), Ok(None));
        let producer = Producer {
            id: "p é".into(),
            epoch: 0,
            sequence: INTEGER_MAX,
        };
        let values = [Some("p é"), Some("0"), Some("9007199254740991")];
        assert_eq!(of(values), Ok(Some(producer)));
        for missing in 0..3 {
            let mut values = values;
            values[missing] = None;
            assert_eq!(of(values), Err(400));
        }
        for values in [
            ["", "0", "0"],
            ["p", "0", "1abc"],
            ["p", "0xyz", "0"],
            ["p", "1e3", "0"],
            ["p", "-1", "0"],
            ["p", "01", "0"],
            ["p", "0", "9007199254740992"],
        ] {
            assert_eq!(of(values.map(Some)), Err(400), "{values:?}");
        }
        let longest: &'static str = "p".repeat(ID_BYTES_MAX).leak();
        assert!(of([Some(longest), Some("0"), Some("0")]).is_ok());
        let longer: &'static str = "p".repeat(ID_BYTES_MAX + 1).leak();
        assert!(of([Some(longer), Some("0"), Some("0")]).is_err());
    }

    #[test]
    fn forks() {
        const ZERO: &str = "0000000000000000_0000000000000000";
        let of = |values: [Option<&'static str>; 3]| {
            let names = [
                "stream-forked-from",
                "stream-fork-offset",
                "stream-fork-sub-offset",
            ];
            let pairs = names.into_iter().zip(values);
            let pairs: Vec<_> = pairs
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            headers(&pairs).fork().map_err(|reject| reject.status)
        };
        let fork = |offset, sub_offset| {
            Ok(Some(Fork {
                source: b"/s",
                offset,
                sub_offset,
            }))
        };
        assert_eq!(of([None; 3]), Ok(None));
        assert_eq!(of([Some("/s"), None, None]), fork(None, 0));
        assert_eq!(of([Some("/s"), None, Some("0")]), fork(None, 0));
        let zero = Some(Offset::ZERO);
        assert_eq!(of([Some("/s"), Some(ZERO), None]), fork(zero, 0));
        assert_eq!(of([Some("/s"), Some(ZERO), Some("3")]), fork(zero, 3));
        for values in [
            [None, None, Some("0")],
            [None, Some(ZERO), None],
            [Some("/s"), None, Some("1")],
            [Some("/s"), Some("-1"), None],
            [Some("/s"), Some("now"), None],
            [Some("/s"), Some(""), None],
        ] {
            assert_eq!(of(values), Err(400), "{values:?}");
        }
        for sub_offset in ["-1", "abc", "1.5", "05", "+1", ""] {
            let values = [Some("/s"), Some(ZERO), Some(sub_offset)];
            assert_eq!(of(values), Err(400), "{sub_offset}");
        }
    }

    #[test]
    fn media_types_are_compared_without_case_and_parameters() {
        for value in [
            "application/json",
            "APPLICATION/JSON",
            "application/json; charset=utf-8",
            " application/json ;x",
        ] {
            let essence = essence(value.as_bytes());
            assert_eq!(essence.as_deref(), Some("application/json"), "{value}");
        }
        for value in [
            "",
            "json",
            "application/",
            "/json",
            "a b/c",
            "a/b/c",
            "a/b,c/d",
        ] {
            assert_eq!(essence(value.as_bytes()), None, "{value}");
        }
    }
}
