//! Patterns of file names.

use levity_disk::TEMPORARY_PREFIX;

use crate::section::{Section, Text};

/// A file name, in which `*` stands for any text and `?` for any character. Case matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// The pattern as written.
    pub fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// The pattern without the text `end`, if it ends with that.
    pub(crate) fn without_end(&self, end: &str) -> Self {
        Self::new(self.0.strip_suffix(end).unwrap_or(&self.0))
    }

    /// Whether `name`, without a slash, matches. The time is bounded by the product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        let (mut at, mut rest) = (0, name);
        // Where to go on if the text after the last `*` does not match: the `*` takes one byte more.
        let mut retry: Option<(usize, &[u8])> = None;
        loop {
            match (pattern.get(at), rest.split_first()) {
                (Some(b'*'), _) => {
                    at += 1;
                    retry = Some((at, rest));
                    continue;
                }
                (Some(b'?'), Some(_)) => {
                    (at, rest) = (at + 1, after_character(rest));
                    continue;
                }
                (Some(wanted), Some((byte, tail))) if wanted == byte => {
                    (at, rest) = (at + 1, tail);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((after_star, [_, tail @ ..])) = retry else {
                return false;
            };
            (at, rest) = (after_star, tail);
            retry = Some((after_star, tail));
        }
    }
}

/// Names with a leading dot are hidden by default, except the one that RFC 8615 reserves.
#[must_use]
pub fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != b".well-known"
}

/// Whether `name`, of a file or a folder, is neither listed nor served where `hide` has the values `hidden`, and `show` has
/// `shown`.
#[must_use]
pub fn hides(hidden: &[NamePattern], shown: &[NamePattern], name: &[u8]) -> bool {
    let is_in = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(name));
    // A file that has this prefix is being written.
    let is_shown = || is_in(shown) && !name.starts_with(TEMPORARY_PREFIX.as_bytes());
    is_hidden(name) && !is_shown() || is_in(hidden)
}

/// What follows the first character of `text`, which is not empty; a byte that is not UTF-8 is one.
fn after_character(text: &[u8]) -> &[u8] {
    let is_continued = |byte: &u8| matches!(byte, 0x80..0xc0);
    let continued = text[1..]
        .iter()
        .take_while(|byte| is_continued(byte))
        .count();
    &text[1 + continued..]
}

/// `hide`
pub(crate) fn hidden(section: &Section<'_>, name: &str) -> Option<Vec<NamePattern>> {
    let given = section.names(name)?;
    Some(given.iter().map(pattern).collect())
}

/// `show`
pub(crate) fn shown(section: &Section<'_>, name: &str) -> Option<Vec<NamePattern>> {
    let given = section.names(name)?;
    let shown = given.iter().map(|given| {
        let shown = pattern(given);
        if is_name(given.text) && !given.text.starts_with('.') {
            given.refuse_with(
                format!("`{}` does not begin with a dot", given.text),
                "other names are served unless `hide` names them",
            );
        }
        shown
    });
    Some(shown.collect())
}

fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\0'])
}

/// The pattern in a file; refuses what can be no name.
fn pattern(given: &Text<'_>) -> NamePattern {
    let text = given.text;
    if text.contains('/') {
        given.refuse_with(
            format!("`{text}` has a slash"),
            "each name on the way to a file is compared by itself; for a path write a route",
        );
    } else if !is_name(text) {
        given.refuse(format!("`{text}` is not a file name"));
    }
    NamePattern::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let matches = |pattern: &str, name: &[u8]| NamePattern::new(pattern).matches(name);
        for (pattern, name) in [
            ("a", &b"a"[..]),
            ("*", b""),
            ("*", b"\xff"),
            ("*.bak", b".bak"),
            ("*.bak", b"a.bak.bak"),
            ("a*b*c", b"abc"),
            ("a*b*c", b"a-b-b-c-c"),
            ("??", "\u{e9}x".as_bytes()),
            ("a?", b"a\xff"),
            ("**a", b"bba"),
            ("*a?", b"aab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name:?}");
        }
        for (pattern, name) in [
            ("a", &b"A"[..]),
            ("a", b"ab"),
            ("", b"a"),
            ("*.bak", b"bak"),
            ("*.bak", b"a.bak2"),
            ("a*b*c", b"acb"),
            ("?", b""),
            ("??", "\u{e9}".as_bytes()),
            ("a*", b"ba"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name:?}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = NamePattern::new(&("*a".repeat(100) + "b"));
        assert!(!pattern.matches(&b"a".repeat(255)));
    }
}
