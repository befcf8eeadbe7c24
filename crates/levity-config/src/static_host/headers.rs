//! `_headers`: paths, and beneath each the headers of responses there, `NAME: VALUE`, or `! NAME` for one that is left out.

use super::Count;
use super::file::Notes;
use super::source::{Source, split_url};
use super::target;
use crate::headers::{is_field_value, is_reserved_in_responses};
use crate::matcher::Matcher;
use crate::model::PathHeaders;
use crate::template::Part;
use crate::token::is_token;

/// The rules of the file.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) headers: Vec<PathHeaders>,
    /// Requests for which the static host would ask for a password, with the lines of their paths. Nobody may make them.
    pub(super) refused: Vec<(usize, Matcher)>,
}

pub(super) fn rules(lines: &[String], notes: &mut Notes<'_>) -> Rules {
    let mut rules = Rules::default();
    let mut count = Count::default();
    // `None` while what is beneath a path is left out with it: it would belong to the rule before.
    let mut current = None;
    let mut has_path = false;
    for (line, text) in (1..).zip(lines) {
        let (kind, text) = (kind(text), text.trim());
        match (kind, &mut current) {
            (Kind::Nothing, _) => {}
            (Kind::Path, _) => {
                has_path = true;
                rules.end(current.take());
                match Rule::new(line, text, &mut count) {
                    Ok(rule) => current = Some(rule),
                    Err(reason) => notes.left_out(line, &reason, text),
                }
            }
            (Kind::Header, Some(rule)) => {
                if let Err(reason) = rule.header(text) {
                    // The value may be a secret.
                    let (name, _) = text.split_once(':').unwrap_or((text, ""));
                    notes.left_out(line, &reason, name);
                }
            }
            (Kind::Header, None) if has_path => {
                let (name, _) = text.split_once(':').unwrap_or((text, ""));
                if is_password(name) {
                    let reason = "its path is left out; the paths that it would close are open";
                    notes.left_out(line, reason, name);
                }
            }
            (Kind::Header, None) => notes.left_out(line, "a path is missing before it", text),
        }
    }
    rules.end(current);
    rules
}

/// Whether a header has the passwords of its paths.
fn is_password(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case("basic-auth")
}

impl Rules {
    fn end(&mut self, rule: Option<Rule>) {
        let Some(Rule {
            line,
            source,
            headers,
            has_password,
        }) = rule
        else {
            return;
        };
        if has_password {
            let matcher = Matcher {
                path: headers.path.clone(),
                when: source.when(),
            };
            self.refused.push((line, matcher));
        }
        self.headers.push(headers);
    }
}

enum Kind {
    /// A blank line, or a comment.
    Nothing,
    /// The path of a rule, or what stands in place of one.
    Path,
    Header,
}

fn kind(line: &str) -> Kind {
    let text = line.trim();
    let is_indented = line.starts_with([' ', '\t']);
    if text.is_empty() || text.starts_with('#') {
        Kind::Nothing
    } else if is_path(text) || (!is_indented && !text.starts_with('!') && !text.contains(':')) {
        Kind::Path
    } else {
        Kind::Header
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') || split_url(text).is_some()
}

struct Rule {
    /// That of its path.
    line: usize,
    source: Source,
    headers: PathHeaders,
    /// Whether the static host would ask for a password.
    has_password: bool,
}

impl Rule {
    /// A rule without headers so far.
    fn new(line: usize, text: &str, count: &mut Count) -> Result<Self, String> {
        if !is_path(text) {
            return Err("it is neither a path nor a header".to_owned());
        }
        let source = Source::parse(text)?;
        let path = source.pattern()?;
        count.add(path.weight())?;
        let headers = PathHeaders {
            host: source.host().cloned(),
            path,
            set: Vec::new(),
            remove: Vec::new(),
        };
        Ok(Self {
            line,
            source,
            headers,
            has_password: false,
        })
    }

    fn header(&mut self, text: &str) -> Result<(), String> {
        if let Some(name) = text.strip_prefix('!') {
            let name = checked_name(name)?;
            self.headers.remove.push(name);
            return Ok(());
        }
        let (name, value) = text.split_once(':').ok_or("it is not NAME: VALUE")?;
        let (name, value) = (checked_name(name)?, value.trim());
        if !is_field_value(value) {
            return Err("its value is not valid in a header".to_owned());
        }
        if is_password(&name) {
            self.has_password = true;
            return Err(
                "passwords are `basic_auth` of a route; nobody gets what has no such route"
                    .to_owned(),
            );
        }
        let parts = target::parts(value, &self.source.names());
        // Several lines of one name are one list.
        let mut known = self.headers.set.iter_mut();
        match known.find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            Some((_, list)) => {
                list.push(Part::Text(", ".to_owned()));
                list.extend(parts);
            }
            None => self.headers.set.push((name, parts)),
        }
        Ok(())
    }
}

fn checked_name(name: &str) -> Result<String, String> {
    let name = name.trim();
    if !is_token(name) {
        return Err("it has no name of a header".to_owned());
    }
    if is_reserved_in_responses(name) {
        return Err("only the server itself writes that header".to_owned());
    }
    Ok(name.to_owned())
}
