//! Response headers by which an application delegates its response: X-Sendfile, X-Accel-Redirect
//! and related ones.
//!
//! A value states the request of the application, not its permission: other code checks whether a
//! file is beneath a configured root, and whether an address is allowed. An invalid value is the
//! application's fault: every rejection is 502.

use std::borrow::Cow;
use std::time::Duration;

use crate::http1::split_host;
use crate::{Reject, decimal, path};

/// Maximum bytes in a path: the limit of the kernel.
pub const PATH_BYTES_MAX: usize = 4095;

/// Maximum parts of files in one response.
pub const PARTS_MAX: usize = 64;

/// Maximum URLs in one response.
pub const URLS_MAX: usize = 16;

const NO_PATH: Reject = Reject::bad_gateway("path without a leading slash");
const ESCAPED_STRUCTURE: Reject =
    Reject::bad_gateway("escaped slashes or dot segments in the path");
const TOO_LONG: Reject = Reject::bad_gateway("path too long");
const NUL: Reject = Reject::bad_gateway("NUL in the path");
const BAD_RANGE: Reject = Reject::bad_gateway("bad range of a file");
const BAD_URL: Reject = Reject::bad_gateway("bad URL");
const BAD_PARAMETER: Reject = Reject::bad_gateway("unknown or repeated parameter");
const BAD_TIME: Reject = Reject::bad_gateway("ttl= is not from 1 to 3600 seconds");

/// The kind of delegation, which determines the grammar of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegation {
    /// A file: [`file_path`].
    File,
    /// A file that is removed afterwards: [`file_path`].
    TemporaryFile,
    /// Concatenated parts of files: [`file_parts`].
    FileParts,
    /// Another path of this server: [`internal_uri`].
    InternalUri,
    /// The response of one of several other servers: [`urls`].
    Urls,
}

impl Delegation {
    /// The kind for a response header of this name, in any case.
    pub fn of(name: &[u8]) -> Option<Self> {
        let same = |known: &&(&str, Self)| name.eq_ignore_ascii_case(known.0.as_bytes());
        DELEGATIONS.iter().find(same).map(|known| known.1)
    }
}

const DELEGATIONS: [(&str, Delegation); 8] = [
    ("X-Sendfile", Delegation::File),
    ("X-LIGHTTPD-send-file", Delegation::File),
    ("X-Sendfile-Temporary", Delegation::TemporaryFile),
    ("X-LIGHTTPD-send-tempfile", Delegation::TemporaryFile),
    ("X-LIGHTTPD-send-temp-file", Delegation::TemporaryFile),
    ("X-Sendfile2", Delegation::FileParts),
    ("X-Accel-Redirect", Delegation::InternalUri),
    ("X-Reproxy-URL", Delegation::Urls),
];

/// Prefixes of headers between a proxy and its application.
///
/// `X-Sendfile-Type` and `X-Accel-Mapping` tell an application which header to respond with and how
/// to map a path on disk to one of the server. Libraries have accepted them from anyone: a client
/// that can send them can have any file sent, bypassing the checks of the application
/// (CVE-2025-61780 in Rack, CVE-2026-7381 in Plack).
const RESERVED: [&[u8]; 5] = [
    b"x-sendfile",
    b"x-accel-",
    b"x-lighttpd-",
    b"x-reproxy-",
    b"x-litespeed-",
];

/// The header by which an application asks every proxy before it not to buffer its response. Of all headers with these
/// prefixes only this one is for other proxies too, so it reaches clients.
pub const BUFFERING: &str = "X-Accel-Buffering";

/// Whether a header of this name must never be forwarded from a client to an application, nor,
/// unless it is [`BUFFERING`], from an application to a client.
///
/// Gateways turn names into environment variables, in which `X_Sendfile_Type` and `X-Sendfile-Type`
/// are equal. So any punctuation counts as a hyphen.
pub fn is_reserved(name: &[u8]) -> bool {
    RESERVED.iter().any(|start| starts_with(name, start))
}

pub(crate) fn starts_with(name: &[u8], start: &[u8]) -> bool {
    let same = |(&byte, &known): (&u8, &u8)| match known {
        b'-' => !byte.is_ascii_alphanumeric(),
        _ => byte.to_ascii_lowercase() == known,
    };
    name.len() >= start.len() && name.iter().zip(start).all(same)
}

/// A path on disk in both interpretations: applications disagree on whether it is escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath<'a> {
    /// As sent. Try it first: Rack, Symfony and Flask send unescaped paths.
    pub raw: &'a [u8],
    /// With percent escapes decoded as in lighttpd, if the result differs and is a path. Invalid
    /// escapes stay as they are.
    pub decoded: Option<Vec<u8>>,
}

/// Parses the value of [`Delegation::File`] and [`Delegation::TemporaryFile`]. The path is absolute and may
/// contain `.` and `..`: open it beneath a root, do not compare it with one.
///
/// # Errors
/// 502 for a path that is not absolute, contains a NUL or is longer than [`PATH_BYTES_MAX`].
pub fn file_path(value: &[u8]) -> Result<FilePath<'_>, Reject> {
    check_path(value)?;
    let decoded = match decode(value) {
        Cow::Owned(decoded) => has_same_structure(value, &decoded).then_some(decoded),
        Cow::Borrowed(_) => None,
    };
    Ok(FilePath {
        raw: value,
        decoded,
    })
}

/// Converts a path that is not UTF-8 from Latin-1 to UTF-8; `None` for other paths, and if the
/// result is too long. WSGI servers send header values so (PEP 3333): the `ü` of a name in UTF-8
/// arrives as the byte 0xFC. The conversion keeps slashes and dots.
pub fn utf8_of_latin1(path: &[u8]) -> Option<Vec<u8>> {
    if str::from_utf8(path).is_ok() {
        return None;
    }
    let read: String = path.iter().copied().map(char::from).collect();
    (read.len() <= PATH_BYTES_MAX).then(|| read.into_bytes())
}

/// Whether escapes affect only the bytes of names. An application that checked a name for slashes
/// and `..` has not seen escaped ones: decoded, they would lead out of the folder to which it
/// joined the name.
fn has_same_structure(raw: &[u8], decoded: &[u8]) -> bool {
    let slashes = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
    let dots = |path: &[u8]| {
        let names = path.split(|&byte| byte == b'/');
        names.filter(|name| matches!(*name, b"." | b"..")).count()
    };
    check_path(decoded).is_ok() && slashes(raw) == slashes(decoded) && dots(raw) == dots(decoded)
}

/// A path that is always escaped. One without an unescaped slash was escaped as a whole, after all
/// checks of the application.
fn escaped_path(raw: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    let path = decode(raw);
    check_path(&path)?;
    match raw.contains(&b'/') && !has_same_structure(raw, &path) {
        true => Err(ESCAPED_STRUCTURE),
        false => Ok(path),
    }
}

fn check_path(path: &[u8]) -> Result<(), Reject> {
    if !path.starts_with(b"/") {
        return Err(NO_PATH);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(TOO_LONG);
    }
    if path.contains(&0) {
        return Err(NUL);
    }
    Ok(())
}

/// Borrowed if there is no valid escape.
fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'%') {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        let escape = path::escape(after).ok().filter(|_| *byte == b'%');
        let (byte, after) = escape.unwrap_or((*byte, after));
        decoded.push(byte);
        rest = after;
    }
    match decoded.len() == raw.len() {
        true => Cow::Borrowed(raw),
        false => Cow::Owned(decoded),
    }
}

/// A path of this server that only applications may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalUri<'a> {
    /// As sent, not decoded.
    pub path: &'a [u8],
    /// The part after the first `?`, not decoded.
    pub query: Option<&'a [u8]>,
}

/// Parses the value of [`Delegation::InternalUri`], and decodes its path exactly once into `decoded`, as
/// [`path::decode`] does and in the form of a client's path. A `#` is an ordinary byte here.
///
/// # Errors
/// 502 for all errors of [`path::decode`], for a path without a leading slash, such as a URL or the
/// name of a location, and for one longer than [`PATH_BYTES_MAX`]. `decoded` is then unspecified.
pub fn internal_uri<'a>(value: &'a [u8], decoded: &mut Vec<u8>) -> Result<InternalUri<'a>, Reject> {
    let mut halves = value.splitn(2, |&byte| byte == b'?');
    let path = halves.next().unwrap_or_default();
    check_path(path)?;
    path::decode(path, decoded).map_err(Reject::by_upstream)?;
    Ok(InternalUri {
        path,
        query: halves.next(),
    })
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart<'a> {
    /// The absolute path on disk, with escapes decoded: a list has no other way to express a space
    /// in a path.
    pub path: Cow<'a, [u8]>,
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, not before `first`; `None` is the end of the file.
    pub last: Option<u64>,
}

/// Parses the value of [`Delegation::FileParts`]: `path first-[last]`, separated by commas. A path may
/// contain commas, as in lighttpd.
///
/// # Errors
/// 502 for anything else, for an invalid path as in [`file_path`], for a path in which some slashes
/// or dot segments are escaped, for numbers that do not fit in 64 bits or run backwards, for no
/// part at all and for more than [`PARTS_MAX`].
pub fn file_parts(value: &[u8]) -> Result<Vec<FilePart<'_>>, Reject> {
    let mut parts = Vec::new();
    let mut rest = trim_start(value);
    loop {
        if parts.len() == PARTS_MAX {
            return Err(Reject::bad_gateway("too many parts of files"));
        }
        let path_end = rest.iter().position(|&byte| byte == b' ');
        let (path, after) = rest.split_at(path_end.ok_or(BAD_RANGE)?);
        let range_end = after.iter().position(|&byte| byte == b',');
        let (range, after) = after.split_at(range_end.unwrap_or(after.len()));
        parts.push(file_part(path, range)?);
        match after {
            [] => return Ok(parts),
            [_comma, after @ ..] => rest = trim_start(after),
        }
    }
}

fn file_part<'a>(path: &'a [u8], range: &[u8]) -> Result<FilePart<'a>, Reject> {
    let path = escaped_path(path)?;
    let range = range.trim_ascii();
    let dash = range.iter().position(|&byte| byte == b'-');
    let (first, last) = range.split_at(dash.ok_or(BAD_RANGE)?);
    let first = decimal::parse(first).ok_or(BAD_RANGE)?;
    let last = match &last[1..] {
        [] => None,
        last => Some(decimal::parse(last).ok_or(BAD_RANGE)?),
    };
    if last.is_some_and(|last| last < first) {
        return Err(BAD_RANGE);
    }
    Ok(FilePart { path, first, last })
}

fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// The longest time for which preloaded content is kept.
pub const PRELOAD_TTL_MAX: Duration = Duration::from_secs(3600);

/// Preloaded content: a file that an application has produced for an expected request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preload<'a> {
    /// Path and query of that request, as the client will send them.
    pub target: &'a [u8],
    /// The absolute path on disk, with escapes decoded.
    pub path: Cow<'a, [u8]>,
    /// How long the content may be used.
    pub ttl: Duration,
    /// Its media type; if absent, the file name determines it.
    pub media_type: Option<&'a [u8]>,
}

/// Parses the value of `X-Sendfile-Preload`: `target path ttl=SECONDS [type=MEDIA-TYPE]`, separated
/// by spaces. A space in the path is escaped.
///
/// # Errors
/// 502 for anything else, also for a repeated parameter, for a target that does not begin with `/`,
/// for an invalid path as in [`file_parts`], and for a time that is 0 or longer than
/// [`PRELOAD_TTL_MAX`].
pub fn preload(value: &[u8]) -> Result<Preload<'_>, Reject> {
    let mut words = value
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let target = words.next().filter(|word| word.starts_with(b"/"));
    let target = target.ok_or(Reject::bad_gateway("no target that begins with a slash"))?;
    let path = escaped_path(words.next().ok_or(NO_PATH)?)?;
    let (mut ttl, mut media_type) = (None, None);
    for word in words {
        let (known, value) = match word.strip_prefix(b"ttl=") {
            Some(value) => (&mut ttl, value),
            None => {
                let value = word.strip_prefix(b"type=");
                (&mut media_type, value.ok_or(BAD_PARAMETER)?)
            }
        };
        if value.is_empty() || known.replace(value).is_some() {
            return Err(BAD_PARAMETER);
        }
    }
    Ok(Preload {
        target,
        path,
        ttl: ttl.and_then(time).ok_or(BAD_TIME)?,
        media_type,
    })
}

fn time(seconds: &[u8]) -> Option<Duration> {
    let time = Duration::from_secs(decimal::parse(seconds)?);
    (Duration::from_secs(1)..=PRELOAD_TTL_MAX)
        .contains(&time)
        .then_some(time)
}

/// A URL to fetch a response from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Url<'a> {
    /// Host and port as sent and valid, for a Host header. Compare by
    /// [`host_name`](crate::http1::host_name).
    pub host: &'a [u8],
    /// The port; 80 by default.
    pub port: u16,
    /// Path and query as sent, for a request line. It starts with `/`.
    pub target: &'a [u8],
}

/// Parses the value of [`Delegation::Urls`]: URLs to try in order, separated by spaces.
///
/// # Errors
/// 502 for a URL that is not of `http`, or has a user, a fragment, an invalid host, a query without
/// a path or a control character; for none at all and for more than [`URLS_MAX`].
pub fn urls(value: &[u8]) -> Result<Vec<Url<'_>>, Reject> {
    let mut urls = Vec::new();
    let words = value.split(|&byte| byte == b' ');
    for word in words.filter(|word| !word.is_empty()) {
        if urls.len() == URLS_MAX {
            return Err(Reject::bad_gateway("too many URLs"));
        }
        urls.push(url(word)?);
    }
    if urls.is_empty() {
        return Err(BAD_URL);
    }
    Ok(urls)
}

fn url(word: &[u8]) -> Result<Url<'_>, Reject> {
    let (scheme, rest) = word.split_at_checked(b"http://".len()).ok_or(BAD_URL)?;
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return Err(Reject::bad_gateway("URL scheme is not http"));
    }
    // A control character in a request line could end it.
    let is_bad = |&byte: &u8| byte < b' ' || byte == 0x7f || byte == b'#';
    if rest.iter().any(is_bad) {
        return Err(BAD_URL);
    }
    let host_end = rest.iter().position(|byte| b"/?".contains(byte));
    let (host, target) = rest.split_at(host_end.unwrap_or(rest.len()));
    let target = match target {
        [] => b"/",
        [b'/', ..] => target,
        _ => return Err(BAD_URL),
    };
    let authority = split_host(host).map_err(|_| BAD_URL)?;
    let port = match authority.port {
        None | Some([]) => 80,
        // Checked with the host: digits, at most 65535.
        Some(port) => decimal::parse(port).ok_or(BAD_URL)? as u16,
    };
    Ok(Url { host, port, target })
}
