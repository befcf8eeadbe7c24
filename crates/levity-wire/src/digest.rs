//! Digests of content: Repr-Digest, Content-Digest, and the headers that request them (RFC 9530).

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};

/// A hash algorithm that RFC 9530 calls secure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// All of them. The first one is preferred where the client has no preference.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The key in the dictionaries of headers.
    pub fn key(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }
}

/// The algorithm that the client prefers, from the values of Want-Repr-Digest or Want-Content-Digest (RFC 9530, 4): that
/// of the highest preference from 1 to 10. `None` if it wants none of ours.
///
/// Members that are malformed or of other algorithms are ignored. Of two with the same key the last one counts (RFC 9651,
/// 4.2.2).
pub fn wanted<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Algorithm> {
    let mut preferences = [0; Algorithm::ALL.len()];
    for member in values.flat_map(|value| value.split(|&byte| byte == b',')) {
        let of_algorithm = Algorithm::ALL
            .iter()
            .zip(&mut preferences)
            .find_map(|(algorithm, own)| Some((own, value_of(member, algorithm.key())?)));
        if let Some((own, value)) = of_algorithm {
            *own = preference(value).unwrap_or(0);
        }
    }
    let mut best = None;
    for (algorithm, preference) in Algorithm::ALL.into_iter().zip(preferences) {
        if preference > best.map_or(0, |(_, highest)| highest) {
            best = Some((algorithm, preference));
        }
    }
    best.map(|(algorithm, _)| algorithm)
}

/// What follows `key` in the member of a dictionary.
fn value_of<'a>(member: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let rest = member.trim_ascii().strip_prefix(key.as_bytes())?;
    (rest.is_empty() || b"=;".contains(&rest[0])).then_some(rest)
}

/// An integer from 0 to 10, which may have parameters.
fn preference(value: &[u8]) -> Option<u8> {
    let value = value.strip_prefix(b"=")?;
    let value = value.split(|&byte| byte == b';').next()?;
    match value {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        b"10" => Some(10),
        _ => None,
    }
}

/// The value of Repr-Digest or Content-Digest: a dictionary of one byte sequence (RFC 9530, 2 and 3).
pub fn value(algorithm: Algorithm, digest: &[u8]) -> String {
    format!("{}=:{}:", algorithm.key(), BASE64_STANDARD.encode(digest))
}

/// A strong ETag for content with this digest.
pub fn etag(digest: &[u8]) -> String {
    format!("\"{}\"", BASE64_URL_SAFE_NO_PAD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::Algorithm::{Sha256, Sha512};
    use super::*;

    fn of(values: &[&str]) -> Option<Algorithm> {
        wanted(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn the_highest_preference_is_chosen() {
        for (values, expected) in [
            (&["sha-256=1"][..], Some(Sha256)),
            (&["sha-512=3, sha-256=10, unixsum=0"], Some(Sha256)),
            (&["sha-256=3,sha-512=10"], Some(Sha512)),
            (&["sha-256=5, sha-512=5"], Some(Sha256)),
            (&["sha-512=5, sha-256=5"], Some(Sha256)),
            (&["sha-256=5", "sha-512=6"], Some(Sha512)),
            (&["sha-256=0, sha-512=1"], Some(Sha512)),
            (&[" \tsha-512=1;a=2 "], Some(Sha512)),
            (&["md5=10, sha-512=1"], Some(Sha512)),
            (&["sha-512=9, sha-256=1, sha-512=0"], Some(Sha256)),
            (&["sha-512=9, sha-256=1, sha-512"], Some(Sha256)),
            (&["sha-256=11, sha-512=1"], Some(Sha512)),
            (&["x=\"sha-256=10\", sha-512=1"], Some(Sha512)),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
    }

    #[test]
    fn others_want_none() {
        for value in [
            "",
            ",",
            "sha-256",
            "sha-256=",
            "sha-256=0",
            "sha-256=-1",
            "sha-256=11",
            "sha-256=100",
            "sha-256=010",
            "sha-256=1.0",
            "sha-256=?1",
            "sha-256=a",
            "sha-256 =1",
            "sha-256= 1",
            "SHA-256=1",
            "sha-2561=1",
            "sha-25=1",
            "sha256=1",
            "md5=1",
            "sha-256;a=1",
            "sha-256=(1 2)",
        ] {
            assert_eq!(of(&[value]), None, "{value}");
        }
    }

    /// The example of RFC 9530, B.1: the digest of `{"hello": "world"}` and a line end.
    #[test]
    fn values() {
        let digest = BASE64_STANDARD.decode("RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=");
        assert_eq!(
            value(Sha256, &digest.expect("base64")),
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
        );
        assert!(value(Sha512, &[0; 64]).starts_with("sha-512=:AAAA"));
        assert_eq!(etag(&[0xfb, 0xff]), "\"-_8\"");
    }
}
