//! Properties of any input. The fuzz targets look for counterexamples, and `tests/corpus.rs`
//! replays the known ones; each function panics if its property is broken.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use levity_wire::byteranges::Byteranges;
use levity_wire::coded_etag::{self, Deltas, Suffixes};
use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::content_range::{self, ContentRange};
use levity_wire::encoding::{Accepted, Coding};
use levity_wire::forwarded::{self, Element, Node};
use levity_wire::http1::{
    Chunked, EndToEnd, Framing, HeaderSpan, Limits, Method, Reject, RequestHead, RequestInfo,
    ResponseFraming, ResponseHead, Target, Trailers, Version, host_name, is_forbidden_in_trailers,
    is_hop_by_hop, parse_request, parse_response, write,
};
use levity_wire::range::{self, PART_BYTES, Part, RANGES_MAX, Range};
use levity_wire::{accept, date, digest, path};

mod ajp13;
mod gateway;
mod proxy_protocol;
mod sendfile_header;
mod users;

pub use ajp13::{ajp13, ajp13_in_pieces};
pub use gateway::{cgi_response, fastcgi};
pub use proxy_protocol::proxy_protocol;
pub use sendfile_header::{sendfile_header, sendfile_outcome};
pub use users::{basic_auth, htpasswd, jwt};

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

/// A request has the same meaning however the input is split, and another parser of the same
/// grammar agrees.
pub fn request_head(bytes: &[u8]) {
    for limits in [&Limits::default(), &SMALL] {
        let mut head = RequestHead::default();
        let parsed = parse_request(bytes, &mut head, limits);
        if parsed == Ok(true) {
            head_is_sound(bytes, &head, limits);
            framing_has_one_source(bytes, &head);
            httparse_agrees(bytes, &head);
            request_is_written_as_read(bytes, &head);
            only_end_to_end_fields_are_passed_on(bytes, &head.headers);
            path(head.path.of(bytes));
        }
        prefixes_agree(bytes, parsed, &head, head.bytes, |bytes, head| {
            parse_request(bytes, head, limits)
        });
    }
}

fn head_is_sound(bytes: &[u8], head: &RequestHead, limits: &Limits) {
    assert!(head.bytes <= bytes.len() && head.bytes <= limits.head_bytes_max);
    assert!(head.headers.len() <= limits.headers_max);
    let text = &bytes[..head.bytes];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(!text[..head.bytes - 2].ends_with(b"\r\n\r\n") && !text.contains(&0));
    match head.host {
        Some(host) => assert!(host_name(host.of(text)).is_ok()),
        None => assert_eq!(head.version, Version::Http10),
    }
    let rooted = matches!(head.target, Target::Origin | Target::Absolute);
    assert_eq!(head.path.of(text).first(), rooted.then_some(&b'/'));
    assert_eq!(
        head.target == Target::Authority,
        head.method == Method::Connect
    );
    assert!(!head.target_span.is_empty() && !head.method_span.is_empty());
}

fn framing_has_one_source(bytes: &[u8], head: &RequestHead) {
    let lengths = head.headers.named(bytes, "content-length").count();
    let codings = head.headers.named(bytes, "transfer-encoding").count();
    match head.framing {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
        Framing::Chunked => assert!(lengths == 0 && codings > 0),
    }
    assert!(head.headers.named(bytes, "host").count() <= 1);
}

/// httparse accepts every accepted request and splits it in the same way. It knows versions 1.0 and
/// 1.1 only and requires a target in UTF-8.
fn httparse_agrees(bytes: &[u8], head: &RequestHead) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Err(httparse::Error::Version) => return,
        Err(httparse::Error::Token) if str::from_utf8(head.target_span.of(bytes)).is_err() => {
            return;
        }
        parsed => parsed.expect("accepted here, so accepted there").unwrap(),
    };
    assert_eq!(len, head.bytes);
    assert_eq!(
        request.method.map(str::as_bytes),
        Some(head.method_span.of(bytes))
    );
    assert_eq!(
        request.path.map(str::as_bytes),
        Some(head.target_span.of(bytes))
    );
    assert_eq!(request.version == Some(0), head.version == Version::Http10);
    same_headers(request.headers, bytes, &head.headers);
}

fn same_headers(theirs: &[httparse::Header<'_>], bytes: &[u8], ours: &[HeaderSpan]) {
    let theirs = theirs
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(theirs.eq(ours.iter().map(name_and_value_in(bytes))));
}

fn name_and_value_in<'a>(bytes: &'a [u8]) -> impl Fn(&HeaderSpan) -> (&'a [u8], &'a [u8]) {
    move |header| (header.name.of(bytes), header.value.of(bytes))
}

/// Any HTTP/1.1 request can be written and parsed again.
fn request_is_written_as_read(bytes: &[u8], head: &RequestHead) {
    if head.version == Version::Http10 {
        return;
    }
    let mut out = Vec::new();
    write::request_line(
        &mut out,
        head.method_span.of(bytes),
        head.target_span.of(bytes),
    )
    .expect("what was read can be written");
    write_headers(&mut out, bytes, &head.headers);
    let mut again = RequestHead::default();
    let parsed = parse_request(&out, &mut again, &UNLIMITED);
    assert_eq!((parsed, again.bytes), (Ok(true), out.len()));
    assert_eq!(again.target_span.of(&out), head.target_span.of(bytes));
    assert_eq!((again.method, again.framing), (head.method, head.framing));
    assert_eq!(again.keep_alive, head.keep_alive);
    same_lines(&out, &again.headers, bytes, &head.headers);
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

/// A response has the same meaning however the input is split, and another parser of the same
/// grammar agrees, for every kind of request.
pub fn response_head(bytes: &[u8]) {
    for (limits, asked) in [&Limits::default(), &SMALL]
        .into_iter()
        .flat_map(|limits| ASKED.map(|asked| (limits, asked)))
    {
        let mut head = ResponseHead::default();
        let parsed = parse_response(bytes, &mut head, asked, limits);
        if parsed == Ok(true) {
            response_is_sound(bytes, &head, limits);
            body_has_one_end(bytes, &head, asked);
            httparse_agrees_on_response(bytes, &head);
            response_is_written_as_read(bytes, &head, asked);
            only_end_to_end_fields_are_passed_on(bytes, &head.headers);
        }
        assert!(parsed.is_ok() || parsed.is_err_and(|reject| reject.status == 502));
        prefixes_agree(bytes, parsed, &head, head.bytes, |bytes, head| {
            parse_response(bytes, head, asked, limits)
        });
    }
    a_value_cannot_end_its_line(bytes);
}

const ASKED: [RequestInfo; 4] = [
    asked(Method::Get, false),
    asked(Method::Get, true),
    asked(Method::Head, false),
    asked(Method::Connect, false),
];

const fn asked(method: Method, upgrade: bool) -> RequestInfo {
    RequestInfo { method, upgrade }
}

fn response_is_sound(bytes: &[u8], head: &ResponseHead, limits: &Limits) {
    assert!(head.bytes <= bytes.len() && head.bytes <= limits.head_bytes_max);
    assert!(head.headers.len() <= limits.headers_max);
    let text = &bytes[..head.bytes];
    assert!(text.starts_with(b"HTTP/1.") && text.ends_with(b"\r\n\r\n"));
    assert!(!text[..head.bytes - 2].ends_with(b"\r\n\r\n") && !text.contains(&0));
    assert!((100..=599).contains(&head.status));
}

fn body_has_one_end(bytes: &[u8], head: &ResponseHead, asked: RequestInfo) {
    let lengths = head.headers.named(bytes, "content-length").count();
    let codings = head.headers.named(bytes, "transfer-encoding").count();
    assert!(lengths <= 1 && (lengths == 0 || codings == 0));
    let without = asked.method == Method::Head || matches!(head.status, 100..=199 | 204 | 304);
    match head.framing {
        ResponseFraming::None => assert!(without && head.status != 101),
        ResponseFraming::Length(_) => assert!(!without && lengths == 1),
        ResponseFraming::Chunked => assert!(!without && codings > 0),
        ResponseFraming::UntilClose => assert!(!without && (lengths, codings) == (0, 0)),
        ResponseFraming::Tunnel => assert!(match head.status {
            101 => asked.upgrade && head.upgrade.is_some(),
            status => asked.method == Method::Connect && status / 100 == 2,
        }),
    }
    let open_ended = matches!(
        head.framing,
        ResponseFraming::UntilClose | ResponseFraming::Tunnel
    );
    assert!(!(head.keep_alive && open_ended));
}

/// httparse knows versions 1.0 and 1.1 only, and omits a reason with non-ASCII bytes.
fn httparse_agrees_on_response(bytes: &[u8], head: &ResponseHead) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Err(httparse::Error::Version) => return,
        parsed => parsed.expect("accepted here, so accepted there").unwrap(),
    };
    assert_eq!((len, response.code), (head.bytes, Some(head.status)));
    assert_eq!(response.version == Some(0), head.version == Version::Http10);
    let reason = head.reason.of(bytes);
    if reason.is_ascii() {
        assert_eq!(response.reason.map(str::as_bytes), Some(reason));
    }
    same_headers(response.headers, bytes, &head.headers);
}

fn response_is_written_as_read(bytes: &[u8], head: &ResponseHead, asked: RequestInfo) {
    if head.version == Version::Http10 {
        return;
    }
    let mut out = Vec::new();
    out.extend(format!("HTTP/1.1 {} ", head.status).bytes());
    out.extend_from_slice(head.reason.of(bytes));
    out.extend_from_slice(b"\r\n");
    write_headers(&mut out, bytes, &head.headers);
    let mut again = ResponseHead::default();
    let parsed = parse_response(&out, &mut again, asked, &UNLIMITED);
    assert_eq!((parsed, again.bytes), (Ok(true), out.len()));
    assert_eq!((again.status, again.framing), (head.status, head.framing));
    assert_eq!(again.keep_alive, head.keep_alive);
    same_lines(&out, &again.headers, bytes, &head.headers);
}

fn a_value_cannot_end_its_line(value: &[u8]) {
    let mut out = b"HTTP/1.1 200 \r\n".to_vec();
    let before = out.len();
    if write::field(&mut out, b"X", value).is_err() {
        assert_eq!(out.len(), before);
        return;
    }
    write::end_of_head(&mut out);
    let mut head = ResponseHead::default();
    let parsed = parse_response(&out, &mut head, ASKED[0], &UNLIMITED);
    assert_eq!((parsed, head.bytes), (Ok(true), out.len()));
    let values: Vec<_> = head.headers.named(&out, "x").collect();
    assert_eq!((values.len(), head.headers.len()), (1, 1));
    assert_eq!(values[0], value.trim_ascii());
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

/// A chunked body gives the same data, the same end and the same rejection however the input is
/// split.
pub fn chunked(bytes: &[u8]) {
    let (data, end) = chunked_in_pieces([bytes]);
    assert!(data.len() <= bytes.len());
    assert_eq!(chunked_in_pieces(bytes.chunks(1)), (data.clone(), end));
    for cut in cuts(bytes.len()) {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(
            chunked_in_pieces([start, rest]),
            (data.clone(), end),
            "cut at {cut}"
        );
    }
    assert_eq!(chunked_in_pieces([&to_chunks(bytes)[..]]).0, bytes);
    trailers_survive(bytes);
}

/// Trailers are the same however the input is split, none of them is forbidden, and they can be
/// written.
fn trailers_survive(bytes: &[u8]) {
    let fields = trailers_in_pieces([bytes]);
    assert_eq!(trailers_in_pieces(bytes.chunks(1)), fields);
    let borrowed = fields.iter().map(|(name, value)| (&name[..], &value[..]));
    assert!(
        borrowed
            .clone()
            .all(|(name, _)| !is_forbidden_in_trailers(name))
    );
    let mut end = Vec::new();
    write::last_chunk(&mut end, borrowed).expect("what was read can be written");
    // A space after each colon may make them longer than the limit.
    if chunked_in_pieces([&end[..]]).1 == Ok(Some(end.len())) {
        assert_eq!(trailers_in_pieces([&end[..]]), fields);
    }
}

fn trailers_in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut decoder, mut trailers) = (Chunked::default(), Trailers::default());
    for piece in pieces {
        let decoded = decoder.decode_with_trailers(piece, |_| {}, &mut trailers);
        if decoded.is_ok_and(|decoded| decoded.done) || decoded.is_err() {
            break;
        }
    }
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    trailers.fields().map(owned).collect()
}

/// The data, and the bytes consumed up to the end, if it was found.
fn chunked_in_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Result<Option<usize>, Reject>) {
    let mut decoder = Chunked::default();
    let (mut data, mut consumed) = (Vec::new(), 0);
    for piece in pieces {
        match decoder.decode(piece, |bytes| data.extend_from_slice(bytes)) {
            Err(reject) => return (data, Err(reject)),
            Ok(decoded) => {
                consumed += decoded.consumed;
                if decoded.done {
                    assert!(decoded.consumed <= piece.len());
                    return (data, Ok(Some(consumed)));
                }
                assert_eq!(decoded.consumed, piece.len());
            }
        }
    }
    (data, Ok(None))
}

fn to_chunks(data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in data.chunks(13) {
        body.extend(format!("{:x}\r\n", chunk.len()).bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    body
}

/// The elements of trusted hops are parsed as written, whatever the rest of the list is.
pub fn forwarded(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let lines = || lines.iter().copied();
    let hops: Vec<_> = forwarded::forwarded(lines()).collect();
    let x_hops: Vec<_> = forwarded::x_forwarded_for(lines()).collect();
    let separators = bytes.iter().filter(|byte| b",\n".contains(byte)).count();
    assert!(hops.len() <= separators + 1 && x_hops.len() <= separators + 1);
    assert_eq!(forwarded::forwarded_schemes(lines()).count(), hops.len());
    for node in hops.iter().chain(&x_hops).flatten() {
        written_nodes_are_read_again(*node);
    }
    client_is_one_of_the_hops(&hops);
    client_is_one_of_the_hops(&x_hops);
    for host in lines() {
        hop_is_added(forwarded::join(lines()), host);
        hop_is_added(host.to_vec(), b"a.example:80");
    }
}

fn written_nodes_are_read_again(node: Node) {
    let element = Element {
        client: Some(node),
        by: Some(node),
        host: None,
        scheme: "http",
    };
    let mut value = Vec::new();
    forwarded::push_forwarded(&mut value, &element).expect("a good element");
    assert!(forwarded::forwarded([&value[..]].into_iter()).eq([Some(node)]));
    value.clear();
    forwarded::push_x_forwarded_for(&mut value, Some(node.ip()));
    let without_port = Some(Node::from(node.ip()));
    assert!(forwarded::x_forwarded_for([&value[..]].into_iter()).eq([without_port]));
}

fn client_is_one_of_the_hops(hops: &[Option<Node>]) {
    let origin = |trust| forwarded::origin(Some(PEER), hops.iter().copied(), |_| trust);
    let client = |trust| origin(trust).client.expect("at least the peer").ip();
    assert_eq!(client(false), PEER);
    assert!(origin(false).elements == 0 && origin(true).elements <= hops.len());
    let ips: Vec<_> = hops.iter().flatten().map(|node| node.ip()).collect();
    assert!(client(true) == PEER || ips.contains(&client(true)));
}

fn hop_is_added(before: Vec<u8>, host: &[u8]) {
    let element = Element {
        client: Some(SocketAddr::new(CLIENT, 9).into()),
        by: None,
        host: Some(host),
        scheme: "https",
    };
    let mut value = before.clone();
    let is_plain = !host
        .iter()
        .any(|&byte| byte.is_ascii_control() && byte != b'\t');
    let added = forwarded::push_forwarded(&mut value, &element);
    assert_eq!(added.is_ok(), is_plain);
    if is_plain {
        let before = forwarded::forwarded([&before[..]].into_iter());
        let expected = std::iter::once(element.client).chain(before);
        assert!(forwarded::forwarded([&value[..]].into_iter()).eq(expected));
    } else {
        assert_eq!(value, before);
    }
}

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The client with 10.0.0.0/8 trusted. The first line is the header's name, the others are its
/// values.
pub fn forwarded_client(bytes: &[u8]) -> &'static str {
    let (name, rest) = first_line(bytes);
    let lines = rest.split(|&byte| byte == b'\n');
    let hops: Vec<_> = match name {
        b"forwarded" => forwarded::forwarded(lines).collect(),
        b"x-forwarded-for" => forwarded::x_forwarded_for(lines).collect(),
        _ => panic!("no such field"),
    };
    let is_trusted = |ip| matches!(ip, Some(IpAddr::V4(ip)) if ip.octets()[0] == 10);
    let origin = forwarded::origin(Some(PEER), hops.into_iter(), is_trusted);
    match origin.client.map(Node::ip) {
        Some(PEER) => "peer",
        Some(CLIENT) => "client",
        ip if is_trusted(ip) => "hop",
        _ => "other",
    }
}

/// Ranges are inside their representation, do not overlap, and survive being written and parsed again. Their multipart
/// content has the announced length, and a reader finds the parts in it.
pub fn range(bytes: &[u8]) {
    let (size, value) = range_input(bytes);
    let parts = match range::parse(value, size) {
        Range::Whole | Range::Unsatisfiable => return,
        Range::Part(part) => vec![part],
        Range::Several(parts) => {
            assert!((2..=RANGES_MAX).contains(&parts.len()));
            assert!(value.contains(&b','));
            parts
        }
    };
    assert!(
        parts
            .iter()
            .all(|part| part.first <= part.last && part.last < size)
    );
    let written: Vec<_> = parts
        .iter()
        .map(|part| format!("{}-{}", part.first, part.last))
        .collect();
    let written = format!("bytes={}", written.join(","));
    assert_eq!(
        range::parse(written.as_bytes(), size),
        range::parse(value, size)
    );
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.first);
    assert!(
        sorted
            .windows(2)
            .all(|two| two[1].first - two[0].last > 1 + PART_BYTES)
    );
    if size <= RANGE_CONTENT_BYTES_MAX {
        selects_what_was_requested(value, size, &parts);
        if parts.len() > 1 {
            multipart(size, &parts);
        }
    }
}

/// A Content-Range of a request is a part of its whole, another reader of the grammar agrees, and it survives being written.
pub fn content_range(value: &[u8]) {
    let parsed = content_range::parse(value);
    assert_eq!(parsed, content_range_by_text(value));
    let written = match parsed {
        None => return,
        Some(ContentRange::Part { first, last, total }) => {
            assert!(first <= last && last < total);
            format!("bytes {first}-{last}/{total}")
        }
        Some(ContentRange::Unsatisfied { total }) => format!("bytes */{total}"),
    };
    assert_eq!(content_range::parse(written.as_bytes()), parsed);
}

fn content_range_by_text(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = str::from_utf8(value).ok()?.split_once(' ')?;
    let (part, total) = rest.split_once('/')?;
    let number = |text: &str| {
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_decimal)
    };
    let total = number(total).filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    if part == "*" {
        return Some(ContentRange::Unsatisfied { total });
    }
    let (first, last) = part.split_once('-')?;
    let (first, last): (u64, u64) = (number(first)?, number(last)?);
    (first..total)
        .contains(&last)
        .then_some(ContentRange::Part { first, last, total })
}

/// The maximum size of a representation whose content is made to check its parts.
const RANGE_CONTENT_BYTES_MAX: u64 = 10_000;

/// Every byte of every range in the list is in a part, which begins and ends as one of them.
fn selects_what_was_requested(value: &[u8], size: u64, parts: &[Part]) {
    let mut ends = Vec::new();
    for range in value[b"bytes=".len()..].split(|&byte| byte == b',') {
        let alone = [b"bytes=", range.trim_ascii()].concat();
        if let Range::Part(requested) = range::parse(&alone, size) {
            let has = |part: &Part| part.first <= requested.first && requested.last <= part.last;
            assert!(parts.iter().any(has));
            ends.push((requested.first, requested.last));
        }
    }
    for part in parts {
        assert!(ends.iter().any(|(first, _)| *first == part.first));
        assert!(ends.iter().any(|(_, last)| *last == part.last));
    }
}

fn multipart(size: u64, parts: &[Part]) {
    // It looks like framing, except for the boundary.
    let content: Vec<u8> =
        b"\r\n--0\r\nContent-Range: bytes 0-1/2\r\n\r\n--".repeat(size as usize / 30 + 1);
    let framing = Byteranges::new(0x0123_4567_89ab_cdef, b"Content-Type: text/a\r\n", size);
    let mut body = Vec::new();
    for &part in parts {
        framing.push_start(&mut body, part);
        body.extend_from_slice(&content[part.first as usize..=part.last as usize]);
    }
    framing.push_end(&mut body);
    assert_eq!(body.len() as u64, framing.length(parts));
    let content_type = framing.content_type();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
    let delimiter = format!("\r\n--{}", boundary.expect("a boundary"));
    let mut pieces = Vec::new();
    let mut rest = &body[..];
    let find = |bytes: &[u8]| {
        let mut windows = bytes.windows(delimiter.len());
        windows.position(|window| window == delimiter.as_bytes())
    };
    while let Some(at) = find(rest) {
        pieces.push(&rest[..at]);
        rest = &rest[at + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n");
    let (preamble, pieces) = pieces.split_first().expect("a preamble");
    assert!(preamble.is_empty());
    assert_eq!(pieces.len(), parts.len());
    for (piece, part) in pieces.iter().zip(parts) {
        let header = format!(
            "\r\nContent-Type: text/a\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n",
            part.first, part.last
        );
        let bytes = piece
            .strip_prefix(header.as_bytes())
            .expect("the header of the part");
        assert_eq!(bytes, &content[part.first as usize..=part.last as usize]);
    }
}

/// The media types that are offered to a client.
pub const OFFERED_TYPES: [&str; 3] = ["text/html", "application/json", "text/plain"];

/// The preferred type does not depend on how elements are spread over lines, and is preferred to any single other one.
pub fn accept(bytes: &[u8]) {
    let lines = || bytes.split(|&byte| byte == b'\n');
    let preferred = accept::preferred(lines(), &OFFERED_TYPES);
    let joined = lines().collect::<Vec<_>>().join(&b',');
    assert_eq!(accept::preferred([&joined[..]], &OFFERED_TYPES), preferred);
    let Some(index) = preferred else {
        let alone = OFFERED_TYPES.map(|one| accept::preferred(lines(), &[one]));
        return assert_eq!(alone, [None; 3]);
    };
    let chosen = OFFERED_TYPES[index];
    for other in OFFERED_TYPES {
        // The first of equal ones.
        let pair = match OFFERED_TYPES.iter().position(|&one| one == other) < Some(index) {
            true => [other, chosen],
            false => [chosen, other],
        };
        let among_two = accept::preferred(lines(), &pair);
        assert_eq!(among_two.map(|index| pair[index]), Some(chosen));
    }
}

/// The chosen coding was offered and is acceptable; it does not depend on the order and lines of
/// the elements, nor on the other codings offered.
pub fn encoding(bytes: &[u8]) {
    let accepted = Accepted::parse(bytes.split(|&byte| byte == b'\n'));
    let choices = accepted.choices(&Coding::ALL);
    for pair in choices.windows(2) {
        assert!(accepted.weight(pair[0]) >= accepted.weight(pair[1]));
    }
    for coding in Coding::ALL {
        let alone = accepted.choices(&[coding]);
        assert_eq!(alone.contains(&coding), choices.contains(&coding));
        assert!(alone.is_empty() || accepted.weight(coding) > 0);
    }
    let mut elements: Vec<&[u8]> = bytes.split(|byte| b",\n".contains(byte)).collect();
    elements.reverse();
    assert_eq!(Accepted::parse(elements.iter().copied()), accepted);
    assert_eq!(Accepted::parse([&elements.join(&b',')[..]]), accepted);
    assert!(accepted.choices(&[]).is_empty());
}

/// The algorithm is that of the member with the highest valid preference. It does not depend on lines, nor on members of
/// other algorithms.
pub fn want_digest(bytes: &[u8]) {
    let wanted = digest::wanted(bytes.split(|&byte| byte == b'\n'));
    let members = bytes.split(|byte| b",\n".contains(byte));
    let named = |member: &&[u8]| member.trim_ascii().starts_with(b"sha-");
    let members: Vec<&[u8]> = members.filter(named).collect();
    assert_eq!(
        digest::wanted([&members.join(&b',')[..]].into_iter()),
        wanted
    );
    assert_eq!(digest::wanted(members.iter().copied()), wanted);
    if let Some(algorithm) = wanted {
        let key = algorithm.key().as_bytes();
        assert!(
            members
                .iter()
                .any(|member| member.trim_ascii().starts_with(key))
        );
        let none = [bytes, b",", key, b"=0"].concat();
        assert_ne!(digest::wanted(none.split(|&byte| byte == b'\n')), wanted);
    }
}

/// The first line is the size in decimal; the rest is the value.
pub fn range_input(bytes: &[u8]) -> (u64, &[u8]) {
    let (size, value) = first_line(bytes);
    (
        str::from_utf8(size)
            .ok()
            .and_then(|size| size.parse().ok())
            .unwrap_or(0),
        value,
    )
}

/// The first line without its LF, and the rest.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, b""),
    }
}

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

/// Any conditions are safe to evaluate.
pub fn condition(bytes: &[u8]) {
    let request = Conditional::read(bytes);
    let verdict = request.verdict();
    let asked = |name: &str| request.values(name).next().is_some();
    if verdict == Verdict::NotModified {
        assert!(request.get_or_head);
        assert!(asked("if-none-match") || asked("if-modified-since"));
    }
    if verdict == Verdict::Failed && request.get_or_head {
        assert!(asked("if-match") || asked("if-unmodified-since"));
    }
    if let Some(etag) = request.validators.etag.filter(|etag| is_etag(etag)) {
        let own = |name| move |asked: &str| (asked == name).then_some(etag);
        let only = |name| condition::evaluate(true, own(name), &request.validators);
        assert_eq!(only("if-none-match"), Verdict::NotModified);
        assert_eq!(
            only("if-match") == Verdict::Proceed,
            etag.starts_with(b"\"")
        );
    }
    for value in request.values("if-range") {
        let modified = request.validators.modified.map(date::format);
        let named = request.validators.etag == Some(value)
            || modified.is_some_and(|modified| modified == value);
        assert!(named || !condition::if_range(value, &request.validators));
        assert!(!value.starts_with(b"W/") || !condition::if_range(value, &request.validators));
    }
    dates_are_stable(bytes);
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

fn dates_are_stable(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Some(seconds) = date::parse(line) {
            assert_eq!(date::parse(&date::format(seconds)), Some(seconds));
        }
    }
}

/// A request parsed from lines `name: value`, where `method`, `etag` and `modified` are not
/// headers.
pub struct Conditional<'a> {
    lines: Vec<(String, &'a [u8])>,
    get_or_head: bool,
    validators: Validators<'a>,
}

impl<'a> Conditional<'a> {
    pub fn read(bytes: &'a [u8]) -> Self {
        let lines: Vec<_> = bytes
            .split(|&byte| byte == b'\n')
            .filter_map(name_and_value)
            .collect();
        let first = |name| lines.iter().find(|line| line.0 == name).map(|line| line.1);
        let get_or_head = first("method") == Some(b"GET");
        let validators = Validators {
            etag: first("etag"),
            modified: first("modified").and_then(date::parse),
        };
        Self {
            lines,
            get_or_head,
            validators,
        }
    }

    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines
            .iter()
            .filter(move |line| line.0 == name)
            .map(|line| line.1)
    }

    pub fn verdict(&self) -> Verdict {
        condition::evaluate(self.get_or_head, |name| self.values(name), &self.validators)
    }
}

fn name_and_value(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = String::from_utf8_lossy(&line[..colon]).to_lowercase();
    Some((name, line[colon + 1..].trim_ascii()))
}

/// A decoded path stays beneath its root, is the same when it is encoded again, and any name
/// survives being encoded.
pub fn path(raw: &[u8]) {
    let mut decoded = Vec::new();
    if path::decode(raw, &mut decoded).is_ok() {
        let names = decoded.strip_suffix(b"/").unwrap_or(&decoded);
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
        assert!(decoded.is_empty() || names.split(|&byte| byte == b'/').all(is_name));
        assert!(!decoded.contains(&0) && decoded.len() <= raw.len());
        there_and_back(&decoded);
        gateway::script(&decoded);
    }
    if let (Ok(_), Ok(sent)) = (
        path::decode_keeping_slashes(raw, &mut decoded),
        path::forwarded(raw),
    ) {
        passed_on(&decoded, &sent);
    }
    let name: Vec<u8> = raw
        .iter()
        .copied()
        .filter(|byte| !b"\0/".contains(byte))
        .collect();
    if !matches!(&name[..], b"." | b"..") {
        there_and_back(&name);
    }
}

/// The forwarded form of a path has the same meaning, is a valid URI, has no dot segment for any
/// application, and no host.
fn passed_on(path: &[u8], sent: &[u8]) {
    let mut again = Vec::new();
    path::decode_keeping_slashes(sent, &mut again).expect("a path that was sent can be decoded");
    assert_eq!(again, path);
    assert!(sent.starts_with(b"/") && !sent.starts_with(b"//") && sent.is_ascii());
    assert!(!sent.contains(&b'\\'));
    assert_eq!(path::forwarded(sent).as_deref(), Ok(sent));
    for reading in path::other_readings(sent) {
        assert!(reading.starts_with(b"/") && reading.len() <= sent.len());
        let mut names = reading.split(|&byte| byte == b'/');
        assert!(!names.any(|name| matches!(name, b"." | b"..")));
    }
}

fn there_and_back(path: &[u8]) {
    let mut encoded = b"/".to_vec();
    path::encode(path, &mut encoded);
    assert!(
        encoded
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"\"<>&'?#\\".contains(byte))
    );
    let mut decoded = Vec::new();
    path::decode(&encoded, &mut decoded).expect("an encoded path can be decoded");
    assert_eq!(decoded, path);
}
