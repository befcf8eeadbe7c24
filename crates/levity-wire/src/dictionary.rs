//! Compression dictionaries: content that the client has, so that a response can be the delta from it (RFC 9842).

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::encoding::Coding;

/// The SHA-256 of a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

/// The dictionary that a client has, from the value of Available-Dictionary: a byte sequence between colons (RFC 9842,
/// 2.2; RFC 9651, 3.3.5). `None` if it is malformed; a client has no more than one for a request.
pub fn available(value: &[u8]) -> Option<Digest> {
    let text = value.strip_prefix(b":")?.strip_suffix(b":")?;
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    bytes.try_into().ok().map(Digest)
}

/// The value of Use-As-Dictionary for the content at `path`, the path of the URL as sent: the client may use the content
/// as dictionary for later responses of this path, with any query (RFC 9842, 2.1).
///
/// The pattern is relative to the URL, because a proxy may have removed the start of its path. `None` for a path that such
/// a header cannot express: not in ASCII.
pub fn use_as(path: &[u8]) -> Option<Vec<u8>> {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    let pattern = match slash {
        Some(at) if at + 1 < path.len() => &path[at + 1..],
        _ => path,
    };
    let mut value = b"match=\"".to_vec();
    for &byte in pattern {
        if !(b' '..=b'~').contains(&byte) {
            return None;
        }
        // Of the syntax of URL patterns. Their escape is a backslash, which a string has to escape too (RFC 9651, 3.3.3).
        if b"*+?:{}()\\".contains(&byte) {
            value.extend_from_slice(b"\\\\");
        }
        if b"\"\\".contains(&byte) {
            value.push(b'\\');
        }
        value.push(byte);
    }
    value.push(b'"');
    Some(value)
}

/// What the content begins with in `coding`: a magic number and the digest of the dictionary (RFC 9842, 4 and 5). Empty
/// for a coding without a dictionary.
pub fn prefix(coding: Coding, digest: Digest) -> Vec<u8> {
    let magic: &[u8] = match coding {
        // A skippable frame of zstd, of 32 bytes.
        Coding::Dcz => &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0],
        Coding::Dcb => b"\xffDCB",
        Coding::Zstd | Coding::Brotli | Coding::Gzip => return Vec::new(),
    };
    [magic, &digest.0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_between_colons() {
        // The example of RFC 9842, 2.2.
        let value = b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";
        let Digest(bytes) = available(value).expect("a digest");
        assert_eq!((bytes[0], bytes[31]), (0xa5, 0x6e));
        for bad in [
            "",
            ":",
            "::",
            "pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2f:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4AAAA=:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:;a",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2f\u{e4}G4=:",
        ] {
            assert_eq!(available(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn paths_are_patterns_that_match_only_themselves() {
        for (path, expected) in [
            ("/app.js", r#"match="app.js""#),
            ("/a/b/app.js", r#"match="app.js""#),
            ("/a/", r#"match="/a/""#),
            ("/", r#"match="/""#),
            ("/a%20b-c_d~!$&',;=@", r#"match="a%20b-c_d~!$&',;=@""#),
            ("/a*(b)", r#"match="a\\*\\(b\\)""#),
            ("/:x{1}+", r#"match="\\:x\\{1\\}\\+""#),
            ("/\"\\", r#"match="\"\\\\""#),
        ] {
            let value = use_as(path.as_bytes()).expect("it is in ASCII");
            assert_eq!(String::from_utf8_lossy(&value), expected);
        }
        for bad in ["/\u{e4}", "/\u{7f}", "/\n"] {
            assert_eq!(use_as(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn content_begins_with_the_digest() {
        let digest = Digest([7; 32]);
        for (coding, length) in [(Coding::Dcz, 40), (Coding::Dcb, 36), (Coding::Gzip, 0)] {
            let prefix = prefix(coding, digest);
            assert_eq!(prefix.len(), length);
            assert!(length == 0 || prefix.ends_with(&[7; 32]));
        }
    }
}
