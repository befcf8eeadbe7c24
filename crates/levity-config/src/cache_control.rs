//! `cache`: how long clients and caches may keep content.

use crate::media_types::MediaTypes;
use crate::section::{Section, Text};
use crate::value;

/// A rule for the `Cache-Control` of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRule {
    /// Which content it is about.
    pub of: Cached,
    /// The value of `Cache-Control`; `None` leaves the header out.
    pub value: Option<String>,
}

/// The content that a [`CacheRule`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cached {
    /// Files whose names contain a hash of the content, by [`is_hashed`].
    Hashed,
    /// Content of these media types.
    Types(MediaTypes),
}

/// Names of values, and what they stand for.
const VALUES: &[(&str, Option<&str>)] = &[
    ("immutable", Some("public, max-age=31536000, immutable")),
    ("no-cache", Some("no-cache")),
    ("no-store", Some("no-store")),
    ("off", None),
];

/// Reads one value for everything, or pairs of what and how long; `None` when the key is absent.
pub(crate) fn rules(section: &Section<'_>, name: &str) -> Option<Vec<CacheRule>> {
    if !section.has(name) {
        return None;
    }
    if !section.has_table(name) {
        let given = section.text(name)?;
        let everything = MediaTypes::any();
        let of = Cached::Types(everything);
        return Some(
            value(&given)
                .map(|value| CacheRule { of, value })
                .into_iter()
                .collect(),
        );
    }
    let mut rules = Vec::new();
    for (what, how) in section.pairs(name) {
        let of = match what.text {
            "hashed" => Some(Cached::Hashed),
            types => types.parse().ok().map(Cached::Types),
        };
        if of.is_none() {
            let help = "a media type such as \"image/*\", or \"hashed\"";
            what.refuse_with(format!("`{}` is no kind of content", what.text), help);
        }
        if let (Some(of), Some(value)) = (of, value(&how)) {
            rules.push(CacheRule { of, value });
        }
    }
    Some(rules)
}

/// The value of the header; the inner `None` is no header.
fn value(given: &Text<'_>) -> Option<Option<String>> {
    let text = given.text;
    if let Some((_, value)) = VALUES.iter().find(|(name, _)| *name == text) {
        return Some(value.map(str::to_owned));
    }
    if let Ok(milliseconds) = value::duration(text) {
        return Some(Some(format!("max-age={}", milliseconds / 1000)));
    }
    let is_directive = |part: &str| {
        let part = part.trim();
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let has_argument = text.contains('=') || text.contains(',');
    if has_argument && text.split(',').all(is_directive) {
        return Some(Some(text.to_owned()));
    }
    let help = "a duration such as \"30d\", \"no-cache\", \"no-store\", \"immutable\", \"off\", or all of a Cache-Control";
    given.refuse_with(format!("`{text}` is not a time to keep content"), help);
    None
}

/// The minimum of characters of a hash.
const HASH_CHARS_MIN: usize = 8;

/// Whether the name of a file contains a hash of its content, as build tools write it: `app.3f2a9c1b.js`,
/// `index-DiwrgTda.css`. That is the last part of the stem behind a dot or dash, or beyond that in base64url, with at
/// least 8 characters, among them digits and letters, or upper case after lower case. The 8 characters of base64url that
/// Vite writes may contain a dash: one name in eight is like `index-a1-bC2dE.js`.
#[must_use]
pub fn is_hashed(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let mut parts = name.rsplitn(2, |&byte| byte == b'.');
    let (Some(_), Some(stem)) = (parts.next(), parts.next()) else {
        return false;
    };
    // `app.3f2a9c1b.js.map`, `app.3f2a9c1b.chunk.css`
    let ends = ["chunk", "js", "css", "min"];
    let stem = ends
        .iter()
        .find_map(|end| stem.strip_suffix(end.as_bytes())?.strip_suffix(b"."))
        .unwrap_or(stem);
    let hash = stem
        .rsplit(|byte| b".-".contains(byte))
        .next()
        .unwrap_or_default();
    let has_start = hash.len() < stem.len();
    (has_start && looks_random(hash)) || ends_in_base64(stem)
}

fn looks_random(hash: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if hash.len() < HASH_CHARS_MIN || !hash.iter().all(is_word) {
        return false;
    }
    let has_digit = hash.iter().any(u8::is_ascii_digit);
    let has_letter = hash.iter().any(u8::is_ascii_alphabetic);
    // A word in camel case is longer than the 8 characters that build tools take of base64.
    (has_digit && has_letter) || (rises(hash) && hash.len() == HASH_CHARS_MIN)
}

/// Whether a stem ends in 8 characters of base64url behind a dot or dash. As words may have dashes too, there must be
/// both cases, and what makes them unlike words.
fn ends_in_base64(stem: &[u8]) -> bool {
    let Some((start, hash)) = stem.split_last_chunk::<HASH_CHARS_MIN>() else {
        return false;
    };
    let is_apart = start.last().is_some_and(|byte| b".-".contains(byte));
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let has_lower = hash.iter().any(u8::is_ascii_lowercase);
    let has_upper = hash.iter().any(u8::is_ascii_uppercase);
    let has_other = hash
        .iter()
        .any(|byte| byte.is_ascii_digit() || *byte == b'_');
    is_apart && hash.iter().all(is_base64) && has_lower && has_upper && (has_other || rises(hash))
}

/// Whether upper case follows lower case.
fn rises(text: &[u8]) -> bool {
    text.windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names() {
        for name in [
            "/assets/index-DiwrgTda.js",
            "/assets/picture-DY2MOy_p.svg",
            "/assets/index-a1-bC2dE.js",
            "/assets/index--XkSd_aB.css",
            "/app.3f2a9c1b.js",
            "/app.3f2a9c1b.js.map",
            "/main.8f2b1c9d.chunk.css",
            "/img/logo.1b2c3d4e5f.svg",
            "/static/media/a-b.0a1b2c3d4e5f60718293.woff2",
        ] {
            assert!(is_hashed(name.as_bytes()), "{name}");
        }
        for name in [
            "/index.html",
            "/3f2a9c1b.js",
            "/report-20240101.pdf",
            "/photo-2024-05b.jpg",
            "/doc-550e-84a0.pdf",
            "/how-to-Get-Here.html",
            "/a1-bC2dE.js",
            "/jquery-minified.js",
            "/app.min.js",
            "/JavaDocs.html",
            "/a.document.html",
            "/3f2a9c1b/index",
            "/v-1.2.3.js",
            "/",
        ] {
            assert!(!is_hashed(name.as_bytes()), "{name}");
        }
    }
}
