//! `[[site]]` and `[[site.route]]`.

use std::collections::HashMap;
use std::ops::Range;

use levity_wire::encoding::Coding;

use crate::disk::place_disk;
use crate::fields::{Fields, Text};
use crate::headers;
use crate::host::host_or_report;
use crate::model::{Route, Site, Symlinks};
use crate::pattern::Pattern;
use crate::proxying::{self, Reach};
use crate::reader::Reader;
use crate::upstream::Try;
use crate::upstream::read::Upstreams;

pub(crate) fn sites(root: &Fields<'_>, upstreams: &Upstreams) -> Vec<Site> {
    let mut names = Names::default();
    let tables = root.children("site");
    if tables.is_empty() && !root.has("site") {
        let help = "add `[[site]]` with a `root`".to_owned();
        root.reader
            .report_absent(None, "no site is configured".to_owned(), Some(help));
    }
    tables
        .iter()
        .map(|fields| site(fields, &mut names, upstreams))
        .collect()
}

fn site(fields: &Fields<'_>, names: &mut Names, upstreams: &Upstreams) -> Site {
    let (proxying, reach) = proxying::read(fields, upstreams, Reach::default());
    if !reach.has_proxy && !fields.has_misspelt("proxy") {
        fields.require("root");
    }
    let routes = routes(fields, upstreams, reach);
    let of_files = routes.iter().filter(|route| has_files(route));
    proxying::note_unasked_files(fields, reach, |key| match key {
        "root" => of_files.clone().any(|route| route.root.is_none()),
        _ => of_files.clone().next().is_some(),
    });
    Site {
        hosts: hosts(fields, names),
        root: fields.folder("root"),
        proxying,
        listing: fields.boolean("listing").unwrap_or(false),
        index: index(fields).unwrap_or_else(|| vec!["index.html".to_owned()]),
        precompressed: precompressed(fields).unwrap_or_default(),
        symlinks: symlinks(fields).unwrap_or(Symlinks::Beneath),
        server_timing: fields.boolean("server_timing").unwrap_or(false),
        only: None,
        disk: place_disk(&fields.child("disk")),
        routes,
    }
}

// ---- hosts ----

/// Host names of the sites so far; the empty one stands for any host.
#[derive(Default)]
struct Names {
    taken: HashMap<String, Range<usize>>,
}

impl Names {
    fn take(&mut self, reader: &Reader<'_>, host: &str, span: &Range<usize>) {
        if let Some(first) = self.taken.get(host) {
            let help = format!("the first is on line {}", reader.line(first));
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

fn hosts(fields: &Fields<'_>, names: &mut Names) -> Vec<String> {
    let given = fields.names("hosts");
    // A wrong value has been reported, and is no wish to answer any host.
    let wrong = given.is_none() && (fields.has("hosts") || fields.has_misspelt("hosts"));
    let given = given.unwrap_or_default();
    if given.is_empty() && !wrong {
        names.take(fields.reader, "", &fields.span_of("hosts"));
    }
    let mut hosts = Vec::new();
    for given in given {
        if let Some(host) = host_or_report(fields, &given) {
            names.take(fields.reader, &host, &given.span);
            hosts.push(host);
        }
    }
    hosts
}

// ---- what sites and routes share ----

fn index(fields: &Fields<'_>) -> Option<Vec<String>> {
    let mut files = Vec::new();
    for Text { text, span } in fields.names("index")? {
        if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) {
            fields
                .reader
                .report(&span, format!("`{text}` is not the name of a file"), None);
        }
        files.push(text.to_owned());
    }
    Some(files)
}

fn precompressed(fields: &Fields<'_>) -> Option<Vec<Coding>> {
    let mut codings = Vec::new();
    for Text { text, span } in fields.names("precompressed")? {
        let Some(coding) = Coding::ALL.into_iter().find(|coding| coding.name() == text) else {
            let names = Coding::ALL.map(|coding| format!("\"{}\"", coding.name()));
            let help = format!("one of {}", names.join(", "));
            fields
                .reader
                .report(&span, format!("`{text}` is not a coding"), Some(help));
            continue;
        };
        if codings.contains(&coding) {
            fields
                .reader
                .report(&span, format!("`{text}` is given twice"), None);
        }
        codings.push(coding);
    }
    Some(codings)
}

fn symlinks(fields: &Fields<'_>) -> Option<Symlinks> {
    fields.word("symlinks").map(|word| match word {
        "follow" => Symlinks::Follow,
        _ => Symlinks::Beneath,
    })
}

// ---- routes ----

fn routes(site: &Fields<'_>, upstreams: &Upstreams, reach: Reach) -> Vec<Route> {
    let mut seen: Vec<(Pattern, usize)> = Vec::new();
    let mut routes = Vec::new();
    for fields in site.children("route") {
        let Some(route) = route(&fields, upstreams, reach) else {
            continue;
        };
        if let Some((earlier, line)) = seen.iter().find(|(earlier, _)| earlier.covers(&route.path))
        {
            let help = format!("`{earlier}` on line {line} matches first");
            fields.report("path", "this route can never match", Some(help));
        }
        seen.push((
            route.path.clone(),
            fields.reader.line(&fields.span_of("path")),
        ));
        routes.push(route);
    }
    routes
}

/// Whether it says itself that files answer, or scripts.
fn has_files(route: &Route) -> bool {
    let said = &route.proxying;
    let tries = said.tries.as_ref();
    route.is_for_files_of_its_own()
        || tries.is_some_and(|tries| tries.contains(&Try::File))
        || said.script_suffix.is_some()
        || said.script_index.is_some()
}

/// Reads every key also when the path is wrong, so that what is wrong with them shows too.
fn route(fields: &Fields<'_>, upstreams: &Upstreams, above: Reach) -> Option<Route> {
    fields.require("path");
    let path = pattern(fields);
    let strip_prefix = strip_prefix(fields, path.as_ref());
    let root = fields.folder("root");
    let (proxying, reach) = proxying::read(fields, upstreams, above);
    let internal = fields.boolean("internal").unwrap_or(false);
    let listing = fields.boolean("listing");
    let index = index(fields);
    let precompressed = precompressed(fields);
    let symlinks = symlinks(fields);
    let disk = place_disk(&fields.child("disk"));
    let server_timing = fields.boolean("server_timing");
    let headers = headers::of_responses(&fields.child("headers"));
    let request_headers = headers::of_requests(&fields.child("request_headers"));
    let rewrite = headers::rewrite(&fields.child("rewrite"));
    // In a site it may be meant for routes.
    if fields.has("proxy") && reach.is_files_only {
        fields.report("proxy", "`try` leaves it out", None);
    }
    for table in ["request_headers", "rewrite", "ambiguous_paths"] {
        if fields.has(table) && !reach.has_proxy {
            fields.report(table, "there is no `proxy` here", None);
        }
    }
    let route = Route {
        path: path?,
        root,
        strip_prefix,
        listing,
        index,
        precompressed,
        symlinks,
        disk,
        server_timing,
        proxying,
        internal,
        headers,
        request_headers,
        rewrite,
    };
    proxying::note_unasked_files(fields, reach, |_| has_files(&route));
    Some(route)
}

fn pattern(fields: &Fields<'_>) -> Option<Pattern> {
    let Text { text, span } = fields.text("path")?;
    let refuse = |help| {
        fields.reader.report(
            &span,
            format!("`{text}` is not the path of a route"),
            Some(help),
        )
    };
    let path = Pattern::parse(text).map_err(refuse).ok()?;
    // `/` is as often meant as it stands.
    if matches!(path, Pattern::Exact(_)) && text.ends_with('/') && text != "/" {
        let note = format!("`{text}` is that path alone; everything beneath it is `{text}*`");
        fields.reader.note(&span, note);
    }
    Some(path)
}

fn strip_prefix(fields: &Fields<'_>, path: Option<&Pattern>) -> Option<String> {
    let Text { text, span } = fields.text("strip_prefix")?;
    let prefix = text.strip_suffix('/').unwrap_or(text);
    if !prefix.starts_with('/') {
        let help = if text == "/" {
            "leave it out"
        } else {
            "a path starts with `/`"
        };
        fields.reader.report(
            &span,
            format!("`{text}` takes no segment off a path"),
            Some(help.to_owned()),
        );
        return None;
    }
    if path.is_some_and(|path| !starts_with_segments(path, prefix)) {
        fields.report(
            "strip_prefix",
            "the route's `path` does not start with it",
            None,
        );
    }
    Some(prefix.to_owned())
}

fn starts_with_segments(path: &Pattern, prefix: &str) -> bool {
    let (Pattern::Exact(text) | Pattern::Prefix(text)) = path;
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
