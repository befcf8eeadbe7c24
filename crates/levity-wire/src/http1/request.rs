//! The request line and header section of a request (RFC 9112, 3 and 5).

use std::ops::Range;

use memchr::{memchr, memchr3};

use super::header::{read_headers, within_bound};
use super::line::{Lines, list, token_len};
use super::{
    HeaderSpan, Limits, Method, Reject, RequestHead, Span, Target, Version, framing, host,
};

/// Empty lines skipped before a request line. RFC 9112, 2.2 requires at least one; old clients send
/// one after a body.
const BLANK_LINES_MAX: usize = 4;

const LINE_TOO_LONG: Reject = Reject::new(414, "request line too long");

/// Parses the request line and header section at the start of `bytes`, reusing the allocations of
/// `head`.
///
/// `Ok(true)`: complete, and the body starts at `head.bytes`. `Ok(false)`: more bytes needed; call
/// again with the same bytes followed by more.
///
/// # Errors
/// Reported as soon as no continuation of the bytes can be accepted: 400 for malformed or ambiguous
/// input, 414 and 431 for the limits in `limits`, 501 for an unknown transfer coding, 505 for a
/// version other than 1.x. After `Ok(false)` and after an error, `head` holds a partial result, for
/// logging only.
pub fn parse_request(
    bytes: &[u8],
    head: &mut RequestHead,
    limits: &Limits,
) -> Result<bool, Reject> {
    head.clear();
    within_bound(bytes, limits, |window| parse_window(window, head, limits))
}

fn parse_window(bytes: &[u8], head: &mut RequestHead, limits: &Limits) -> Result<bool, Reject> {
    let mut lines = Lines::new(bytes);
    let Some(line) = first_line(&mut lines, limits)? else {
        return Ok(false);
    };
    request_line(bytes, line, head)?;
    let mut fields = Fields::default();
    if !read_headers(bytes, &mut lines, &mut head.headers, limits, |header| {
        fields.read(bytes, header)
    })? {
        return Ok(false);
    }
    fields.finish(head)?;
    head.bytes = lines.at();
    Ok(true)
}

/// The meaning of the header lines so far.
#[derive(Default)]
struct Fields {
    message: framing::Fields,
    host: Option<Span>,
    expect_continue: bool,
    conditional: bool,
}

impl Fields {
    fn read(&mut self, bytes: &[u8], header: HeaderSpan) -> Result<(), Reject> {
        let name = header.name.of(bytes);
        self.conditional |= matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]);
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(bytes, header.value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(header.value.of(bytes)),
            _ => self.message.read(bytes, header),
        }
    }

    fn host(&mut self, bytes: &[u8], value: Span) -> Result<(), Reject> {
        if self.host.is_some() {
            return Err(Reject::bad("repeated Host"));
        }
        host::split(value.of(bytes))?;
        self.host = Some(value);
        Ok(())
    }

    /// Expectations other than 100-continue are ignored, as RFC 9110, 10.1.1 allows.
    fn expect(&mut self, value: &[u8]) -> Result<(), Reject> {
        self.expect_continue |=
            list(value).any(|expectation| expectation.eq_ignore_ascii_case(b"100-continue"));
        Ok(())
    }

    /// Needs the request line and every header line.
    fn finish(self, head: &mut RequestHead) -> Result<(), Reject> {
        if self.host.is_none() && head.version == Version::Http11 {
            return Err(Reject::bad("missing Host"));
        }
        // The authority of the target wins over Host (RFC 9112, 3.2.2).
        if matches!(head.target, Target::Origin | Target::Asterisk) {
            head.host = self.host;
        }
        head.framing = self.message.framing(head.version)?;
        head.keep_alive = self.message.allows_another(head.version);
        head.upgrade = self.message.protocols(head.version);
        head.conditional = self.conditional;
        // RFC 9110, 10.1.1: ignored in HTTP/1.0.
        head.expect_continue = self.expect_continue && head.version == Version::Http11;
        Ok(())
    }
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
    let method_end = token_len(text);
    if method_end == 0 || text.get(method_end) != Some(&b' ') {
        return Err(Reject::bad(match text.contains(&b' ') {
            true => "bad method",
            false => "request line without a target",
        }));
    }
    head.method_span = line.part(0, method_end);
    head.method = Method::of(&text[..method_end]);

    let target_start = method_end + 1;
    let Some(target_len) = memchr(b' ', &text[target_start..]) else {
        return Err(Reject::bad("request line without a version"));
    };
    let target_end = target_start + target_len;
    head.version = version(&text[target_end + 1..])?;
    head.target_span = line.part(target_start, target_end);
    target(bytes, head)
}

/// Parses the rest of the line, which shows whether the target contained white space.
fn version(text: &[u8]) -> Result<Version, Reject> {
    match Version::of(text) {
        Err(_) if text.contains(&b' ') => Err(Reject::bad("white space in the request target")),
        read => read,
    }
}

/// RFC 9112, 3.2. Bytes from 0x80 and the ASCII characters that URIs exclude are accepted, since
/// clients do send them. `#` is rejected: parsers disagree whether the path ends there.
fn target(bytes: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    let text = head.target_span.of(bytes);
    // One look for all three: it costs as much as one for the first.
    let path_end = memchr3(b'?', b'#', b'\t', text).unwrap_or(text.len());
    if text[path_end..].contains(&b'\t') {
        return Err(Reject::bad("white space in the request target"));
    }
    if text[path_end..].contains(&b'#') {
        return Err(Reject::bad("fragment in the request target"));
    }
    match text {
        _ if head.method == Method::Connect => authority_form(text, head),
        [b'/', ..] => {
            path_and_query(text, 0..path_end, head);
            Ok(())
        }
        b"*" => asterisk_form(head),
        _ => absolute_form(text, path_end, head),
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

/// The path, if there is one, ends at `path_end`.
fn absolute_form(text: &[u8], path_end: usize, head: &mut RequestHead) -> Result<(), Reject> {
    let scheme_len = [&b"http://"[..], b"https://"]
        .iter()
        .find(|scheme| {
            text.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .map(|scheme| scheme.len())
        .ok_or(Reject::bad("request target of an unknown form"))?;
    let authority_end =
        memchr(b'/', &text[scheme_len..path_end]).map_or(path_end, |len| scheme_len + len);
    host::split(&text[scheme_len..authority_end])?;
    head.target = Target::Absolute;
    head.host = Some(head.target_span.part(scheme_len, authority_end));
    path_and_query(text, authority_end..path_end, head);
    if head.path.is_empty() {
        // An empty path means "/" (RFC 9110, 4.2.3). A span needs such a byte in the input: the
        // last byte of the scheme.
        head.path = head.target_span.part(scheme_len - 1, scheme_len);
    }
    Ok(())
}

fn path_and_query(text: &[u8], path: Range<usize>, head: &mut RequestHead) {
    head.path = head.target_span.part(path.start, path.end);
    let query = path.end + 1;
    head.query = (path.end < text.len()).then(|| head.target_span.part(query, text.len()));
}
