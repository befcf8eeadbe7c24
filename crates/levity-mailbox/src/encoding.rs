//! How a message is written where several processes read it.
//!
//! The version of this form, and four lines: the deadline in nanoseconds since 1970 or
//! nothing, the key or nothing, the event, and the media type, none of which can have a line end. Then the content as it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::since_1970;
use crate::message::Draft;

/// The first bytes of what [`encode`] writes.
const VERSION: &[u8] = b"1b";

/// Writes a message.
pub(crate) fn encode(draft: &Draft) -> Vec<u8> {
    let deadline = draft.deadline.map(nanoseconds);
    let deadline = deadline.map_or_else(String::new, |deadline| deadline.to_string());
    let key = draft.key.as_deref().unwrap_or_default();
    let lines = [deadline.as_str(), key, &draft.event, &draft.media_type];
    let len: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut encoded = Vec::with_capacity(VERSION.len() + len + draft.content.len());
    encoded.extend_from_slice(VERSION);
    for line in lines {
        encoded.extend_from_slice(line.as_bytes());
        encoded.push(b'\n');
    }
    encoded.extend_from_slice(&draft.content);
    encoded
}

fn nanoseconds(time: SystemTime) -> u64 {
    since_1970(time).as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Reads what [`encode`] has written, without memory of its own; `None` for anything else.
pub(crate) fn decode(encoded: &[u8]) -> Option<Draft> {
    let mut parts = encoded
        .strip_prefix(VERSION)?
        .splitn(5, |&byte| byte == b'\n');
    let mut line = || std::str::from_utf8(parts.next()?).ok();
    let (deadline, key, event, media_type) = (line()?, line()?, line()?, line()?);
    let content = parts.next()?;
    Some(Draft {
        key: (!key.is_empty()).then(|| key.into()),
        event: event.into(),
        media_type: media_type.into(),
        content: content.into(),
        deadline: match deadline {
            "" => None,
            digits => Some(UNIX_EPOCH + Duration::from_nanos(digits.parse().ok()?)),
        },
        reservation: None,
        is_damaged: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts() -> [Draft; 2] {
        let full = Draft {
            key: Some("k\"-1".into()),
            event: "über".into(),
            media_type: "text/plain; charset=utf-8".into(),
            content: b"\n\n1b\n\0".as_slice().into(),
            deadline: Some(UNIX_EPOCH + Duration::new(1_800_000_000, 123_456_789)),
            reservation: None,
            is_damaged: false,
        };
        let empty = Draft {
            key: None,
            event: Box::default(),
            media_type: Box::default(),
            content: Box::default(),
            deadline: None,
            reservation: None,
            is_damaged: false,
        };
        [full, empty]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for draft in drafts() {
            let read = decode(&encode(&draft)).expect("a message");
            assert_eq!((&read.key, &read.event), (&draft.key, &draft.event));
            assert_eq!(read.media_type, draft.media_type);
            assert_eq!(
                (&read.content, read.deadline),
                (&draft.content, draft.deadline)
            );
        }
    }

    #[test]
    fn anything_else_is_no_message() {
        let encoded = encode(&drafts()[0]);
        let lines = encoded
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n');
        let (header_end, _) = lines.take(4).last().expect("four lines");
        for cut in 0..=header_end {
            assert!(decode(&encoded[..cut]).is_none(), "{cut}");
        }
        for text in ["2b\n\n\n\n", "1x\n\n\n\n", "1b-1\n\n\n\n", "1b1e9\n\n\n\n"] {
            assert!(decode(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(decode(b"1b\n\n\xff\n\n").is_none());
        assert!(decode(b"1f\n\n\n\n\xff").is_none());
    }
}
