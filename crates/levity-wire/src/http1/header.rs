//! Header lines and the limit on the header size, shared by requests and responses (RFC 9112, 5).

use super::line::{Lines, token_len, trim_end, trim_start};
use super::{HeaderSpan, Headers, Limits, Reject, Span};

const HEADER_TOO_LONG: Reject = Reject::new(431, "header line too long");
const HEAD_TOO_LONG: Reject = Reject::new(431, "header section too long");
const HEADERS_TOO_MANY: Reject = Reject::new(431, "too many header lines");

/// Calls `parse` with at most `head_bytes_max` bytes, and rejects a longer header section.
pub(super) fn within_bound(
    bytes: &[u8],
    limits: &Limits,
    parse: impl FnOnce(&[u8]) -> Result<bool, Reject>,
) -> Result<bool, Reject> {
    let head_bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
    let window = &bytes[..bytes.len().min(head_bytes_max)];
    let complete = parse(window)?;
    if !complete && window.len() == head_bytes_max {
        return Err(HEAD_TOO_LONG);
    }
    Ok(complete)
}

/// Parses header lines up to the blank line, and passes each to `read`. `Ok(false)`: the blank line
/// has not arrived.
pub(super) fn read_headers(
    bytes: &[u8],
    lines: &mut Lines<'_>,
    headers: &mut Headers,
    limits: &Limits,
    mut read: impl FnMut(HeaderSpan) -> Result<(), Reject>,
) -> Result<bool, Reject> {
    loop {
        let Some(line) = lines.next(limits.header_bytes_max, HEADER_TOO_LONG)? else {
            return Ok(false);
        };
        if line.is_empty() {
            return Ok(true);
        }
        if headers.len() == limits.headers_max {
            return Err(HEADERS_TOO_MANY);
        }
        let header = header_line(bytes, line)?;
        headers.push(header);
        read(header)?;
    }
}

/// Always inlined: it runs for each line of a request, and with more than one caller the compiler
/// emits a measurable call.
#[inline(always)]
pub(crate) fn header_line(bytes: &[u8], line: Span) -> Result<HeaderSpan, Reject> {
    let text = line.of(bytes);
    let name_end = token_len(text);
    if name_end == 0 || text.get(name_end) != Some(&b':') {
        return Err(without_name(text));
    }
    let value_start = text.len() - trim_start(&text[name_end + 1..]).len();
    let value_len = trim_end(&text[value_start..]).len();
    Ok(HeaderSpan {
        name: line.part(0, name_end),
        value: line.part(value_start, value_start + value_len),
    })
}

/// Why a line does not start with a name and a colon.
fn without_name(line: &[u8]) -> Reject {
    Reject::bad(match line {
        [b' ' | b'\t', ..] => "folded header line",
        _ if !line.contains(&b':') => "header line without a colon",
        _ => "bad header name, or white space before its colon",
    })
}
