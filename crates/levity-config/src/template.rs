//! URLs with placeholders.

use crate::pattern::Pattern;

/// A URL, or a path on this server, made from a request. It begins with a slash and not with two, or with `{path}`, or
/// with a scheme and a host, which take nothing from the request but its own scheme and host: so a request cannot
/// lead elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(pub Vec<Part>);

/// A part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text as it is.
    Text(String),
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{host}`: the host of the request, without port.
    Host,
    /// `{path}`: the path of the request, which begins with one slash.
    Path,
    /// `{rest}`: what `*` in the path of the route matches.
    Rest,
    /// `{1}` to `{9}`: what a star, braces or a group matches in the `path` or `regex` of the route.
    Group(usize),
    /// `{query}`: the query of the request, without `?`.
    Query,
}

const PLACEHOLDERS: &[(&str, Part)] = &[
    ("scheme", Part::Scheme),
    ("host", Part::Host),
    ("path", Part::Path),
    ("rest", Part::Rest),
    ("query", Part::Query),
];

const HOST_HELP: &str = "begin with a scheme, or with one `/` and a name: `//NAME` would be a host";

const START_HELP: &str = "begin with `/`, `{path}`, `https://`, `http://` or `{scheme}://`";

impl Template {
    /// Reads text with placeholders in braces.
    ///
    /// # Errors
    ///
    /// A phrase that says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(wrong) = text.chars().find(|c| !c.is_ascii_graphic() || *c == '\\') {
            return Err(format!("a URL has no `{}`", wrong.escape_debug()));
        }
        if let Some(help) = foreign_variable(text) {
            return Err(help);
        }
        let parts = parts(text)?;
        let is_root = matches!(parts.first(), Some(Part::Text(start)) if start == "/");
        if is_root && parts.get(1).is_some_and(|part| *part != Part::Rest) {
            return Err(HOST_HELP.to_owned());
        }
        Self::of(parts)
    }

    /// A template of these parts. None of the texts has characters that a URL has not.
    ///
    /// # Errors
    ///
    /// A phrase that says what to write.
    pub(crate) fn of(parts: Vec<Part>) -> Result<Self, String> {
        match parts.first() {
            Some(Part::Text(start)) if start.starts_with("//") => return Err(HOST_HELP.to_owned()),
            Some(Part::Text(start)) if start.starts_with('/') => {}
            Some(Part::Path) => {}
            Some(Part::Scheme | Part::Text(_)) => check_host(&parts)?,
            _ => return Err(START_HELP.to_owned()),
        }
        Ok(Self(parts))
    }

    /// Whether it names a host, so that it is no path on this server.
    pub(crate) fn has_host(&self) -> bool {
        match self.0.first() {
            Some(Part::Text(text)) => !text.starts_with('/'),
            first => first != Some(&Part::Path),
        }
    }

    /// Whether it has a query of its own. Otherwise that of the request is kept.
    #[must_use]
    pub fn has_query(&self) -> bool {
        let has = |part: &Part| match part {
            Part::Text(text) => text.contains('?'),
            part => *part == Part::Query,
        };
        self.0.iter().any(has)
    }

    /// The path on this server that a request for `path` is sent to; `None` for a URL with a host. `pattern` is that of
    /// the route.
    pub(crate) fn path_from(&self, path: &str, pattern: Option<&Pattern>) -> Option<String> {
        let mut target = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => target.push_str(text),
                Part::Path => target.push_str(path),
                Part::Rest => {
                    if let Some(Pattern::Prefix(prefix)) = pattern {
                        target.push_str(path.strip_prefix(prefix.as_str()).unwrap_or_default());
                    }
                }
                Part::Group(number) => target.push_str(&group(path, pattern, *number)),
                Part::Query => {}
                Part::Scheme | Part::Host => return None,
            }
        }
        let end = target.find(['?', '#']).unwrap_or(target.len());
        target.truncate(end);
        target.starts_with('/').then_some(target)
    }
}

fn group(path: &str, pattern: Option<&Pattern>, number: usize) -> String {
    let groups = pattern.map_or_else(Vec::new, |pattern| pattern.captures(path.as_bytes()));
    let group = groups
        .get(number - 1)
        .and_then(|range| path.get(range.clone()));
    group.unwrap_or_default().to_owned()
}

/// What to write in place of the first variable of nginx in `text`.
fn foreign_variable(text: &str) -> Option<String> {
    let name = text.split('$').nth(1)?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = &name[..end.unwrap_or(name.len())];
    let ours = match name {
        "uri" | "document_uri" => "`{path}`".to_owned(),
        "request_uri" => "`{path}`, and the query follows by itself".to_owned(),
        "host" | "http_host" | "server_name" => "`{host}`".to_owned(),
        "scheme" => "`{scheme}`".to_owned(),
        "args" | "query_string" => "`{query}`".to_owned(),
        "is_args" => "`?{query}`, or nothing: the query is kept".to_owned(),
        _ if name.len() == 1 && matches!(name.as_bytes()[0], b'1'..=b'9') => {
            format!("`{{{name}}}`")
        }
        _ => return None,
    };
    Some(format!(
        "`${name}` is a variable of nginx; here it is {ours}"
    ))
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(open);
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        let name = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let Some((name, after)) = name else {
            return Err("a placeholder is a name in braces, such as `{path}`".to_owned());
        };
        parts.push(placeholder(name)?);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn placeholder(name: &str) -> Result<Part, String> {
    let known = PLACEHOLDERS.iter().find(|(known, _)| *known == name);
    if let Some((_, part)) = known {
        return Ok(part.clone());
    }
    if let [digit @ b'1'..=b'9'] = name.as_bytes() {
        return Ok(Part::Group(usize::from(digit - b'0')));
    }
    let names = PLACEHOLDERS.iter().map(|(name, _)| format!("`{{{name}}}`"));
    let names: Vec<_> = names.collect();
    Err(format!(
        "`{{{name}}}` is none of {}, `{{1}}` to `{{9}}`",
        names.join(", ")
    ))
}

/// Checks a URL that begins with a scheme: its host is text and `{host}`, up to a slash, `{path}`, a query or the end.
fn check_host(parts: &[Part]) -> Result<(), String> {
    let begin = || Err(START_HELP.to_owned());
    let mut parts = parts.iter();
    let first = parts.next();
    let after_scheme = match first {
        Some(Part::Scheme) => match parts.next() {
            Some(Part::Text(text)) => text.strip_prefix("://"),
            _ => None,
        },
        Some(Part::Text(text)) => text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://")),
        _ => None,
    };
    let Some(mut host) = after_scheme else {
        return begin();
    };
    let mut is_empty = true;
    loop {
        if let Some(end) = host.find(['/', '?', '#']) {
            return match is_empty && end == 0 {
                true => Err("there is no host behind the scheme".to_owned()),
                false => Ok(()),
            };
        }
        is_empty &= host.is_empty();
        match parts.next() {
            Some(Part::Text(text)) => host = text,
            Some(Part::Host) => (host, is_empty) = ("", false),
            Some(Part::Path) | None if !is_empty => return Ok(()),
            Some(Part::Path) | None => return Err("there is no host behind the scheme".to_owned()),
            Some(Part::Scheme | Part::Rest | Part::Group(_) | Part::Query) => {
                return Err("put a `/` behind the host".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for text in [
            "/",
            "/new",
            "/new/{rest}",
            "/{rest}",
            "{path}/",
            "https://{host}{path}",
            "{scheme}://www.{host}{path}",
            "http://a.example:8080",
            "https://a.example?x={query}",
            "https://a.example/{rest}?{query}",
            "/a{1}/{2}",
            "https://a.example/{1}",
            "/$price",
            "/$",
        ] {
            let template = Template::parse(text);
            assert!(template.is_ok(), "{text}: {template:?}");
        }
        for text in [
            "",
            "new",
            "//a.example/",
            "/{path}",
            "/{query}",
            "/{host}",
            "/{1}",
            "https://a.example{1}",
            "/a{0}",
            "/a{10}",
            "{rest}",
            "{host}/a",
            "https:/a",
            "https://",
            "https:///a",
            "https://{path}",
            "https://{rest}",
            "https://a.example{rest}",
            "https://a.{query}/",
            "{scheme}{host}",
            "javascript:alert(1)",
            "ftp://a.example/",
            "/a b",
            "/\\a",
            "/\u{e9}",
            "/{nothing}",
            "/{path",
            "/path}",
            "/$1",
            "https://a.example$request_uri",
        ] {
            let template = Template::parse(text);
            assert!(template.is_err(), "{text}: {template:?}");
        }
    }

    #[test]
    fn the_own_query() {
        for (text, expected) in [
            ("/a", false),
            ("{path}", false),
            ("/a?b=1", true),
            ("/{rest}/{query}", true),
        ] {
            assert_eq!(
                Template::parse(text).unwrap().has_query(),
                expected,
                "{text}"
            );
        }
    }
}
