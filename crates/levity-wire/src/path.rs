//! Paths: conversion between request targets, paths on disk, and paths for applications.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use memchr::memchr3;

use crate::Reject;

const ESCAPED_SLASH: Reject = Reject::bad("escaped slash in the path");
const HIDDEN_DOTS: Reject = Reject::bad("hidden dot segment in the path");
/// In bytes: `%2F`.
const ESCAPED_LEN: usize = 3;
const CLIMBS: Reject = Reject::bad("path climbs above the root");

/// Decodes the path of a request into one that can be opened beneath a root, replacing `out`.
///
/// Percent escapes are decoded exactly once; then `.`, `..` and repeated slashes are removed
/// (RFC 3986, 5.2.4). The result has no leading slash, so the root is empty; a trailing slash is
/// kept, and `/a/.` has one. Names are bytes and need not be UTF-8. After an error `out` is
/// unspecified.
///
/// # Errors
/// 400 for a path that does not start with `/`, an invalid escape, a NUL, a `..` above the root,
/// and `%2F`: decoded, it would split a name in two on disk but not in routes; kept, it would name
/// no file at all.
pub fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Reject> {
    match decode_keeping_slashes(raw, out)? {
        false => Ok(()),
        true => Err(ESCAPED_SLASH),
    }
}

/// As [`decode`], but keeps `%2F` as sent: applications treat it as a byte of a name, so such a
/// path can still be routed to one. Returns whether there is any.
///
/// # Errors
/// As [`decode`], except for `%2F`.
pub fn decode_keeping_slashes(raw: &[u8], out: &mut Vec<u8>) -> Result<bool, Reject> {
    out.clear();
    let mut keeps = false;
    let Some(segments) = raw.strip_prefix(b"/") else {
        return if raw.is_empty() {
            Ok(keeps)
        } else {
            Err(Reject::bad("path without a leading slash"))
        };
    };
    if are_literal(segments) {
        out.extend_from_slice(segments);
        return Ok(keeps);
    }
    for segment in segments.split(|&byte| byte == b'/') {
        end_segment(out);
        let start = out.len();
        keeps |= decode_segment(segment, out)?;
        match &out[start..] {
            b"." => out.truncate(start),
            b".." => {
                out.truncate(start);
                pop(out)?;
            }
            _ => {}
        }
    }
    Ok(keeps)
}

/// Whether the segments decode to themselves. Also false for some that do: those with a leading dot.
fn are_literal(segments: &[u8]) -> bool {
    let mut before = b'/';
    segments.iter().all(|&byte| {
        let is_literal = !MARKS[usize::from(byte)]
            || match byte {
                b'/' | b'.' => before != b'/',
                _ => false,
            };
        before = byte;
        is_literal
    })
}

/// Whether a byte may mean something else than itself, by its value: one look, where comparisons take four.
static MARKS: [bool; 256] = {
    let mut marks = [false; 256];
    marks[0] = true;
    marks[b'%' as usize] = true;
    marks[b'.' as usize] = true;
    marks[b'/' as usize] = true;
    marks
};

/// The bytes of a path with valid escapes, and whether each was escaped.
fn decoded(mut rest: &[u8]) -> impl Iterator<Item = (u8, bool)> {
    iter::from_fn(move || {
        let (&byte, after) = rest.split_first()?;
        let (byte, after, escaped) = match byte {
            b'%' => {
                let (byte, after) = escape(after).ok()?;
                (byte, after, true)
            }
            _ => (byte, after, false),
        };
        rest = after;
        Some((byte, escaped))
    })
}

/// Terminates a name with a slash; after a removed segment there is one already.
fn end_segment(out: &mut Vec<u8>) {
    if out.last().is_some_and(|&byte| byte != b'/') {
        out.push(b'/');
    }
}

/// Removes the last name of `a/b/`, leaving `a/`.
fn pop(out: &mut Vec<u8>) -> Result<(), Reject> {
    out.pop().ok_or(CLIMBS)?;
    let kept = out
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    out.truncate(kept);
    Ok(())
}

/// Returns whether an escaped slash was kept.
fn decode_segment(segment: &[u8], out: &mut Vec<u8>) -> Result<bool, Reject> {
    let mut keeps = false;
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        let (decoded, after) = match byte {
            b'%' => escape(after)?,
            _ => (*byte, after),
        };
        match decoded {
            0 => return Err(Reject::bad("NUL in the path")),
            b'/' => {
                keeps = true;
                out.extend_from_slice(&rest[..ESCAPED_LEN]);
            }
            _ => out.push(decoded),
        }
        rest = after;
    }
    Ok(keeps)
}

/// The byte of an escape whose `%` is before `after`, and the rest after it.
pub(crate) fn escape(after: &[u8]) -> Result<(u8, &[u8]), Reject> {
    let [high, low, rest @ ..] = after else {
        return Err(Reject::bad("bad percent escape in the path"));
    };
    match hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low) {
        Some(byte) => Ok((byte, rest)),
        None => Err(Reject::bad("bad percent escape in the path")),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The path of a request for an application: as sent, because applications distinguish `%2F` from a
/// slash and `a+b` from `a%2Bb`. It must not lead an application to another route than the one that
/// was selected, so
///
/// - dot segments are resolved, and the result is escaped again;
/// - leading slashes become one: `//a/b` is the path `/b` of a host `a` to software that treats a
///   target as a reference (RFC 3986, 4.2), such as `parse_url` of PHP and `new URL` of JavaScript;
/// - `\` and bytes from 0x80, which are invalid in URIs, are escaped: `new URL` treats `\` as a
///   slash.
///
/// [`other_readings`] returns the remaining ambiguities.
///
/// # Errors
/// 400 for `%2F` in a path with dot segments, which cannot be escaped again, and for dot segments
/// that only some applications find: those that treat `%2F` or `%5C` as a slash (`..%2F`), and
/// those that cut off parameters (`..;x`). For a path with dot segments also the errors of
/// [`decode`]; any other must have passed [`decode_keeping_slashes`].
pub fn forwarded(raw: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    let path = match has_dot_segment(raw) {
        true => Cow::Owned(resolved(raw)?),
        false => as_sent(raw),
    };
    match hides_dot_segment(&path) {
        true => Err(HIDDEN_DOTS),
        false => Ok(path),
    }
}

fn resolved(raw: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut path = Vec::with_capacity(raw.len());
    decode(raw, &mut path)?;
    let mut out = Vec::with_capacity(path.len() + 1);
    out.push(b'/');
    encode(&path, &mut out);
    Ok(out)
}

fn as_sent(raw: &[u8]) -> Cow<'_, [u8]> {
    match one_leading_slash(raw) {
        b"" => Cow::Borrowed(b"/"),
        path => escaped(path, |byte| byte == b'\\' || !byte.is_ascii()),
    }
}

/// Whether some application finds a dot segment in a path that has none.
fn hides_dot_segment(path: &[u8]) -> bool {
    if !has_marks(path) {
        return false;
    }
    let path: Vec<u8> = decoded(path).map(|(byte, _)| byte).collect();
    path.split(|byte| matches!(byte, b'/' | b'\\'))
        .filter_map(|part| part.split(|&byte| byte == b';').next())
        .any(|name| matches!(name, b"." | b".."))
}

/// Whether a path contains `;`, `\` or `%2F`, escaped or not: applications interpret these
/// differently.
fn has_marks(path: &[u8]) -> bool {
    memchr3(b'%', b';', b'\\', path).is_some()
        && decoded(path).any(|byte| matches!(byte, (b'/', true) | (b'\\' | b';', _)))
}

/// The query of a request for an application: as sent, with bytes from 0x80 escaped.
pub fn forwarded_query(raw: &[u8]) -> Cow<'_, [u8]> {
    escaped(raw, |byte| !byte.is_ascii())
}

/// The part of a path of [`forwarded`] that has become `part` of the decoded one: that of
/// [`decode_keeping_slashes`], with a slash before it. Its escapes and repeated slashes are those
/// that were sent; slashes that repeat one belong to what follows.
pub fn part_as_sent(path: &[u8], part: Range<usize>) -> &[u8] {
    let (mut rest, mut at, mut after_slash) = (path, 0, false);
    let mut start = None;
    while let [first, after @ ..] = rest {
        let sent = path.len() - rest.len();
        if at == part.start {
            start = start.or(Some(sent));
        }
        let (byte, after) = match escape(after) {
            // An escaped slash is three bytes in both.
            Ok(escaped) if *first == b'%' && escaped.0 != b'/' => escaped,
            _ => (*first, after),
        };
        // Slashes that repeat one are not in the decoded path.
        let is_repeated = after_slash && byte == b'/';
        if at == part.end && !is_repeated {
            return &path[start.unwrap_or(sent)..sent];
        }
        at += usize::from(!is_repeated);
        after_slash = byte == b'/';
        rest = after;
    }
    &path[start.unwrap_or(path.len())..]
}

/// The rest of `path` behind `prefix`: empty, or with a slash at its start. `None` unless `prefix` is whole segments of it: of
/// `/app` and `/apple` only one is beneath `/app`.
pub fn beneath<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The last segment of a path; empty for that of a folder.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Removes all leading slashes except the last.
pub fn one_leading_slash(mut path: &[u8]) -> &[u8] {
    while path.starts_with(b"//") {
        path = &path[1..];
    }
    path
}

fn escaped(raw: &[u8], is_escaped: impl Fn(u8) -> bool) -> Cow<'_, [u8]> {
    if !raw.iter().any(|&byte| is_escaped(byte)) {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len() + 16);
    for &byte in raw {
        match is_escaped(byte) {
            true => push_escaped(byte, &mut out),
            false => out.push(byte),
        }
    }
    Cow::Owned(out)
}

/// Whether a segment is `.` or `..`, escaped or not.
pub fn has_dot_segment(raw: &[u8]) -> bool {
    raw.split(|&byte| byte == b'/').any(|segment| {
        let mut rest = segment;
        let mut dots = 0;
        loop {
            rest = match rest {
                [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
                [] => return (1..=2).contains(&dots),
                _ => return false,
            };
            dots += 1;
        }
    })
}

/// The other interpretations that applications may give to a forwarded path: each differs from that
/// of [`decode`] and has the decoded form that routes are compared with, with its leading slash.
/// Empty for an unambiguous path. `path` is the result of [`forwarded`].
///
/// Some applications treat `%2F` as a slash, some `%5C`. Servlet containers cut off the parameters
/// of segments, which begin with `;`, before or after they decode escapes. All combinations occur.
pub fn other_readings(path: &[u8]) -> Vec<Vec<u8>> {
    if !has_marks(path) {
        return Vec::new();
    }
    let has = |mark| decoded(path).any(|(byte, escaped)| byte == mark && (escaped || mark != b'/'));
    let (slashes, backslashes) = (either(has(b'/')), either(has(b'\\')));
    let parameters: &[Parameters] = match has(b';') {
        true => &[Parameters::Kept, Parameters::CutFirst, Parameters::CutLast],
        false => &[Parameters::Kept],
    };
    let mut readings = Vec::new();
    for &parameters in parameters {
        for &slashes in slashes {
            for &backslashes in backslashes {
                let reading = Reading {
                    slashes,
                    backslashes,
                    parameters,
                };
                readings.push(reading.of(path));
            }
        }
    }
    // The first one is the interpretation of [`decode`].
    readings.split_off(1)
}

fn either(is_possible: bool) -> &'static [bool] {
    if is_possible {
        &[false, true]
    } else {
        &[false]
    }
}

/// A way to interpret a path.
struct Reading {
    /// `%2F` is a slash.
    slashes: bool,
    /// `%5C` is a slash.
    backslashes: bool,
    parameters: Parameters,
}

/// The treatment of the parameters of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Kept,
    /// Removed before escapes are decoded, up to the next unescaped slash.
    CutFirst,
    /// Removed when escapes are decoded.
    CutLast,
}

impl Reading {
    /// Interprets a path without dot segments.
    fn of(&self, path: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(path.len());
        for segment in path.split(|&byte| byte == b'/') {
            if !out.ends_with(b"/") {
                out.push(b'/');
            }
            self.push(segment, &mut out);
        }
        out
    }

    fn push(&self, segment: &[u8], out: &mut Vec<u8>) {
        let mut cuts = false;
        for (byte, escaped) in decoded(segment) {
            let is_slash = (byte == b'/' && self.slashes) || (byte == b'\\' && self.backslashes);
            match byte {
                b';' if self.parameters == Parameters::CutFirst && !escaped => return,
                b';' if self.parameters == Parameters::CutLast => cuts = true,
                _ if is_slash => {
                    cuts = false;
                    if !out.ends_with(b"/") {
                        out.push(b'/');
                    }
                }
                _ if cuts => {}
                b'/' => out.extend_from_slice(b"%2F"),
                _ => out.push(byte),
            }
        }
    }
}

/// Appends a path from disk, encoded for Location and href, keeping `/`.
///
/// Only letters, digits and ``-._~/!$()*+,;=@`` stay unescaped. `&` and `'` would be valid in a
/// URI, but not everywhere in HTML; `:` is valid too, but turns the start of a relative reference
/// into a scheme. A leading `//` would name a host: use this with one leading slash for Location.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match is_plain(byte) {
            true => out.push(byte),
            false => push_escaped(byte, out),
        }
    }
}

fn push_escaped(byte: u8, out: &mut Vec<u8>) {
    out.extend([
        b'%',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 15)],
    ]);
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/!$()*+,;=@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(raw: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut out = b"left over".to_vec();
        decode(raw, &mut out).map(|()| out).map_err(|reject| {
            assert_eq!(reject.status, 400);
            reject.reason
        })
    }

    #[test]
    fn an_escaped_slash_can_be_kept() {
        let mut out = Vec::new();
        let mut kept =
            |raw: &[u8]| decode_keeping_slashes(raw, &mut out).map(|is| (is, out.clone()));
        assert_eq!(kept(b"/a%2Fb/%41%2f"), Ok((true, b"a%2Fb/A%2f".to_vec())));
        assert_eq!(kept(b"/a%252Fb/.."), Ok((false, b"".to_vec())));
    }

    #[test]
    fn forwarded_paths() {
        let as_sent = [
            "/",
            "/a%2Fb",
            "/a%252Fb",
            "/a+b%2Bc",
            "/a//b",
            "/a;b=c/d",
            "/a%5Cb",
            "/...;",
            "/a..;/b",
            "/a/.b;c",
            "/x;..",
            "/%252e%252e%252fa",
            "/{|}^`",
        ];
        for path in as_sent {
            assert_eq!(
                forwarded(path.as_bytes()),
                Ok(path.as_bytes().into()),
                "{path}"
            );
        }
        for (raw, path) in [
            (&b""[..], "/"),
            (b"//a//b", "/a//b"),
            (b"///", "/"),
            (b"/a/../b", "/b"),
            (b"/a//../b%20", "/b%20"),
            (b"//a/./..", "/"),
            (b"/\\a\\b", "/%5Ca%5Cb"),
            (b"/caf\xc3\xa9", "/caf%C3%A9"),
            (b"/x/../caf\xc3\xa9/%c3", "/caf%C3%A9/%C3"),
            (b"/..;/../a", "/a"),
        ] {
            assert_eq!(
                forwarded(raw),
                Ok(path.as_bytes().into()),
                "{}",
                raw.escape_ascii()
            );
        }
        assert_eq!(&*forwarded_query(b"a=\\&\xff?"), b"a=\\&%FF?");
    }

    #[test]
    fn a_part_is_as_it_was_sent() {
        for (path, start, end, part) in [
            ("/old/a%2Fb:&[%5b", 5, 15, "a%2Fb:&[%5b"),
            ("/%6Fld/%41//b/", 5, 9, "%41//b/"),
            ("/old//a//", 5, 7, "/a//"),
            ("//old", 1, 4, "/old"),
            ("/a//b/c", 3, 4, "/b"),
            ("/a%252Fb/c", 1, 6, "a%252Fb"),
            ("/a/b", 2, 2, ""),
            ("/a", 2, 2, ""),
            ("/a", 9, 9, ""),
        ] {
            let found = part_as_sent(path.as_bytes(), start..end);
            assert_eq!(found.escape_ascii().to_string(), part, "{path}");
        }
    }

    #[test]
    fn hidden_dot_segments_are_rejected() {
        for path in [
            "/x/..%2Fa",
            "/a%2f..",
            "/a%2F%2e%2Fb",
            "/%2F.%2e",
            "/public/..;/admin",
            "/public/..%3b/admin",
            "/public/%2e%2e;x/admin",
            "/a/.;",
            "/a/..\\b",
            "/a\\..\\b",
            "/a%5c..",
            "/a%2F..%3Bx%2Fb",
            "/x;a%2F..;y",
            "/x/../public/..;/admin",
        ] {
            assert_eq!(forwarded(path.as_bytes()), Err(HIDDEN_DOTS), "{path}");
        }
        assert_eq!(forwarded(b"/a%2Fb/../c"), Err(ESCAPED_SLASH));
    }

    #[test]
    fn other_interpretations_of_a_path() {
        for (path, readings) in [
            ("/a%252Fb/%20c%25", &[][..]),
            ("/admin%2Fusers", &["/admin/users"]),
            ("/%2fadmin/x", &["/admin/x"]),
            ("/a%2F", &["/a/"]),
            ("/a%5cb", &["/a/b"]),
            ("/a;x=1/b;y", &["/a/b", "/a/b"]),
            ("/a%3bx/b", &["/a;x/b", "/a/b"]),
            ("/;x/a", &["/a", "/a"]),
            ("/a;", &["/a", "/a"]),
            ("/a%2Fb%5Cc", &["/a%2Fb/c", "/a/b\\c", "/a/b/c"]),
            (
                "/a%2Fb;c%2Fd",
                &["/a/b;c/d", "/a%2Fb", "/a/b", "/a%2Fb", "/a/b/d"],
            ),
        ] {
            let read = other_readings(path.as_bytes());
            let read: Vec<_> = read
                .iter()
                .map(|path| path.escape_ascii().to_string())
                .collect();
            let readings: Vec<_> = readings
                .iter()
                .map(|path| path.escape_default().to_string())
                .collect();
            assert_eq!(read, readings, "{path}");
        }
    }

    #[test]
    fn dot_segments_are_seen_escaped_or_not() {
        for path in ["/a/..", "/./a", "/a/%2e%2E/b", "/.%2e", "/a/."] {
            assert!(has_dot_segment(path.as_bytes()), "{path}");
        }
        for path in [
            "/",
            "/a..b",
            "/...",
            "/.well-known/x",
            "/a/.%2e.",
            "/%2e%2e%2e",
            "//",
        ] {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn paths() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"", b""),
            (b"/", b""),
            (b"//", b""),
            (b"/a", b"a"),
            (b"/a/", b"a/"),
            (b"//a///b//", b"a/b/"),
            (b"/a/./b", b"a/b"),
            (b"/a/.", b"a/"),
            (b"/.", b""),
            (b"/./a", b"a"),
            (b"/a/..", b""),
            (b"/a/../", b""),
            (b"/a/b/..", b"a/"),
            (b"/a/b/../c", b"a/c"),
            (b"/a//../b", b"b"),
            (b"/a/b/../../c", b"c"),
            (b"/a/%2e%2E/b", b"b"),
            (b"/a/.%2e/b", b"b"),
            (b"/%2e/a", b"a"),
            (b"/...", b"..."),
            (b"/a/..b/b..", b"a/..b/b.."),
            (b"/.hidden", b".hidden"),
            (b"/%61", b"a"),
            (b"/%2541", b"%41"),
            (b"/%252e%252e/a", b"%2e%2e/a"),
            (b"/a%20b+c", b"a b+c"),
            (b"/%C3%a9", b"\xc3\xa9"),
            (b"/\xff%ff", b"\xff\xff"),
            (b"/a%0d%0a", b"a\r\n"),
            (b"/a\\..\\b", b"a\\..\\b"),
            (b"/a%3fb%23c", b"a?b#c"),
        ];
        for (raw, path) in cases {
            assert_eq!(decoded(raw).as_deref(), Ok(*path), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn bad_paths() {
        let cases: &[(&[u8], &str)] = &[
            (b"/..", "path climbs above the root"),
            (b"/../a", "path climbs above the root"),
            (b"/%2e%2e/a", "path climbs above the root"),
            (b"/%2e./a", "path climbs above the root"),
            (b"/a/../../b", "path climbs above the root"),
            (b"//../a", "path climbs above the root"),
            (b"/./../a", "path climbs above the root"),
            (b"/a/b/../../../c/d/e", "path climbs above the root"),
            (b"/%", "bad percent escape in the path"),
            (b"/%4", "bad percent escape in the path"),
            (b"/%4/1", "bad percent escape in the path"),
            (b"/%4g", "bad percent escape in the path"),
            (b"/%+1", "bad percent escape in the path"),
            (b"/%u0041", "bad percent escape in the path"),
            (b"/%%41", "bad percent escape in the path"),
            (b"/a%00", "NUL in the path"),
            (b"/a\0", "NUL in the path"),
            (b"/a%2fb", "escaped slash in the path"),
            (b"/..%2Fa", "escaped slash in the path"),
            (b"a", "path without a leading slash"),
            (b"%2fa", "path without a leading slash"),
        ];
        for (raw, reason) in cases {
            assert_eq!(decoded(raw), Err(*reason), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn encoding() {
        let mut out = b"/".to_vec();
        encode(
            b"a b/c?d#e%f\"<g>&'h:i\\j\r\n\0\x7f\xc3\xa9{|}^`[]~x-._!$()*+,;=@",
            &mut out,
        );
        let expected = "/a%20b/c%3Fd%23e%25f%22%3Cg%3E%26%27h%3Ai%5Cj%0D%0A%00%7F%C3%A9\
            %7B%7C%7D%5E%60%5B%5D~x-._!$()*+,;=@";
        assert_eq!(out.escape_ascii().to_string(), expected);
    }

    #[test]
    fn every_byte_survives_the_way_there_and_back() {
        for byte in (1..=255).filter(|&byte| byte != b'/') {
            let name = [b'a', byte];
            let mut raw = b"/".to_vec();
            encode(&name, &mut raw);
            assert_eq!(decoded(&raw).as_deref(), Ok(&name[..]));
        }
    }
}
