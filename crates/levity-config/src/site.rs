//! `[[site]]` and `[[site.route]]`.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::answer;
use crate::disk::location_disk;
use crate::headers;
use crate::host::host_or_report;
use crate::location_options::{self, LocationOptions};
use crate::model::{Route, Site};
use crate::pattern::Pattern;
use crate::proxying::{self, Reach};
use crate::reader::Reader;
use crate::section::Section;
use crate::tries::Try;
use crate::upstream::read::Upstreams;

/// What sites refer to elsewhere in the file.
#[derive(Clone, Copy)]
pub(crate) struct References<'a> {
    pub(crate) upstreams: &'a Upstreams,
    /// `disk.variants`
    pub(crate) variants: Option<&'a Path>,
}

pub(crate) fn sites(root: &Section<'_>, references: References<'_>) -> Vec<Site> {
    let mut names = Names::default();
    let tables = root.children("site");
    if tables.is_empty() && !root.has("site") {
        let help = "add `[[site]]` with a `root`".to_owned();
        root.reader
            .report_absent(None, "no site is configured".to_owned(), Some(help));
    }
    tables
        .iter()
        .map(|section| site(section, &mut names, references))
        .collect()
}

fn site(section: &Section<'_>, names: &mut Names, references: References<'_>) -> Site {
    let (proxying, reach) = proxying::read(section, references.upstreams, Reach::default());
    let route_sections = section.children("route");
    let answer = answer::read(section, None, route_sections.is_empty());
    let names_answer = section.has("redirect") || section.has("respond");
    if !reach.has_proxy && !names_answer && !section.has_misspelt("proxy") {
        section.require("root");
    }
    let disk = location_disk(&section.child("disk"));
    let options = location_options::read(section, disk, &LocationOptions::default());
    let routes = routes(&route_sections, references, reach, &options);
    let root = root(section, references);
    check_lists(section, &options);
    check_dictionaries(section, &options, references, !routes.is_empty());
    let of_files = routes.iter().filter(|route| has_files(route));
    proxying::note_unasked_files(section, reach, |key| match key {
        "root" => of_files.clone().any(|route| route.root.is_none()),
        _ => of_files.clone().next().is_some(),
    });
    let site = Site {
        hosts: hosts(section, names),
        root,
        proxying,
        answer,
        options,
        only: None,
        routes,
    };
    check_loops(section, &route_sections, &site);
    site
}

/// Reports redirects that lead to themselves.
fn check_loops(section: &Section<'_>, routes: &[Section<'_>], site: &Site) {
    // Those with errors are missing from the site.
    if routes.len() != site.routes.len() {
        return;
    }
    let of_routes = routes.iter().enumerate();
    let of_routes = of_routes.map(|(number, section)| (section, Some(number)));
    for (section, at) in of_routes.chain([(section, None)]) {
        if section.has("redirect") && answer::finds_loop(site, at) {
            let help = "a client would be redirected until it gives up".to_owned();
            section.report("redirect", "it leads to itself", Some(help));
        }
    }
}

/// Reports a `compress_dictionaries` that could do nothing; in a site with routes it may be meant `for_routes`.
fn check_dictionaries(
    section: &Section<'_>,
    options: &LocationOptions,
    references: References<'_>,
    for_routes: bool,
) {
    const KEY: &str = "compress_dictionaries";
    if !section.has(KEY) || !options.compress_dictionaries {
        return;
    }
    let mut codings = options.compress_codings.iter();
    let has_coding = codings.any(|own| own.coding.with_dictionary().is_some());
    let lacking = if references.variants.is_none() {
        "`variants`, a folder, in `[disk]`"
    } else if !options.compress && !for_routes {
        "`compress = true` here"
    } else if !has_coding && !for_routes {
        "`zstd` or `br` in `compress_codings`"
    } else if !options.substitute.is_empty() && !for_routes {
        "content that `substitute` does not change"
    } else {
        return;
    };
    section.report(KEY, format_args!("it needs {lacking}"), None);
}

/// Reports a list of the section that is empty, so that its `compress` does nothing.
fn check_lists(section: &Section<'_>, options: &LocationOptions) {
    for key in ["compress_codings", "compress_types"] {
        if options.compress && section.is_empty_array(key) {
            let help = "leave it out, or write `compress = false`".to_owned();
            section.report(key, "nothing can be compressed", Some(help));
        }
    }
}

// ---- roots ----

/// Reads `root`. Reports a folder that has files in common with `disk.variants`: clients could get them under their
/// names, and what else lies in that folder would be taken for variants.
fn root(section: &Section<'_>, references: References<'_>) -> Option<PathBuf> {
    const KEY: &str = "root";
    let root = section.folder(KEY)?;
    // Only the paths of a text without a file are relative.
    let variants = references
        .variants
        .filter(|variants| variants.is_absolute());
    let Some(variants) = variants.filter(|_| root.is_absolute()) else {
        return Some(root);
    };
    let (own, theirs) = (root.display(), variants.display());
    let (normal, kept) = (normal(&root), normal(variants));
    let message = if normal == kept {
        format!("{own} is also `disk.variants`")
    } else if kept.starts_with(&normal) {
        format!("`disk.variants`, {theirs}, lies in {own}")
    } else if normal.starts_with(&kept) {
        format!("{own} lies in `disk.variants`, {theirs}")
    } else {
        return Some(root);
    };
    let help = "keep variants in a folder that is not served".to_owned();
    section.report(KEY, message, Some(help));
    Some(root)
}

/// An absolute path without `.` and `..`. Links are not resolved: two names of one folder may stay different.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            _ => normal.push(component),
        }
    }
    normal
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

fn hosts(section: &Section<'_>, names: &mut Names) -> Vec<String> {
    let given = section.names("hosts");
    // A wrong value has been reported, and does not mean any host.
    let wrong = given.is_none() && (section.has("hosts") || section.has_misspelt("hosts"));
    let given = given.unwrap_or_default();
    if given.is_empty() && !wrong {
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

// ---- routes ----

fn routes(
    sections: &[Section<'_>],
    references: References<'_>,
    reach: Reach,
    options: &LocationOptions,
) -> Vec<Route> {
    let mut seen: Vec<(Pattern, usize)> = Vec::new();
    let mut routes = Vec::new();
    for section in sections {
        let Some(route) = route(section, references, reach, options) else {
            continue;
        };
        if let Some((earlier, line)) = seen.iter().find(|(earlier, _)| earlier.covers(&route.path))
        {
            let help = format!("`{earlier}` on line {line} matches first");
            section.report("path", "this route can never match", Some(help));
        }
        seen.push((
            route.path.clone(),
            section.reader.line(&section.span_of("path")),
        ));
        routes.push(route);
    }
    routes
}

/// Whether the route's own keys let files or scripts answer.
fn has_files(route: &Route) -> bool {
    let said = &route.proxying;
    let tries = said.tries.as_ref();
    route.serves_only_its_own_files()
        || tries.is_some_and(|tries| tries.iter().any(Try::asks_files))
        || said.script_suffix.is_some()
        || said.script_index.is_some()
}

/// Reads every key even if the path is wrong, so that their problems are reported too.
fn route(
    section: &Section<'_>,
    references: References<'_>,
    above: Reach,
    of_site: &LocationOptions,
) -> Option<Route> {
    section.require("path");
    let path = pattern(section);
    let strip_prefix = strip_prefix(section, path.as_ref());
    let root = root(section, references);
    let (proxying, reach) = proxying::read(section, references.upstreams, above);
    let answer = answer::read(section, path.as_ref(), true);
    let internal = section.boolean_or_default("internal");
    let disk = location_disk(&section.child("disk"));
    let options = location_options::read(section, disk, of_site);
    check_lists(section, &options);
    check_dictionaries(section, &options, references, false);
    let headers = headers::of_responses(&section.child("headers"));
    let request_headers = headers::of_requests(&section.child("request_headers"));
    let rewrite = headers::rewrite(&section.child("rewrite"));
    // In a site it may be meant for its routes.
    if section.has("proxy") && reach.is_files_only {
        section.report("proxy", "`try` leaves it out", None);
    }
    for table in ["request_headers", "rewrite", "ambiguous_paths"] {
        if section.has(table) && !reach.has_proxy {
            section.report(table, "there is no `proxy` here", None);
        }
    }
    let route = Route {
        path: path?,
        root,
        strip_prefix,
        options,
        proxying,
        answer,
        internal,
        headers,
        request_headers,
        rewrite,
    };
    proxying::note_unasked_files(section, reach, |_| has_files(&route));
    Some(route)
}

fn pattern(section: &Section<'_>) -> Option<Pattern> {
    let given = section.text("path")?;
    let text = given.text;
    let refuse = |help| given.refuse_with(format!("`{text}` is not the path of a route"), help);
    let path = Pattern::parse(text).map_err(refuse).ok()?;
    // `/` alone is often meant literally.
    if matches!(path, Pattern::Exact(_)) && text.ends_with('/') && text != "/" {
        let note = format!("`{text}` is that path alone; everything beneath it is `{text}*`");
        section.reader.note(&given.span, note);
    }
    Some(path)
}

fn strip_prefix(section: &Section<'_>, path: Option<&Pattern>) -> Option<String> {
    let given = section.text("strip_prefix")?;
    let text = given.text;
    let prefix = text.strip_suffix('/').unwrap_or(text);
    if !prefix.starts_with('/') {
        let help = if text == "/" {
            "leave it out"
        } else {
            "a path starts with `/`"
        };
        given.refuse_with(format!("`{text}` takes no segment off a path"), help);
        return None;
    }
    if path.is_some_and(|path| !starts_with_segments(path, prefix)) {
        let message = "the route's `path` does not start with it";
        section.report("strip_prefix", message, None);
    }
    Some(prefix.to_owned())
}

fn starts_with_segments(path: &Pattern, prefix: &str) -> bool {
    let (Pattern::Exact(text) | Pattern::Prefix(text)) = path;
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
