//! `[[site]]` and `[[site.route]]`.

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use levity_wire::encoding::Coding;

use super::pattern::Pattern;
use super::reader::{Fields, Reader, Text};
use super::{Headers, PlaceDisk, Proxying, Rewrite, Route, Site, Symlinks};

/// Fields that frame a message or that only the server can know: a changed one would break the
/// connection or lie about the time (RFC 9112 section 6, RFC 9110 section 6.6.1).
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn sites(root: &Fields<'_>) -> Vec<Site> {
    let mut names = Names::default();
    let tables = root.children("site");
    if tables.is_empty() && !root.has("site") {
        let help = "add `[[site]]` with a `root`".to_owned();
        root.reader
            .report_absent(None, "no site is configured".to_owned(), Some(help));
    }
    tables
        .iter()
        .map(|fields| site(fields, &mut names))
        .collect()
}

fn site(fields: &Fields<'_>, names: &mut Names) -> Site {
    required(fields, "root");
    Site {
        hosts: hosts(fields, names),
        root: root(fields),
        proxying: Proxying::default(),
        listing: fields.boolean("listing").unwrap_or(false),
        index: index(fields).unwrap_or_else(|| vec!["index.html".to_owned()]),
        precompressed: precompressed(fields).unwrap_or_default(),
        symlinks: symlinks(fields).unwrap_or(Symlinks::Beneath),
        server_timing: fields.boolean("server_timing").unwrap_or(false),
        only: None,
        disk: disk(fields),
        routes: routes(fields),
    }
}

pub(super) fn required(fields: &Fields<'_>, name: &str) {
    if !fields.has(name) && !fields.has_misspelt(name) {
        fields
            .reader
            .report_absent(Some(&fields.span), format!("`{name}` is missing"), None);
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
    for Text { text, span } in given {
        match host(text) {
            Ok(host) => {
                names.take(fields.reader, &host, &span);
                hosts.push(host);
            }
            Err(help) => {
                fields
                    .reader
                    .report(&span, format!("`{text}` is not a host name"), Some(help))
            }
        }
    }
    hosts
}

/// The form in which a host is compared: lower case, without the dot of the root.
fn host(text: &str) -> Result<String, String> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    if host == "*" {
        return Err("leave `hosts` out to answer any host".to_owned());
    }
    if let Some(ip) = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let ip: Ipv6Addr = ip
            .parse()
            .map_err(|_| "brackets hold an IPv6 address".to_owned())?;
        return Ok(format!("[{ip}]"));
    }
    if !name.is_ascii() {
        return Err("write it as browsers send it, in its `xn--` form".to_owned());
    }
    if name.contains(':') {
        return Err("leave scheme and port out".to_owned());
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(
            "letters, digits, `-` and `_`, with dots between; a star only as `*.` at the start"
                .to_owned(),
        );
    }
    Ok(host)
}

// ---- what sites and routes share ----

/// The folder, which must exist when the file was loaded from the disk. May block.
fn root(fields: &Fields<'_>) -> Option<PathBuf> {
    let path = fields.path("root")?;
    if fields.reader.base().is_some()
        && let Err(reason) = is_directory(&path)
    {
        fields.report("root", format_args!("{} {reason}", path.display()), None);
    }
    Some(path)
}

fn is_directory(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err("is not a folder".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("does not exist".to_owned())
        }
        Err(error) => Err(format!("cannot be looked at: {error}")),
    }
}

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

fn disk(fields: &Fields<'_>) -> PlaceDisk {
    super::place_disk(&fields.child("disk"))
}

// ---- routes ----

fn routes(site: &Fields<'_>) -> Vec<Route> {
    let mut seen: Vec<(Pattern, usize)> = Vec::new();
    let mut routes = Vec::new();
    for fields in site.children("route") {
        let Some(route) = route(&fields) else {
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

/// Reads every key also when the path is wrong, so that what is wrong with them shows too.
fn route(fields: &Fields<'_>) -> Option<Route> {
    required(fields, "path");
    let path = pattern(fields);
    let strip_prefix = strip_prefix(fields, path.as_ref());
    let root = root(fields);
    let listing = fields.boolean("listing");
    let index = index(fields);
    let precompressed = precompressed(fields);
    let symlinks = symlinks(fields);
    let disk = disk(fields);
    let server_timing = fields.boolean("server_timing");
    let headers = headers(&fields.child("headers"));
    Some(Route {
        path: path?,
        root,
        strip_prefix,
        listing,
        index,
        precompressed,
        symlinks,
        disk,
        server_timing,
        proxying: Proxying::default(),
        internal: false,
        headers,
        request_headers: Headers::default(),
        rewrite: Rewrite::default(),
    })
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
    Pattern::parse(text).map_err(refuse).ok()
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

// ---- headers ----

fn headers(fields: &Fields<'_>) -> Headers {
    let mut seen: HashSet<String> = HashSet::new();
    let mut field = |name: &Text<'_>| {
        let lower = name.text.to_ascii_lowercase();
        let reason = if !is_token(name.text) {
            "is not the name of a header field"
        } else if RESERVED.contains(&lower.as_str()) {
            "is written by the server itself"
        } else if !seen.insert(lower) {
            "is given twice"
        } else {
            return;
        };
        fields
            .reader
            .report(&name.span, format!("`{}` {reason}", name.text), None);
    };
    let pairs = fields.pairs("set");
    let removed = fields.names("remove").unwrap_or_default();
    pairs
        .iter()
        .map(|(name, _)| name)
        .chain(&removed)
        .for_each(&mut field);
    for (name, value) in &pairs {
        if !is_field_value(value.text) {
            let message = format!(
                "the value of `{}` cannot stand in a header field",
                name.text
            );
            fields
                .reader
                .report(&value.span, message, Some(FIELD_VALUE.to_owned()));
        }
    }
    Headers {
        set: pairs
            .iter()
            .map(|(name, value)| (name.text.to_owned(), value.text.to_owned()))
            .collect(),
        add: Vec::new(),
        remove: removed.iter().map(|name| name.text.to_owned()).collect(),
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

const FIELD_VALUE: &str = "no control characters, and no space at either end";

/// RFC 9110 section 5.5.
fn is_field_value(value: &str) -> bool {
    value.trim_matches([' ', '\t']) == value
        && value
            .bytes()
            .all(|b| b == b'\t' || (b >= 0x20 && b != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_in_one_form() {
        for (text, form) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("*.Example.org", "*.example.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[0:0::1]", "[::1]"),
            ("a_b-c", "a_b-c"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(form), "{text}");
        }
    }

    #[test]
    fn what_is_no_host() {
        for text in [
            "",
            ".",
            "*",
            "a*.b",
            "*.*.b",
            "a..b",
            "a b",
            "a:80",
            "http://a",
            "b\u{fc}cher.de",
            "[::x]",
            "a/b",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
        assert!(host(&"a".repeat(64)).is_err());
        assert!(host(&vec!["a"; 128].join(".")).is_err());
    }

    #[test]
    fn names_and_values_of_fields() {
        assert!(is_token("Cache-Control") && !is_token("") && !is_token("a b") && !is_token("a:"));
        assert!(is_field_value("") && is_field_value("a\tb, \u{e9}"));
        assert!(!is_field_value("a\r\nb") && !is_field_value(" a") && !is_field_value("a\u{7f}"));
    }
}
