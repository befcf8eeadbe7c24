//! Path patterns of routes.

use std::fmt;

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
}

impl Pattern {
    /// Reads `/exact` or `/prefix/*`.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong, when the text is not absolute, not normalised, or has a star
    /// anywhere but as its last segment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let prefix = text.strip_suffix("/*").map(|start| format!("{start}/"));
        let plain = prefix.as_deref().unwrap_or(text);
        refusal(plain).map_or(Ok(()), Err)?;
        Ok(match prefix {
            Some(prefix) => Pattern::Prefix(prefix),
            None => Pattern::Exact(text.to_owned()),
        })
    }

    /// Whether the route matches `path`, which is decoded and normalised.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Pattern::Exact(exact) => path == exact.as_bytes(),
            Pattern::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }

    /// Whether this pattern matches every path that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Pattern) -> bool {
        match other {
            Pattern::Exact(path) => self.matches(path.as_bytes()),
            Pattern::Prefix(path) => match self {
                Pattern::Exact(_) => false,
                Pattern::Prefix(prefix) => path.starts_with(prefix.as_str()),
            },
        }
    }
}

fn refusal(plain: &str) -> Option<String> {
    let reason = if plain.starts_with("*.") || plain.contains("/*.") {
        "`*` may only follow the last `/`, as in `/static/*`; for scripts set \
         `script_suffix = \".php\"`"
    } else if !plain.starts_with('/') {
        "a path starts with `/`"
    } else if plain.contains('*') {
        "`*` may only follow the last `/`, as in `/static/*`"
    } else if plain.contains(['?', '#']) {
        "a route is chosen by the path alone, without query or fragment"
    } else if has_percent_code(plain) {
        "write the character itself instead of its %-code: the path is decoded before it is compared"
    } else if plain.contains("//") || plain.split('/').any(|s| matches!(s, "." | "..")) {
        "no request has this path: `//`, `.` and `..` are resolved before it is compared"
    } else if plain.contains(|c: char| c.is_control()) {
        "a path has no control characters"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

fn has_percent_code(text: &str) -> bool {
    text.as_bytes()
        .windows(3)
        .any(|w| w[0] == b'%' && w[1].is_ascii_hexdigit() && w[2].is_ascii_hexdigit())
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(path) => f.write_str(path),
            Pattern::Prefix(path) => write!(f, "{path}*"),
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
            "", "*", "a", "/a*", "/*/b", "/*.css", "/a?b", "/a#b", "/a%20b", "/a//b", "/../x",
            "/a/./*", "/a/\n",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
