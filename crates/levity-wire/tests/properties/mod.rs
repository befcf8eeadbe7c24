//! Properties of any input. The fuzz targets look for counterexamples, and `tests/corpus.rs`
//! replays the known ones; each function panics if its property is broken.

use std::fmt::Debug;

use levity_wire::http1::{EndToEnd, HeaderSpan, Limits, Reject, is_hop_by_hop, write};

mod accept;
mod ajp13;
mod chunked;
mod coded_etag;
mod condition;
mod content_range;
mod digest;
mod durable_streams;
mod encoding;
mod forwarded;
mod gateway;
mod grip;
mod http2;
mod mailbox;
mod path;
mod proxy_protocol;
mod range;
mod request_head;
mod response_head;
mod sendfile_header;
mod sse;
mod users;
mod websocket;

pub use accept::{OFFERED_TYPES, accept};
pub use ajp13::{ajp13, ajp13_in_pieces};
pub use chunked::chunked;
pub use coded_etag::coded_etag;
pub use condition::{Conditional, condition};
pub use content_range::content_range;
pub use digest::want_digest;
pub use durable_streams::{durable_streams, durable_streams_status};
pub use encoding::encoding;
pub use forwarded::{forwarded, forwarded_client};
pub use gateway::{cgi_response, fastcgi};
pub use grip::{grip, grip_outcome};
pub use http2::{http2, http2_outcome};
pub use mailbox::{mailbox, mailbox_outcome};
pub use path::path;
pub use proxy_protocol::proxy_protocol;
pub use range::{range, range_input};
pub use request_head::request_head;
pub use response_head::response_head;
pub use sendfile_header::{sendfile_header, sendfile_outcome};
pub use sse::{sse, sse_outcome};
pub use users::{basic_auth, htpasswd, jwt};
pub use websocket::{
    websocket_frames, websocket_frames_outcome, websocket_handshake, websocket_outcome,
};

const SMALL: Limits = Limits {
    line_bytes_max: 48,
    header_bytes_max: 32,
    head_bytes_max: 160,
    headers_max: 4,
};

/// The output may be longer than the input: it has a space after each colon.
const UNLIMITED: Limits = Limits {
    line_bytes_max: usize::MAX,
    header_bytes_max: usize::MAX,
    head_bytes_max: usize::MAX,
    headers_max: usize::MAX,
};

fn same_headers(theirs: &[httparse::Header<'_>], bytes: &[u8], ours: &[HeaderSpan]) {
    let theirs = theirs
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(theirs.eq(ours.iter().map(name_and_value_in(bytes))));
}

fn name_and_value_in<'a>(bytes: &'a [u8]) -> impl Fn(&HeaderSpan) -> (&'a [u8], &'a [u8]) {
    move |header| (header.name.of(bytes), header.value.of(bytes))
}

fn write_headers(out: &mut Vec<u8>, bytes: &[u8], headers: &[HeaderSpan]) {
    for (name, value) in headers.iter().map(name_and_value_in(bytes)) {
        write::field(out, name, value).expect("what was read can be written");
    }
    write::end_of_head(out);
}

fn same_lines(bytes: &[u8], headers: &[HeaderSpan], others: &[u8], other_headers: &[HeaderSpan]) {
    let lines = headers.iter().map(name_and_value_in(bytes));
    assert!(lines.eq(other_headers.iter().map(name_and_value_in(others))));
}

fn only_end_to_end_fields_are_passed_on(bytes: &[u8], headers: &[HeaderSpan]) {
    let end_to_end = EndToEnd::of(bytes, headers);
    let passed_on: Vec<_> = end_to_end.headers().collect();
    let has_host = |headers: &[HeaderSpan]| {
        let mut names = headers.iter().map(|header| header.name.of(bytes));
        names.any(|name| name.eq_ignore_ascii_case(b"host"))
    };
    assert_eq!(has_host(&passed_on), has_host(headers));
    for header in headers {
        let name = header.name.of(bytes);
        assert_eq!(passed_on.contains(header), end_to_end.has(name));
        assert!(!end_to_end.has(name) || !is_hop_by_hop(name));
    }
}

/// A prefix needs more bytes until the header section is complete, and a rejection is final.
fn prefixes_agree<Head: Debug + Default + PartialEq>(
    bytes: &[u8],
    whole: Result<bool, Reject>,
    head: &Head,
    head_bytes: usize,
    parse: impl Fn(&[u8], &mut Head) -> Result<bool, Reject>,
) {
    let mut again = Head::default();
    let mut refused = false;
    for cut in cuts(bytes.len()) {
        let parsed = parse(&bytes[..cut], &mut again);
        match whole {
            Ok(true) if cut >= head_bytes => assert_eq!((parsed, &again), (Ok(true), head)),
            Ok(_) => assert_eq!(parsed, Ok(false)),
            Err(_) => assert_ne!(parsed, Ok(true)),
        }
        assert!(parsed.is_err() || !refused);
        refused = parsed.is_err();
    }
}

/// Offsets at which to split an input of this length: all, or some 60 in a long one.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len / 60 + 1)
}

/// The first line without its LF, and the rest.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, b""),
    }
}

fn is_etag(value: &[u8]) -> bool {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let inside = quoted
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    inside.is_some_and(|inside| {
        inside
            .iter()
            .all(|&byte| byte > b' ' && byte != b'"' && byte != 127)
    })
}
