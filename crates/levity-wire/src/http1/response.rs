//! The status line and header section of a response (RFC 9112, 4 and 5).

use super::framing::Fields;
use super::header::{read_headers, within_bound};
use super::line::Lines;
use super::{Framing, Limits, Method, Reject, ResponseFraming, ResponseHead, Span, Version};
use crate::decimal;

const LINE_TOO_LONG: Reject = Reject::bad("status line too long");
const BAD_STATUS_LINE: Reject = Reject::bad("bad status line");

/// The properties of a request that decide how its response is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestInfo {
    /// The method of the request.
    pub method: Method,
    /// The request had an Upgrade header, listed in its Connection.
    pub upgrade: bool,
}

/// Parses the status line and header section at the start of `bytes`, reusing the allocations of
/// `head`.
///
/// `Ok(true)`: complete, and the body starts at `head.bytes`. `Ok(false)`: more bytes needed; call
/// again with the same bytes followed by more. After an [interim](ResponseHead::is_interim)
/// response the next response follows, for the same `request`.
///
/// # Errors
/// 502 as soon as no continuation of the bytes can be accepted: grammar and limits are those of
/// requests. No empty line is skipped before the status line, since it would belong to a body that
/// was longer than its length. After `Ok(false)` and after an error, `head` holds a partial result,
/// for logging only.
pub fn parse_response(
    bytes: &[u8],
    head: &mut ResponseHead,
    request: RequestInfo,
    limits: &Limits,
) -> Result<bool, Reject> {
    head.clear();
    within_bound(bytes, limits, |window| {
        parse_window(window, head, request, limits)
    })
    .map_err(Reject::by_upstream)
}

fn parse_window(
    bytes: &[u8],
    head: &mut ResponseHead,
    request: RequestInfo,
    limits: &Limits,
) -> Result<bool, Reject> {
    let mut lines = Lines::new(bytes);
    let Some(line) = lines.next(limits.line_bytes_max, LINE_TOO_LONG)? else {
        return Ok(false);
    };
    status_line(bytes, line, head)?;
    let mut fields = Fields::default();
    if !read_headers(bytes, &mut lines, &mut head.headers, limits, |header| {
        fields.read(bytes, header)
    })? {
        return Ok(false);
    }
    finish(&fields, request, head)?;
    head.bytes = lines.at();
    Ok(true)
}

/// Servers omit an empty reason, and often the space before it, which RFC 9112, 4 requires.
fn status_line(bytes: &[u8], line: Span, head: &mut ResponseHead) -> Result<(), Reject> {
    let text = line.of(bytes);
    let (version, rest) = text
        .split_at_checked(Version::BYTES)
        .ok_or(BAD_STATUS_LINE)?;
    head.version = Version::of(version)?;
    let (code, reason_len) = match *rest {
        [b' ', a, b, c] => ([a, b, c], 0),
        [b' ', a, b, c, b' ', ref reason @ ..] => ([a, b, c], reason.len()),
        _ => return Err(BAD_STATUS_LINE),
    };
    head.status = status(code).ok_or(BAD_STATUS_LINE)?;
    head.reason = line.part(text.len() - reason_len, text.len());
    Ok(())
}

/// From 600 they have no meaning, but some applications send them, and a client takes them for a 5xx (RFC 9110, 15).
fn status(code: [u8; 3]) -> Option<u16> {
    let number = decimal::parse(&code)?;
    (100..=999).contains(&number).then_some(number as u16)
}

/// Needs the status line and every header line.
fn finish(fields: &Fields, request: RequestInfo, head: &mut ResponseHead) -> Result<(), Reject> {
    // Contradictory framing is rejected even for a response without a body: its sender may send one
    // anyway.
    let announced = fields.framing(head.version)?;
    head.upgrade = fields.protocols(head.version);
    head.framing = framing(announced, request, head)?;
    // RFC 9112, 6.1 and RFC 9110, 8.6 forbid framing headers in a 204. Its body is not read, but
    // one may follow and must not be parsed as the next response.
    let may_have_body = head.status == 204 && has_bytes(announced);
    let ends_itself = !matches!(
        head.framing,
        ResponseFraming::UntilClose | ResponseFraming::Tunnel
    );
    head.keep_alive = ends_itself && !may_have_body && fields.allows_another(head.version);
    Ok(())
}

/// RFC 9112, 6.3.
fn framing(
    announced: Framing,
    request: RequestInfo,
    head: &ResponseHead,
) -> Result<ResponseFraming, Reject> {
    match head.status {
        // The next status line would be parsed from that body.
        100..=199 if has_bytes(announced) => Err(Reject::bad("1xx response with a body")),
        101 => switch(request, head),
        200..=299 if request.method == Method::Connect => Ok(ResponseFraming::Tunnel),
        100..=199 | 204 | 304 => Ok(ResponseFraming::None),
        _ if request.method == Method::Head => Ok(ResponseFraming::None),
        _ => Ok(match announced {
            Framing::None => ResponseFraming::UntilClose,
            Framing::Length(length) => ResponseFraming::Length(length),
            Framing::Chunked => ResponseFraming::Chunked,
        }),
    }
}

/// An unrequested tunnel would carry a client's requests past all checks.
fn switch(request: RequestInfo, head: &ResponseHead) -> Result<ResponseFraming, Reject> {
    if !request.upgrade {
        return Err(Reject::bad("unrequested 101"));
    }
    if head.upgrade.is_none() {
        return Err(Reject::bad("101 without a protocol in Upgrade"));
    }
    Ok(ResponseFraming::Tunnel)
}

fn has_bytes(framing: Framing) -> bool {
    !matches!(framing, Framing::None | Framing::Length(0))
}
