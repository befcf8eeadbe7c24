//! Lists of media types.

use std::str::FromStr;

use crate::section::Section;
use crate::token::is_token;

/// The media types `TYPE/SUBTYPE`, where a `*` at the start or end of the subtype stands for any text; or `*/*`, all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaTypes {
    kind: String,
    subtype: String,
}

impl MediaTypes {
    /// Every type.
    pub(crate) fn any() -> Self {
        Self {
            kind: "*".to_owned(),
            subtype: "*".to_owned(),
        }
    }

    /// Whether the media type of a Content-Type header is one of these. Parameters are ignored, and so is case.
    pub fn include(&self, content_type: &[u8]) -> bool {
        Self::any_include(std::slice::from_ref(self), content_type)
    }

    /// Whether one of `all` [includes](Self::include) `content_type`.
    // It is taken apart once for all: a list is searched for each response.
    pub fn any_include(all: &[Self], content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|&byte| byte == b';');
        let essence = &content_type[..end.unwrap_or(content_type.len())];
        let essence = essence.trim_ascii();
        let Some(slash) = essence.iter().position(|&byte| byte == b'/') else {
            return false;
        };
        let (kind, subtype) = (&essence[..slash], &essence[slash + 1..]);
        all.iter().any(|types| types.include_parts(kind, subtype))
    }

    fn include_parts(&self, kind: &[u8], subtype: &[u8]) -> bool {
        let is_kind = self.kind == "*" || kind.eq_ignore_ascii_case(self.kind.as_bytes());
        is_kind && self.includes_subtype(subtype)
    }

    fn includes_subtype(&self, subtype: &[u8]) -> bool {
        let own = self.subtype.as_bytes();
        if let Some(end) = own.strip_prefix(b"*") {
            let at = subtype.len().checked_sub(end.len());
            return at.is_some_and(|at| subtype[at..].eq_ignore_ascii_case(end));
        }
        if let Some(start) = own.strip_suffix(b"*") {
            let first = subtype.get(..start.len());
            return first.is_some_and(|first| first.eq_ignore_ascii_case(start));
        }
        subtype.eq_ignore_ascii_case(own)
    }
}

impl FromStr for MediaTypes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, subtype) = text.split_once('/').ok_or(())?;
        let literal = subtype.strip_prefix('*').unwrap_or(subtype);
        let literal = literal.strip_suffix('*').unwrap_or(literal);
        let has_one_star = subtype.len() - literal.len() <= 1;
        let is_valid =
            !kind.contains('*') && !literal.contains('*') && has_one_star || text == "*/*";
        match is_valid && is_token(kind) && is_token(subtype) {
            true => Ok(Self {
                kind: kind.to_owned(),
                subtype: subtype.to_owned(),
            }),
            false => Err(()),
        }
    }
}

/// Reads a key with a list of media types; `None` when it is absent or wrong.
pub(crate) fn list(section: &Section<'_>, name: &str) -> Option<Vec<MediaTypes>> {
    let mut types = Vec::new();
    for given in section.names(name)? {
        match given.text.parse() {
            Ok(parsed) => types.push(parsed),
            Err(()) => given.refuse_with(
                format!("`{}` is not a media type", given.text),
                "such as \"text/css\", \"text/*\" or \"application/*+json\"",
            ),
        }
    }
    Some(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes(pattern: &str, content_type: &str) -> bool {
        let types: MediaTypes = pattern.parse().expect("a pattern");
        types.include(content_type.as_bytes())
    }

    #[test]
    fn media_types_match_without_parameters_and_case() {
        for (pattern, content_type) in [
            ("text/css", "text/css"),
            ("text/css", "Text/CSS; charset=utf-8"),
            ("text/*", "text/html;charset=utf-8"),
            ("text/*", "text/event-stream "),
            ("application/*+json", "application/ld+json"),
            ("application/*+json", "application/+JSON"),
            ("application/x-*", "application/x-ndjson"),
            ("*/*", "image/png"),
        ] {
            assert!(includes(pattern, content_type), "{pattern} {content_type}");
        }
        for (pattern, content_type) in [
            ("text/css", "text/cssx"),
            ("text/css", "text"),
            ("text/css", ""),
            ("*/*", ""),
            ("text/*", "textual/html"),
            ("application/*+json", "application/json"),
            ("application/*+json", "text/ld+json"),
            ("application/x-*", "application/json"),
        ] {
            assert!(!includes(pattern, content_type), "{pattern} {content_type}");
        }
    }

    #[test]
    fn other_texts_are_no_media_types() {
        for text in [
            "", "text", "*/a", "text/", "/css", "text/c s", "a/*b*", "a/b*c", "a/b/c",
        ] {
            assert!(text.parse::<MediaTypes>().is_err(), "{text}");
        }
    }
}
