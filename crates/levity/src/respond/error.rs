//! Answers that say what went wrong, and whose fault it was.

use std::io;

use rustix::io::Errno;

use super::{ALLOW, Body, Response};

/// Seconds after which a client may try again when the disk is busy.
const RETRY_AFTER_SECONDS: &[u8] = b"5";

/// An answer with a small text body: the status' name, and `detail` when it is not empty.
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
    response
}

/// The answer when a name could not be opened or read.
pub fn of_io(error: &io::Error) -> Response {
    let status = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => 404,
        Some(Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::NXIO | Errno::NODEV) => 403,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::CANCELED) => 503,
        None if error.kind() == io::ErrorKind::TimedOut => 503,
        _ => 500,
    };
    self::error(status, "")
}

/// The standard name of a status (RFC 9110, 15, and the registry that it begins).
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "Error",
    }
}
