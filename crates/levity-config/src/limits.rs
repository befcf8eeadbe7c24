//! `[limits]`: every bound that an operator may set, with its range.

use std::time::Duration;

use crate::schema::{Key, Kind, documented, key};
use crate::section::Section;

/// Makes the struct, its defaults, the keys of `[limits]` and their reference from one list.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+
       $name:ident: $type:ty = $read:ident($kind:ident, $default:literal, $min:literal..$max:literal),)+) => {
        /// Bounds that protect the server from its clients and from its disks: `[limits]`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        pub(crate) const KEYS: &[Key] = documented! {$(
            $(#[doc = $doc])+
            key(stringify!($name), Kind::$kind($min, $max), Some($default));
        )+};

        impl Limits {
            fn take(section: &Section<'_>) -> Self {
                Limits { $($name: section.$read(stringify!($name)),)+ }
            }
        }
    };
}

limits! {
    /// From the first byte of a request, or from the accept of its connection, to the end of its header section; also for the
    /// handshake of TLS.
    header_timeout: Duration = duration(Duration, "10s", "10ms".."1h"),
    /// Between two parts of a request body.
    body_timeout: Duration = duration(Duration, "30s", "10ms".."1h"),
    /// How long a connection without a request stays open. Must be longer than a proxy in front keeps it, which is
    /// 60 s for many load balancers, or a request may meet the end of the connection.
    idle_timeout: Duration = duration(Duration, "75s", "10ms".."1d"),
    /// How long a client may accept no byte of a response before its connection is closed.
    send_timeout: Duration = duration(Duration, "60s", "10ms".."1d"),
    /// How long the server waits for a silent application after the client has shut down its side of the connection
    /// (half-closed TCP): for the header section of the response, or for more of a response of unknown length. Nearly
    /// always such a client is gone; a few programs, such as `nc -N`, end their side and still want the response.
    half_closed_timeout: Duration = duration(Duration, "0s", "0s".."1d"),
    /// How long a read may take. After that the request gets 503, or the connection is closed if the response has
    /// begun.
    io_timeout: Duration = duration(Duration, "30s", "10ms".."1h"),
    /// How long running responses may take after SIGTERM; then they are cut off.
    drain_timeout: Duration = duration(Duration, "30s", "0s".."1d"),
    /// Length of the request line, without its line end.
    request_line_bytes: usize = count(Size, "8KiB", "64B".."1MiB"),
    /// Length of one header field, without its line end.
    header_bytes: usize = count(Size, "8KiB", "64B".."1MiB"),
    /// Length of the request line and all header fields together.
    head_bytes: usize = count(Size, "16KiB", "128B".."1MiB"),
    /// Number of header fields in a request.
    headers: usize = count(Count, "100", "1".."1000"),
    /// Length of a request body; a longer one gets 413. Where files answer, the body is read and discarded.
    body_bytes: usize = count(Size, "1MiB", "0B".."1TiB"),
    /// Length of a request body that is kept in memory where `buffer_requests` is on. A longer one goes to a file in `disk.spool`, and
    /// so does one for which there is no room in `bodies_memory`.
    body_memory: usize = count(Size, "64KiB", "0B".."1GiB"),
    /// Memory of all request bodies that are in memory, and of what clients may send of them over HTTP/2 beyond 64 KiB for each
    /// connection. Above half, one client has at most its share: this divided by the number of clients that send bodies. Whoever
    /// wants more waits for up to 6 s, then gets 503, or a file where `buffer_requests` is on. While others wait, an upload that has stalled for 5 s is ended.
    bodies_memory: usize = count(Size, "256MiB", "1MiB".."1TiB"),
    /// Bytes of all request bodies in files of `disk.spool`, shared in the same way.
    spool_bytes: usize = count(Size, "8GiB", "1MiB".."1024TiB"),
    /// Memory of all encoders that are in the middle of a response. One takes 320 KiB (zstd:1 and 2), 416 KiB (gzip),
    /// 1.2 MiB (zstd:3, the default), 2.75 MiB (zstd:4 to 19), 3 MiB (br:2 to 4, br:9), 8 MiB (br:10) or 20 MiB
    /// (br:11); the other levels of br take 0.3 to 2.3 MiB. Responses beyond the bound are compressed less, then sent
    /// without compression. Those of unknown length may use half of it. Those of up to 64 KiB are compressed at once,
    /// and do not count. Decoders of responses whose text is replaced (`substitute`) may keep as much again, 16 MiB
    /// each at most; responses beyond it wait for up to 6 s, then fail. Of both, one client has at most its share above half: this divided by the
    /// number of clients that hold some. A reload applies at once.
    compression_memory: usize = count(Size, "64MiB", "0B".."1TiB"),
    /// Size of a file up to which its digest is made, for `digest` and for `etag = "content"`; larger files have none. A
    /// client can make the server read each file once, two at a time.
    digest_bytes: usize = count(Size, "4GiB", "0B".."1TiB"),
    /// Open client connections of the process. When there are as many, those that wait for a request give way to new ones, the
    /// oldest first. `"auto"` is what `RLIMIT_NOFILE` leaves after the files that the server itself keeps open.
    connections: Option<usize> = optional_count(Count, "auto", "1".."10000000"),
    /// Disk lookups per second that one connection may cause for names that do not exist; its further requests are
    /// delayed to this rate. Names that the kernel remembers as absent do not count, nor does what another step of `try`
    /// answers otherwise than with 404.
    absent_trips: usize = count(Count, "100", "1".."1000000"),
    /// Memory for the state of all limits of sites and routes (`[[site.limit]]`), used as far as there are clients: 16 bytes for
    /// each that is held back or has used a part of what it may take. While it is full, others are forgotten:
    /// `levity_limit_evictions_total`. A reload that changes it forgets all of them.
    rate_limit_bytes: usize = count(Size, "64MiB", "64KiB".."64GiB"),
    /// Memory of all messages in mailboxes, and of the forms of them that several receivers share. When it is used up, messages
    /// are refused with 507. Messages that are read again from a disk or a Redis server take three quarters of it at most; then
    /// those who want them are refused with 503.
    mailbox_memory: usize = count(Size, "256MiB", "1MiB".."1TiB"),
    /// Memory of the event streams that [`resume`](mailboxes.md#resume-for-applications-that-know-nothing-of-it) keeps, apart
    /// from that of mailboxes. When three quarters are used, further streams are passed on without being kept. When all is used,
    /// the old events of a stream give way to its new ones, an application waits until its client has taken what there is, and
    /// streams whose clients are away end. A reload applies at once.
    resume_memory: usize = count(Size, "64MiB", "2MiB".."1TiB"),
    /// Names in one directory listing; a listing that is cut says so.
    listing_entries: usize = count(Count, "1000000", "1".."100000000"),
}

pub(crate) fn read(section: &Section<'_>) -> Limits {
    section.at_most("request_line_bytes", "head_bytes");
    section.at_most("header_bytes", "head_bytes");
    let limits = Limits::take(section);
    note_body_bytes(section, limits.body_bytes, limits.spool_bytes);
    note_body_memory(section, &limits);
    limits
}

/// Notes a `body_bytes` that permits bodies for which there is never room in files.
pub(crate) fn note_body_bytes(section: &Section<'_>, body_bytes: usize, spool_bytes: usize) {
    if body_bytes > spool_bytes {
        let note = format!(
            "`body_bytes` is larger than `limits.spool_bytes` ({spool_bytes} bytes), so where `buffer_requests` is on, bodies of more than that get 503"
        );
        section.note("body_bytes", note);
    }
}

/// Notes a `body_memory` for which there is never room.
fn note_body_memory(section: &Section<'_>, limits: &Limits) {
    let all = limits.bodies_memory;
    if limits.body_memory > all {
        let note = format!(
            "`body_memory` is larger than `bodies_memory` ({all} bytes), so bodies of more than that go to files all the same"
        );
        section.note("body_memory", note);
    }
}
