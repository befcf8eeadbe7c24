//! The requests that a rule is about: `/blog/:year/*`, with a host or without.

use crate::answer::SAMPLE;
use crate::expression::Expression;
use crate::matcher::When;
use crate::pattern::{self, Pattern};

/// The host and path of a rule.
#[derive(Debug, PartialEq)]
pub(super) struct Source {
    /// As it is written.
    text: String,
    host: Option<Expression>,
    /// Begins with a text that begins with a slash. Two texts have another part between them.
    parts: Vec<SourcePart>,
}

/// A part of a path.
#[derive(Debug, PartialEq)]
enum SourcePart {
    /// Text, decoded.
    Text(String),
    /// `:name`: a segment, or a part of one.
    Name(String),
    /// `*`: any text.
    Splat,
}

/// The name of what `*` matches.
const SPLAT: &str = "splat";

impl Source {
    /// Reads a path or a URL. The path of a URL without one is `/`.
    ///
    /// # Errors
    ///
    /// A phrase that says why no request can be compared with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let source = Self::parse_any(text)?;
        let names = source.names();
        match (1..names.len()).any(|at| names[..at].contains(&names[at])) {
            true => Err("it has a star or a name twice".to_owned()),
            false => Ok(source),
        }
    }

    /// Reads a path or a URL, of which no target and no value needs the names: one may stand there twice.
    ///
    /// # Errors
    ///
    /// A phrase that says why no request can be compared with it.
    pub(super) fn parse_any(text: &str) -> Result<Self, String> {
        let (host, path) = match split_url(text) {
            Some((scheme, host, path)) => (Some(expression_of(scheme, host)?), path),
            None => (None, text),
        };
        if path.contains(['?', '#']) {
            return Err("a path is compared without query and fragment".to_owned());
        }
        let rooted = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        let source = Self {
            text: text.to_owned(),
            host,
            parts: parts(&rooted)?,
        };
        match pattern::is_normal(&source.sample()) {
            true => Ok(source),
            false => {
                Err("no request has this path: `//`, `.` and `..` are resolved before".to_owned())
            }
        }
    }

    /// The condition of its host.
    pub(super) fn when(&self) -> When {
        let host = self.host.clone();
        When {
            headers: host
                .map(|host| ("host".to_owned(), host))
                .into_iter()
                .collect(),
            ..When::default()
        }
    }

    pub(super) fn host(&self) -> Option<&Expression> {
        self.host.as_ref()
    }

    /// The names of its groups.
    pub(super) fn names(&self) -> Vec<&str> {
        let names = self.parts.iter().filter_map(|part| match part {
            SourcePart::Text(_) => None,
            SourcePart::Name(name) => Some(name.as_str()),
            SourcePart::Splat => Some(SPLAT),
        });
        names.collect()
    }

    /// The pattern of its path, with a group for each of its names.
    ///
    /// # Errors
    ///
    /// A phrase that says what is wrong.
    pub(super) fn pattern(&self) -> Result<Pattern, String> {
        let (parts, end) = match self.parts.as_slice() {
            [SourcePart::Text(path)] => {
                return Ok(match path.strip_suffix('/') {
                    Some("") => Pattern::Exact(path.clone()),
                    page => Pattern::Page(page.unwrap_or(path).to_owned()),
                });
            }
            // `/a/*` is also `/a`; `/*` has its slash.
            [before @ .., SourcePart::Text(text), SourcePart::Splat]
                if text.ends_with('/') && (before, text.as_str()) != (&[], "/") =>
            {
                (&self.parts[..self.parts.len() - 1], "(?:/(.*))?$")
            }
            [.., SourcePart::Splat] => (self.parts.as_slice(), "$"),
            // With and without a slash at the end, as these hosts compare.
            _ => (self.parts.as_slice(), "/?$"),
        };
        let is_cut = end.ends_with("?$");
        let mut regex = String::from("^");
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            match part {
                SourcePart::Text(text) => {
                    let cut = text.strip_suffix('/').filter(|_| is_last && is_cut);
                    regex.push_str(&escaped(cut.unwrap_or(text)));
                }
                SourcePart::Name(_) => regex.push_str("([^/]+)"),
                SourcePart::Splat => regex.push_str("(.*)"),
            }
        }
        let expression = Expression::regex(&(regex + end))?;
        let start = match parts {
            [SourcePart::Text(text)] if is_cut => text.trim_end_matches('/'),
            _ => self.start(),
        };
        Ok(Pattern::Named {
            text: self.text.clone(),
            start: start.to_owned(),
            expression,
        })
    }

    /// The text before the first name or star.
    fn start(&self) -> &str {
        match &self.parts[0] {
            SourcePart::Text(text) => text,
            _ => unreachable!("it begins with a slash"),
        }
    }

    /// Paths among which are all that it matches, and whether there are no others. Its pattern may have groups, and cannot be
    /// compared.
    pub(super) fn shape(&self) -> (Pattern, bool) {
        if self.names().is_empty() {
            let page = self.start().trim_end_matches('/');
            return match page {
                "" => (Pattern::Exact("/".to_owned()), true),
                page => (Pattern::Page(page.to_owned()), true),
            };
        }
        let start = self.start();
        let folder = &start[..=start.rfind('/').expect("it begins with a slash")];
        let is_all = self.parts.len() == 2 && self.parts[1] == SourcePart::Splat && folder == start;
        (Pattern::Prefix(folder.to_owned()), is_all)
    }

    /// A path that it matches.
    pub(super) fn sample(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            SourcePart::Text(text) => text,
            SourcePart::Name(_) | SourcePart::Splat => SAMPLE,
        });
        parts.collect()
    }
}

/// The scheme, host and path of `text`, if it is a URL.
pub(super) fn split_url(text: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    is_scheme.then_some((scheme, host, path))
}

/// The hosts that a rule for a host is about: with any port, if it has none.
fn expression_of(scheme: &str, host: &str) -> Result<Expression, String> {
    if !["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return Err("no request comes with that scheme".to_owned());
    }
    if host.is_empty() {
        return Err("a host is missing behind the scheme".to_owned());
    }
    if has_placeholder(host) {
        return Err("its host has a placeholder".to_owned());
    }
    Expression::regex(&format!("^(?i){}(:[0-9]*)?$", escaped(host)))
}

/// Whether a host has `*` or `:name`, of which `:80` is one. A port and an address in brackets have colons, too.
fn has_placeholder(host: &str) -> bool {
    let name = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.strip_suffix(':').unwrap_or(host);
    name.is_empty() || name.contains('*') || (name.contains(':') && !name.starts_with('['))
}

fn parts(path: &str) -> Result<Vec<SourcePart>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let name = name_at(rest);
        let part = match first {
            '*' => SourcePart::Splat,
            _ if !name.is_empty() => SourcePart::Name(name.to_owned()),
            _ => {
                let (character, after) = rest.split_at(first.len_utf8());
                text.push_str(character);
                rest = after;
                continue;
            }
        };
        if !text.is_empty() {
            parts.push(SourcePart::Text(decoded(&std::mem::take(&mut text))?));
        }
        parts.push(part);
        rest = &rest[1 + name.len()..];
    }
    if !text.is_empty() {
        parts.push(SourcePart::Text(decoded(&text)?));
    }
    Ok(parts)
}

/// The name at the start of `text`, of `:name`: a letter, and then letters, digits and `_`. Empty if there is none.
pub(super) fn name_at(text: &str) -> &str {
    let Some(name) = text.strip_prefix(':') else {
        return "";
    };
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return "";
    }
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &name[..end.unwrap_or(name.len())]
}

/// A part of a path without its escapes, as paths of requests are compared: an escaped slash stays one.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match first {
            b'%' => escape(after).ok_or("it has a `%` that begins no escape")?,
            _ => (*first, after),
        };
        match (first, byte) {
            (b'%', b'/') => bytes.extend_from_slice(&rest[..3]),
            _ => bytes.push(byte),
        }
        rest = after;
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err("its path is not UTF-8, or has a NUL".to_owned()),
    }
}

/// The byte of an escape whose `%` is before `after`, and the rest after it.
fn escape(after: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = after.split_at_checked(2)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if !character.is_ascii_alphanumeric() && character.is_ascii() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(source: &str, path: &str) -> Option<Vec<String>> {
        let pattern = Source::parse(source)
            .expect(source)
            .pattern()
            .expect(source);
        let groups = pattern.captures(path.as_bytes());
        let groups = groups.into_iter().map(|group| path[group].to_owned());
        assert!(path.starts_with(pattern.start()) || !pattern.matches(path.as_bytes()));
        pattern.matches(path.as_bytes()).then(|| groups.collect())
    }

    #[test]
    fn paths() {
        for (source, path, groups) in [
            ("/", "/", Some(vec![])),
            ("/", "/a", None),
            ("/a", "/a/", Some(vec![])),
            ("/a/", "/a", Some(vec![])),
            ("a/b", "/a/b", Some(vec![])),
            ("/a", "/ab", None),
            ("/a.b+c", "/axbbc", None),
            ("/*", "/", Some(vec![""])),
            ("/*", "/x/y", Some(vec!["x/y"])),
            ("/a/*", "/a", Some(vec![""])),
            ("/a/*", "/a/", Some(vec![""])),
            ("/a/*", "/a/x/y", Some(vec!["x/y"])),
            ("/a/*", "/ab", None),
            ("/:a/*", "/x", Some(vec!["x", ""])),
            ("/a/b-*", "/a/b-x/y", Some(vec!["x/y"])),
            ("/a/b-*", "/a/b", None),
            ("/*.txt", "/x/y.txt", Some(vec!["x/y"])),
            ("/*.txt", "/x.txt/", Some(vec!["x"])),
            ("/a/*/c", "/a/b/b/c", Some(vec!["b/b"])),
            ("/a/*/", "/a/b", Some(vec!["b"])),
            ("/:a/index.html", "/x/index.html", Some(vec!["x"])),
            ("/:a/index.html", "/index.html", None),
            ("/:year-:month/", "/2026-11/", Some(vec!["2026", "11"])),
            ("/:a", "/x/y", None),
            ("/10:30", "/10:30", Some(vec![])),
            ("/a%20b", "/a b", Some(vec![])),
            ("/caf%C3%A9", "/caf\u{e9}", Some(vec![])),
            ("/caf\u{e9}/*", "/caf\u{e9}/x", Some(vec!["x"])),
            ("/a%2fb", "/a%2fb", Some(vec![])),
            ("/%2a", "/*", Some(vec![])),
            ("https://a.example/b", "/b", Some(vec![])),
            ("https://a.example", "/", Some(vec![])),
            ("https://a.example", "/b", None),
        ] {
            let groups = groups.map(|groups| groups.into_iter().map(str::to_owned).collect());
            assert_eq!(matches(source, path), groups, "{source} {path}");
        }
    }

    #[test]
    fn hosts() {
        for (url, host, is_about) in [
            ("https://a.example/*", "A.example:8080", Some(true)),
            ("http://a.example:80/*", "a.example:80", Some(true)),
            ("http://a.example:80/*", "a.example:81", Some(false)),
            ("HTTPS://a.example", "b.a.example", Some(false)),
            ("https://[::1]:80/", "[::1]:80", Some(true)),
            ("https://a-:b.example/", "a-x.example", None),
            ("https://:80/", ":80", None),
            ("gopher://a.example/", "a.example", None),
        ] {
            let source = Source::parse(url).ok();
            let found =
                source.map(|source| source.host().expect("a host").matches(host.as_bytes()));
            assert_eq!(found, is_about, "{url} {host}");
        }
        let source = Source::parse("/to:http/a").expect("a path");
        assert_eq!(source.host(), None);
    }

    #[test]
    fn paths_of_no_request() {
        for (text, reason) in [
            ("/a?b=1", "without query"),
            ("/a#b", "without query"),
            ("/a//b", "no request has this path"),
            ("/a/./b", "no request has this path"),
            ("/..", "no request has this path"),
            ("/to/http://a.example", "no request has this path"),
            ("/%FF", "not UTF-8"),
            ("/a%00", "not UTF-8"),
            ("/100%", "begins no escape"),
            ("/%+1", "begins no escape"),
            ("https:///a", "a host is missing"),
            ("/a/*/b/*", "a star or a name twice"),
            ("/:a/:a", "a star or a name twice"),
        ] {
            let error = Source::parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn shapes() {
        let prefix = |text: &str| Pattern::Prefix(text.to_owned());
        for (text, shape) in [
            ("/", (Pattern::Exact("/".to_owned()), true)),
            ("/a/", (Pattern::Page("/a".to_owned()), true)),
            ("/a/*", (prefix("/a/"), true)),
            ("/a/b-*", (prefix("/a/"), false)),
            ("/a/*/b", (prefix("/a/"), false)),
            ("/:a", (prefix("/"), false)),
        ] {
            assert_eq!(Source::parse(text).expect(text).shape(), shape, "{text}");
        }
    }
}
