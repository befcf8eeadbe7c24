//! Which site and route a request gets to, in words.

use levity_config::{Matcher, Route};

use super::{RouteInput, Service};
use crate::explanation::{Explanation, Topic};

impl Service {
    /// Says where [`Service::route`] leads, and why not elsewhere.
    pub fn explain_route(
        &self,
        host: &[u8],
        path: &[u8],
        input: RouteInput<'_>,
        explanation: &Explanation,
    ) {
        let Some(site) = self.site_of(host) else {
            let host = String::from_utf8_lossy(host);
            let text = format!("none: no site is called `{host}`, and each site has `hosts`");
            return explanation.add(Topic::Site, text);
        };
        let site = &self.config.sites[site];
        let line = site.line;
        let hosts = match site.hosts.is_empty() {
            true => "the one for all hosts".to_owned(),
            false => site.hosts.join(", "),
        };
        explanation.add(Topic::Site, format!("{hosts} (line {line})"));
        let mut elsewhere = 0;
        for route in &site.routes {
            match input.mismatch(&route.matchers, path) {
                None => {
                    note_others(elsewhere, explanation);
                    return explanation.add(Topic::Route, named(route));
                }
                Some("path") => elsewhere += 1,
                Some(key) => {
                    let text = format!("not {}: its condition `{key}` does not hold", named(route));
                    explanation.add(Topic::Route, text);
                }
            }
        }
        note_others(elsewhere, explanation);
        if !site.routes.is_empty() {
            explanation.add(Topic::Route, "none matches: the keys of the site apply");
        }
    }
}

fn note_others(count: usize, explanation: &Explanation) {
    match count {
        0 => {}
        1 => explanation.add(Topic::Route, "one before has another path"),
        _ => explanation.add(Topic::Route, format!("{count} before it have other paths")),
    }
}

fn named(route: &Route) -> String {
    let paths: Vec<_> = route.matchers.iter().map(path).collect();
    let path = paths.join(" within ");
    match route.line {
        Some(line) => format!("`{path}` (line {line})"),
        None => format!("`{path}` of `_redirects`"),
    }
}

fn path(matcher: &Matcher) -> String {
    matcher.path.to_string()
}
