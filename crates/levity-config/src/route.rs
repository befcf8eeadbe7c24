//! `[[site.route]]`: other rules for some requests of a site.

use crate::location::{self, Above, Own, References, Used};
use crate::matcher::{self, Matcher};
use crate::model::Route;
use crate::section::Section;

/// Reads routes, with those within them, and what they use of the files of the table around them.
pub(crate) fn routes(
    sections: &[Section<'_>],
    above: Above<'_>,
    references: References<'_>,
) -> (Vec<Route>, Used) {
    let mut seen: Vec<(Matcher, usize)> = Vec::new();
    let (mut routes, mut used) = (Vec::new(), Used::default());
    for section in sections {
        let (own, of_route) = route(section, above, references);
        used = used.or(of_route);
        let Some(matcher) = own.last().and_then(|route| route.matchers.last()) else {
            continue;
        };
        let mut earlier = seen.iter();
        if let Some((earlier, line)) = earlier.find(|(earlier, _)| earlier.covers(matcher)) {
            let help = format!("`{}` on line {line} matches first", earlier.path);
            section.report("path", "this route can never match", Some(help));
        }
        let line = section.reader.line(&section.span_of("path"));
        seen.push((matcher.clone(), line));
        routes.extend(own);
    }
    (routes, used)
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
        reach,
    };
    let (mut routes, within) = self::routes(&inner, below, references);
    let has_use = Used {
        root: used.files || within.root,
        files: used.files || within.files,
    };
    location::note_unasked_files(section, reach, has_use);
    if matcher.is_none() {
        return (Vec::new(), used.or(within));
    }
    let inherits = Used {
        root: used.root || (within.root && !section.has("root")),
        files: used.files || within.files,
    };
    routes.push(Route { matchers, location });
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
