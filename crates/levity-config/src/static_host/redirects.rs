//! `_redirects`: redirects, rewrites and pages of errors.

use super::Count;
use super::file::Notes;
use super::source::Source;
use super::target;
use crate::error_pages::Statuses;
use crate::expression::Expression;
use crate::line::Line;
use crate::matcher::{Matcher, When};
use crate::model::{Answer, Location, Redirect, Route};
use crate::network::AddressSet;
use crate::template::Template;
use crate::tries::Try;

/// A rule of the file.
#[derive(Debug)]
pub(super) struct HostRedirect {
    /// Its line, counted from 1.
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) source: Source,
    pub(super) route: Route,
}

/// The rules of the file, for a location as `site`.
pub(super) fn rules(lines: &[String], site: &Location, notes: &mut Notes<'_>) -> Vec<HostRedirect> {
    let mut rules = Vec::new();
    let mut count = Count::default();
    // Apart: others may have used up what one file may have.
    let mut of_closed = Count::default();
    for (line, text) in (1..).zip(lines) {
        let rule = rule(text, site, &mut count).unwrap_or_else(|mut reason| {
            let closed = closed(text, site, &mut of_closed);
            reason.push_str(match &closed {
                Some(_) => "; nobody gets the paths that it would close",
                None if closes_any(text) => "; the paths that it would close are open",
                None => "",
            });
            notes.left_out(line, &reason, text);
            closed
        });
        let Some(rule) = rule else {
            continue;
        };
        if let Some(name) = rule.unknown {
            let what =
                format!("has a target with `:{name}`, which stays so: its path has no such name");
            notes.add(line, &what, text);
        }
        rules.push(HostRedirect {
            line,
            text: text.clone(),
            source: rule.source,
            route: Route {
                line: Some(Line::of_other_file(line)),
                host_file: Some(notes.name()),
                ..rule.route
            },
        });
    }
    rules
}

/// What a line says.
#[derive(Debug)]
struct Rule {
    source: Source,
    route: Route,
    /// A name in its target that its path has not.
    unknown: Option<String>,
}

/// Reads a line of the file for a location of `site`; `None` if it is blank or a comment.
///
/// # Errors
///
/// A phrase that says why the line is left out.
pub fn redirect(line: &str, site: &Location) -> Result<Option<Route>, String> {
    let rule = rule(line, site, &mut Count::default())?;
    Ok(rule.map(|rule| rule.route))
}

/// What a line says: `FROM [NAME=VALUE...] TO [STATUS[!]] [CONDITION...] [# COMMENT]`.
fn rule(line: &str, site: &Location, count: &mut Count) -> Result<Option<Rule>, String> {
    let words = words(line);
    let Some((from, words)) = words.split_first() else {
        return Ok(None);
    };
    let source = Source::parse(from)?;
    let (query, to, status) = rest(words)?;
    let (status, is_forced) = match status.strip_suffix('!') {
        Some(status) => (status, true),
        None => (status, false),
    };
    let status: u16 = status
        .parse()
        .map_err(|_| format!("`{status}` is not a status"))?;
    let names = source.names();
    let location = Location {
        files_first: !is_forced,
        ..location((status, is_forced), to, &names, site)?
    };
    let when = When {
        query: query_of(query)?,
        ..source.when()
    };
    let unknown = target::unknown_name(to, &names).map(str::to_owned);
    let route = route(&source, when, location, count)?;
    Ok(Some(Rule {
        unknown,
        source,
        route,
    }))
}

fn route(
    source: &Source,
    when: When,
    location: Location,
    count: &mut Count,
) -> Result<Route, String> {
    let path = source.pattern()?;
    count.add(path.weight())?;
    Ok(Route {
        matchers: vec![Matcher { path, when }],
        line: None,
        host_file: None,
        location,
    })
}

/// The words of a line before its comment.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace()
        .take_while(|word| !word.starts_with('#'))
        .collect()
}

/// What stands in place of a line that is left out, if the line keeps files from clients: without it they would be open.
fn closed(line: &str, site: &Location, count: &mut Count) -> Option<Rule> {
    let words = words(line);
    let (from, words) = words.split_first()?;
    if !closes(from, words) {
        return None;
    }
    let source = Source::parse_any(from).ok()?;
    let mut location = site.clone();
    location.gates.deny = AddressSet::everyone();
    let route = route(&source, source.when(), location, count).ok()?;
    Some(Rule {
        unknown: None,
        source,
        route,
    })
}

/// Whether a line lets only some users to files, or nobody.
fn closes_any(line: &str) -> bool {
    let words = words(line);
    let from = words.split_first();
    from.is_some_and(|(from, words)| closes(from, words))
}

/// Whether a rule for `from` lets only some users to its files, or nobody.
fn closes(from: &str, words: &[&str]) -> bool {
    let denies = |status: &str| ["401", "403", "404", "410"].contains(&status);
    let is_itself = |word: &&str| word.replace(":splat", "*") == from;
    let leads_nowhere = words.iter().any(is_itself);
    words.iter().any(|word| match word.strip_suffix('!') {
        Some(status) => denies(status),
        None => word.starts_with("Role=") || (denies(word) && leads_nowhere),
    })
}

/// The conditions of the query, the target and the status among the words behind the path.
fn rest<'w>(words: &'w [&'w str]) -> Result<(&'w [&'w str], &'w str, &'w str), String> {
    let is_target = |word: &&str| word.starts_with('/') || word.contains("://");
    let at = words.iter().position(is_target);
    let at = at.ok_or("it has no target that begins with `/`, `https://` or `http://`")?;
    let (query, rest) = words.split_at(at);
    if rest[1..].iter().any(|word| word.contains('=')) {
        return Err("it has a condition about the client".to_owned());
    }
    match rest {
        [to] => Ok((query, to, "301")),
        [to, status] => Ok((query, to, status)),
        _ => Err("more than a status follows its target".to_owned()),
    }
}

/// What a rule of `status` gives.
fn location(
    (status, is_forced): (u16, bool),
    to: &str,
    names: &[&str],
    site: &Location,
) -> Result<Location, String> {
    let answer = match status {
        301 | 302 | 303 | 307 | 308 => Answer::Redirect(Redirect {
            to: target::template(to, names)?,
            status,
        }),
        200 => Answer::Reroute(path_template(to, names)?),
        404 | 410 => return error_page((status, is_forced), to, site),
        _ => {
            return Err(format!(
                "{status} is not the status of a redirect, 200, 404 or 410"
            ));
        }
    };
    Ok(Location {
        answer: Some(answer),
        ..site.clone()
    })
}

/// A target on this server.
fn path_template(to: &str, names: &[&str]) -> Result<Template, String> {
    match to.starts_with('/') {
        true => target::template(to, names),
        false => Err("it stands for a proxy; an `[[upstream]]` is one".to_owned()),
    }
}

fn error_page(
    (status, is_forced): (u16, bool),
    to: &str,
    site: &Location,
) -> Result<Location, String> {
    if to.contains([':', '*']) {
        return Err("the page of an error has a placeholder, or is elsewhere".to_owned());
    }
    let mut location = site.clone();
    location.error_pages_root = location.root.clone();
    location.options.error_pages = vec![(Statuses::One(status), to.to_owned())];
    let mut tries = match is_forced {
        true => Vec::new(),
        false => site.searches(),
    };
    tries.push(Try::Status(status));
    location.proxying.tries = Some(tries);
    Ok(location)
}

/// The conditions of `NAME=VALUE` words. One that takes its value from the request, as `id=:id` does, is left out.
fn query_of(words: &[&str]) -> Result<Vec<(String, Expression)>, String> {
    let mut query = Vec::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or(format!("`{word}` is not NAME=VALUE"))?;
        if value.starts_with(':') {
            return Err("it uses a value of the query".to_owned());
        }
        query.push((name.to_owned(), Expression::text(value)?));
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Part;

    /// The path of a request, and where a rule leads it; `None` if the rule does not match.
    fn leads(line: &str, path: &str) -> Option<String> {
        let route = redirect(line, &Location::default())
            .expect(line)
            .expect(line);
        let pattern = &route.matchers[0].path;
        if !pattern.matches(path.as_bytes()) {
            return None;
        }
        let to = match route.location.answer.as_ref().expect("an answer") {
            Answer::Redirect(redirect) => &redirect.to,
            Answer::Reroute(to) => to,
            _ => panic!("a target"),
        };
        let groups = pattern.captures(path.as_bytes());
        let parts = to.0.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Group(number) => path[groups[number - 1].clone()].to_owned(),
            other => panic!("{other:?}"),
        });
        Some(parts.collect())
    }

    #[test]
    fn rules_lead() {
        for (line, path, expected) in [
            ("/a /b", "/a", Some("/b")),
            ("/a /b", "/a/", Some("/b")),
            ("/a/ /b", "/a", Some("/b")),
            ("/a /b", "/ab", None),
            ("/blog/* /news/:splat 302", "/blog/x/y", Some("/news/x/y")),
            ("/blog/* /news/:splat", "/blog", Some("/news/")),
            ("/* /index.html 200", "/any/thing", Some("/index.html")),
            (
                "/* https://b.example/:splat 301!",
                "/x/y",
                Some("https://b.example/x/y"),
            ),
            ("/* https://b.example", "/x", Some("https://b.example")),
            ("/* /:splat/ 301", "/x", Some("/x/")),
            (
                "/news/:y/:slug /n?y=:y&s=:slug",
                "/news/7/x",
                Some("/n?y=7&s=x"),
            ),
            ("/news/:y/:slug /n/:slug/:y", "/news/7/x/z", None),
            (
                "/docs/preset-* /docs/p-:splat",
                "/docs/preset-a/b",
                Some("/docs/p-a/b"),
            ),
            ("/*.txt /:splat.md", "/x/y.txt", Some("/x/y.md")),
            ("/:a/index.html /:a/", "/x/index.html", Some("/x/")),
            ("a /b", "/a", Some("/b")),
            ("https://old.example/a /b # why", "/a", Some("/b")),
            (
                "https://old.example\thttps://b.example\t#why",
                "/",
                Some("https://b.example"),
            ),
            (
                "/:a/:b/:c/:d/:e/:f/:g/:h/:i/:j /:j",
                "/1/2/3/4/5/6/7/8/9/10",
                Some("/10"),
            ),
        ] {
            assert_eq!(leads(line, path).as_deref(), expected, "{line} {path}");
        }
    }

    #[test]
    fn lines_that_close() {
        for (line, is_closed) in [
            ("/a/* 401!", true),
            ("/a/* 401", false),
            ("/a/* /a/:splat 403", true),
            ("/a/* /a/* 404", true),
            ("/a /b 403", false),
            ("/a/* /:splat 404!", true),
            ("/a/* /:splat 410! Country=de", true),
            ("/a/* /a/:splat 200! Role=admin", true),
            ("/a/* /a/:splat 200 Role=admin,editor", true),
            ("/a/*/b/* 403!", true),
            ("/a/b 302!", false),
            ("/a /b 302 Country=de", false),
            ("/a /b 418 # 403!", false),
            ("", false),
        ] {
            let site = Location::default();
            let closed = closed(line, &site, &mut Count::default());
            assert_eq!(closed.is_some(), is_closed, "{line}");
            let is_open = |rule: &Rule| rule.route.location.gates.deny == AddressSet::default();
            assert!(!closed.is_some_and(|rule| is_open(&rule)), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_closed_is_known() {
        for (line, closes) in [
            ("https://:a.example/p/* 401!", true),
            ("https://:a.example/p/* /q 302", false),
            ("", false),
        ] {
            let closed = closed(line, &Location::default(), &mut Count::default());
            assert_eq!(
                (closed.is_some(), closes_any(line)),
                (false, closes),
                "{line}"
            );
        }
    }

    #[test]
    fn rules_that_are_left_out() {
        let site = Location::default();
        for (line, reason) in [
            ("/a /b 302 Country=de", "a condition about the client"),
            ("/a /b Country=de", "a condition about the client"),
            ("/a /b 301 something else", "more than a status"),
            ("/api/* https://api.example/:splat 200", "a proxy"),
            ("/a id=:id /b/:id", "a value of the query"),
            ("https://:version.example/* /b", "a placeholder"),
            ("https://*.example/* /b", "a placeholder"),
            ("ftp://a.example/* /b", "that scheme"),
            ("/a/* /:splat 404", "the page of an error"),
            ("/a https://b.example/404 404", "the page of an error"),
            ("/a", "it has no target"),
            ("/a 404", "it has no target"),
            ("/a b", "it has no target"),
            ("/a /b 3x", "`3x` is not a status"),
            ("/a /b 418", "418 is not the status"),
            ("/a /b 429", "429 is not the status"),
            ("/a/*/b/* /c", "a star or a name twice"),
            ("/:a/:a /c", "a star or a name twice"),
            ("/a x /b", "not NAME=VALUE"),
            ("/a //b.example", "`//` before a name stands for a host"),
            ("/a ftp://b.example/", "neither with `/` nor with"),
            ("/a https:///b", "the host of its target is missing"),
            ("/:a https://:a.example/", "or has a placeholder"),
            (
                "/a javascript:alert(1)",
                "it has no target that begins with `/`, `https://` or `http://`",
            ),
            ("https:///a /b", "a host is missing"),
            // A part of a path never begins a target.
            ("/:a :a/x", "it has no target"),
        ] {
            let found = redirect(line, &site).expect_err(line);
            assert!(found.contains(reason), "{line}: {found}");
        }
        for line in ["", "  # a comment", "#/a /b"] {
            assert_eq!(redirect(line, &site), Ok(None));
        }
    }
}
