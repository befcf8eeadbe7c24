//! `levity explain`: answers one request in a worker of its own, which listens nowhere, and says what decided about it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_config::address::Address;
use levity_config::{AccessLog, Config, Hidden, Listen, Log, LogFormat, Route, Site, Watch};
use levity_net::{Peer, PeerTls, Transport};
use levity_telemetry::diagnostics;
use levity_telemetry::stats::WorkerStats;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};

use crate::explanation::{Explanation, Remark, Topic};
use crate::loop_core;
use crate::loop_core::completions::Completions;
use crate::mailboxes::start;
use crate::process::server::SharedParts;
use crate::route::path_of;
use crate::serve::serve_unaccepted;
use crate::tls::certificates::Origin;
use crate::tls::offline::report_for;
use crate::worker::{Worker, WorkerParts};

/// The maximum size of the header of a response, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// The time-out for lines of the log, which come before the answer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The entries of the JSON that have words of this program.
const FIXED: [&str; 2] = ["topic", "format"];

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A request to explain.
#[derive(Debug)]
pub struct Question {
    /// The configuration.
    pub config: Config,
    /// The header of the request, in HTTP/1.
    pub header: Vec<u8>,
    /// The client.
    pub client: IpAddr,
    /// The listener that it connects to.
    pub listener: Option<Address>,
    /// Whether the URL is one of HTTPS; `None` if it is a path.
    pub https: Option<bool>,
    /// The host of the URL.
    pub host: String,
    /// The port of the URL, which tells the listener if none is given.
    pub port: Option<u16>,
    /// Whether the answer is JSON.
    pub json: bool,
}

/// What was found out.
struct Answer {
    /// What decided, in order.
    remarks: Vec<Remark>,
    /// The site and route, as configured.
    site: Option<Site>,
    route: Option<Route>,
    /// Why the response is an error, if it is one and the reason is known.
    reason: Option<String>,
    /// Where the request is logged.
    log: Log,
    /// The header of the response; `None` if it depends on what was not asked.
    header: Option<String>,
}

/// Answers `question` on standard output. Files are read; nothing is written, and no upstream is asked. Blocks.
pub fn run(question: Question) -> ExitCode {
    let json = question.json;
    let hidden = question.config.hidden.clone();
    let answer = answer(question);
    diagnostics::flush(FLUSH_TIMEOUT);
    match answer {
        Ok(answer) if json => println!("{}", hidden.hide_in(as_json(&answer), &FIXED)),
        Ok(answer) => print!("{}", as_text(&answer, &hidden)),
        Err(error) => {
            eprintln!("error: {}", hidden.hide(&error.to_string()));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn answer(question: Question) -> io::Result<Answer> {
    let configured = question.config.clone();
    let mut config = configured.clone();
    // None of these belongs to what is explained, and the folder of variants may be in use by a server.
    config.turn_off_logs();
    config.disk.variants = None;
    config.disk.watch = Watch::Off;
    let hidden = configured.hidden.clone();
    diagnostics::start_changed(move |line| hidden.hide(&line).into_owned())?;
    let shared = SharedParts::start(&config, false)?;
    let explanation = Explanation::default();
    let listener = listener(&question, &configured, &explanation);
    if listener.is_some_and(|listener| listener.tls) {
        let text = certificate(&question.host, &configured);
        explanation.add(Topic::Tls, text);
    }
    let parts = WorkerParts {
        explanation: Some(explanation),
        ..shared.worker(Arc::new(WorkerStats::new(0)))?
    };
    let mut peer = Peer::new(Some(SocketAddr::new(question.client, 0)));
    if let Some(listener) = listener {
        peer.set_listener(Arc::new(listener.address.clone()), listener.publish);
        if listener.tls {
            peer.set_tls(handshake(&question.host));
        }
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())?;
    runtime.block_on(ask(parts, peer, &question.header, &configured))
}

/// The listener that the client connects to. Remarks say so where that is not plain. `None` if there is none.
fn listener<'c>(
    question: &Question,
    config: &'c Config,
    explanation: &Explanation,
) -> Option<&'c Listen> {
    let given = question.listener.as_ref().and_then(|address| {
        let mut listeners = config.listen.iter();
        listeners.find(|listen| listen.address == *address)
    });
    let (listener, note) = match given {
        Some(listener) => (listener, None),
        None => default_listener(&config.listen, question)?,
    };
    let address = &listener.address;
    let mismatch = match (question.https, listener.tls) {
        (Some(true), false) => Some(format!("`{address}` has no TLS: this is plain HTTP")),
        (Some(false), true) => Some(format!("`{address}` takes TLS only: this is HTTPS")),
        (None, true) => Some(format!("`{address}`, over TLS")),
        _ => None,
    };
    for text in note.into_iter().chain(mismatch) {
        explanation.add(Topic::Listener, text);
    }
    Some(listener)
}

/// The listener for a URL: the only one with its port, else the first that is for its scheme, else the first, of which a note says so.
/// `None` if there is none.
fn default_listener<'c>(
    listeners: &'c [Listen],
    question: &Question,
) -> Option<(&'c Listen, Option<String>)> {
    let is_of_scheme = |listen: &&Listen| question.https.is_none_or(|https| listen.tls == https);
    let first = listeners.iter().find(is_of_scheme);
    let first = first.or_else(|| listeners.first())?;
    let Some(port) = question.port else {
        return Some((first, None));
    };
    let has_port =
        |listen: &&Listen| matches!(&listen.address, Address::Tcp(tcp) if tcp.port() == port);
    let with_port: Vec<_> = listeners.iter().filter(has_port).collect();
    Some(match with_port[..] {
        [only] => (only, None),
        [] => {
            let note = format!("`{}`, the first: none has port {port}", first.address);
            (first, Some(note))
        }
        [first, ..] => {
            let count = with_port.len();
            let note = format!("`{}`, the first of {count} with port {port}", first.address);
            (first, Some(note))
        }
    })
}

/// What a handshake of a client that asks for `name` has said.
fn handshake(name: &str) -> PeerTls {
    PeerTls {
        client_auth: None,
        version: "TLSv1.3",
        cipher: "TLS13_AES_128_GCM_SHA256",
        name: Some(name.into()),
        is_resumed: false,
        certificate: None,
    }
}

/// The certificate that a client gets that asks for `name`, in words.
fn certificate(name: &str, config: &Config) -> String {
    let Some(report) = report_for(name, config) else {
        let has_any = config.sites.iter().any(|site| site.tls.is_some());
        return match has_any {
            true => format!(
                "no site is for {name}, and none for all other names: the handshake is refused"
            ),
            false => "no site has a certificate".to_owned(),
        };
    };
    let names = report.names.join(", ");
    let origin = report.origin.label();
    if report.origin == Origin::Internal {
        return format!("certificate for {names} by the authority of this machine ({origin})");
    }
    let Some(issuer) = &report.issuer else {
        return match &report.error {
            Some(reason) => format!("no certificate for {names} ({origin}): {reason}"),
            None => format!("no certificate for {names} yet ({origin}): the handshake fails"),
        };
    };
    let ending = match report.seconds_left(SystemTime::now()).unwrap_or_default() {
        left @ 0.. => format!("valid for {} days", left / DAY_SECONDS),
        _ => "which has expired: clients refuse it".to_owned(),
    };
    let other = match report.is_for(name) {
        true => String::new(),
        false => format!("; clients that ask for {name} refuse it"),
    };
    format!("certificate for {names} by {issuer} ({origin}), {ending}{other}")
}

async fn ask(parts: WorkerParts, peer: Peer, header: &[u8], config: &Config) -> io::Result<Answer> {
    let (completions, delivery) = Completions::new();
    loop_core::spawn(delivery.run());
    let (mailboxes, _) = start::single().split();
    let (resume, _) = start::single().split();
    let worker = Worker::new(parts, completions, mailboxes, resume);
    let worker = Rc::new(worker);
    let slot = worker.core.slots.clone().acquire_owned().await;
    let (mut ours, theirs) = UnixStream::pair()?;
    let slot = slot.expect("the slots are never closed");
    loop_core::spawn(serve_unaccepted(
        &worker,
        Transport::Unix(theirs),
        peer,
        slot,
    ));
    ours.write_all(header).await?;
    // Nobody waits for the body that a header may announce.
    ours.shutdown().await?;
    let header = read_header(&mut ours).await?;
    let explanation = worker.explanation.as_ref().expect("it was given one");
    Ok(Answer::new(explanation, header, config))
}

impl Answer {
    fn new(explanation: &Explanation, header: String, config: &Config) -> Self {
        let place = explanation.place();
        let site = place.map(|place| &config.sites[place.site]);
        let route = site.zip(place.and_then(|place| place.route));
        let route = route.map(|(site, number)| &site.routes[number]);
        let location = site.filter(|_| explanation.is_at_location());
        let location = location.map(|site| route.map_or(&site.location, |route| &route.location));
        let own_log = location.and_then(|location| location.log.as_ref());
        let log = own_log.unwrap_or(&config.log).clone();
        explanation.add(Topic::Log, of_log(&log));
        Self {
            site: site.cloned(),
            route: route.cloned(),
            reason: explanation.reason(),
            log,
            header: (!explanation.is_unanswered()).then_some(header),
            remarks: explanation.take(),
        }
    }

    fn status(&self) -> Option<u16> {
        let mut words = self.header.as_ref()?.split(' ');
        words.nth(1)?.parse().ok()
    }
}

/// Where `log` writes.
fn target(log: &Log) -> String {
    match &log.access {
        AccessLog::Off => "off".to_owned(),
        AccessLog::Stdout => "stdout".to_owned(),
        AccessLog::File(path) => path.display().to_string(),
    }
}

/// The name of a format.
fn format_name(log: &Log) -> &'static str {
    match log.format {
        LogFormat::Combined => "combined",
        LogFormat::Json => "json",
        LogFormat::Custom(_) => "custom",
    }
}

fn of_log(log: &Log) -> String {
    match log.access {
        AccessLog::Off => "none: the access log is off here".to_owned(),
        _ => format!("{} ({})", target(log), format_name(log)),
    }
}

async fn read_header(from: &mut UnixStream) -> io::Result<String> {
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let end = memchr::memmem::find(&received, b"\r\n\r\n");
        if let Some(end) = end {
            return Ok(String::from_utf8_lossy(&received[..end]).into_owned());
        }
        let count = from.read(&mut bytes).await?;
        if count == 0 || received.len() > HEADER_BYTES_MAX {
            return Err(io::Error::other("the request got no response"));
        }
        received.extend_from_slice(&bytes[..count]);
    }
}

/// The topics are words of this program.
fn as_text(answer: &Answer, hidden: &Hidden) -> String {
    let mut text = String::new();
    for Remark { topic, text: of } in &answer.remarks {
        let topic: &str = topic.into();
        text.push_str(&format!("{topic:<8} {}\n", hidden.hide(of)));
    }
    if let Some(header) = &answer.header {
        text.push('\n');
        text.push_str(&hidden.hide(&header.replace("\r\n", "\n")));
        text.push('\n');
    }
    text
}

/// The file with a route, if it is not the only one of the configuration.
fn file_of(route: &Route) -> Option<&Path> {
    let file = route.line.as_ref().and_then(|line| line.file.as_deref());
    route.host_file.map(Path::new).or(file)
}

fn as_json(answer: &Answer) -> Value {
    let remarks: Vec<_> = (answer.remarks.iter())
        .map(|remark| {
            let topic: &str = (&remark.topic).into();
            json!({ "topic": topic, "text": remark.text })
        })
        .collect();
    let header = answer.header.as_deref();
    let header = header.map(|header| header.split("\r\n").collect::<Vec<_>>());
    let site = answer.site.as_ref();
    let route = answer.route.as_ref();
    json!({
        "site": site.map(|site| json!({
            "name": site.name(),
            "hosts": site.hosts,
            "file": site.line.file.as_deref().map(Path::to_string_lossy),
            "line": site.line.number,
        })),
        "route": route.map(|route| json!({
            "path": path_of(route),
            "file": file_of(route).map(Path::to_string_lossy),
            "line": route.line.as_ref().map(|line| line.number),
        })),
        "status": answer.status(),
        "reason": answer.reason,
        "log": { "access": target(&answer.log), "format": format_name(&answer.log) },
        "remarks": remarks,
        "response": header,
    })
}
