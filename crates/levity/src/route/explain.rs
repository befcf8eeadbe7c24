//! Which site and route a request gets to, in words.

use levity_config::{Matcher, Route};

use super::{RouteInput, Service};
use crate::explanation::{Explanation, Place, Topic};

impl Service {
    /// Says where [`Service::route`] leads, and why not elsewhere.
    pub fn explain_route(
        &self,
        host: &[u8],
        path: &[u8],
        input: RouteInput<'_>,
        explanation: &Explanation,
    ) {
        let Some(site) = self.hosts.site_of(host) else {
            let host = String::from_utf8_lossy(host);
            let mut text =
                format!("none: no site is called `{host}`, and none is for all other names");
            let mut known = self.config.sites.iter().flat_map(|site| &site.hosts);
            if let Some(known) = known.find(|host| !host.contains('*')) {
                let path = String::from_utf8_lossy(path);
                text += &format!("; http://{known}{path} asks one of them");
            }
            explanation.set_place(None);
            return explanation.add(Topic::Site, text);
        };
        let number = site;
        let site = &self.config.sites[site];
        let hosts = match site.hosts.is_empty() {
            true => "the one for all hosts".to_owned(),
            false if site.is_default => format!("{}, and all other hosts", site.hosts.join(", ")),
            false => site.hosts.join(", "),
        };
        explanation.add(Topic::Site, format!("{hosts} ({})", site.line));
        let route = self.explain_routes(&site.routes, path, input, explanation);
        explanation.set_place(Some(Place {
            site: number,
            route,
        }));
    }

    /// Returns the number of the route that matches, if one does.
    fn explain_routes(
        &self,
        routes: &[Route],
        path: &[u8],
        input: RouteInput<'_>,
        explanation: &Explanation,
    ) -> Option<usize> {
        let as_folder = [path, b"/"].concat();
        let is_of_folder =
            |route: &Route| !path.ends_with(b"/") && input.matches(&route.matchers, &as_folder);
        let mut elsewhere = 0;
        for (number, route) in routes.iter().enumerate() {
            match input.mismatch(&route.matchers, path) {
                None => {
                    note_others(elsewhere, explanation);
                    explanation.add(Topic::Route, named(route));
                    return Some(number);
                }
                Some("path") if is_of_folder(route) => {
                    let text = format!("not {}: the path has no slash at its end", named(route));
                    explanation.add(Topic::Route, text);
                }
                Some("path") => elsewhere += 1,
                Some(key) => {
                    let text = format!("not {}: its condition `{key}` does not hold", named(route));
                    explanation.add(Topic::Route, text);
                }
            }
        }
        note_others(elsewhere, explanation);
        if !routes.is_empty() {
            explanation.add(Topic::Route, "none matches: the keys of the site apply");
        }
        None
    }
}

fn note_others(count: usize, explanation: &Explanation) {
    match count {
        0 => {}
        1 => explanation.add(Topic::Route, "one before has another path"),
        _ => explanation.add(Topic::Route, format!("{count} before it have other paths")),
    }
}

/// The path of a route, with those of the routes around it.
pub fn path_of(route: &Route) -> String {
    let paths: Vec<_> = route.matchers.iter().map(path).collect();
    paths.join(" within ")
}

fn named(route: &Route) -> String {
    let path = path_of(route);
    let line = route.line.clone().unwrap_or_default();
    match route.host_file {
        Some(file) => format!("`{path}` ({line} of `{file}`)"),
        None => format!("`{path}` ({line})"),
    }
}

fn path(matcher: &Matcher) -> String {
    matcher.path.to_string()
}
