//! `_redirects` and `_headers`: the files in which the sites of static hosts (Netlify, Cloudflare Pages) keep their rules.

use crate::answer::{SAMPLE, leads_back};
use crate::error_pages::Statuses;
use crate::expression::Expression;
use crate::headers::is_field_value;
use crate::matcher::{Matcher, When};
use crate::model::{Answer, Location, PathHeaders, Redirect, Route, Site};
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::section::Section;
use crate::template::{Part, Template};
use crate::token::is_token;
use crate::tries::Try;

/// The names of the files, which are not served.
pub const NAMES: [&str; 2] = ["_redirects", "_headers"];

/// The maximum of bytes of one of these files.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The maximum of rules in one of them: each request is compared with all.
const RULES_MAX: usize = 500;

/// The maximum of wrong lines that are reported: a file in another notation is one mistake.
const WRONG_LINES_MAX: usize = 8;

/// The maximum of redirects that are followed to see whether they lead to themselves. Clients give up after some 20, and a file
/// may have [`RULES_MAX`] rules, each of which is compared at each step.
const STEPS_MAX: usize = 20;

const KEY: &str = "static_host_files";

/// Whether the files in the root of `site` are read.
pub(crate) fn is_on(section: &Section<'_>, site: &Location) -> bool {
    let is_on = section.boolean(KEY) == Some(true);
    if is_on && site.root.is_none() && !section.has("root") {
        section.report(KEY, "there is no `root` with such files", None);
    }
    is_on && site.root.is_some()
}

/// Reads the rules for headers in the root of `site`. May block.
pub(crate) fn headers(section: &Section<'_>, site: &Location) -> Vec<PathHeaders> {
    headers_of(section, &lines(section, site, NAMES[1]))
}

/// A rule of `_redirects`.
pub(crate) struct HostRedirect {
    /// Its line, counted from 1.
    number: usize,
    text: String,
    pub(crate) route: Route,
}

/// Reads the redirects in the root of `site`. May block.
pub(crate) fn redirects(section: &Section<'_>, site: &Location) -> Vec<HostRedirect> {
    let site = Location {
        answer: None,
        ..site.clone()
    };
    redirects_of(section, &lines(section, &site, NAMES[0]), &site)
}

/// The lines of a file; empty if there is none.
fn lines(section: &Section<'_>, site: &Location, name: &str) -> Vec<String> {
    let Some(root) = site
        .root
        .as_deref()
        .filter(|_| section.reader.base.is_some())
    else {
        return Vec::new();
    };
    let path = root.join(name);
    let text = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Ok(meta) if meta.len() > FILE_BYTES_MAX => Err(format!("more than {FILE_BYTES_MAX} bytes")),
        _ => std::fs::read_to_string(&path).map_err(|error| error.to_string()),
    };
    match text {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(reason) => {
            section.report(KEY, format_args!("{}: {reason}", path.display()), None);
            Vec::new()
        }
    }
}

/// Adds the routes of `redirects` behind those of `site`, and notes the redirects that lead to themselves. They are no error: the
/// file is that of the author of the pages. May block.
pub(crate) fn add(section: &Section<'_>, redirects: Vec<HostRedirect>, site: &mut Site) {
    let first = site.routes.len();
    let routes = redirects.iter().map(|redirect| redirect.route.clone());
    site.routes.extend(routes);
    note_unreached(section, &redirects);
    for (at, redirect) in (first..).zip(&redirects) {
        let is_redirect = matches!(redirect.route.location.answer, Some(Answer::Redirect(_)));
        if is_redirect && leads_back(site, Some(at), sample(&redirect.text), STEPS_MAX) {
            let note = format!(
                "{}, line {}, leads to itself where no file is found: {}",
                NAMES[0],
                redirect.number,
                redirect.text.trim()
            );
            section.reader.note(&section.span_of(KEY), note);
        }
    }
}

/// Notes the lines that no request gets to, because one before them has all their paths.
fn note_unreached(section: &Section<'_>, redirects: &[HostRedirect]) {
    let shapes: Vec<_> = redirects.iter().map(|one| shape(&one.text)).collect();
    let mut index = PatternIndex::default();
    for (at, (redirect, (paths, is_all))) in redirects.iter().zip(&shapes).enumerate() {
        let covers = |before: usize| shapes[before].0.covers(paths);
        if let Some(before) = index.first_covering(paths, covers) {
            let note = format!(
                "{}, line {}, is never reached, because line {} comes first: {}",
                NAMES[0],
                redirect.number,
                redirects[before].number,
                redirect.text.trim()
            );
            section.reader.note(&section.span_of(KEY), note);
        }
        if *is_all && redirect.route.matcher().when == When::default() {
            index.push(paths.start(), at);
        }
    }
}

/// Paths among which are all that the rule in a line matches, and whether there are no others. The pattern of its route has groups,
/// and cannot be compared.
fn shape(line: &str) -> (Pattern, bool) {
    let (_, from) = split_url(line.split_whitespace().next().unwrap_or_default());
    let Some(end) = from.find([':', '*']) else {
        return (Pattern::Exact(from.to_owned()), true);
    };
    let start = from[..end].rfind('/').map_or(0, |slash| slash + 1);
    let is_all = &from[start..] == "*";
    (Pattern::Prefix(from[..start].to_owned()), is_all)
}

/// A path that the rule in a line matches.
fn sample(line: &str) -> String {
    let from = line.split_whitespace().next().unwrap_or_default();
    let segments = from.split('/').map(|segment| match segment {
        name if name == "*" || name.starts_with(':') => SAMPLE,
        text => text,
    });
    segments.collect::<Vec<_>>().join("/")
}

fn refuse(section: &Section<'_>, name: &str, line: usize, reason: &str) {
    section.report(KEY, format_args!("{name}, line {line}: {reason}"), None);
}

fn note_left_out(section: &Section<'_>, name: &str, line: usize, (text, reason): (&str, &str)) {
    let text = text.trim();
    let note = format!("{name}, line {line}, is left out, because {reason}: {text}");
    section.reader.note(&section.span_of(KEY), note);
}

/// Why a line is not taken over. Both are a phrase for the reader.
#[derive(Debug, PartialEq)]
enum Untaken {
    /// It needs what this server does not know.
    LeftOut(&'static str),
    /// It is wrong.
    Wrong(String),
}

impl From<String> for Untaken {
    fn from(reason: String) -> Self {
        Self::Wrong(reason)
    }
}

impl From<&str> for Untaken {
    fn from(reason: &str) -> Self {
        Self::Wrong(reason.to_owned())
    }
}

/// The condition and the path of a rule for `from`, a path or a URL; the path is empty if the URL has none. A host with a
/// placeholder, or behind another scheme than those of this server, is left out.
fn host_and_path(from: &str) -> Result<(Option<Expression>, &str), Untaken> {
    let (Some((scheme, host)), path) = split_url(from) else {
        return Ok((None, from));
    };
    if host.is_empty() {
        return Err(format!("a host is missing in `{from}`").into());
    }
    let is_http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    if !is_http {
        return Err(Untaken::LeftOut("no request comes with that scheme"));
    }
    if has_placeholder(host) {
        return Err(Untaken::LeftOut("its host has a placeholder"));
    }
    Ok((Some(expression_of(host)?), path))
}

/// The scheme and host of `from`, if it is a URL, and its path.
fn split_url(from: &str) -> (Option<(&str, &str)>, &str) {
    match from.split_once("://").filter(|_| !from.starts_with('/')) {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some((scheme, host)), path)
        }
        None => (None, from),
    }
}

/// Whether a host has `*` or `:name`, of which `:80` is one. A port and an address in brackets have colons, too.
fn has_placeholder(host: &str) -> bool {
    let name = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.strip_suffix(':').unwrap_or(host);
    name.is_empty() || name.contains('*') || (name.contains(':') && !name.starts_with('['))
}

/// The hosts that a rule for `host` is about: with any port, if it has none.
fn expression_of(host: &str) -> Result<Expression, String> {
    Expression::regex(&format!("^(?i){}(:[0-9]*)?$", escaped(host)))
}

// ---- redirects ----

fn redirects_of(section: &Section<'_>, lines: &[String], site: &Location) -> Vec<HostRedirect> {
    let (mut redirects, mut wrong) = (Vec::new(), 0);
    for (number, line) in (1..).zip(lines) {
        match redirect(line, site) {
            Ok(Rule::Route(route)) => redirects.push(HostRedirect {
                number,
                text: line.clone(),
                route: *route,
            }),
            Ok(Rule::None) => {}
            Ok(Rule::LeftOut(reason)) => {
                note_left_out(section, NAMES[0], number, (line, reason));
            }
            Err(reason) => {
                refuse(section, NAMES[0], number, &reason);
                wrong += 1;
            }
        }
        if wrong == WRONG_LINES_MAX {
            break;
        }
    }
    if redirects.len() > RULES_MAX {
        let reason = format!("{}: more than {RULES_MAX} rules", NAMES[0]);
        section.report(KEY, reason, None);
    }
    redirects
}

/// A line of `_redirects`.
#[derive(Debug)]
pub enum Rule {
    /// Blank, or a comment.
    None,
    /// It needs what this server does not know; a phrase that says what.
    LeftOut(&'static str),
    /// What the rule becomes.
    Route(Box<Route>),
}

/// Reads a line of `_redirects` for a location of `site`.
///
/// # Errors
///
/// A phrase that says what is wrong.
pub fn redirect(line: &str, site: &Location) -> Result<Rule, String> {
    let line = line.split(" #").next().unwrap_or_default().trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Rule::None);
    }
    match rule(line, site) {
        Ok(route) => Ok(Rule::Route(Box::new(route))),
        Err(Untaken::LeftOut(reason)) => Ok(Rule::LeftOut(reason)),
        Err(Untaken::Wrong(reason)) => Err(reason),
    }
}

/// The route of a line: `FROM [NAME=VALUE...] TO [STATUS[!]] [CONDITION...]`.
fn rule(line: &str, site: &Location) -> Result<Route, Untaken> {
    let mut words = line.split_whitespace();
    let from = words.next().expect("the line is not empty");
    let (host, from) = host_and_path(from)?;
    if from.is_empty() {
        return Err("a path is missing behind the host".into());
    }
    let mut rest: Vec<&str> = words.collect();
    let end = rest
        .iter()
        .position(|word| word.starts_with('/') || word.contains("://"));
    let end = end.ok_or("a target is missing, which begins with `/` or a scheme")?;
    let query: Vec<_> = rest.drain(..end).collect();
    let to = rest.remove(0);
    let status = rest.first().copied().unwrap_or("301");
    if rest.iter().any(|word| word.contains('=')) {
        return Err(Untaken::LeftOut("it has a condition about the client"));
    }
    if rest.len() > 1 {
        return Err(Untaken::LeftOut("more than a status follows its target"));
    }
    let (status, is_forced) = match status.strip_suffix('!') {
        Some(status) => (status, true),
        None => (status, false),
    };
    let status: u16 = status
        .parse()
        .map_err(|_| format!("`{status}` is not a status"))?;
    let (path, names) = path_of(from)?;
    let query = query_of(&query)?;
    if to.contains("://") && status == 200 {
        return Err(Untaken::LeftOut(
            "it stands for a proxy; an `[[upstream]]` is one",
        ));
    }
    let location = Location {
        files_first: !is_forced,
        ..location_of(status, &template_of(to, &names)?, to, site)?
    };
    Ok(Route {
        matchers: vec![Matcher {
            path,
            when: When {
                query,
                headers: host
                    .map(|host| ("host".to_owned(), host))
                    .into_iter()
                    .collect(),
                ..When::default()
            },
        }],
        line: None,
        location,
    })
}

/// What a rule of `status` gives.
fn location_of(
    status: u16,
    to: &Template,
    text: &str,
    site: &Location,
) -> Result<Location, Untaken> {
    let mut location = site.clone();
    location.answer = Some(match status {
        301 | 302 | 303 | 307 | 308 => Answer::Redirect(Redirect {
            to: to.clone(),
            status,
        }),
        200 => Answer::Reroute(to.clone()),
        404 | 410 => {
            location.error_pages_root = location.root.clone();
            location.options.error_pages = vec![(Statuses::One(status), text.to_owned())];
            let mut tries = site.searches();
            tries.push(Try::Status(status));
            location.proxying.tries = Some(tries);
            location.answer = None;
            return match text.contains([':', '*']) {
                true => Err(Untaken::LeftOut("the page of an error has a placeholder")),
                false => Ok(location),
            };
        }
        _ => {
            let reason = format!("{status} is not the status of a redirect, 200 or 404");
            return Err(reason.into());
        }
    });
    Ok(location)
}

/// The pattern of a path with `:name` and `*`, and the names of its groups.
fn path_of(from: &str) -> Result<(Pattern, Vec<String>), String> {
    if !from.starts_with('/') {
        return Err(format!("`{from}` does not begin with `/`"));
    }
    let mut names = Vec::new();
    let mut regex = String::from("^");
    let segments = from[1..].split('/').collect::<Vec<_>>();
    for (number, segment) in segments.iter().enumerate() {
        let is_last = number + 1 == segments.len();
        if *segment == "*" && is_last {
            // `/a/*` is also `/a`.
            regex.push_str(if number == 0 { "/(.*)" } else { "(?:/(.*))?" });
            names.push("splat".to_owned());
        } else if let Some(name) = segment.strip_prefix(':') {
            regex.push_str("/([^/]+)");
            names.push(name.to_owned());
        } else if segment.contains('*') {
            return Err(format!("`*` stands for all the rest of a path: `{from}`"));
        } else if segment.is_empty() && is_last {
            regex.push('/');
        } else {
            regex.push('/');
            regex.push_str(&escaped(segment));
        }
    }
    // With and without a slash at the end, as these hosts compare.
    let end = if from.ends_with(['*', '/']) {
        "$"
    } else {
        "/?$"
    };
    let end = if from.ends_with('/') && from.len() > 1 {
        "?$"
    } else {
        end
    };
    let expression = Expression::regex(&(regex + end))?;
    Ok((Pattern::Named(expression), names))
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

/// The conditions of `NAME=VALUE` words. One that takes its value from the request, as `id=:id` does, is left out.
fn query_of(words: &[&str]) -> Result<Vec<(String, Expression)>, Untaken> {
    let mut query = Vec::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or(format!("`{word}` is not NAME=VALUE"))?;
        if value.starts_with(':') {
            return Err(Untaken::LeftOut("it uses a value of the query"));
        }
        query.push((name.to_owned(), Expression::text(value)?));
    }
    Ok(query)
}

/// A target, whose `:name` and `:splat` become groups.
fn template_of(to: &str, names: &[String]) -> Result<Template, String> {
    let mut text = String::new();
    let mut rest = to;
    while let Some(colon) = rest.find(':') {
        let (before, after) = rest.split_at(colon);
        text.push_str(before);
        let name = &after[1..];
        let end = name
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(name.len());
        match names
            .iter()
            .position(|known| *known == name[..end] && end > 0)
        {
            Some(group) if group < 9 => text.push_str(&format!("{{{}}}", group + 1)),
            _ => text.push_str(&after[..=end]),
        }
        rest = &name[end..];
    }
    text.push_str(rest);
    if names.first().is_some_and(|name| name == "splat") {
        // The path behind the slash of the pattern begins with no other slash, as `{rest}` does.
        return Template::parse(&text.replace("{1}", "{rest}")).map(with_group);
    }
    Template::parse(&text)
}

/// The template with the first group in place of the rest of the path.
fn with_group(template: Template) -> Template {
    let parts = template.0.into_iter().map(|part| match part {
        Part::Rest => Part::Group(1),
        part => part,
    });
    Template(parts.collect())
}

// ---- headers ----

/// Rules for headers: paths without indentation, and beneath each its headers, `NAME: VALUE`, or `! NAME` without it.
fn headers_of(section: &Section<'_>, lines: &[String]) -> Vec<PathHeaders> {
    let mut rules: Vec<PathHeaders> = Vec::new();
    let (mut wrong, mut is_left_out) = (0, false);
    for (number, line) in (1..).zip(lines) {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let is_path = !line.starts_with([' ', '\t']);
        let outcome = match (is_path, rules.last_mut()) {
            (true, _) => match headers_rule(text) {
                Ok(rule) => {
                    is_left_out = false;
                    rules.push(rule);
                    Ok(())
                }
                Err(Untaken::LeftOut(reason)) => {
                    is_left_out = true;
                    note_left_out(section, NAMES[1], number, (line, reason));
                    Ok(())
                }
                Err(Untaken::Wrong(reason)) => Err(reason),
            },
            // Without its rule it would belong to the one before.
            (false, _) if is_left_out => Ok(()),
            (false, Some(rule)) => header(text, rule),
            (false, None) => Err("a path is missing before it".to_owned()),
        };
        if let Err(reason) = outcome {
            refuse(section, NAMES[1], number, &reason);
            wrong += 1;
        }
        if wrong == WRONG_LINES_MAX {
            break;
        }
    }
    if rules.len() > RULES_MAX {
        section.report(
            KEY,
            format_args!("{}: more than {RULES_MAX} rules", NAMES[1]),
            None,
        );
    }
    rules
}

/// A rule without headers so far.
fn headers_rule(text: &str) -> Result<PathHeaders, Untaken> {
    let (host, path) = host_and_path(text)?;
    let path = match path {
        "" => "/*",
        path => path,
    };
    let path = if path.contains('*') && !path.ends_with("/*") {
        Expression::glob(&path.replace('*', "**")).map(Pattern::Glob)?
    } else {
        path_of(path)?.0
    };
    Ok(PathHeaders {
        host,
        path,
        set: Vec::new(),
        remove: Vec::new(),
    })
}

fn header(text: &str, rule: &mut PathHeaders) -> Result<(), String> {
    if let Some(name) = text.strip_prefix('!') {
        rule.remove.push(name.trim().to_owned());
        return Ok(());
    }
    let (name, value) = text.split_once(':').ok_or("it is not NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    if !is_token(name) || !is_field_value(value) {
        return Err(format!("`{text}` is no header"));
    }
    if name.eq_ignore_ascii_case("basic-auth") {
        return Err("passwords are `basic_auth` of a route".to_owned());
    }
    // Several lines of one name are one list.
    let mut known = rule.set.iter_mut();
    match known.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, list)) => *list = format!("{list}, {value}"),
        None => rule.set.push((name.to_owned(), value.to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of a request, and where a rule leads it; `None` if the rule does not match.
    fn leads(rule_line: &str, path: &str) -> Option<String> {
        let site = Location::default();
        let route = rule(rule_line, &site).expect(rule_line);
        let pattern = &route.matchers[0].path;
        if !pattern.matches(path.as_bytes()) {
            return None;
        }
        let to = match route.location.answer.as_ref().expect("an answer") {
            Answer::Redirect(redirect) => &redirect.to,
            Answer::Reroute(to) => to,
            Answer::Fixed(_) | Answer::Mailbox(_) => panic!("a target"),
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
            ("/* /:splat/ 301", "/x", Some("/x/")),
            (
                "/news/:y/:slug /n?y=:y&s=:slug",
                "/news/7/x",
                Some("/n?y=7&s=x"),
            ),
            ("/news/:y/:slug /n/:slug/:y", "/news/7/x/z", None),
            ("/a.b+c /x", "/a.b+c", Some("/x")),
            ("/a.b+c /x", "/axbbc", None),
            ("https://old.example/a /b # why", "/a", Some("/b")),
        ] {
            let line = line.split(" #").next().unwrap_or(line);
            assert_eq!(leads(line, path).as_deref(), expected, "{line} {path}");
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
            let rule = host_and_path(url).ok();
            let expression = rule.map(|(expression, _)| expression.expect("a host"));
            let found = expression.map(|expression| expression.matches(host.as_bytes()));
            assert_eq!(found, is_about, "{url} {host}");
        }
        let path = "/to/http://a.example";
        assert_eq!(host_and_path(path), Ok((None, path)));
    }

    #[test]
    fn rules_that_are_left_out_or_wrong() {
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
        ] {
            match rule(line, &site) {
                Err(Untaken::LeftOut(found)) => assert!(found.contains(reason), "{line}: {found}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        for line in [
            "/a",
            "a /b",
            "/a /b 3x",
            "/a /b 418",
            "/a*b /c",
            "/a x /b",
            "/a x https://b.example 200",
            "/a //b.example",
            "https:///a /b",
            "https://a.example /b",
        ] {
            assert!(
                matches!(rule(line, &site), Err(Untaken::Wrong(_))),
                "{line}"
            );
        }
        // A part of a path never begins a target.
        assert!(rule("/:a /:a/x", &site).is_err());
    }
}
