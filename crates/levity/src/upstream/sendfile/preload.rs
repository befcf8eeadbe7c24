//! Preloaded content: with one answer an application names files for what the same client will ask
//! next, and those requests are answered from them at once.
//!
//! The field is `X-Sendfile-Preload: TARGET FILE ttl=SECONDS [type=MEDIA-TYPE]`, on any answer, once per
//! target. FILE is beneath one of `temporary_roots`. It is opened and its name removed when the field
//! comes; the content goes when its time is over. A request gets it only from the same principal at the
//! same upstream: for the same host, from the same address, with the same fields but for those that
//! browsers write anew for each request. Cookie or Authorization must be among them, because an address
//! stands for everybody behind it. What a page of another site has a browser ask for is answered by the
//! application, which may refuse it. An answer that sets a cookie brings nothing: who had the old one may
//! not be who gets the new one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::OpenFile;
use levity_wire::Reject;
use levity_wire::http1::Method;
use levity_wire::mime;
use levity_wire::sendfile_header::{self, Preload};
use tokio::task;

use super::root::{self, Beneath};
use super::shown;
use super::store::PreloadStore;
use crate::cache;
use crate::disk_client::{DiskClient, Opened};
use crate::entry::{self, Content, Entry};
use crate::http::client::Client;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::respond::file;
use crate::route::Proxy;
use crate::upstream::codec::head::Head;
use crate::worker::Worker;
use levity_config::Etag;
use levity_telemetry::diagnostics;
use levity_telemetry::stall::Watch;
use levity_telemetry::trace::Trace;

/// Bytes that tell a principal and its request from others. What would take more is not kept.
const KEY_BYTES_MAX: usize = 8 * 1024;

/// The answer to `request`, if it was preloaded for its client.
pub fn answer(
    store: &PreloadStore,
    request: &Request,
    client: &Client,
    proxy: &Proxy,
) -> Option<Response> {
    let now = Watch::poll_began();
    let asks = matches!(request.head.method, Method::Get | Method::Head) && !request.has_body();
    if !asks || store.is_empty(now) || is_of_another_site(request) {
        return None;
    }
    let entry = store.entry(&key(request, client, proxy, request.target())?, now)?;
    Some(file::file(request, cache::Cache::uncached(entry), None))
}

/// Whether a browser asks on behalf of a page that is not of the site it asks, as it says in
/// `Sec-Fetch-Site` or `Origin` (RFC 6454, 7).
fn is_of_another_site(request: &Request) -> bool {
    let is_own = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let mut sites = request.headers_named("sec-fetch-site");
    let mut origins = request.headers_named("origin");
    !sites.all(is_own) || !origins.all(|origin| is_at(origin, request.host()))
}

/// Whether an origin is that of this host, of whatever scheme.
fn is_at(origin: &[u8], host: &[u8]) -> bool {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let mut named = schemes
        .iter()
        .filter_map(|scheme| origin.strip_prefix(*scheme));
    named.any(|named| named.eq_ignore_ascii_case(host))
}

/// Who may have it, and what it is; `None` for who cannot be told from others.
fn key(request: &Request, client: &Client, proxy: &Proxy, target: &[u8]) -> Option<Box<[u8]>> {
    let mut key = Vec::with_capacity(256);
    let mut add = |part: &[u8]| {
        // With its length, so that no two parts can be taken for others.
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    };
    add(&proxy.upstream.number.to_le_bytes());
    add(client.ip?.to_string().as_bytes());
    add(request.host());
    add(target);
    let is_known = ["cookie", "authorization"]
        .iter()
        .any(|name| request.header(name).is_some());
    for (name, value) in telling(request) {
        add(&name);
        add(value);
    }
    (is_known && key.len() <= KEY_BYTES_MAX).then(|| key.into_boxed_slice())
}

/// The fields by which an application may tell clients apart, in an order that does not depend on the
/// client: all but those that a browser writes otherwise for a page than for what the page asks next. So
/// whoever shows who they are by a field of their own is told apart as well.
fn telling(request: &Request) -> Vec<(Vec<u8>, &[u8])> {
    let bytes = request.bytes();
    let headers = request.head.headers.iter();
    let fields = headers.map(|header| {
        let name = header.name.of(bytes).to_ascii_lowercase();
        (name, header.value.of(bytes))
    });
    let mut fields: Vec<_> = fields
        .filter(|(name, _)| !is_of_one_request(name))
        .collect();
    fields.sort();
    fields
}

/// Whether a field belongs to one request rather than to who sends it; the name is in lower case.
fn is_of_one_request(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"accept",
        b"cache-control",
        b"connection",
        b"dnt",
        b"host",
        b"keep-alive",
        b"origin",
        b"pragma",
        b"priority",
        b"purpose",
        b"range",
        b"referer",
        b"te",
        b"upgrade-insecure-requests",
    ];
    const PREFIXES: [&[u8]; 4] = [b"accept-", b"content-", b"if-", b"sec-"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Takes in what the answer to `request` that begins with `head` names. Does not wait: the files are
/// opened beside the answer.
pub fn take(
    head: &Head,
    request: &Request,
    client: &Client,
    proxy: &Arc<Proxy>,
    worker: &Rc<Worker>,
) {
    let is_good = (200..400).contains(&head.status) && head.fields.value("set-cookie").is_none();
    for value in &head.preload {
        let naming = Naming {
            value: value.clone(),
            proxy: proxy.clone(),
            since: Instant::now(),
        };
        match (naming.read(), worker.openings.clone().try_acquire_owned()) {
            (Err(reject), _) => naming.tell(reject.reason),
            (Ok(_), _) if proxy.temporary_roots.is_empty() => {
                naming.tell("the upstream has no `temporary_roots`");
            }
            (Ok(_), Err(_)) => naming.tell("too many are on their way to be opened"),
            (Ok(preload), Ok(slot)) => {
                let key = || key(request, client, proxy, preload.target);
                let key = is_good.then(key).flatten();
                let worker = worker.clone();
                task::spawn_local(async move {
                    if let Err(reason) = naming.follow(key, &worker).await {
                        naming.tell(&reason);
                    }
                    drop(slot);
                });
            }
        }
    }
}

/// What an application has said of one content.
struct Naming {
    value: Vec<u8>,
    proxy: Arc<Proxy>,
    since: Instant,
}

impl Naming {
    fn read(&self) -> Result<Preload<'_>, Reject> {
        sendfile_header::preload(&self.value)
    }

    fn tell(&self, reason: &str) {
        let (name, value) = (&self.proxy.upstream.settings.name, shown(&self.value));
        diagnostics::log(format_args!(
            "upstream {name}: X-Sendfile-Preload: {value}: {reason}"
        ));
    }

    /// Opens the file, which removes its name, and keeps it under `key`. Without a key nobody may have it, and
    /// only its name goes: nobody else would remove it.
    async fn follow(&self, key: Option<Box<[u8]>>, worker: &Rc<Worker>) -> Result<(), String> {
        let preload = self.read().map_err(|reject| reject.reason)?;
        let service = worker.service();
        let mut trace = Trace::new(self.since, None);
        let lookups = Cell::default();
        let mut disk = DiskClient::new(worker, &service, 0, &lookups, &mut trace);
        let (beneath, opened) = self.open(&preload, &mut disk).await?;
        if let Some(key) = key {
            let etag = worker.service().config.server.etag;
            let entry = Arc::new(entry(&preload, &beneath.path, opened.file, etag));
            worker.preload.keep(key, entry, self.since + preload.ttl);
        }
        Ok(())
    }

    /// The first that exists beneath one of the roots.
    async fn open(
        &self,
        preload: &Preload<'_>,
        disk: &mut DiskClient<'_>,
    ) -> Result<(Beneath, Opened), String> {
        let mut reason = "not beneath any of `temporary_roots`".to_owned();
        root::attend(&self.proxy.temporary_roots, disk).await;
        for beneath in root::beneath(&self.proxy.temporary_roots, &preload.path) {
            match beneath.open(false, root::Name::Goes, disk).await {
                Ok(opened) => return Ok((beneath, opened)),
                Err(error) => {
                    reason = beneath.explain(&error, &preload.path);
                    if !root::is_absent(&error) {
                        break;
                    }
                }
            }
        }
        Err(reason)
    }
}

/// What is said of `file`. Not when it was modified: that may lie in the same second as what the
/// application itself has answered to the same target before.
fn entry(preload: &Preload<'_>, path: &[u8], file: Arc<OpenFile>, etag: Etag) -> Entry {
    let form = entry::Form {
        name: path,
        coding: None,
        varies: false,
        etag,
    };
    let mut entry = entry::entry(form, file.meta(), false, Content::File(file));
    let by_name = mime::of(path).as_bytes();
    let mut fields = Fields::default();
    fields.add("Content-Type", preload.media_type.unwrap_or(by_name));
    fields.add("ETag", entry.etag.as_bytes());
    // It is one principal's, for now.
    fields.add("Cache-Control", b"private, no-cache");
    fields.add("Accept-Ranges", b"bytes");
    entry.fields = fields;
    entry.modified = None;
    entry
}
