//! Regular expressions and patterns with stars.

use std::ops::Range;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

/// The maximum number of bytes of an expression in the file.
const TEXT_BYTES_MAX: usize = 1024;

/// The maximum number of bytes of a compiled expression. The time of a search is at most proportional to this and to
/// the length of the text; a path of 8 KiB is searched within 1 ms.
const COMPILED_BYTES_MAX: usize = 16 * 1024;

/// A compiled expression. Its search takes time linear in the length of the text, and waits for no other thread: the
/// library only tries the locks of its scratch memory.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    /// Shared: each copy of the library's type has scratch memory of its own.
    regex: Arc<Regex>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for Expression {}

impl Expression {
    /// Reads a regular expression, which may match any part of a text unless it has anchors.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong.
    pub fn regex(text: &str) -> Result<Self, String> {
        Self::compiled(text, text)
    }

    /// Reads a pattern that matches whole texts. `*` is any part of a segment, `**` any text, `{a,b}` one of these words.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong.
    pub fn glob(text: &str) -> Result<Self, String> {
        Self::compiled(text, &regex_of_glob(text, "[^/]*")?)
    }

    /// Reads a pattern that matches whole texts without segments: `*` is any text.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong.
    pub fn text(text: &str) -> Result<Self, String> {
        Self::compiled(text, &regex_of_glob(text, ".*")?)
    }

    fn compiled(text: &str, regex: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let mut builder = RegexBuilder::new(regex);
        builder.unicode(false).dot_matches_new_line(true);
        builder.size_limit(COMPILED_BYTES_MAX);
        let regex = builder.build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                "a search for it could take too long: use fewer or smaller repetitions".to_owned()
            }
            // The last line says what is wrong, the others show where.
            error => {
                let message = error.to_string();
                let last = message.lines().last().unwrap_or_default();
                last.strip_prefix("error: ").unwrap_or(last).to_owned()
            }
        })?;
        Ok(Self {
            text: text.to_owned(),
            regex: Arc::new(regex),
        })
    }

    /// As it is written in the file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The number of groups whose text [`captures`](Self::captures) gives.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// Where each group lies in `text`, the first one first; empty when nothing matches. A group that took no part is
    /// empty.
    #[must_use]
    pub fn captures(&self, text: &[u8]) -> Vec<Range<usize>> {
        let Some(found) = self.regex.captures(text) else {
            return Vec::new();
        };
        let groups = found.iter().skip(1);
        groups
            .map(|group| group.map_or(0..0, |group| group.range()))
            .collect()
    }
}

/// The expression of a pattern whose single stars match `star`.
fn regex_of_glob(glob: &str, star: &str) -> Result<String, String> {
    let mut regex = String::from("^");
    let mut rest = glob;
    while let Some(first) = rest.chars().next() {
        let (taken, written) = if rest.starts_with("/**/") {
            (4, "/(?:(.*)/)?".to_owned())
        } else if rest.starts_with("**") {
            (2, "(.*)".to_owned())
        } else if first == '*' {
            (1, format!("({star})"))
        } else if first == '{' {
            let end = rest.find('}').ok_or("a `{` has no `}`")?;
            (end + 1, one_of(&rest[1..end])?)
        } else if first == '}' {
            return Err("a `}` has no `{`".to_owned());
        } else {
            let literal = &rest[..first.len_utf8()];
            (literal.len(), regex::escape(literal))
        };
        regex.push_str(&written);
        rest = &rest[taken..];
    }
    regex.push('$');
    Ok(regex)
}

fn one_of(words: &str) -> Result<String, String> {
    if words.contains(['{', '*']) {
        return Err("braces hold words with commas between them, such as `{png,jpg}`".to_owned());
    }
    let words: Vec<_> = words.split(',').map(regex::escape).collect();
    Ok(format!("({})", words.join("|")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(expression: &Expression, text: &str) -> Vec<String> {
        let captures = expression.captures(text.as_bytes()).into_iter();
        captures.map(|range| text[range].to_owned()).collect()
    }

    #[test]
    fn globs() {
        for (glob, matching, others) in [
            (
                "/a/*.png",
                &["/a/x.png", "/a/.png"][..],
                &["/a/b/x.png", "/a/x.pngs", "/a/xpng"][..],
            ),
            ("/**/*.png", &["/x.png", "/a/b/x.png"], &["/a/x.jpg"]),
            (
                "/a/**/b",
                &["/a/b", "/a/x/b", "/a/x/y/b"],
                &["/ab", "/a/xb"],
            ),
            ("/a**", &["/a", "/abc/d"], &["/b"]),
            ("/*.{png,jp*g}", &[], &[]),
            ("/x.{png,j.g}", &["/x.png", "/x.j.g"], &["/x.jpg", "/x."]),
            ("/a+(b)", &["/a+(b)"], &["/aab"]),
            ("/\u{e9}*", &["/\u{e9}x"], &["/ex"]),
        ] {
            let Ok(expression) = Expression::glob(glob) else {
                assert!(matching.is_empty(), "{glob}");
                continue;
            };
            for path in matching {
                assert!(expression.matches(path.as_bytes()), "{glob} {path}");
            }
            for path in others {
                assert!(!expression.matches(path.as_bytes()), "{glob} {path}");
            }
        }
        assert!(Expression::text("a*").unwrap().matches(b"a/b/c"));
    }

    #[test]
    fn groups() {
        let glob = Expression::glob("/**/*-{a,b}.png").unwrap();
        assert_eq!(
            (glob.groups(), captured(&glob, "/x/y/z-b.png")),
            (3, vec!["x/y".into(), "z".into(), "b".into()])
        );
        assert_eq!(captured(&glob, "/z-a.png"), ["", "z", "a"]);
        let regex = Expression::regex("^/(\\d+)(x)?").unwrap();
        assert_eq!(captured(&regex, "/12"), ["12", ""]);
        assert!(captured(&regex, "/y").is_empty());
    }

    #[test]
    fn what_is_refused() {
        for (text, reason) in [
            ("(", "unclosed group"),
            ("a{1,500}{1,500}", "take too long"),
            (&"a".repeat(1025), "longer than 1024 bytes"),
        ] {
            let refusal = Expression::regex(text).unwrap_err();
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
        for text in ["{a", "a}", "{a{b}}"] {
            assert!(Expression::glob(text).is_err(), "{text}");
        }
        assert!(Expression::regex(&"a".repeat(500)).is_ok());
    }
}
