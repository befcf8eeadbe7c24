//! `resume`: responses of applications that outlive the connections of their clients.

use std::time::Duration;

use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;

const TABLE: &str = "resume";

/// How event streams of an application are kept for clients that come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// How long a response is kept after its client has vanished.
    pub keep: Duration,
    /// The maximum of a response that is kept, in bytes.
    pub bytes: usize,
    /// The maximum number of responses that are kept.
    pub streams: usize,
    /// The maximum number of responses that are kept for one client.
    pub streams_per_client: usize,
}

/// `[site.resume]` and `[site.route.resume]`
pub(crate) const KEYS: &[Key] = documented! {
    /// How long a response is kept after its client has vanished, and after its end.
    key("for", Kind::Duration("1s", "1d"), Some("5m"));
    /// Part of a response that is kept, and no more than its last 20000 events; a client that comes back and has missed more than
    /// that is told so. For one that is there and has not taken so much yet, the application waits.
    key("bytes", Kind::Size("64KiB", "1GiB"), Some("4MiB"));
    /// Responses that are kept at the same time. Further ones are passed on without being kept, and so are those for which
    /// `limits.resume_memory` has no room: they have `Resume-Kept: no`.
    key("streams", Kind::Count("1", "1000000"), Some("1000"));
    /// Responses that are kept for one client at the same time: one IPv4 address, or one IPv6 network of 64 bits. Its further
    /// requests that could be resumed get 429.
    key("streams_per_client", Kind::Count("1", "1000000"), Some("32"));
};

/// Reads the table; `above` is that of the table around it.
pub(crate) fn read(section: &Section<'_>, above: Option<Resume>) -> Option<Resume> {
    if !section.has(TABLE) {
        return above;
    }
    if section.is_off(TABLE) {
        return None;
    }
    let is_table = section.has_table(TABLE);
    let section = section.child(TABLE);
    is_table.then(|| Resume {
        keep: section.duration("for"),
        bytes: section.count("bytes"),
        streams: section.count("streams"),
        streams_per_client: section.count("streams_per_client"),
    })
}
