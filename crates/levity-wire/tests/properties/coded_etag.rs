//! ETags of content that was given a coding on its way.

use levity_wire::coded_etag::{self, Deltas, Suffixes};
use levity_wire::condition;
use levity_wire::encoding::Coding;

use super::is_etag;

/// Only tags with a suffix change, each to the tag from which it was made, and a second time finds nothing new.
pub fn coded_etag(bytes: &[u8]) {
    let uncoded = |bytes: &[u8], strongly| {
        let mut value = bytes.to_vec();
        let suffixes = Suffixes {
            codings: &Coding::ALL,
            deltas: Deltas::Any,
        };
        let uncoded = coded_etag::uncode(&mut value, suffixes, strongly);
        assert!(uncoded.length <= value.len());
        assert!(uncoded.coded.len() <= bytes.len() + 1);
        value.truncate(uncoded.length);
        value
    };
    let weakly = uncoded(bytes, false);
    if weakly == bytes {
        assert_eq!(uncoded(bytes, true), bytes);
    }
    for coding in Coding::ALL {
        let Some(tag) = coded_etag::coded(bytes, coding).filter(|_| is_etag(bytes)) else {
            continue;
        };
        assert!(is_etag(&tag));
        let strong = bytes.strip_prefix(b"W/").unwrap_or(bytes);
        assert_eq!(uncoded(&tag, true), strong);
        assert!(condition::lists(&tag, &tag));
    }
}
