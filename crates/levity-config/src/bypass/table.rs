//! Routes and sites as one: what they match, and what answers there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::application::Application;
use super::folders::Folders;
use crate::gates::Gates;
use crate::line::Line;
use crate::matcher::{Matcher, When};
use crate::model::{Answer, Location, Site};
use crate::name_pattern::hides;
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::tries::Try;

pub(super) fn is_guarded(gates: &Gates) -> bool {
    gates.adds_to(&Gates::default())
}

/// See [`Table::refuses`].
pub(super) fn refuses(location: &Location) -> bool {
    let refusal = location.answer.as_ref().and_then(Answer::refusal);
    location.internal || matches!(refusal, Some(401 | 403 | 404))
}

/// A route, or what a site has besides its routes.
pub(super) struct Table<'a> {
    /// None for that of a site.
    pub(super) matchers: &'a [Matcher],
    /// The paths of its requests, before other routes take theirs; `None` if no pattern says that.
    pub(super) path: Option<Pattern>,
    pub(super) location: &'a Location,
    pub(super) line: &'a Line,
    /// The file of a static host in which it is written, and its line there. `line` is then that of the site.
    host_file: Option<(&'static str, usize)>,
    /// The folder of its files without links, if files answer.
    pub(super) root: Option<Arc<Path>>,
    /// The one that may answer.
    pub(super) application: Option<Application>,
}

impl Table<'_> {
    /// Whether clients have to pass gates here before they read.
    pub(super) fn guards(&self) -> bool {
        let reads = |when: &When| {
            when.methods.is_empty() || when.methods.iter().any(|method| method == "GET")
        };
        let mut when = self.matchers.iter().map(|matcher| &matcher.when);
        !self.location.internal && is_guarded(&self.location.gates) && when.all(reads)
    }

    /// Whether clients get nothing here: it is for applications alone, or answers that they may not, or that there is nothing.
    pub(super) fn refuses(&self) -> bool {
        refuses(self.location)
    }

    /// Whether all clients get here without a gate.
    pub(super) fn lets_all_by(&self) -> bool {
        let mut when = self.matchers.iter().map(|matcher| &matcher.when);
        let has_condition = |when: &When| !when.clients.is_empty() || !when.listen.is_empty();
        !self.refuses() && !when.any(has_condition) && !is_guarded(&self.location.gates)
    }

    /// Whether the paths of its requests include those of `pattern`, before other routes take theirs.
    pub(super) fn matches(&self, pattern: &Pattern) -> bool {
        let mut matchers = self.matchers.iter();
        matchers.all(|matcher| matcher.path.covers(pattern))
    }

    /// The text with which the paths of its requests start, for a [`PatternIndex`].
    pub(super) fn start(&self) -> &str {
        let last = self.matchers.last();
        last.map_or("", |matcher| matcher.path.start())
    }

    /// Whether clients get here without a gate as those of `guarded`. Which users a gate lets in is not compared: the
    /// operator may have reasons, and files of thousands of users would take long.
    pub(super) fn lets_by(&self, guarded: &Self) -> bool {
        let mut when = self.matchers.iter().map(|matcher| &matcher.when);
        !self.location.internal
            && when.all(|when| when.clients.is_empty() && when.listen.is_empty())
            && guarded.location.gates.bound_more_than(&self.location.gates)
    }

    /// The upstream that requests may get to.
    pub(super) fn upstream(&self) -> Option<&str> {
        upstream(self.location)
    }

    /// Whether clients get here without a gate of `guarded`, and no other gate is in its place.
    pub(super) fn has_fewer_gates(&self, guarded: &Self) -> bool {
        self.lets_by(guarded) && !self.location.gates.adds_to(&guarded.location.gates)
    }

    /// Whether clients can get files by their names.
    pub(super) fn sends_files(&self) -> bool {
        let tries = self.location.proxying.tries.as_deref();
        let has_names = tries.is_none_or(|tries| tries.contains(&Try::File));
        has_names && !self.location.gates.refuses_all()
    }

    /// Whether files or an upstream answer.
    pub(super) fn serves(&self) -> bool {
        self.root.is_some() || self.upstream().is_some()
    }

    pub(super) fn strip_prefix(&self) -> &str {
        self.location.strip_prefix.as_deref().unwrap_or_default()
    }

    /// Whether it serves the file or folder `beneath` its root.
    pub(super) fn shows(&self, beneath: &Path) -> bool {
        let options = &self.location.options;
        let is_hidden = |name: &OsStr| hides(&options.hide, &options.show, name.as_encoded_bytes());
        !beneath.iter().any(is_hidden)
    }

    /// Whose files, in a note about this table.
    pub(super) fn owner(&self) -> String {
        match self.matchers.last() {
            Some(matcher) => format!("`{}`", matcher.path),
            None => "this site".to_owned(),
        }
    }

    pub(super) fn shown(&self) -> String {
        match (self.matchers.last(), self.host_file) {
            (Some(matcher), Some((file, line))) => {
                format!("the rule `{}` on line {line} of {file}", matcher.path)
            }
            (Some(matcher), None) => format!("the route `{}` on {}", matcher.path, self.line),
            (None, _) => format!("the site on {}", self.line),
        }
    }

    /// A note about this table, which says where it is written if that is not in the configuration.
    pub(super) fn noted(&self, note: String) -> String {
        match self.host_file {
            Some((file, line)) => format!("{file}, line {line}: {note}"),
            None => note,
        }
    }
}

/// The upstream that requests may get to.
fn upstream(location: &Location) -> Option<&str> {
    let tries = location.proxying.tries.as_deref();
    let is_asked = tries.is_none_or(|tries| tries.contains(&Try::Proxy));
    let name = location.proxying.proxy.as_deref();
    name.filter(|_| is_asked && location.answer.is_none())
}

/// The tables of a site.
pub(super) struct Tables<'a> {
    /// In the order in which they are asked.
    pub(super) all: Vec<Table<'a>>,
    index: PatternIndex,
}

impl<'a> Tables<'a> {
    pub(super) fn new(
        site: &'a Site,
        applications: &HashMap<&str, Application>,
        folders: &mut Folders<'a>,
    ) -> Self {
        let all = all(site, applications, folders);
        let mut index = PatternIndex::default();
        for (number, table) in all.iter().enumerate() {
            index.push(table.start(), number);
        }
        Self { all, index }
    }

    /// The first table that matches `path` and for which `is_it` holds, unless an earlier one takes all its requests.
    pub(super) fn first_asked(
        &self,
        path: &Pattern,
        is_it: impl Fn(&Table<'a>) -> bool,
    ) -> Option<&Table<'a>> {
        self.first_asked_of(&self.index, path, is_it)
    }

    /// As [`Tables::first_asked`], of the tables in `index`.
    pub(super) fn first_asked_of(
        &self,
        index: &PatternIndex,
        path: &Pattern,
        is_it: impl Fn(&Table<'a>) -> bool,
    ) -> Option<&Table<'a>> {
        let number = index.first_covering(path, |number| {
            let table = &self.all[number];
            table.matches(path) && is_it(table)
        })?;
        (!self.is_taken(number, path)).then(|| &self.all[number])
    }

    /// Whether all requests for every path of `pattern` get to a table before that of the number.
    pub(super) fn is_taken(&self, number: usize, pattern: &Pattern) -> bool {
        let takes_all = |earlier: usize| {
            let table = &self.all[earlier];
            let mut matchers = table.matchers.iter();
            earlier < number
                && table.matches(pattern)
                && matchers.all(|one| one.when == When::default())
        };
        self.index.first_covering(pattern, takes_all).is_some()
    }
}

fn all<'a>(
    site: &'a Site,
    applications: &HashMap<&str, Application>,
    folders: &mut Folders<'a>,
) -> Vec<Table<'a>> {
    let routes = site.routes.iter().map(|route| {
        let host_file = route.host_file.zip(route.line.as_ref());
        let host_file = host_file.map(|(file, line)| (file, line.number));
        let line = route.line.as_ref().filter(|_| host_file.is_none());
        let line = line.unwrap_or(&site.line);
        (&route.matchers[..], &route.location, line, host_file)
    });
    let rest = (&[][..], &site.location, &site.line, None);
    let table = |(matchers, location, line, host_file): (&'a [Matcher], &'a Location, _, _)| {
        let is_asked = !location.searches().is_empty()
            && location.asks_files()
            && (location.answer.is_none() || location.files_first);
        let root = location.root.as_deref().filter(|_| is_asked);
        let application = upstream(location).and_then(|name| applications.get(name));
        Table {
            application: application.map(|one| one.with_scripts(location, folders)),
            matchers,
            path: narrowest(matchers),
            location,
            line,
            host_file,
            root: root.map(|root| folders.get(root)),
        }
    };
    routes.chain([rest]).map(table).collect()
}

/// The pattern that all of `matchers` match, if one of them is it.
fn narrowest(matchers: &[Matcher]) -> Option<Pattern> {
    let covers_all = |one: &&Pattern| matchers.iter().all(|other| other.path.covers(one));
    match matchers {
        [] => Some(Pattern::Prefix("/".to_owned())),
        _ => {
            let mut paths = matchers.iter().rev().map(|matcher| &matcher.path);
            paths.find(covers_all).cloned()
        }
    }
}
