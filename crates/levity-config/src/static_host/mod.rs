//! `_redirects` and `_headers`: the files in which the sites of static hosts (Netlify, Cloudflare Pages) keep their rules.
//!
//! They are content: a line that cannot be used is left out with a note, and is no error.

mod file;
mod headers;
mod redirects;
mod source;
mod target;

use crate::answer::leads_back;
use crate::line::Line;
use crate::matcher::{Matcher, When};
use crate::model::{Answer, Location, Route, Site};
use crate::name_pattern::NamePattern;
use crate::network::AddressSet;
use crate::pattern_index::PatternIndex;
use crate::section::Section;

use file::{Notes, lines};
use redirects::HostRedirect;

pub use redirects::redirect;

/// The names of the files, which are not served.
const NAMES: [&str; 2] = ["_redirects", "_headers"];

/// The maximum number of rules in one of them: what Cloudflare Pages takes, 2000 without a star or a name and 100 with
/// one.
const RULES_MAX: usize = 2100;

/// The maximum of those with a star or a name in one of them. A request may have to be compared with all.
const EXPRESSIONS_MAX: usize = 500;

/// The maximum number of redirects that are followed to see whether they lead to themselves. Clients give up after some
/// 20.
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

/// What the two files say besides the headers of responses.
#[derive(Default)]
pub(crate) struct HostRules {
    /// What nobody gets, with its lines.
    refused: Vec<(usize, Matcher)>,
    redirects: Vec<HostRedirect>,
}

/// Reads the files in the root of `site`, which gets the rules for headers, and hides the files. May block.
pub(crate) fn read(section: &Section<'_>, site: &mut Location) -> HostRules {
    let mut notes = Notes::new(section, NAMES[1]);
    let rules = headers::rules(&lines(site, &mut notes), &mut notes);
    site.path_headers = rules.headers.into();
    site.options.hide.extend(NAMES.map(NamePattern::new));
    let mut notes = Notes::new(section, NAMES[0]);
    let of_rules = Location {
        answer: None,
        ..site.clone()
    };
    let redirects = redirects::rules(&lines(site, &mut notes), &of_rules, &mut notes);
    HostRules {
        refused: rules.refused,
        redirects,
    }
}

/// Adds the routes of `rules` behind those of `site`, and notes the redirects that lead to themselves. They stay: the file is that of
/// the author of the pages. May block.
pub(crate) fn add(section: &Section<'_>, rules: HostRules, site: &mut Site) {
    let HostRules { refused, redirects } = rules;
    for (line, matcher) in refused {
        let mut location = site.location.clone();
        location.gates.deny = AddressSet::everyone();
        site.routes.push(Route {
            matchers: vec![matcher],
            line: Some(Line::of_other_file(line)),
            host_file: Some(NAMES[1]),
            location,
        });
    }
    let first = site.routes.len();
    let routes = redirects.iter().map(|redirect| redirect.route.clone());
    site.routes.extend(routes);
    let mut notes = Notes::new(section, NAMES[0]);
    note_unreached(&redirects, &mut notes);
    let index = site.route_index();
    for (at, redirect) in (first..).zip(&redirects) {
        let is_redirect = matches!(redirect.route.location.answer, Some(Answer::Redirect(_)));
        let sample = redirect.source.sample();
        if is_redirect && leads_back(site, &index, Some(at), sample, STEPS_MAX) {
            let what = "leads to itself where no file is found";
            notes.add(redirect.line, what, &redirect.text);
        }
    }
}

/// Notes the lines that no request gets to, because one before them has all their paths.
fn note_unreached(redirects: &[HostRedirect], notes: &mut Notes<'_>) {
    let shapes: Vec<_> = redirects.iter().map(|one| one.source.shape()).collect();
    let mut index = PatternIndex::default();
    for (at, (redirect, (paths, is_all))) in redirects.iter().zip(&shapes).enumerate() {
        let covers = |before: usize| shapes[before].0.covers(paths);
        if let Some(before) = index.first_covering(paths, covers) {
            let first = redirects[before].line;
            let what = format!("is never reached, because line {first} comes first");
            notes.add(redirect.line, &what, &redirect.text);
        }
        if *is_all && redirect.route.matcher().when == When::default() {
            index.push(paths.start(), at);
        }
    }
}

/// Counts the rules of a file, up to its limits.
#[derive(Default)]
struct Count {
    rules: usize,
    expressions: usize,
}

impl Count {
    /// Counts a rule for paths of such a weight, unless there are too many.
    fn add(&mut self, weight: usize) -> Result<(), String> {
        if self.rules == RULES_MAX {
            return Err(format!("{RULES_MAX} rules go before it"));
        }
        if weight > 0 && self.expressions == EXPRESSIONS_MAX {
            return Err(format!(
                "{EXPRESSIONS_MAX} rules with a star or a name go before it"
            ));
        }
        self.rules += 1;
        self.expressions += usize::from(weight > 0);
        Ok(())
    }
}
