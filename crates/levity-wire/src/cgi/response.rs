//! The headers of an application's response (RFC 3875, 6).

use memchr::memchr;

use crate::http1::{Headers, Limits, Span, header_line, is_control};
use crate::{Reject, decimal};

/// The headers of a response: spans into the parsed bytes, and their meaning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// From Status or a status line; without either 302 with a Location, else 200. Between 200 and
    /// 999.
    pub status: u16,
    /// The text after the number of the status, often empty.
    pub reason: Span,
    /// The headers in the order they were sent, without Status and without empty ones, which are
    /// equivalent to absent ones (RFC 3875, 6.3).
    pub headers: Headers,
    /// Content-Length. The body has this many bytes; without it, the body ends with the response. A
    /// body that ends earlier is truncated, and further bytes are not part of it. Responses to
    /// HEAD, 204 and 304 have no body regardless of it (RFC 9110, 8.6).
    pub content_length: Option<u64>,
    /// Length in bytes including the blank line: the body starts here.
    pub bytes: usize,
}

impl ResponseHead {
    /// Forgets the content and keeps the allocation.
    pub fn clear(&mut self) {
        *self = Self {
            headers: self.headers.emptied(),
            ..Self::default()
        };
    }
}

/// Parses the headers at the start of `bytes`, reusing the allocations of `head`.
///
/// `Ok(true)`: complete, and the body starts at `head.bytes`. `Ok(false)`: more bytes needed; call
/// again with the same bytes followed by more.
///
/// Lines end in LF or CRLF (RFC 3875, 6). The first may be a status line (`HTTP/1.1 200 OK`), which
/// some applications send although it is reserved for scripts that talk to the client directly. Of
/// `limits`, `header_bytes_max` applies to every line, and `headers_max` counts every line.
///
/// # Errors
/// 502 as soon as no continuation of the bytes can be accepted, also for exceeded limits: the
/// client is never at fault. Ambiguous responses are rejected too:
///
/// - Content-Length, Content-Type or Location more than once, or two different statuses (RFC 3875,
///   6.3: no header of a script may be repeated);
/// - Transfer-Encoding: it belongs to the connection with the client, so a script must not send it
///   (RFC 3875, 6.3.4), and whether its body is really chunked cannot be known;
/// - a folded line (RFC 3875, 6.3) and control characters;
/// - a status below 200: no other response follows.
///
/// After `Ok(false)` and after an error, `head` holds a partial result, for logging only.
pub fn parse_response(
    bytes: &[u8],
    head: &mut ResponseHead,
    limits: &Limits,
) -> Result<bool, Reject> {
    head.clear();
    let head_bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
    let window = &bytes[..bytes.len().min(head_bytes_max)];
    let complete = parse_window(window, head, limits)?;
    if !complete && window.len() == head_bytes_max {
        return Err(Reject::bad_gateway("headers of a CGI response too long"));
    }
    Ok(complete)
}

fn parse_window(bytes: &[u8], head: &mut ResponseHead, limits: &Limits) -> Result<bool, Reject> {
    let mut fields = Fields::default();
    let mut at = 0;
    for number in 0.. {
        let Some((line, next)) = next_line(bytes, at, limits.header_bytes_max)? else {
            return Ok(false);
        };
        at = next;
        if line.is_empty() && number == 0 {
            return Err(Reject::bad_gateway("no headers in a CGI response"));
        }
        if line.is_empty() {
            break;
        }
        if number == limits.headers_max {
            return Err(Reject::bad_gateway(
                "too many header lines in a CGI response",
            ));
        }
        if number == 0 && line.of(bytes).starts_with(b"HTTP/") {
            fields.status_line(bytes, line)?;
        } else {
            fields.read(bytes, line, head)?;
        }
    }
    fields.finish(head);
    head.bytes = at;
    Ok(true)
}

/// The line at `at` without its end, and the start of the next one. `None` if it is incomplete; an
/// incomplete line is checked too, so that an endless line is not awaited.
fn next_line(bytes: &[u8], at: usize, bytes_max: usize) -> Result<Option<(Span, usize)>, Reject> {
    let rest = &bytes[at..];
    let window = &rest[..rest.len().min(bytes_max.saturating_add(2))];
    let end = memchr(b'\n', window);
    let text = &window[..end.unwrap_or(window.len())];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.len() > bytes_max {
        return Err(Reject::bad_gateway(
            "header line too long in a CGI response",
        ));
    }
    if text.iter().any(|&byte| is_control(byte)) {
        return Err(Reject::bad_gateway(
            "control character in the headers of a CGI response",
        ));
    }
    Ok(end.map(|end| (Span::new(at, at + text.len()), at + end + 1)))
}

/// Offset of the number in a status line: after `HTTP/1.1` and a space.
const STATUS_START: usize = 9;

/// The meaning of the lines so far. A contradiction is rejected at the line that causes it.
#[derive(Default)]
struct Fields {
    status: Option<u16>,
    reason: Span,
    location: Option<Span>,
    media_type: Option<Span>,
    length: Option<u64>,
}

impl Fields {
    fn status_line(&mut self, bytes: &[u8], line: Span) -> Result<(), Reject> {
        match line.of(bytes).split_at_checked(STATUS_START) {
            Some(([.., b'/', major, b'.', minor, b' '], _))
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                self.status(bytes, line.part(STATUS_START, line.len()))
            }
            _ => Err(Reject::bad_gateway("bad status line in a CGI response")),
        }
    }

    fn read(&mut self, bytes: &[u8], line: Span, head: &mut ResponseHead) -> Result<(), Reject> {
        let header = header_line(bytes, line).map_err(Reject::by_upstream)?;
        let name = header.name.of(bytes);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match header.value.of(bytes) {
            [] => return Ok(()),
            _ if is(b"status") => return self.status(bytes, header.value),
            value if is(b"content-length") => {
                let length = decimal::parse(value)
                    .ok_or(Reject::bad_gateway("bad Content-Length in a CGI response"))?;
                let repeated = "repeated Content-Length in a CGI response";
                set_once(&mut self.length, length, repeated)?;
            }
            _ if is(b"transfer-encoding") => {
                return Err(Reject::bad_gateway("Transfer-Encoding in a CGI response"));
            }
            _ if is(b"location") => {
                let repeated = "repeated Location in a CGI response";
                set_once(&mut self.location, header.value, repeated)?;
            }
            _ if is(b"content-type") => {
                let repeated = "repeated Content-Type in a CGI response";
                set_once(&mut self.media_type, header.value, repeated)?;
            }
            _ => {}
        }
        head.headers.push(header);
        Ok(())
    }

    fn finish(self, head: &mut ResponseHead) {
        let found = if self.location.is_some() { 302 } else { 200 };
        head.status = self.status.unwrap_or(found);
        head.reason = self.reason;
        head.content_length = self.length;
    }

    /// Three digits, optionally followed by a space and a reason.
    fn status(&mut self, bytes: &[u8], value: Span) -> Result<(), Reject> {
        let text = value.of(bytes);
        let status =
            text.split_at_checked(3)
                .filter(|(_, reason)| matches!(reason, [] | [b' ', ..]))
                .and_then(|(digits, _)| decimal::parse(digits))
                .filter(|status| (200..1000).contains(status))
                .ok_or(Reject::bad_gateway("bad status in a CGI response"))? as u16;
        self.reason = value.part(text.len().min(4), text.len());
        match self.status.replace(status) {
            Some(before) if before != status => Err(Reject::bad_gateway(
                "conflicting statuses in a CGI response",
            )),
            _ => Ok(()),
        }
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, repeated: &'static str) -> Result<(), Reject> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Reject::bad_gateway(repeated)),
    }
}
