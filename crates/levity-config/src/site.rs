//! `[[site]]`: what is served under which names.

use std::collections::HashMap;
use std::ops::Range;

use crate::host::host_or_report;
use crate::location::{self, Above, Own, References};
use crate::model::{Headers, Location, Site};
use crate::proxying::Reach;
use crate::reader::Reader;
use crate::section::Section;
use crate::{answer, route, static_host, tls};

/// The key of the site for all other names.
const DEFAULT: &str = "default";

/// Reads the sites; `headers` are the rules of the server.
pub(crate) fn sites(
    root: &Section<'_>,
    headers: Vec<Headers>,
    references: References<'_>,
) -> Vec<Site> {
    let whole = Location {
        headers,
        ..Location::default()
    };
    let tables = root.children("site");
    let mut names = Names {
        taken: HashMap::new(),
        has_default: tables.iter().any(|table| table.is_true(DEFAULT)),
    };
    if tables.is_empty() && !root.has("site") {
        let help = "add `[[site]]` with a `root`".to_owned();
        root.reader
            .report_absent(None, "no site is configured".to_owned(), Some(help));
    }
    let sites = tables
        .iter()
        .map(|section| site(section, &whole, &mut names, references))
        .collect();
    check_default(&tables);
    sites
}

/// Reports sites that answer for all other names beside the one that says so.
fn check_default(tables: &[Section<'_>]) {
    let is_default = |section: &&Section<'_>| section.is_true(DEFAULT);
    let mut defaults = tables.iter().filter(is_default);
    let Some(first) = defaults.next() else {
        return;
    };
    let line = first.reader.line(&first.span_of(DEFAULT));
    let help = format!("the first is on {line}");
    for second in defaults {
        second.report(
            DEFAULT,
            "a second site answers for all other names",
            Some(help.clone()),
        );
    }
    let is_open = |section: &&Section<'_>| !section.has("hosts") || section.is_empty_array("hosts");
    let others = tables.iter().filter(|section| !is_default(section));
    for other in others.filter(is_open) {
        let help = format!("`default = true` is on {line}");
        let message =
            "a site without `hosts` beside one with `default`, which would never be asked";
        other
            .reader
            .report(&other.span_of("hosts"), message, Some(help));
    }
}

fn site(
    section: &Section<'_>,
    whole: &Location,
    names: &mut Names,
    references: References<'_>,
) -> Site {
    let above = Above {
        location: whole,
        matchers: &[],
        depth: 0,
        reach: Reach::default(),
    };
    let route_sections = section.children("route");
    let has_routes = !route_sections.is_empty();
    let Own {
        mut location,
        reach,
        ..
    } = location::read(section, None, above, has_routes, references);
    let names_answer = answer::is_named(section);
    if !reach.has_proxy && !names_answer && !section.has_misspelt("proxy") {
        section.require("root");
    }
    let is_host = static_host::is_on(section, &location) && responds(section, &mut location);
    let of_host = match is_host {
        true => static_host::read(section, &mut location),
        false => static_host::HostRules::default(),
    };
    let above = Above {
        location: &location,
        matchers: &[],
        depth: 1,
        reach,
    };
    let (routes, used) = route::routes(&route_sections, above, references);
    location::note_unasked_files(section, reach, used);
    location::check_error_pages(section, reach, &routes);
    let mut site = Site {
        hosts: hosts(section, names),
        only: None,
        tls: None,
        line: section.reader.line(&section.span),
        is_default: section.boolean_or_default(DEFAULT),
        location,
        routes,
    };
    site.tls = tls::site(section, &site.hosts, references.acme);
    check_loops(section, &route_sections, &site);
    // Those of the configuration go before.
    static_host::add(section, of_host, &mut site);
    site
}

/// Whether the `root` responds. Without its files nobody is let in, because they say more than what is served.
fn responds(section: &Section<'_>, location: &mut Location) -> bool {
    let root = location.root.as_ref().filter(|_| section.reads_files());
    let silent = root.filter(|root| levity_disk::responds(root).is_err());
    let silent = silent.cloned();
    let responds = silent.is_none();
    location.unread.extend(silent);
    responds
}

/// Reports redirects that lead to themselves.
fn check_loops(section: &Section<'_>, routes: &[Section<'_>], site: &Site) {
    // Those with errors are missing from the site, and those within others lie between.
    if routes.len() != site.routes.len() {
        return;
    }
    let of_routes = routes.iter().enumerate();
    let of_routes = of_routes.map(|(number, section)| (section, Some(number)));
    for (section, at) in of_routes.chain([(section, None)]) {
        let key = ["redirect", "reroute"]
            .into_iter()
            .find(|key| section.has(key));
        if let Some(key) = key.filter(|_| answer::finds_loop(site, at)) {
            let help = match key {
                "redirect" => "a client would be redirected until it gives up",
                _ => "a request would be routed until it is refused",
            };
            section.report(key, "it leads to itself", Some(help.to_owned()));
        }
    }
}

/// Host names of the sites so far; the empty one stands for any host.
struct Names {
    taken: HashMap<String, Range<usize>>,
    /// Whether a site says that it is the default: others for any host are reported there.
    has_default: bool,
}

impl Names {
    fn take(&mut self, reader: &Reader<'_>, host: &str, span: &Range<usize>) {
        if let Some(first) = self.taken.get(host) {
            let help = format!("the first is on {}", reader.line(first));
            let message = if host.is_empty() {
                "a second site without `hosts`, which would never be asked".to_owned()
            } else {
                format!("host `{host}` is given twice")
            };
            reader.report(span, message, Some(help));
        } else {
            self.taken.insert(host.to_owned(), span.clone());
        }
    }
}

fn hosts(section: &Section<'_>, names: &mut Names) -> Vec<String> {
    let given = section.names("hosts");
    // A wrong value has been reported, and does not mean any host.
    let wrong = given.is_none() && (section.has("hosts") || section.has_misspelt("hosts"));
    let given = given.unwrap_or_default();
    if given.is_empty() && !wrong && !names.has_default {
        names.take(section.reader, "", &section.span_of("hosts"));
    }
    let mut hosts = Vec::new();
    for given in given {
        if let Some(host) = host_or_report(&given) {
            names.take(section.reader, &host, &given.span);
            hosts.push(host);
        }
    }
    hosts
}
