//! ETags of content that was given a coding on its way.
//!
//! Each coding of a representation needs an ETag of its own (RFC 9110, 8.8.3.3). It is weak, because the level of
//! compression, and so the bytes, may differ from one response to the next. It has the coding as a suffix: `"v1"`
//! becomes `W/"v1~zstd"`. The origin knows only its own tag, so the suffix is removed from conditions of requests.
//!
//! The separator is not the usual hyphen: an application that compresses by itself has tags such as `"v1-gzip"`
//! (mod_deflate of Apache), which must come back to it as they are.

//!
//! A delta has the start of the dictionary's digest in its tag too: `W/"v1~dcz.0011223344556677"`. A shared cache that keeps
//! the delta from another dictionary must not be told that it is still good for this client.

use crate::condition;
use crate::dictionary::Digest;
use crate::encoding::Coding;

/// Between the tag of the origin and the coding.
const SEPARATOR: u8 = b'~';

/// The ETag of the content that `etag` names, in `coding`. `None` if it is not an ETag.
pub fn coded(etag: &[u8], coding: Coding) -> Option<Vec<u8>> {
    with_suffix(etag, coding.name().as_bytes())
}

/// The ETag of the delta of that content from a dictionary.
pub fn of_delta(etag: &[u8], coding: Coding, dictionary: Digest) -> Option<Vec<u8>> {
    with_suffix(etag, &delta_suffix(coding, dictionary))
}

fn with_suffix(etag: &[u8], suffix: &[u8]) -> Option<Vec<u8>> {
    let opaque = etag.strip_prefix(b"W/").unwrap_or(etag);
    let text = opaque.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some([b"W/\"", text, &[SEPARATOR], suffix, b"\""].concat())
}

fn delta_suffix(coding: Coding, dictionary: Digest) -> Vec<u8> {
    let mut suffix = format!("{}.", coding.name());
    for byte in &dictionary.0[..DIGEST_BYTES] {
        suffix.push_str(&format!("{byte:02x}"));
    }
    suffix.into_bytes()
}

/// The bytes of a digest in a tag.
const DIGEST_BYTES: usize = 8;

/// The suffixes to remove.
#[derive(Debug, Clone, Copy)]
pub struct Suffixes<'a> {
    /// Those of these codings.
    pub codings: &'a [Coding],
    /// Those of deltas.
    pub deltas: Deltas,
}

/// Deltas that a response may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deltas {
    /// None.
    None,
    /// Those from this dictionary.
    From(Digest),
    /// All.
    Any,
}

/// A value without the suffixes.
#[derive(Debug, PartialEq, Eq)]
pub struct Uncoded {
    /// The new length in bytes; it is the same if no tag has such a suffix.
    pub length: usize,
    /// The tags that had one, as they were, each with a comma.
    pub coded: Vec<u8>,
}

/// Removes suffixes from the tags in `value`, the value of If-None-Match, or of If-Match if `is_compared_strongly`: then
/// those tags become strong, because the client holds a coding of exactly that representation.
pub fn uncode(value: &mut [u8], suffixes: Suffixes<'_>, is_compared_strongly: bool) -> Uncoded {
    let weak: &[u8] = if is_compared_strongly { b"" } else { b"W/" };
    let suffixes = suffixes.for_list(value);
    let mut coded = Vec::new();
    // What is between the tags stays: tags may adjoin, and a separator more would make the value longer.
    let (mut list, mut listed) = (Vec::with_capacity(value.len()), 0);
    for tag in condition::tags(value) {
        let start = tag.as_ptr().addr() - value.as_ptr().addr();
        list.extend_from_slice(&value[listed..start]);
        listed = start + tag.len();
        match split(tag).filter(|(_, suffix)| suffixes.include(suffix)) {
            Some((text, _)) => {
                coded.extend_from_slice(tag);
                coded.push(b',');
                list.extend([weak, b"\"", text, b"\""].concat());
            }
            None => list.extend_from_slice(tag),
        }
    }
    list.extend_from_slice(&value[listed..]);
    value[..list.len()].copy_from_slice(&list);
    Uncoded {
        length: list.len(),
        coded,
    }
}

/// The tag in the list `coded` that was `etag` with a suffix.
pub fn restored(coded: &[u8], etag: &[u8]) -> Option<Vec<u8>> {
    let opaque = etag.strip_prefix(b"W/").unwrap_or(etag);
    let own = opaque.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_own = |tag: &&[u8]| split(tag).is_some_and(|(text, _)| text == own);
    condition::tags(coded).find(is_own).map(<[u8]>::to_vec)
}

/// The tag of the origin and the suffix in a weak tag, without quotes.
fn split(tag: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = tag.strip_prefix(b"W/\"")?.strip_suffix(b"\"")?;
    let at = text.iter().rposition(|&byte| byte == SEPARATOR)?;
    Some((&text[..at], &text[at + 1..]))
}

impl Suffixes<'_> {
    /// The suffixes to remove from the tags in `value`. A browser without a dictionary may hold content that it made from
    /// a delta, and names one tag. Several are those of a shared cache, which must not be told that a delta is good for
    /// a client without the dictionary.
    fn for_list(self, value: &[u8]) -> Self {
        match self.deltas {
            Deltas::Any if condition::tags(value).nth(1).is_some() => Self {
                deltas: Deltas::None,
                ..self
            },
            _ => self,
        }
    }

    fn include(&self, suffix: &[u8]) -> bool {
        let is = |coding: &Coding| suffix == coding.name().as_bytes();
        let is_delta = || match self.deltas {
            Deltas::None => false,
            Deltas::From(dictionary) => Coding::WITH_DICTIONARY
                .into_iter()
                .any(|coding| suffix == delta_suffix(coding, dictionary)),
            Deltas::Any => Coding::WITH_DICTIONARY.into_iter().any(|coding| {
                let digest = suffix.strip_prefix(coding.name().as_bytes());
                let digest = digest.and_then(|digest| digest.strip_prefix(b"."));
                digest.is_some_and(|digest| {
                    digest.len() == 2 * DIGEST_BYTES && digest.iter().all(u8::is_ascii_hexdigit)
                })
            }),
        };
        self.codings.iter().any(is) || is_delta()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODINGS: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

    const SUFFIXES: Suffixes<'_> = Suffixes {
        codings: &CODINGS,
        deltas: Deltas::None,
    };

    #[test]
    fn the_tag_of_a_delta_names_its_dictionary() {
        let (own, other) = (Digest([0xab; 32]), Digest([1; 32]));
        let tag = of_delta(b"\"v1\"", Coding::Dcz, own).expect("a tag");
        assert_eq!(tag, b"W/\"v1~dcz.abababababababab\"");
        let is_removed = |tag: &[u8], deltas| {
            let mut value = tag.to_vec();
            let suffixes = Suffixes { deltas, ..SUFFIXES };
            let uncoded = uncode(&mut value, suffixes, false);
            let is_removed = &value[..uncoded.length] == b"W/\"v1\"";
            assert_eq!(is_removed, restored(&uncoded.coded, b"\"v1\"").is_some());
            is_removed
        };
        for (deltas, expected) in [
            (Deltas::Any, true),
            (Deltas::From(own), true),
            (Deltas::From(other), false),
            (Deltas::None, false),
        ] {
            assert_eq!(is_removed(&tag, deltas), expected, "{deltas:?}");
        }
        for other in [
            "dcz",
            "dcz.",
            "dcz.ab",
            "dcz.abababababababag",
            "dcy.abababababababab",
        ] {
            let tag = format!("W/\"v1~{other}\"");
            assert!(!is_removed(tag.as_bytes(), Deltas::Any), "{other}");
        }
    }

    #[test]
    fn deltas_stay_in_the_list_of_a_shared_cache() {
        let list = b"W/\"a~dcz.abababababababab\", W/\"a~zstd\"";
        for (deltas, expected) in [
            (Deltas::Any, &b"W/\"a~dcz.abababababababab\", W/\"a\""[..]),
            (Deltas::From(Digest([0xab; 32])), b"W/\"a\", W/\"a\""),
        ] {
            let mut value = list.to_vec();
            let suffixes = Suffixes { deltas, ..SUFFIXES };
            let length = uncode(&mut value, suffixes, false).length;
            assert_eq!(&value[..length], expected);
        }
    }

    #[test]
    fn a_coded_tag_is_weak_and_has_a_suffix() {
        let coded = |etag: &str| coded(etag.as_bytes(), Coding::Brotli);
        assert_eq!(coded("\"a\"").as_deref(), Some(&b"W/\"a~br\""[..]));
        assert_eq!(coded("W/\"a\"").as_deref(), Some(&b"W/\"a~br\""[..]));
        assert_eq!(coded("\"\"").as_deref(), Some(&b"W/\"~br\""[..]));
        for bad in ["", "a", "\"", "W/a", "\"a"] {
            assert_eq!(coded(bad), None, "{bad}");
        }
    }

    #[test]
    fn suffixes_are_removed_from_lists() {
        for (value, weakly, strongly) in [
            ("W/\"a~zstd\"", "W/\"a\"", "\"a\""),
            ("W/\"a~gzip\" , \"b\"", "W/\"a\" , \"b\"", "\"a\" , \"b\""),
            // Without separators, and with what is no tag behind them.
            (
                "W/\"a~zstd\"\"b\"\"c\"\"d\"",
                "W/\"a\"\"b\"\"c\"\"d\"",
                "\"a\"\"b\"\"c\"\"d\"",
            ),
            ("W/\"a~zstd\", b", "W/\"a\", b", "\"a\", b"),
            ("\"b\",W/\"~zstd\"", "\"b\",W/\"\"", "\"b\",\"\""),
            ("W/\"a~zstd~zstd\"", "W/\"a~zstd\"", "\"a~zstd\""),
            // Not of these codings, strong, or no tags.
            ("W/\"a~br\"", "W/\"a~br\"", "W/\"a~br\""),
            ("\"a~zstd\"", "\"a~zstd\"", "\"a~zstd\""),
            ("W/\"a-zstd\"", "W/\"a-zstd\"", "W/\"a-zstd\""),
            ("W/\"azstd\"", "W/\"azstd\"", "W/\"azstd\""),
            ("*", "*", "*"),
            ("", "", ""),
            ("W/\"a~zstd", "W/\"a~zstd", "W/\"a~zstd"),
        ] {
            for (is_compared_strongly, expected) in [(false, weakly), (true, strongly)] {
                let mut bytes = value.as_bytes().to_vec();
                let length = uncode(&mut bytes, SUFFIXES, is_compared_strongly).length;
                assert_eq!(
                    bytes[..length].escape_ascii().to_string(),
                    expected.as_bytes().escape_ascii().to_string()
                );
            }
        }
    }

    #[test]
    fn a_coded_tag_comes_back() {
        for etag in ["\"a\"", "\"a~zstd\"", "\"\""] {
            for coding in CODINGS {
                let mut tag = coded(etag.as_bytes(), coding).expect("a tag");
                let uncoded = uncode(&mut tag, SUFFIXES, true);
                assert_eq!(&tag[..uncoded.length], etag.as_bytes());
                let restored = restored(&uncoded.coded, etag.as_bytes());
                assert_eq!(restored, coded(etag.as_bytes(), coding));
            }
        }
    }
}
