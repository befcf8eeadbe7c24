//! What holds for any input at all. The fuzz targets look for input where it does not, and
//! `tests/corpus.rs` replays what is known; each function panics when its property is broken.

use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::encoding::{Accepted, Coding};
use levity_wire::http1::{
    Chunked, Framing, Limits, Method, Reject, RequestHead, Target, Version, host_name,
    parse_request,
};
use levity_wire::range::{self, Range};
use levity_wire::{date, path};

const SMALL: Limits = Limits {
    line_bytes_max: 48,
    header_bytes_max: 32,
    head_bytes_max: 160,
    headers_max: 4,
};

/// A request head means the same however it arrives, and nothing that another reader of the same
/// grammar would contradict.
pub fn request_head(bytes: &[u8]) {
    for limits in [&Limits::default(), &SMALL] {
        let mut head = RequestHead::default();
        let parsed = parse_request(bytes, &mut head, limits);
        if parsed == Ok(true) {
            head_is_sound(bytes, &head, limits);
            framing_has_one_source(bytes, &head);
            httparse_agrees(bytes, &head);
            path(head.path.of(bytes));
        }
        prefixes_agree(bytes, parsed, head, limits);
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
    let lengths = head.headers_named(bytes, "content-length").count();
    let codings = head.headers_named(bytes, "transfer-encoding").count();
    match head.framing {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
        Framing::Chunked => assert!(lengths == 0 && codings > 0),
    }
    assert!(head.headers_named(bytes, "host").count() <= 1);
}

/// What we accept, httparse accepts and divides in the same way. It knows versions 1.0 and 1.1 only
/// and takes a target for UTF-8.
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
    let theirs = request
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    let ours = head
        .headers
        .iter()
        .map(|header| (header.name.of(bytes), header.value.of(bytes)));
    assert!(theirs.eq(ours));
}

/// Cut anywhere, a head asks for more until it is complete, and a refusal is final.
fn prefixes_agree(bytes: &[u8], whole: Result<bool, Reject>, head: RequestHead, limits: &Limits) {
    let mut again = RequestHead::default();
    let mut refused = false;
    for cut in cuts(bytes.len()) {
        let parsed = parse_request(&bytes[..cut], &mut again, limits);
        match whole {
            Ok(true) if cut >= head.bytes => assert_eq!((parsed, &again), (Ok(true), &head)),
            Ok(_) => assert_eq!(parsed, Ok(false)),
            Err(_) => assert_ne!(parsed, Ok(true)),
        }
        assert!(parsed.is_err() || !refused);
        refused = parsed.is_err();
    }
}

/// Where to cut an input of this length: everywhere, or at some 60 places in a long one.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len / 60 + 1)
}

/// A chunked body gives the same data, the same end and the same refusal however it arrives.
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
}

/// The data, and the bytes consumed up to the end if it was found.
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

/// A range lies inside its representation, and says the same when it is written out.
pub fn range(bytes: &[u8]) {
    let (size, value) = range_input(bytes);
    if let Range::Part { first, last } = range::parse(value, size) {
        assert!(first <= last && last < size);
        let written = format!("bytes={first}-{last}");
        assert_eq!(
            range::parse(written.as_bytes(), size),
            Range::Part { first, last }
        );
        assert!(!value.contains(&b','));
    }
}

/// What is chosen was offered and is not refused; it is the same in whatever order and lines the
/// elements come, and whatever else is offered.
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

/// The first line without its LF, and what follows it.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, b""),
    }
}

/// Conditions are safe to act upon whatever they say.
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

/// A request read from lines `name: value`, where `method`, `etag` and `modified` are not headers.
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

/// A decoded path stays below its root, names the same when it is encoded again, and any name
/// survives being encoded.
pub fn path(raw: &[u8]) {
    let mut decoded = Vec::new();
    if path::decode(raw, &mut decoded).is_ok() {
        let names = decoded.strip_suffix(b"/").unwrap_or(&decoded);
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
        assert!(decoded.is_empty() || names.split(|&byte| byte == b'/').all(is_name));
        assert!(!decoded.contains(&0) && decoded.len() <= raw.len());
        there_and_back(&decoded);
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
