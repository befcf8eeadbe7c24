//! `[[site.route]]`: other rules for some requests of a site.

use crate::answer;
use crate::gates;
use crate::line::Line;
use crate::location::{self, Above, Own, References, Used};
use crate::matcher::{self, Matcher};
use crate::model::Route;
use crate::pattern::Pattern;
use crate::pattern_index::PatternIndex;
use crate::section::Section;

/// Reads routes, with those within them, and what they use of the files of the table around them.
pub(crate) fn routes(
    sections: &[Section<'_>],
    above: Above<'_>,
    references: References<'_>,
) -> (Vec<Route>, Used) {
    let mut seen: Vec<(Matcher, Line)> = Vec::new();
    let mut index = PatternIndex::default();
    let mut open = Open::default();
    let (mut routes, mut used) = (Vec::new(), Used::default());
    for section in sections {
        let (own, of_route) = route(section, above, references);
        used = used.or(of_route);
        let Some(matcher) = own.last().and_then(|route| route.matchers.last()) else {
            continue;
        };
        let covers = |number: usize| seen[number].0.covers(matcher);
        if let Some(number) = index.first_covering(&matcher.path, covers) {
            let (earlier, line) = &seen[number];
            let help = format!("`{}` on {line} matches first", earlier.path);
            section.report("path", "this route can never match", Some(help));
        }
        let line = section.reader.line(&section.span_of("path"));
        index.push(matcher.path.start(), seen.len());
        seen.push((matcher.clone(), line.clone()));
        if !gates::read::are_given(section) {
            if !answer::is_final(section) {
                open.push(matcher.path.clone(), line);
            }
        } else if own
            .last()
            .is_some_and(|route| route.location.gates.adds_to(&above.location.gates))
        {
            open.note_before(section, &matcher.path);
        }
        routes.extend(own);
    }
    (routes, used)
}

/// Routes without gates of their own that pass requests on, each with its line.
#[derive(Default)]
struct Open {
    routes: Vec<(Pattern, Line)>,
    index: PatternIndex,
}

impl Open {
    fn push(&mut self, path: Pattern, line: Line) {
        self.index.push(path.start(), self.routes.len());
        self.routes.push((path, line));
    }

    /// Notes a route before a guarded one that may take some of its paths, and with them its gates: the first that matches
    /// wins.
    fn note_before(&self, section: &Section<'_>, guarded: &Pattern) {
        let shares = |number: usize| may_share(&self.routes[number].0, guarded);
        if let Some(number) = self.index.first_sharing(guarded, shares) {
            let (open, line) = &self.routes[number];
            let note = format!(
                "`{open}` on {line} comes first, and lets requests to paths of `{guarded}` through without its gates; put it \
                 behind this route, or within it"
            );
            section.reader.note(&section.span_of("path"), note);
        }
    }
}

/// Whether two patterns may match the same path. Expressions may match any.
fn may_share(one: &Pattern, other: &Pattern) -> bool {
    if one.is_fixed() || other.is_fixed() {
        return one.covers(other) || other.covers(one);
    }
    one.start().starts_with(other.start()) || other.start().starts_with(one.start())
}

/// Reads a route: those within it, then itself; empty if its path is wrong. Reads every key even then, so that their
/// problems are reported too.
fn route(
    section: &Section<'_>,
    above: Above<'_>,
    references: References<'_>,
) -> (Vec<Route>, Used) {
    let matcher = matcher::read(section, references.listen);
    let inner = section.children("route");
    let path = matcher.as_ref().map(|matcher| &matcher.path);
    let Own {
        location,
        reach,
        used,
    } = location::read(section, path, above, !inner.is_empty(), references);
    check_within(section, above.matchers, matcher.as_ref());
    let matchers: Vec<_> = above
        .matchers
        .iter()
        .cloned()
        .chain(matcher.clone())
        .collect();
    let below = Above {
        location: &location,
        matchers: &matchers,
        depth: above.depth + 1,
        reach,
    };
    let (mut routes, within) = self::routes(&inner, below, references);
    let has_use = Used {
        root: used.files || within.root,
        files: used.files || within.files,
    };
    location::note_unasked_files(section, reach, has_use);
    location::check_error_pages(section, reach, &routes);
    if matcher.is_none() {
        return (Vec::new(), used.or(within));
    }
    let inherits = Used {
        root: used.root || (within.root && !section.has("root")),
        files: used.files || within.files,
    };
    routes.push(Route {
        matchers,
        line: Some(section.reader.line(&section.span_of("path"))),
        host_file: None,
        location,
    });
    (routes, inherits)
}

/// Reports a route whose path cannot match that of the route around it.
fn check_within(section: &Section<'_>, around: &[Matcher], own: Option<&Matcher>) {
    let (Some(around), Some(own)) = (around.last(), own) else {
        return;
    };
    let (outer, inner) = (around.path.start(), own.path.start());
    let is_fixed = own.path.is_fixed();
    let misses = if is_fixed {
        !around.path.covers(&own.path)
    } else {
        !outer.starts_with(inner) && !inner.starts_with(outer)
    };
    if misses {
        let help = format!(
            "it lies within the route `{}`; write whole paths",
            around.path
        );
        section.report("path", "this route can never match", Some(help));
    }
}
