//! Error responses.

use std::io;

use levity_wire::http1::reason;
use rustix::io::Errno;

use super::response::{Body, Response};

/// The methods that are allowed for files.
pub const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";

/// The value of Retry-After when the disk is busy.
const RETRY_AFTER_SECONDS: &[u8] = b"5";

/// A response with a text body of one line: status, reason phrase, and `detail` unless it is empty.
pub fn error(status: u16, detail: &str) -> Response {
    let mut response = Response::new(status);
    response
        .fields
        .add("Content-Type", b"text/plain; charset=utf-8");
    match status {
        405 => response.fields.add("Allow", ALLOW),
        503 => response.fields.add("Retry-After", RETRY_AFTER_SECONDS),
        _ => {}
    }
    let name = reason(status);
    let text = match detail {
        "" => format!("{status} {name}\n"),
        detail => format!("{status} {name}: {detail}\n"),
    };
    response.body = Body::Text(text.into_bytes());
    response.is_error_text = status >= 400;
    response
}

/// The detail that an error tells its client; empty without one. `None` for other responses.
pub fn detail(response: &Response) -> Option<&str> {
    let text = match &response.body {
        Body::Text(text) if response.is_error_text => str::from_utf8(text).unwrap_or_default(),
        _ => "",
    };
    let detail = text.split_once(": ").map_or("", |(_, detail)| detail);
    (response.status >= 400).then(|| detail.trim_end())
}

/// The response when a file could not be opened or read.
pub fn from_io(error: &io::Error) -> Response {
    self::error(status_of(error), "")
}

/// The status of that response.
pub fn status_of(error: &io::Error) -> u16 {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => 404,
        Some(Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::NXIO | Errno::NODEV) => 403,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::CANCELED) => 503,
        None if matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::QuotaExceeded
        ) =>
        {
            503
        }
        _ => 500,
    }
}
