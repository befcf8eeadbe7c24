//! Every bound that an operator may move, with its range.

use std::time::Duration;

use crate::schema::{Bounds, Key, Kind};
use crate::section::Section;

/// One list from which come the struct, its defaults, the keys of `[limits]` and their reference.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+
       $name:ident: $type:ty = $read:ident($kind:ident, $default:literal, $min:literal..$max:literal),)+) => {
        /// Bounds that protect the server from its clients and from its disks: `[limits]`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        pub(crate) const KEYS: &[Key] = &[$(Key {
            also: &[],
            name: stringify!($name),
            kind: Kind::$kind(Bounds { min: $min, max: $max }),
            default: Some($default),
            doc: concat!($($doc),+),
        },)+];

        impl Limits {
            fn take(section: &Section<'_>) -> Self {
                Limits { $($name: section.$read(stringify!($name)),)+ }
            }
        }
    };
}

limits! {
    /// From the first byte of a request, or from the opening of its connection, to the end of its head.
    header_timeout: Duration = duration(Duration, "10s", "10ms".."1h"),
    /// Between two parts of a request's body.
    body_timeout: Duration = duration(Duration, "30s", "10ms".."1h"),
    /// How long a connection without a request stays open.
    idle_timeout: Duration = duration(Duration, "60s", "10ms".."1d"),
    /// How long a client may take no byte of a response before its connection is closed.
    send_timeout: Duration = duration(Duration, "60s", "10ms".."1d"),
    /// How long a client that has ended its side (half-closed TCP) is waited with for an application that is
    /// silent: for the head of its answer, or for more of one of unknown length. It may still want the
    /// answer, or be gone.
    half_closed_timeout: Duration = duration(Duration, "5s", "0s".."1d"),
    /// How long a read may take: longer is answered 503, or ends the connection once the head is sent.
    io_timeout: Duration = duration(Duration, "30s", "10ms".."1h"),
    /// How long running responses may take to finish after SIGTERM; then they are cut off.
    drain_timeout: Duration = duration(Duration, "30s", "0s".."1d"),
    /// The request line, its line end not counted.
    request_line_bytes: usize = size(Size, "8KiB", "64B".."1MiB"),
    /// One header field, its line end not counted.
    header_bytes: usize = size(Size, "8KiB", "64B".."1MiB"),
    /// The request line and all header fields together.
    head_bytes: usize = size(Size, "16KiB", "128B".."1MiB"),
    /// Header fields in one request.
    headers: usize = count(Count, "100", "1".."1000"),
    /// A request's body; a longer one is answered 413. Where files answer, it is read and thrown away.
    body_bytes: usize = size(Size, "1MiB", "0B".."1TiB"),
    /// How much of a request's body is kept in memory where `buffer_requests` is on; the rest goes to a
    /// file of `disk.spool`.
    body_memory: usize = size(Size, "64KiB", "0B".."1GiB"),
    /// Open client connections of the process. `"auto"` takes what `RLIMIT_NOFILE` leaves after the
    /// files that the server itself keeps open.
    connections: Option<usize> = auto_count(Count, "auto", "1".."10000000"),
    /// Trips to the disk per second that one connection may make for names that do not exist; a request
    /// beyond that waits until it is within. Names that the kernel remembers as absent do not count.
    absent_trips: usize = count(Count, "100", "1".."1000000"),
    /// Names in one directory listing, which also ends at 4 MiB; it says when there are more.
    listing_entries: usize = count(Count, "10000", "1".."1000000"),
}

pub(crate) fn read(section: &Section<'_>) -> Limits {
    section.at_most("request_line_bytes", "head_bytes");
    section.at_most("header_bytes", "head_bytes");
    Limits::take(section)
}
