//! Path patterns of routes.

use std::fmt;
use std::ops::Range;

use crate::expression::Expression;

/// The request paths that a route matches.
///
/// Compared with the decoded and normalised path of a request, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This path and no other.
    Exact(String),
    /// Every path that starts with this text, which begins and ends with a slash: `/static/*` is
    /// `Prefix("/static/")`. It matches `/static/` but not `/static`.
    Prefix(String),
    /// Paths that match a pattern with stars or braces.
    Glob(Expression),
    /// This path, which does not end with a slash, and the one with a slash behind it: a page, as static hosts compare them.
    Page(String),
    /// Paths with names or stars, as static hosts have them.
    Named {
        /// The line's own text.
        text: String,
        /// The text with which every such path begins.
        start: String,
        /// What they match.
        expression: Expression,
    },
    /// Paths in which a regular expression matches.
    Regex(Expression),
}

/// What a byte costs at worst by a regular expression, whose automaton is then built as it is compared, in relation to a
/// pattern with stars.
const REGEX_WEIGHT: usize = 16;

impl Pattern {
    /// What it costs to compare one byte of a path, in relation to a pattern with stars. Nothing, where only the start is
    /// compared.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Exact(_) | Self::Page(_) | Self::Prefix(_) => 0,
            Self::Glob(_) | Self::Named { .. } => 1,
            Self::Regex(_) => REGEX_WEIGHT,
        }
    }

    /// Reads `/exact`, `/prefix/*`, or a pattern with stars and braces elsewhere. `*.png` is `/**/*.png`.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong, when the text is not absolute or not normalised.
    pub fn parse(text: &str) -> Result<Self, String> {
        let anywhere = text.starts_with("*.").then(|| format!("/**/{text}"));
        let text = anywhere.as_deref().unwrap_or(text);
        let prefix = text.strip_suffix('*').filter(|start| start.ends_with('/'));
        let plain = prefix.unwrap_or(text);
        refusal(plain).map_or(Ok(()), Err)?;
        Ok(if plain.contains(['*', '{', '}']) {
            Pattern::Glob(Expression::glob(&match prefix {
                Some(prefix) => format!("{prefix}**"),
                None => text.to_owned(),
            })?)
        } else {
            match prefix {
                Some(prefix) => Pattern::Prefix(prefix.to_owned()),
                None => Pattern::Exact(text.to_owned()),
            }
        })
    }

    /// Reads a regular expression.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong.
    pub fn regex(text: &str) -> Result<Self, String> {
        Expression::regex(text).map(Pattern::Regex)
    }

    /// Whether the route matches `path`, which is decoded and normalised.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Pattern::Exact(exact) => path == exact.as_bytes(),
            Pattern::Page(page) => path.strip_suffix(b"/").unwrap_or(path) == page.as_bytes(),
            Pattern::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
            Pattern::Glob(expression) | Pattern::Regex(expression) => expression.matches(path),
            Pattern::Named {
                start, expression, ..
            } => path.starts_with(start.as_bytes()) && expression.matches(path),
        }
    }

    /// Whether this pattern certainly matches every path that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (_, Pattern::Exact(path)) => self.matches(path.as_bytes()),
            (_, Pattern::Page(path)) => {
                self.matches(path.as_bytes()) && self.matches(format!("{path}/").as_bytes())
            }
            (Pattern::Prefix(prefix), Pattern::Regex(_)) => prefix == "/",
            (Pattern::Prefix(prefix), other) => other.start().starts_with(prefix.as_str()),
            (ours, theirs) => ours == theirs,
        }
    }

    /// Whether it is a single path.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self, Pattern::Exact(_))
    }

    /// The text with which every path begins that it matches.
    #[must_use]
    pub fn start(&self) -> &str {
        match self {
            Pattern::Exact(text) | Pattern::Page(text) | Pattern::Prefix(text) => text,
            Pattern::Named { start, .. } => start,
            Pattern::Glob(glob) => {
                let text = glob.as_str();
                &text[..text.find(['*', '{']).unwrap_or(text.len())]
            }
            Pattern::Regex(_) => "",
        }
    }

    /// Where the parts of `path` lie that a target can name by `{1}`, `{2}` and so on.
    #[must_use]
    pub fn captures(&self, path: &[u8]) -> Vec<Range<usize>> {
        match self {
            Pattern::Exact(_) | Pattern::Page(_) | Pattern::Prefix(_) => Vec::new(),
            Pattern::Glob(expression)
            | Pattern::Named { expression, .. }
            | Pattern::Regex(expression) => expression.captures(path),
        }
    }

    /// The number of parts of a path that a target can name by `{1}`, `{2}` and so on.
    #[must_use]
    pub fn groups(&self) -> usize {
        match self {
            Pattern::Exact(_) | Pattern::Page(_) | Pattern::Prefix(_) => 0,
            Pattern::Glob(expression)
            | Pattern::Named { expression, .. }
            | Pattern::Regex(expression) => expression.groups(),
        }
    }
}

fn refusal(plain: &str) -> Option<String> {
    let reason = if !plain.starts_with('/') {
        "a path starts with `/`; `regex` takes a regular expression"
    } else if plain.contains(['?', '#']) {
        "a route is chosen by the path alone, without query or fragment"
    } else if has_percent_code(plain) {
        "write the character itself instead of its %-code: the path is decoded before it is compared"
    } else if !is_normal(plain) {
        "no request has this path: `//`, `.` and `..` are resolved before it is compared"
    } else if plain.contains(|c: char| c.is_control()) {
        "a path has no control characters"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// Whether a path of a request can be `path`: `//`, `.` and `..` are resolved before it is compared.
pub(crate) fn is_normal(path: &str) -> bool {
    !path.contains("//") && !path.split('/').any(|name| matches!(name, "." | ".."))
}

fn has_percent_code(text: &str) -> bool {
    text.as_bytes()
        .windows(3)
        .any(|w| w[0] == b'%' && w[1].is_ascii_hexdigit() && w[2].is_ascii_hexdigit())
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(text) | Pattern::Page(text) | Pattern::Named { text, .. } => {
                f.write_str(text)
            }
            Pattern::Prefix(path) => write!(f, "{path}*"),
            Pattern::Glob(expression) | Pattern::Regex(expression) => {
                f.write_str(expression.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn prefix_and_exact() {
        let prefix = pattern("/static/*");
        assert!(prefix.matches(b"/static/") && prefix.matches(b"/static/a/b"));
        assert!(!prefix.matches(b"/static") && !prefix.matches(b"/statics"));
        let exact = pattern("/a");
        assert!(exact.matches(b"/a") && !exact.matches(b"/a/") && !exact.matches(b"/ab"));
        assert!(pattern("/*").matches(b"/") && pattern("/*").matches(b"/x"));
        assert!(pattern("/").matches(b"/") && !pattern("/").matches(b"/x"));
        assert!(pattern("/\u{e9}").matches("/\u{e9}".as_bytes()));
    }

    #[test]
    fn pages() {
        let page = Pattern::Page("/a".to_owned());
        assert!(page.matches(b"/a") && page.matches(b"/a/"));
        assert!(!page.matches(b"/a//") && !page.matches(b"/ab") && !page.matches(b"/"));
        assert!(pattern("/*").covers(&page) && page.covers(&pattern("/a")));
        assert!(!pattern("/a").covers(&page) && !pattern("/a/*").covers(&page));
    }

    #[test]
    fn stars_and_braces() {
        let anywhere = pattern("*.png");
        assert!(
            anywhere.matches(b"/a.png")
                && anywhere.matches(b"/a/b.png")
                && !anywhere.matches(b"/a.pngs")
        );
        let below = pattern("/*/img/*");
        assert!(
            below.matches(b"/a/img/b/c")
                && below.matches(b"/a/img/")
                && !below.matches(b"/a/b/img/c")
        );
        assert_eq!((below.groups(), pattern("/a/*").groups()), (2, 0));
        assert_eq!(pattern("/a/b{c,d}").start(), "/a/b");
    }

    #[test]
    fn regular_expressions() {
        let digits = Pattern::regex("^/[0-9]+$").unwrap();
        assert!(digits.matches(b"/12") && !digits.matches(b"/12/"));
        assert!(pattern("/*").covers(&digits) && !pattern("/a/*").covers(&digits));
        assert!(Pattern::regex("(").is_err());
    }

    #[test]
    fn covering() {
        for (first, second, covered) in [
            ("/*", "/a/*", true),
            ("/*", "/", true),
            ("/a/*", "/a/*", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/ab/*", false),
            ("/a/b/*", "/a/*", false),
            ("/a", "/a", true),
            ("/a/", "/a/*", false),
            ("/a/*", "/a/b*.png", true),
            ("/a/*", "/a*/b", false),
            ("/*", "*.png", true),
            ("*.png", "/a.png", true),
            ("*.png", "*.png", true),
            ("*.png", "*.{png,jpg}", false),
        ] {
            assert_eq!(
                pattern(first).covers(&pattern(second)),
                covered,
                "{first} {second}"
            );
        }
    }

    #[test]
    fn shown_as_written() {
        for text in ["/*", "/a/*", "/a", "/", "/100%"] {
            assert_eq!(pattern(text).to_string(), text);
        }
    }

    #[test]
    fn refused() {
        for text in [
            "", "*", "a", "/a?b", "/a#b", "/a%20b", "/a//b", "/../x", "/a/./*", "/a/\n", "/{a",
            "/{a{b}}",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
