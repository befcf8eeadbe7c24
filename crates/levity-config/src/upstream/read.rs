//! Reads `[[upstream]]`.

use std::cell::Cell;
use std::ops::Range;

use levity_wire::http1;

use super::{
    Backend, Balance, Check, Forwarded, Protocol, ProxyProtocol, Sticky, Upstream, backend,
};
use crate::fields::{Fields, Text};
use crate::headers::{is_request_target, is_token};
use crate::reader::Reader;
use crate::suggest::{listed, nearest};

/// The upstreams of a file, for what names them.
pub(crate) struct Upstreams(Vec<Known>);

/// An upstream, as far as it is known in spite of what is wrong with it.
pub(crate) struct Known {
    /// Without a name when that is wrong.
    upstream: Upstream,
    /// `None` when it is wrong.
    pub(crate) protocol: Option<Protocol>,
    /// Where it begins.
    span: Range<usize>,
    /// Whether anything names it.
    is_used: Cell<bool>,
}

impl Upstreams {
    pub(crate) fn read(root: &Fields<'_>) -> Self {
        let tables = root.children("upstream");
        let mut names = Vec::new();
        let mut upstreams = Upstreams(
            tables
                .iter()
                .map(|fields| known(fields, &mut names))
                .collect(),
        );
        for (at, fields) in tables.iter().enumerate() {
            upstreams.0[at].upstream.reproxy = upstreams.reproxy(at, fields);
        }
        upstreams
    }

    /// In the order of the file.
    pub(crate) fn into_list(self) -> Vec<Upstream> {
        self.0.into_iter().map(|known| known.upstream).collect()
    }

    /// Tells of upstreams that nothing named to [`Self::find`] so far.
    pub(crate) fn note_unused(&self, reader: &Reader<'_>) {
        for known in self.0.iter().filter(|known| !known.is_used.get()) {
            let name = &known.upstream.name;
            reader.note(&known.span, format!("nobody uses the upstream `{name}`"));
        }
    }

    /// The upstream that the key `of` names; reports when there is none.
    pub(crate) fn find(&self, reader: &Reader<'_>, name: &Text<'_>, of: &str) -> Option<&Known> {
        let found = self.0.iter().find(|known| known.upstream.name == name.text);
        // One whose name is wrong may be the one that is meant.
        if found.is_none() && self.names().all(|name| !name.is_empty()) {
            let message = format!("no upstream has the name `{}`", name.text);
            reader.report_absent(Some(&name.span), message, Some(self.help(name.text, of)));
        }
        if let Some(known) = found {
            known.is_used.set(true);
        }
        found
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|known| known.upstream.name.as_str())
    }

    fn help(&self, name: &str, of: &str) -> String {
        if name.contains([':', '/']) {
            return format!(
                "`{of}` takes the name of an `[[upstream]]`; put the address into its `to`"
            );
        }
        match nearest(name, self.names()) {
            Some(nearest) => format!("did you mean \"{nearest}\"?"),
            None if self.0.is_empty() => "add `[[upstream]]` with that `name`".to_owned(),
            None => format!("known: {}", listed(self.names())),
        }
    }

    fn reproxy(&self, at: usize, fields: &Fields<'_>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in fields.names("reproxy").unwrap_or_default() {
            let known = self.find(fields.reader, &name, "reproxy");
            let wrong = if name.text == self.0[at].upstream.name {
                Some("is this upstream itself")
            } else if names.iter().any(|other| other == name.text) {
                Some("is given twice")
            } else if known
                .is_some_and(|known| !matches!(known.protocol, None | Some(Protocol::Http)))
            {
                Some("is not of protocol http")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                let message = format!("`{}` {wrong}", name.text);
                fields.reader.report(&name.span, message, None);
            }
            names.push(name.text.to_owned());
        }
        names
    }
}

fn known(fields: &Fields<'_>, names: &mut Vec<(String, Range<usize>)>) -> Known {
    let protocol = match fields.word("protocol") {
        Some("fastcgi") => Some(Protocol::Fastcgi),
        Some("scgi") => Some(Protocol::Scgi),
        Some("ajp13") => Some(Protocol::Ajp13),
        Some(_) => Some(Protocol::Http),
        None => (!fields.has("protocol")).then_some(Protocol::Http),
    };
    let upstream = upstream(fields, protocol.unwrap_or(Protocol::Http), names);
    Known {
        upstream,
        protocol,
        span: fields.span.clone(),
        is_used: Cell::new(false),
    }
}

fn upstream(
    fields: &Fields<'_>,
    protocol: Protocol,
    names: &mut Vec<(String, Range<usize>)>,
) -> Upstream {
    let connections = fields.count("connections");
    let proxy_protocol = proxy_protocol(fields);
    Upstream {
        name: name(fields, names).unwrap_or_default(),
        protocol,
        to: to(fields),
        balance: balance(fields),
        sticky: sticky(fields),
        connections,
        keep_alive: match proxy_protocol {
            None => keep_alive(fields, protocol, connections),
            // What was said of one client would hold for the next.
            Some(_) => 0,
        },
        keep_alive_timeout: fields.duration("keep_alive_timeout"),
        connect_timeout: fields.duration("connect_timeout"),
        first_byte_timeout: fields.duration("first_byte_timeout"),
        idle_timeout: fields.duration("idle_timeout"),
        tunnel_timeout: fields.duration("tunnel_timeout"),
        queue: fields.count("queue"),
        queue_timeout: fields.duration("queue_timeout"),
        retries: fields.count("retries"),
        fail_after: fields.count("fail_after"),
        fail_for: fields.duration("fail_for"),
        slow_start: fields.duration("slow_start"),
        check: fields
            .has("check")
            .then(|| check(&fields.child("check"), protocol)),
        buffer_requests: fields.boolean("buffer_requests").unwrap_or(false),
        forwarded: forwarded(fields),
        proxy_protocol,
        secret: secret(fields, protocol),
        sendfile_roots: fields.folders("sendfile_roots"),
        temporary_roots: fields.folders("temporary_roots"),
        keep_until_sent: fields.word("temporary_removal") == Some("sent"),
        reproxy: Vec::new(),
        resolve_interval: fields.duration("resolve_interval"),
    }
}

fn name(fields: &Fields<'_>, names: &mut Vec<(String, Range<usize>)>) -> Option<String> {
    fields.require("name");
    let Text { text, span } = fields.text("name")?;
    let reader = fields.reader;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        let help = "letters, digits, `-`, `_` and `.`".to_owned();
        reader.report(
            &span,
            format!("`{text}` is not the name of an upstream"),
            Some(help),
        );
        return None;
    }
    if let Some((_, first)) = names.iter().find(|(other, _)| other == text) {
        let help = format!("the first is on line {}", reader.line(first));
        reader.report(
            &span,
            format!("upstream `{text}` is given twice"),
            Some(help),
        );
    }
    names.push((text.to_owned(), span));
    Some(text.to_owned())
}

fn to(fields: &Fields<'_>) -> Vec<Backend> {
    fields.require("to");
    let Some(given) = fields.names("to") else {
        return Vec::new();
    };
    if given.is_empty() {
        fields.report("to", "no backend is named", None);
        return Vec::new();
    }
    let mut backends: Vec<Backend> = Vec::new();
    for Text { text, span } in &given {
        match backend::parse(text, fields.reader.base()) {
            Ok(backend) => {
                if backends.iter().any(|other| other.at == backend.at) {
                    let message = format!("`{text}` names a backend a second time");
                    fields.reader.report(span, message, None);
                }
                backends.push(backend);
            }
            Err(help) => {
                let message = format!("`{text}` is not a backend");
                fields.reader.report(span, message, Some(help));
            }
        }
    }
    let spare = backends
        .iter()
        .all(|backend| backend.backup || backend.drain);
    if spare && backends.len() == given.len() {
        fields.report("to", "every backend is `backup` or `drain`", None);
    }
    backends
}

fn balance(fields: &Fields<'_>) -> Balance {
    // Lighttpd's "shortest queue first".
    let unlisted = |word: &str| (word == "sqf").then_some("least-connections");
    match fields.word_or("balance", unlisted) {
        Some("least-connections") => Balance::LeastConnections,
        Some("carp") => Balance::Carp,
        Some("static") => Balance::Static,
        Some("random-two") => Balance::RandomTwo,
        _ => Balance::RoundRobin,
    }
}

fn sticky(fields: &Fields<'_>) -> Option<Sticky> {
    let Text { text, span } = fields.text("sticky")?;
    match text.split_once(':') {
        Some(("cookie", name)) if is_token(name) => Some(Sticky::Cookie(name.to_owned())),
        Some(("header", name)) if is_token(name) => Some(Sticky::Header(name.to_ascii_lowercase())),
        _ => {
            let message = format!("`{text}` is no value of `sticky`");
            let help = "\"cookie:NAME\" or \"header:NAME\"".to_owned();
            fields.reader.report(&span, message, Some(help));
            None
        }
    }
}

/// Few connections make the default less, and are no mistake. By default FastCGI keeps none: a process of
/// php-fpm serves nobody else while it waits on a connection.
fn keep_alive(fields: &Fields<'_>, protocol: Protocol, connections: usize) -> usize {
    if fields.has("keep_alive") {
        fields.at_most("keep_alive", "connections");
    } else if protocol == Protocol::Fastcgi {
        return 0;
    }
    fields.count("keep_alive").min(connections)
}

fn check(fields: &Fields<'_>, protocol: Protocol) -> Check {
    Check {
        path: check_path(fields),
        host: check_host(fields, protocol),
        interval: fields.duration("interval"),
        timeout: fields.duration("timeout"),
        fall: fields.count("fall"),
        rise: fields.count("rise"),
    }
}

fn check_path(fields: &Fields<'_>) -> Option<String> {
    let Text { text, span } = fields.text("path")?;
    if !is_request_target(text) {
        let help = "it starts with `/` and has no space, no control character and no `#`; others than ASCII are written as `%..`";
        let message = format!("`{text}` cannot be asked for");
        fields.reader.report(&span, message, Some(help.to_owned()));
    }
    Some(text.to_owned())
}

fn check_host(fields: &Fields<'_>, protocol: Protocol) -> Option<String> {
    let Text { text, span } = fields.text("host")?;
    if http1::host_name(text.as_bytes()).is_err() {
        let message = format!("`{text}` is not a host");
        let help =
            "a name or an address, and a port if need be: \"app.example\" or \"app.example:8080\"";
        fields.reader.report(&span, message, Some(help.to_owned()));
    } else if protocol == Protocol::Ajp13 {
        fields.report("host", "ajp13 asks without one", None);
    } else if !fields.has("path") {
        let help = "add the `path` that is asked for";
        fields.report(
            "host",
            "without a `path` nothing is said",
            Some(help.to_owned()),
        );
    }
    Some(text.to_owned())
}

fn forwarded(fields: &Fields<'_>) -> Forwarded {
    match fields.word("forwarded") {
        Some("forwarded") => Forwarded::Forwarded,
        Some("x-forwarded") => Forwarded::XForwarded,
        Some("off") => Forwarded::Off,
        _ => Forwarded::Both,
    }
}

fn proxy_protocol(fields: &Fields<'_>) -> Option<ProxyProtocol> {
    match fields.word("proxy_protocol") {
        Some("v1") => Some(ProxyProtocol::V1),
        Some("v2") => Some(ProxyProtocol::V2),
        _ => None,
    }
}

fn secret(fields: &Fields<'_>, protocol: Protocol) -> Option<String> {
    let Text { text, span } = fields.text("secret")?;
    let reader = fields.reader;
    if text.is_empty() || text.contains(char::is_control) {
        // Not shown again: it may be right but for its end.
        let help = "a word without control characters".to_owned();
        reader.report(&span, "`secret` cannot be told".to_owned(), Some(help));
    } else if protocol != Protocol::Ajp13 {
        fields.report(
            "secret",
            "only upstreams of protocol ajp13 are told one",
            None,
        );
    }
    Some(text.to_owned())
}
