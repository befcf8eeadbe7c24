//! ETags of content that was given a coding on its way.
//!
//! Each coding of a representation needs an ETag of its own (RFC 9110, 8.8.3.3). It is weak, because the level of
//! compression, and so the bytes, may differ from one response to the next. It has the coding as a suffix: `"v1"`
//! becomes `W/"v1~zstd"`. The origin knows only its own tag, so the suffix is removed from conditions of requests.
//!
//! The separator is not the usual hyphen: an application that compresses by itself has tags such as `"v1-gzip"`
//! (mod_deflate of Apache), which must come back to it as they are.

use crate::condition;
use crate::encoding::Coding;

/// Between the tag of the origin and the coding.
const SEPARATOR: u8 = b'~';

/// The ETag of the content that `etag` names, in `coding`. `None` if it is not an ETag.
pub fn coded(etag: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let opaque = etag.strip_prefix(b"W/").unwrap_or(etag);
    let text = opaque.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some([b"W/\"", text, &[SEPARATOR], coding.name().as_bytes(), b"\""].concat())
}

/// Removes the suffixes of `codings` from the tags in `value`, the value of If-None-Match, or of If-Match if
/// `is_compared_strongly`: then those tags become strong, because the client holds a coding of exactly that
/// representation. Returns the new length; it is the same if no tag has such a suffix.
pub fn uncode(value: &mut [u8], codings: &[Coding], is_compared_strongly: bool) -> usize {
    let uncoded = |tag: &[u8]| -> Option<Vec<u8>> {
        let text = tag.strip_prefix(b"W/\"")?.strip_suffix(b"\"")?;
        let text = codings.iter().find_map(|coding| {
            let text = text.strip_suffix(coding.name().as_bytes())?;
            text.strip_suffix(&[SEPARATOR])
        })?;
        let weak: &[u8] = if is_compared_strongly { b"" } else { b"W/" };
        Some([weak, b"\"", text, b"\""].concat())
    };
    let mut is_changed = false;
    let tags = condition::tags(value).map(|tag| {
        let uncoded = uncoded(tag);
        is_changed |= uncoded.is_some();
        uncoded.unwrap_or_else(|| tag.to_vec())
    });
    // Tags are at least one byte apart.
    let list = tags.collect::<Vec<_>>().join(&b","[..]);
    if !is_changed {
        return value.len();
    }
    value[..list.len()].copy_from_slice(&list);
    list.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODINGS: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

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
            ("W/\"a~gzip\" , \"b\"", "W/\"a\",\"b\"", "\"a\",\"b\""),
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
                let length = uncode(&mut bytes, &CODINGS, is_compared_strongly);
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
                let length = uncode(&mut tag, &CODINGS, true);
                assert_eq!(&tag[..length], etag.as_bytes());
            }
        }
    }
}
