//! Reads `[[upstream]]`.

use std::time::Duration;

use levity_wire::http1;

use super::{
    At, Backend, Balance, Check, Protocol, ProxyProtocol, ResponseLimits, Retry, Sticky, Upstream,
    UpstreamTls, backend,
};
use crate::certificate_files;
use crate::headers::is_request_target;
use crate::host::host_or_report;
use crate::named::{NameForm, Named};
use crate::reader::Reader;
use crate::section::{Secret, Section, Text};
use crate::tls::CertificateFiles;
use crate::token::is_token;

const NAME: NameForm = NameForm {
    others: b"-_.",
    bytes_max: usize::MAX,
    help: "letters, digits, `-`, `_` and `.`",
};

/// The failure in `on` that a request waits after.
const CONNECT: &str = "connect";

/// What comes of files that cannot be used.
const UNREACHED: &str = "no backend of the upstream is reached until it can be used";

/// The upstreams of a file, for the keys that name them.
pub(crate) struct Upstreams {
    names: Named,
    all: Vec<Known>,
}

/// An upstream, as far as it is known in spite of its errors.
pub(crate) struct Known {
    /// With an empty name if that is wrong.
    upstream: Upstream,
    /// `None` when it is wrong.
    pub(crate) protocol: Option<Protocol>,
}

impl Upstreams {
    pub(crate) fn read(root: &Section<'_>) -> Self {
        let tables = root.children("upstream");
        let mut names = Named::new("an upstream");
        let all = tables.iter().map(|section| known(section, &mut names));
        let all = all.collect();
        let mut upstreams = Upstreams { names, all };
        for (at, section) in tables.iter().enumerate() {
            upstreams.all[at].upstream.reproxy = upstreams.reproxy(at, section);
        }
        upstreams
    }

    /// In the order of the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.all.iter().map(|known| &known.upstream)
    }

    /// In the order of the file.
    pub(crate) fn into_list(self) -> Vec<Upstream> {
        self.all.into_iter().map(|known| known.upstream).collect()
    }

    /// Notes upstreams that were never found by [`Self::find`].
    pub(crate) fn note_unused(&self, reader: &Reader<'_>) {
        self.names.note_unused(reader);
    }

    /// The upstream that the key `of` names. Reports an unknown name.
    pub(crate) fn find(&self, reader: &Reader<'_>, name: &Text<'_>, of: &str) -> Option<&Known> {
        let is_address = name.text.contains([':', '/']);
        let help = is_address.then(|| {
            format!("`{of}` takes the name of an `[[upstream]]`; put the address into its `to`")
        });
        let number = self.names.find(reader, name, help)?;
        Some(&self.all[number])
    }

    fn reproxy(&self, at: usize, section: &Section<'_>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in section.names("reproxy").unwrap_or_default() {
            let known = self.find(section.reader, &name, "reproxy");
            let wrong = if name.text == self.all[at].upstream.name {
                Some("is this upstream itself")
            } else if names.iter().any(|other| other == name.text) {
                Some("is given twice")
            } else if known
                .and_then(|known| known.protocol)
                .is_some_and(|protocol| !protocol.is_http())
            {
                Some("is not of protocol http or h2")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                name.refuse(format!("`{}` {wrong}", name.text));
            }
            names.push(name.text.to_owned());
        }
        names
    }
}

fn known(section: &Section<'_>, names: &mut Named) -> Known {
    let default = section.default_word("protocol");
    let protocol = section.word("protocol");
    let protocol = protocol.or((!section.has("protocol")).then_some(default));
    let upstream = upstream(section, protocol.unwrap_or(default), names);
    Known { upstream, protocol }
}

fn upstream(section: &Section<'_>, protocol: Protocol, names: &mut Named) -> Upstream {
    let connections = section.count("connections");
    // `off` is none of its variants.
    let proxy_protocol = section.word::<ProxyProtocol>("proxy_protocol");
    let to = to(section);
    let tls = tls(section, &to, protocol);
    if tls.is_some() && proxy_protocol.is_some() {
        section.report(
            "proxy_protocol",
            "it cannot be with `https://` in `to`",
            None,
        );
    }
    if protocol == Protocol::H2 && proxy_protocol.is_some() {
        section.report(
            "proxy_protocol",
            "it cannot be with `protocol = \"h2\"`, whose connections carry requests of many clients",
            None,
        );
    }
    Upstream {
        name: names.add(section, &NAME),
        protocol,
        to,
        tls,
        balance: balance(section),
        sticky: sticky(section),
        connections,
        keep_alive: match proxy_protocol {
            None => keep_alive(section, protocol, connections),
            // The next request on the connection would be taken for one of the same client.
            Some(_) => 0,
        },
        keep_alive_timeout: section.duration("keep_alive_timeout"),
        connect_timeout: section.duration("connect_timeout"),
        first_byte_timeout: section.duration("first_byte_timeout"),
        idle_timeout: section.duration("idle_timeout"),
        tunnel_timeout: section.duration("tunnel_timeout"),
        queue: section.count("queue"),
        queue_timeout: section.duration("queue_timeout"),
        retry: retry(&section.child("retry")),
        fail_after: section.count("fail_after"),
        fail_for: section.duration("fail_for"),
        slow_start: section.duration("slow_start"),
        check: section
            .has("check")
            .then(|| check(&section.child("check"), protocol)),
        limits: limits(section, protocol),
        buffer_requests: section.boolean_or_default("buffer_requests"),
        event_stream_heartbeat: section
            .has("event_stream_heartbeat")
            .then(|| section.duration("event_stream_heartbeat")),
        forwarded: section.word_or_default("forwarded"),
        proxy_protocol,
        secret: secret(section, protocol),
        unread: section.reader.take_unread(),
        sendfile_roots: section.folders("sendfile_roots"),
        temporary_roots: section.folders("temporary_roots"),
        keep_until_sent: keep_until_sent(section),
        reproxy: Vec::new(),
        resolve_interval: section.duration("resolve_interval"),
    }
}

fn retry(section: &Section<'_>) -> Retry {
    let given = section.names("on");
    for failure in given.iter().flatten().filter(|one| one.text != CONNECT) {
        let message = format!("`{}` is not a failure to wait after", failure.text);
        failure.refuse_with(message, format!("\"{CONNECT}\" is the only one"));
    }
    Retry {
        times: section.count("times"),
        within: match given.is_some_and(|given| given.is_empty()) {
            true => Duration::ZERO,
            false => section.duration("for"),
        },
    }
}

fn to(section: &Section<'_>) -> Vec<Backend> {
    section.require("to");
    let Some(given) = section.names("to") else {
        return Vec::new();
    };
    if given.is_empty() {
        section.report("to", "it lists no backend", None);
        return Vec::new();
    }
    let mut backends: Vec<Backend> = Vec::new();
    for one in &given {
        let text = one.text;
        match backend::parse(text, section.reader.folder(&one.span)) {
            Ok(backend) => {
                if backends.iter().any(|other| is_same(&other.at, &backend.at)) {
                    one.refuse(format!("`{text}` repeats a backend"));
                }
                backends.push(backend);
            }
            Err(help) => one.refuse_with(format!("`{text}` is not a backend"), help),
        }
    }
    let spare = backends
        .iter()
        .all(|backend| backend.backup || backend.drain);
    if spare && backends.len() == given.len() {
        section.report("to", "every backend is `backup` or `drain`", None);
    }
    backends
}

/// Whether two entries are one backend, or may be: `localhost` is one of two addresses.
fn is_same(one: &At, other: &At) -> bool {
    let is_either = |localhost: &At, at: &At| {
        let second = localhost.second_address();
        second.is_some() && (localhost.address() == at.address() || second == at.address())
    };
    one == other || is_either(one, other) || is_either(other, one)
}

fn tls(section: &Section<'_>, to: &[Backend], protocol: Protocol) -> Option<UpstreamTls> {
    let encrypted = to.iter().filter(|backend| backend.tls.is_some()).count();
    if encrypted > 0 && encrypted < to.len() {
        section.report(
            "to",
            "some backends have `https://`, and others have not",
            None,
        );
    }
    if encrypted > 0 && !protocol.is_http() {
        let message = "`https://` is for `protocol = \"http\"` and `\"h2\"` only";
        section.report("to", message, None);
    }
    if encrypted == 0 && section.has("tls") && !to.is_empty() {
        let help = "write `https://` before the backends in `to`".to_owned();
        section.report("tls", "no backend uses TLS", Some(help));
    }
    let section = section.child("tls");
    let name = section
        .text("name")
        .and_then(|given| host_or_report(&given));
    let certificate = section.path("certificate");
    if let Some(both) = certificate.as_deref().filter(|_| !section.has("key")) {
        section.withhold("certificate", both);
    }
    let key = section.path("key").or(certificate.clone());
    let tls = UpstreamTls {
        authorities: section.path("authorities"),
        verify: section.boolean_or_default("verify"),
        name,
        certificate: certificate
            .zip(key)
            .map(|(certificate, key)| CertificateFiles { certificate, key }),
    };
    if encrypted == 0 {
        return None;
    }
    check_name(&section, tls.name.as_deref());
    if let Some(path) = &tls.authorities {
        certificate_files::note_trusted(&section, "authorities", path, UNREACHED);
    }
    if let Some(files) = &tls.certificate {
        certificate_files::note_own(&section, files, UNREACHED);
    }
    Some(tls)
}

/// Reports a name of which no certificate can be.
fn check_name(section: &Section<'_>, name: Option<&str>) {
    if let Some(name) = name.filter(|name| !certificate_files::can_be_for(name)) {
        let help = "write the one name for which the backends have a certificate".to_owned();
        section.report(
            "name",
            format!("no certificate can be for `{name}`"),
            Some(help),
        );
    }
}

fn balance(section: &Section<'_>) -> Balance {
    // Lighttpd's "shortest queue first".
    let unlisted = |word: &str| (word == "sqf").then_some("least-connections");
    let word = section.word_or("balance", unlisted);
    let balance = word.and_then(|word| word.parse().ok());
    balance.unwrap_or_else(|| section.default_word("balance"))
}

fn sticky(section: &Section<'_>) -> Option<Sticky> {
    let given = section.text("sticky")?;
    match given.text.split_once(':') {
        Some(("cookie", name)) if is_token(name) => Some(Sticky::Cookie(name.to_owned())),
        Some(("header", name)) if is_token(name) => Some(Sticky::Header(name.to_ascii_lowercase())),
        _ => {
            let message = format!("`{}` is not a value of `sticky`", given.text);
            given.refuse_with(message, "\"cookie:NAME\" or \"header:NAME\"");
            None
        }
    }
}

/// The default is at most `connections`. FastCGI keeps none by default: a process of php-fpm serves nobody else
/// while it waits on a connection.
fn keep_alive(section: &Section<'_>, protocol: Protocol, connections: usize) -> usize {
    if section.has("keep_alive") {
        section.at_most("keep_alive", "connections");
    } else if protocol == Protocol::Fastcgi {
        return 0;
    }
    section.count("keep_alive").min(connections)
}

fn keep_until_sent(section: &Section<'_>) -> bool {
    let given = section.word_or("temporary_removal", |_| None);
    given.unwrap_or(section.default("temporary_removal")) == "sent"
}

fn limits(section: &Section<'_>, protocol: Protocol) -> ResponseLimits {
    if section.has("limits") && protocol == Protocol::Ajp13 {
        let message = "they have no effect with ajp13, whose headers fit in one packet";
        section.report("limits", message, None);
    }
    let section = section.child("limits");
    if section.has("line_bytes") {
        section.at_most("line_bytes", "head_bytes");
    }
    ResponseLimits {
        line_bytes: section.count("line_bytes"),
        head_bytes: section.count("head_bytes"),
        headers: section.count("headers"),
    }
}

fn check(section: &Section<'_>, protocol: Protocol) -> Check {
    Check {
        path: check_path(section),
        host: check_host(section, protocol),
        interval: section.duration("interval"),
        timeout: section.duration("timeout"),
        fall: section.count("fall"),
        rise: section.count("rise"),
    }
}

fn check_path(section: &Section<'_>) -> Option<String> {
    let given = section.text("path")?;
    if !is_request_target(given.text) {
        let help = "it starts with `/` and has no space, no control character and no `#`; other characters than ASCII are written as `%..`";
        given.refuse_with(format!("`{}` is not a request target", given.text), help);
    }
    Some(given.text.to_owned())
}

fn check_host(section: &Section<'_>, protocol: Protocol) -> Option<String> {
    let given = section.text("host")?;
    if http1::host_name(given.text.as_bytes()).is_err() {
        let help =
            "a name or an address, and a port if need be: \"app.example\" or \"app.example:8080\"";
        given.refuse_with(format!("`{}` is not a host", given.text), help);
    } else if protocol == Protocol::Ajp13 {
        section.report("host", "checks over ajp13 send none", None);
    } else if !section.has("path") {
        let help = "add the `path` to request".to_owned();
        section.report("host", "it has no effect without `path`", Some(help));
    }
    Some(given.text.to_owned())
}

fn secret(section: &Section<'_>, protocol: Protocol) -> Option<Secret> {
    let given = section.secret("secret")?;
    let Some(text) = given.text else {
        return Some(Secret(Vec::new()));
    };
    if text.is_empty() || text.contains(char::is_control) {
        // The secret is not shown: it may be almost right.
        let help = "not empty, and no control characters".to_owned();
        section.report(&given.key, "not valid", Some(help));
    } else if protocol != Protocol::Ajp13 {
        let message = "only upstreams of protocol ajp13 have one";
        section.report(&given.key, message, None);
    }
    Some(Secret(text.into_bytes()))
}
