//! Active health checks. They run on the control thread, so that no event loop makes them and each backend is
//! checked once per interval regardless of the number of workers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_config::address::Address;
use levity_config::upstream::{Check, Protocol};
use levity_net::{Transport, proxy_header};
use levity_telemetry::diagnostics;
use levity_wire::ajp13;
use levity_wire::cgi::{self, Environment, Script};
use levity_wire::fastcgi;
use levity_wire::http1::{self, Limits, Method, RequestInfo, Version};
use levity_wire::{Reject, scgi};
use tokio::task::JoinHandle;
use tokio::time::{self, MissedTickBehavior};

use super::Upstream;
use super::backend::Backend;
use super::codec::cgi::SERVER_SOFTWARE;
use super::codec::head;
use super::connect::connect;
use super::http2::probe;

/// The bytes that are read of a response, for each byte that its header may have: a header that the gateway accepts is
/// accepted here too, with room for interim responses and protocol framing.
const BYTES_PER_HEAD_BYTE: usize = 2;

/// The running checks of some upstreams. Dropping this stops them without waiting.
#[derive(Default)]
pub struct Checks(#[expect(dead_code, reason = "dropping them ends the tasks")] Vec<Task>);

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the checks of upstreams that have one configured. Call it on the control thread, within its
/// runtime.
pub fn start(upstreams: &[Arc<Upstream>]) -> Checks {
    let tasks = upstreams.iter().filter_map(|upstream| {
        let check = upstream.settings.check.clone()?;
        Some(Task(tokio::spawn(watch_all(
            upstream.clone(),
            Arc::new(check),
        ))))
    });
    Checks(tasks.collect())
}

/// Runs one task per backend and follows changes of the addresses. The first checks are spread over an
/// interval, and so are all that follow.
async fn watch_all(upstream: Arc<Upstream>, check: Arc<Check>) {
    // The backend is kept too: an address that is removed and comes back is another backend with the same ID.
    let mut tasks: HashMap<u64, (Arc<Backend>, Task)> = HashMap::new();
    loop {
        let backends = upstream.backends();
        tasks.retain(|_, (backend, _)| backends.iter().any(|one| Arc::ptr_eq(one, backend)));
        let count = u32::try_from(backends.len()).unwrap_or(u32::MAX);
        let mut first = Duration::ZERO;
        for backend in backends.iter() {
            tasks.entry(backend.id).or_insert_with(|| {
                let (upstream, check) = (upstream.clone(), check.clone());
                let watching = watch(upstream, check, backend.clone(), first);
                (backend.clone(), Task(tokio::spawn(watching)))
            });
            first += check.interval / count;
        }
        drop(backends);
        time::sleep(check.interval).await;
    }
}

async fn watch(upstream: Arc<Upstream>, check: Arc<Check>, backend: Arc<Backend>, first: Duration) {
    let mut streak = Streak::default();
    time::sleep(first).await;
    let mut times = time::interval(check.interval);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let found = check_once(&upstream, &check, &backend).await;
        if let Err(reason) = &found {
            backend.set_last_failure(reason.clone(), Instant::now());
            upstream.resolve_again();
        }
        if streak.add(found.is_ok(), backend.is_well(), &check) {
            record(&upstream, &backend, found);
        }
    }
}

fn record(upstream: &Upstream, backend: &Backend, found: Result<(), String>) {
    let now = Instant::now();
    if !backend.set_well(found.is_ok(), now) {
        return;
    }
    match found {
        Ok(()) => upstream.log_return(backend, backend.end_outage(now)),
        Err(reason) => {
            backend.begin_outage(now);
            let (upstream, name) = (&upstream.settings.name, &backend.name);
            diagnostics::log(format_args!(
                "upstream {upstream}: backend {name} is down: {reason}"
            ));
            backend.set_trouble(reason);
        }
    }
}

/// Consecutive results that contradict the current state.
#[derive(Debug, Default)]
struct Streak(usize);

impl Streak {
    /// Adds a result; true when there are enough to change the state.
    fn add(&mut self, found_well: bool, is_well: bool, check: &Check) -> bool {
        if found_well == is_well {
            self.0 = 0;
            return false;
        }
        self.0 += 1;
        let enough = self.0 >= if found_well { check.rise } else { check.fall };
        if enough {
            self.0 = 0;
        }
        enough
    }
}

/// Checks once, within `check.timeout`; an error is the reason for the log.
async fn check_once(upstream: &Upstream, check: &Check, backend: &Backend) -> Result<(), String> {
    let (settings, address) = (&upstream.settings, &backend.address);
    let request = request(settings.protocol, check, address)
        .map_err(|reason| format!("cannot make the request: {reason}"))?;
    let attempt = async {
        let transport = connect(upstream, backend)
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        if settings.protocol == Protocol::H2 {
            let probed = match check.path.as_deref() {
                Some(path) => {
                    let url = url(upstream, check, address, path);
                    probe::status(transport, &url, settings.limits)
                        .await
                        .and_then(judge)
                }
                None => probe::settings(transport, settings.limits).await,
            };
            return probed.map_err(|reason| described(settings.protocol, check, address, &reason));
        }
        let Some(request) = request else {
            return Ok(());
        };
        let mut bytes = proxy_header::for_own_request(settings.proxy_protocol);
        bytes.extend(request);
        exchange(transport, &bytes, settings)
            .await
            .map_err(|reason| described(settings.protocol, check, address, &reason))
    };
    let outcome = time::timeout(check.timeout, attempt).await;
    outcome.unwrap_or_else(|_| {
        let reason = format!("no response within {:?}", check.timeout);
        Err(described(settings.protocol, check, address, &reason))
    })
}

/// Adds the request to the reason: a 404 is easier to understand with the host and path that were requested.
fn described(protocol: Protocol, check: &Check, address: &Address, reason: &str) -> String {
    match (protocol, check.path.as_deref()) {
        (Protocol::Ajp13, _) => format!("CPing: {reason}"),
        (_, None) => reason.to_owned(),
        (_, Some(path)) => {
            let host = host(protocol, check, address);
            format!("GET {path} of host {host}: {reason}")
        }
    }
}

async fn exchange(
    mut transport: Transport,
    request: &[u8],
    settings: &levity_config::Upstream,
) -> Result<(), String> {
    transport
        .write_all(request)
        .await
        .map_err(|error| format!("cannot send the request: {error}"))?;
    let bytes_max = settings.limits.head_bytes * BYTES_PER_HEAD_BYTE;
    let limits = head::limits(settings.limits);
    let mut response = vec![0; bytes_max];
    let mut filled = 0;
    while filled < response.len() {
        let free = &mut response[filled..];
        let read = transport.read(free).await;
        let bytes = read.map_err(|error| format!("no response: {error}"))?;
        if bytes == 0 {
            return Err("it closed the connection before its response".to_owned());
        }
        filled += bytes;
        if let Some(status) = status(settings.protocol, &limits, &response[..filled])
            .map_err(|reject| format!("malformed response: {}", reject.reason))?
        {
            return judge(status);
        }
    }
    Err(format!(
        "its response has no end of header within {bytes_max} bytes"
    ))
}

fn judge(status: u16) -> Result<(), String> {
    match status {
        200..=399 => Ok(()),
        _ => Err(format!("it answered {status}")),
    }
}

/// What a check over HTTP/2 requests.
fn url(upstream: &Upstream, check: &Check, address: &Address, path: &str) -> String {
    let scheme = upstream.scheme();
    let host = host(upstream.settings.protocol, check, address);
    format!("{scheme}://{host}{path}")
}

/// The request to send; `None` when connecting is enough. AJP13 has a ping of its own without a path.
fn request(
    protocol: Protocol,
    check: &Check,
    address: &Address,
) -> Result<Option<Vec<u8>>, String> {
    let mut out = Vec::new();
    let host = host(protocol, check, address);
    match (protocol, check.path.as_deref()) {
        (Protocol::Ajp13, _) => out.extend(ajp13::PING),
        // Over HTTP/2 it is not made of bytes.
        (_, None) | (Protocol::H2, _) => return Ok(None),
        (Protocol::Http, Some(path)) => {
            write_http(path, &host, &mut out).map_err(|error| error.to_string())?;
        }
        (Protocol::Fastcgi, Some(path)) => {
            let environment =
                environment(protocol, path, &host).map_err(|reject| reject.to_string())?;
            fastcgi::write_head(&environment, false, &mut out);
            out.extend(fastcgi::STDIN_END);
        }
        (Protocol::Scgi, Some(path)) => {
            let environment =
                environment(protocol, path, &host).map_err(|reject| reject.to_string())?;
            scgi::write_head(&environment, 0, &mut out);
        }
    }
    Ok(Some(out))
}

/// The Host of the request: `check.host`, by default the address for HTTP and `localhost` otherwise.
fn host(protocol: Protocol, check: &Check, address: &Address) -> String {
    match (&check.host, protocol, address) {
        (Some(host), ..) => host.clone(),
        (None, Protocol::Http | Protocol::H2, Address::Tcp(address)) => address.to_string(),
        (None, ..) => "localhost".to_owned(),
    }
}

fn write_http(path: &str, host: &str, out: &mut Vec<u8>) -> Result<(), http1::write::Unwritable> {
    http1::write::request_line(out, b"GET", path.as_bytes())?;
    http1::write::field(out, b"Host", host.as_bytes())?;
    http1::write::field(out, b"User-Agent", b"levity-check")?;
    http1::write::field(out, b"Connection", b"close")?;
    http1::write::end_of_head(out);
    Ok(())
}

/// FastCGI: the path becomes the script's name, which is how php-fpm recognises its `ping.path`. SCGI, which
/// PHP does not speak: an application at the root that reads the path from PATH_INFO.
fn environment(protocol: Protocol, path: &str, host: &str) -> Result<Environment, Reject> {
    let host = host.as_bytes();
    let (server_name, port) = super::codec::cgi::server(host);
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (path, None),
    };
    let below_root = path.strip_prefix('/').unwrap_or(path).as_bytes();
    let script = match protocol {
        Protocol::Scgi => Script {
            name: b"",
            info: Some(below_root),
            is_file: false,
        },
        _ => Script {
            name: below_root,
            info: None,
            is_file: true,
        },
    };
    let request = cgi::Request {
        method: b"GET",
        path: path.as_bytes(),
        query,
        version: Version::Http11,
        host: Some(host),
        server_name,
        server_port: port.unwrap_or(80),
        server_software: SERVER_SOFTWARE,
        server_addr: None,
        remote_addr: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        remote_port: None,
        https: false,
        content_length: None,
        document_root: b"",
        script,
    };
    let fields: [(&[u8], &[u8]); 1] = [(b"User-Agent", b"levity-check")];
    let mut environment = Environment::default();
    environment.fill(&request, fields.into_iter())?;
    Ok(environment)
}

/// The status of a response of which `bytes` have arrived; `None` when more is needed. Parses from the start
/// each time, which is cheap because responses are short.
fn status(protocol: Protocol, limits: &Limits, bytes: &[u8]) -> Result<Option<u16>, Reject> {
    match protocol {
        Protocol::Http => http_status(limits, bytes),
        Protocol::H2 => unreachable!("`probe` reads it"),
        Protocol::Scgi => cgi_status(limits, bytes),
        Protocol::Fastcgi => fastcgi_status(limits, bytes),
        Protocol::Ajp13 => {
            let decoded = ajp13::Reader::pong().decode(bytes)?;
            Ok(decoded.message.map(|_pong| 200))
        }
    }
}

fn http_status(limits: &Limits, mut bytes: &[u8]) -> Result<Option<u16>, Reject> {
    let mut head = http1::ResponseHead::default();
    let request = RequestInfo {
        method: Method::Get,
        upgrade: false,
    };
    while http1::parse_response(bytes, &mut head, request, limits)? {
        if !head.is_interim() {
            return Ok(Some(head.status));
        }
        bytes = &bytes[head.bytes..];
    }
    Ok(None)
}

fn cgi_status(limits: &Limits, bytes: &[u8]) -> Result<Option<u16>, Reject> {
    let mut head = cgi::ResponseHead::default();
    let complete = cgi::parse_response(bytes, &mut head, limits)?;
    Ok(complete.then_some(head.status))
}

fn fastcgi_status(limits: &Limits, bytes: &[u8]) -> Result<Option<u16>, Reject> {
    let mut stdout = Vec::new();
    let decoded = fastcgi::ResponseDecoder::new(false).decode(bytes, |event| {
        if let fastcgi::Event::Stdout(part) = event {
            stdout.extend_from_slice(part);
        }
    })?;
    let status = cgi_status(limits, &stdout)?;
    // The response ended without a header; a client would get 502.
    Ok(status.or(decoded.done.then_some(502)))
}

#[cfg(test)]
mod tests;
