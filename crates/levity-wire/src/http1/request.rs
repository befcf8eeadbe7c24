//! The request head: request line and header lines (RFC 9112, 3 and 5).

use memchr::{memchr, memchr2};

use super::framing::Fields;
use super::host;
use super::line::{Lines, is_token, trim_end, trim_start};
use super::{HeaderSpan, Limits, Method, Reject, RequestHead, Span, Target, Version};

/// Empty lines skipped before a request line. RFC 9112, 2.2 asks for at least one; old clients send
/// one after a body.
const BLANK_LINES_MAX: usize = 4;

const LINE_TOO_LONG: Reject = Reject::new(414, "request line too long");
const HEADER_TOO_LONG: Reject = Reject::new(431, "header line too long");
const HEAD_TOO_LONG: Reject = Reject::new(431, "request head too long");
const HEADERS_TOO_MANY: Reject = Reject::new(431, "too many header lines");

/// Parses a request head at the start of `bytes`, reusing the allocations of `head`.
///
/// `Ok(true)`: complete, and `head.bytes` says where the body starts. `Ok(false)`: more bytes
/// needed; call again with the same bytes and more behind them.
///
/// # Errors
/// As soon as the bytes at hand cannot become an acceptable head, whatever follows: 400 for
/// anything malformed or ambiguous, 414 and 431 for the bounds in `limits`, 501 for an unknown
/// transfer coding, 505 for a version other than 1.x. After `Ok(false)` and after an error, `head`
/// holds what was read so far, to log and not to act upon.
pub fn parse_request(
    bytes: &[u8],
    head: &mut RequestHead,
    limits: &Limits,
) -> Result<bool, Reject> {
    head.clear();
    let head_bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
    let window = &bytes[..bytes.len().min(head_bytes_max)];
    let complete = parse_window(window, head, limits)?;
    if !complete && window.len() == head_bytes_max {
        return Err(HEAD_TOO_LONG);
    }
    Ok(complete)
}

fn parse_window(bytes: &[u8], head: &mut RequestHead, limits: &Limits) -> Result<bool, Reject> {
    let mut lines = Lines::new(bytes);
    let Some(line) = first_line(&mut lines, limits)? else {
        return Ok(false);
    };
    request_line(bytes, line, head)?;
    let mut fields = Fields::default();
    loop {
        let Some(line) = lines.next(limits.header_bytes_max, HEADER_TOO_LONG)? else {
            return Ok(false);
        };
        if line.is_empty() {
            break;
        }
        if head.headers.len() == limits.headers_max {
            return Err(HEADERS_TOO_MANY);
        }
        let header = header_line(bytes, line)?;
        head.headers.push(header);
        fields.read(bytes, header)?;
    }
    fields.finish(head)?;
    head.bytes = lines.at();
    Ok(true)
}

fn first_line(lines: &mut Lines, limits: &Limits) -> Result<Option<Span>, Reject> {
    for _ in 0..=BLANK_LINES_MAX {
        match lines.next(limits.line_bytes_max, LINE_TOO_LONG)? {
            Some(line) if line.is_empty() => {}
            found => return Ok(found),
        }
    }
    Err(Reject::bad("too many empty lines before the request line"))
}

fn request_line(bytes: &[u8], line: Span, head: &mut RequestHead) -> Result<(), Reject> {
    let text = line.of(bytes);
    let method_end = memchr(b' ', text).ok_or(Reject::bad("request line without a target"))?;
    if !is_token(&text[..method_end]) {
        return Err(Reject::bad("bad method"));
    }
    head.method_span = line.part(0, method_end);
    head.method = Method::of(&text[..method_end]);

    let target_start = method_end + 1;
    let Some(target_len) = memchr(b' ', &text[target_start..]) else {
        return Err(Reject::new(505, "HTTP/0.9 is not supported"));
    };
    let target_end = target_start + target_len;
    head.version = version(&text[target_end + 1..])?;
    head.target_span = line.part(target_start, target_end);
    target(bytes, head)
}

/// RFC 9112, 2.3: exactly `HTTP/d.d`, in upper case.
fn version(text: &[u8]) -> Result<Version, Reject> {
    match text.strip_prefix(b"HTTP/") {
        Some([b'1', b'.', b'0']) => Ok(Version::Http10),
        Some([b'1', b'.', b'1'..=b'9']) => Ok(Version::Http11),
        Some([b'0' | b'2'..=b'9', b'.', b'0'..=b'9']) => {
            Err(Reject::new(505, "HTTP version not supported"))
        }
        _ if text.contains(&b' ') => Err(Reject::bad("white space in the request target")),
        _ => Err(Reject::bad("bad HTTP version")),
    }
}

/// RFC 9112, 3.2. Bytes from 0x80 and the ASCII marks that URIs exclude are let through, since
/// clients do send them; `#` is not: readers disagree whether the path ends there.
fn target(bytes: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    let text = head.target_span.of(bytes);
    if text.contains(&b'\t') {
        return Err(Reject::bad("white space in the request target"));
    }
    if text.contains(&b'#') {
        return Err(Reject::bad("fragment in the request target"));
    }
    match text {
        _ if head.method == Method::Connect => authority_form(text, head),
        [b'/', ..] => {
            path_and_query(text, 0, head);
            Ok(())
        }
        b"*" => asterisk_form(head),
        _ => absolute_form(text, head),
    }
}

fn authority_form(text: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    let authority = host::split(text)?;
    if authority.port.is_none_or(<[u8]>::is_empty) {
        return Err(Reject::bad("CONNECT without a port"));
    }
    head.target = Target::Authority;
    head.host = Some(head.target_span);
    Ok(())
}

fn asterisk_form(head: &mut RequestHead) -> Result<(), Reject> {
    if head.method != Method::Options {
        return Err(Reject::bad("target * is for OPTIONS only"));
    }
    head.target = Target::Asterisk;
    Ok(())
}

fn absolute_form(text: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    let scheme_len = [&b"http://"[..], b"https://"]
        .iter()
        .find(|scheme| {
            text.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .map(|scheme| scheme.len())
        .ok_or(Reject::bad("request target of an unknown form"))?;
    let authority_end =
        memchr2(b'/', b'?', &text[scheme_len..]).map_or(text.len(), |len| scheme_len + len);
    host::split(&text[scheme_len..authority_end])?;
    head.target = Target::Absolute;
    head.host = Some(head.target_span.part(scheme_len, authority_end));
    path_and_query(text, authority_end, head);
    if head.path.is_empty() {
        // An empty path means "/" (RFC 9110, 4.2.3). A span can only point: the last byte of the
        // scheme is one.
        head.path = head.target_span.part(scheme_len - 1, scheme_len);
    }
    Ok(())
}

fn path_and_query(text: &[u8], start: usize, head: &mut RequestHead) {
    let path_end = memchr(b'?', &text[start..]).map_or(text.len(), |len| start + len);
    head.path = head.target_span.part(start, path_end);
    head.query = (path_end < text.len()).then(|| head.target_span.part(path_end + 1, text.len()));
}

fn header_line(bytes: &[u8], line: Span) -> Result<HeaderSpan, Reject> {
    let text = line.of(bytes);
    if matches!(text[0], b' ' | b'\t') {
        return Err(Reject::bad("folded header line"));
    }
    let name_end = memchr(b':', text).ok_or(Reject::bad("header line without a colon"))?;
    if !is_token(&text[..name_end]) {
        return Err(Reject::bad(
            "bad header name, or white space before its colon",
        ));
    }
    let value_start = text.len() - trim_start(&text[name_end + 1..]).len();
    let value_len = trim_end(&text[value_start..]).len();
    Ok(HeaderSpan {
        name: line.part(0, name_end),
        value: line.part(value_start, value_start + value_len),
    })
}
