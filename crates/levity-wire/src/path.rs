//! Paths: from the form in a request target to the form on disk, and back.

use crate::Reject;

const ESCAPED_SLASH: Reject = Reject::bad("escaped slash in the path");
/// In bytes: `%2F`.
const ESCAPED_LEN: usize = 3;
const CLIMBS: Reject = Reject::bad("path climbs above the root");

/// Decodes the path of a request into one that can be opened below a root, replacing `out`.
///
/// Percent escapes are decoded exactly once; then `.`, `..` and repeated slashes are removed
/// (RFC 3986, 5.2.4). The result has no leading slash, so the root is empty; a trailing slash is
/// kept, and `/a/.` has one. Names are bytes and need not be UTF-8. After an error `out` is
/// unspecified.
///
/// # Errors
/// 400 for a path that does not start with `/`, a bad escape, a NUL, a `..` above the root, and
/// `%2F`: decoded it would split a name in two on disk but not in routes, and kept it would name no
/// file at all.
pub fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Reject> {
    match decode_keeping_slashes(raw, out)? {
        false => Ok(()),
        true => Err(ESCAPED_SLASH),
    }
}

/// As [`decode`], but `%2F` stays as it was sent: applications take it for a byte of a name, so that the
/// path can still be routed to one. Tells whether there is any.
///
/// # Errors
/// As [`decode`], and for a dot segment beside a `%2F`: a reader who decodes it would climb out of the
/// route that was found.
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
    for segment in segments.split(|&byte| byte == b'/') {
        end_segment(out);
        let start = out.len();
        if decode_segment(segment, out)? {
            check_parts(&out[start..])?;
            keeps = true;
        }
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

/// Of a segment in which an escaped slash was kept.
fn check_parts(segment: &[u8]) -> Result<(), Reject> {
    let mut rest = segment;
    loop {
        let slash = rest
            .windows(ESCAPED_LEN)
            .position(|part| part.eq_ignore_ascii_case(b"%2F"));
        let part = &rest[..slash.unwrap_or(rest.len())];
        if matches!(part, b"." | b"..") {
            return Err(ESCAPED_SLASH);
        }
        match slash {
            Some(slash) => rest = &rest[slash + ESCAPED_LEN..],
            None => return Ok(()),
        }
    }
}

/// Puts a slash behind a name that something follows; after a removed segment there is one already.
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

/// Tells whether an escaped slash was kept.
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

/// The byte of an escape, and what follows it.
fn escape(after: &[u8]) -> Result<(u8, &[u8]), Reject> {
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

/// Appends a path from disk in the form for Location and href, keeping `/`.
///
/// Only letters, digits and ``-._~/!$()*+,;=@`` stay as they are. `&` and `'` would be allowed in a
/// URI, but not everywhere in HTML; `:` is allowed too, but turns the start of a relative reference
/// into a scheme. A leading `//` would name a host: give Location a path with one.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if is_plain(byte) {
            out.push(byte);
        } else {
            out.extend([
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
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
        for raw in [&b"/x/..%2Fa"[..], b"/a%2f..", b"/a%2F%2e%2Fb", b"/%2F.%2e"] {
            assert_eq!(kept(raw), Err(ESCAPED_SLASH), "{}", raw.escape_ascii());
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
