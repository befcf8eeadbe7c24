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
    /// Files whose names contain a hash of the content, by [`is_hashed`](crate::is_hashed).
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
