//! Preloaded content: a response of an application names files for the next requests of the same client, and
//! those requests are served from the files without the application.
//!
//! The header is `X-Sendfile-Preload: TARGET FILE ttl=SECONDS [type=MEDIA-TYPE]`, on any response, once per
//! target. FILE is below one of `temporary_roots`. It is opened and its name removed when the header arrives;
//! the content is dropped when its time is over.
//!
//! A request gets it only from the same principal: the same upstream, host and client address, and the same
//! headers except those that browsers vary between requests. Cookie or Authorization must be among them,
//! because several users may share an address. Requests that a browser makes for a page of another site go to
//! the application, which may refuse them. A response that sets a cookie preloads nothing: the next request
//! may come from another principal.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{OpenFile, Opened};
use levity_wire::Reject;
use levity_wire::http1::Method;
use levity_wire::mime;
use levity_wire::sendfile_header::{self, Preload};

use super::escaped;
use super::root::{self, Beneath};
use crate::files::cache;
use crate::files::disk_client::DiskClient;
use crate::files::entry::{self, Content, Entry};
use crate::http::response::Response;
use crate::loop_core;
use crate::message::client::Client;
use crate::message::fields::Fields;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::respond::file;
use crate::stores::preloads::PreloadStore;
use crate::upstream::codec::head::Head;
use crate::upstream::proxy::Proxy;
use crate::worker::Worker;
use levity_config::Etag;
use levity_telemetry::diagnostics;
use levity_telemetry::stall;
use levity_telemetry::trace::Trace;

/// The maximum size of a key. Content with a longer key is not stored.
const KEY_BYTES_MAX: usize = 8 * 1024;

/// The response to `request` for `target`, if it was preloaded for its client.
pub fn response(
    request: &Request,
    target: &[u8],
    client: &Client,
    proxy: &Proxy,
) -> Option<Response> {
    let store = proxy.preloads.as_ref()?;
    let now = stall::poll_start();
    let is_read = matches!(request.head.method, Method::Get | Method::Head) && !request.has_body();
    if !is_read || store.is_empty(now) || is_of_another_site(request) {
        return None;
    }
    let entry = store.entry(&key(request, client, proxy, target)?, now)?;
    let cached = cache::Cache::uncached(entry);
    let file = ServableFile::named_on_purpose(cached, None);
    Some(file::file(request, file))
}

/// Whether a browser sends the request for a page of another site, according to `Sec-Fetch-Site` or `Origin`
/// (RFC 6454, 7).
fn is_of_another_site(request: &Request) -> bool {
    let is_own = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let mut sites = request.headers_named("sec-fetch-site");
    let mut origins = request.headers_named("origin");
    !sites.all(is_own) || !origins.all(|origin| is_at(origin, request.host()))
}

/// Whether an origin has this host, with any scheme.
fn is_at(origin: &[u8], host: &[u8]) -> bool {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let mut named = schemes
        .iter()
        .filter_map(|scheme| origin.strip_prefix(*scheme));
    named.any(|named| named.eq_ignore_ascii_case(host))
}

/// The principal and the target as one key; `None` if the request has no credentials.
fn key(request: &Request, client: &Client, proxy: &Proxy, target: &[u8]) -> Option<Box<[u8]>> {
    let mut key = Vec::with_capacity(256);
    let mut add = |part: &[u8]| {
        // The length prefix keeps the encoding of the parts unambiguous.
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    };
    add(&proxy.upstream.number.to_le_bytes());
    add(client.ip?.to_string().as_bytes());
    add(request.host());
    add(target);
    let has_credentials = ["cookie", "authorization"]
        .iter()
        .any(|name| request.header(name).is_some());
    for (name, value) in identifying_headers(request) {
        add(&name);
        add(value);
    }
    (has_credentials && key.len() <= KEY_BYTES_MAX).then(|| key.into_boxed_slice())
}

/// The headers that may identify the client, sorted: all except those that a browser varies between a page
/// and its resources. So a client that authenticates by a header of its own is identified too.
fn identifying_headers(request: &Request) -> Vec<(Vec<u8>, &[u8])> {
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

/// Whether a header varies between requests of one client; the name is in lower case.
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

/// Opens the files that the response `head` to `request` preloads. Does not wait: the files are opened in
/// tasks of their own.
pub fn take(
    head: &Head,
    request: &Request,
    client: &Client,
    proxy: &Arc<Proxy>,
    worker: &Rc<Worker>,
) {
    let is_good = (200..400).contains(&head.status) && head.fields.value("set-cookie").is_none();
    for value in &head.preload {
        let header = PreloadHeader {
            value: value.clone(),
            proxy: proxy.clone(),
            since: Instant::now(),
        };
        match (header.read(), &proxy.preloads) {
            (Err(reject), _) => header.log(reject.reason),
            (Ok(_), None) => header.log("the upstream has no `temporary_roots`"),
            (Ok(preload), Some(store)) => {
                let key = || key(request, client, proxy, preload.target);
                let key = is_good.then(key).flatten();
                let (store, worker) = (store.clone(), worker.clone());
                loop_core::spawn(async move {
                    if let Err(reason) = header.load(key, &store, &worker).await {
                        header.log(&reason);
                    }
                });
            }
        }
    }
}

/// One X-Sendfile-Preload header.
struct PreloadHeader {
    value: Vec<u8>,
    proxy: Arc<Proxy>,
    since: Instant,
}

impl PreloadHeader {
    fn read(&self) -> Result<Preload<'_>, Reject> {
        sendfile_header::preload(&self.value)
    }

    fn log(&self, reason: &str) {
        let (name, value) = (&self.proxy.upstream.settings.name, escaped(&self.value));
        diagnostics::log(format_args!(
            "upstream {name}: X-Sendfile-Preload: {value}: {reason}"
        ));
    }

    /// Opens the file, which removes its name, and stores it under `key`. Without a key the content is
    /// dropped, but the name is still removed, since nothing else would do so.
    async fn load(
        &self,
        key: Option<Box<[u8]>>,
        store: &PreloadStore,
        worker: &Worker,
    ) -> Result<(), String> {
        let Some(_permit) = self.proxy.upstream.preload_limit.try_take() else {
            return Err("too many are on their way to be opened".to_owned());
        };
        let preload = self.read().map_err(|reject| reject.reason)?;
        let service = worker.service();
        let mut trace = Trace::new(self.since, None);
        let lookups = Cell::default();
        let mut disk = DiskClient::new(&worker.core, &service.own, 0, &lookups, &mut trace);
        let (beneath, opened) = self.open(&preload, &mut disk).await?;
        if let Some(key) = key {
            let etag = worker.service().config.server.etag;
            let entry = Arc::new(entry(&preload, &beneath.path, opened.file, etag));
            store.keep(key, entry, self.since + preload.ttl);
        }
        Ok(())
    }

    /// The first existing file below one of the roots.
    async fn open(
        &self,
        preload: &Preload<'_>,
        disk: &mut DiskClient<'_>,
    ) -> Result<(Beneath, Opened), String> {
        let mut reason = "not beneath any of `temporary_roots`".to_owned();
        root::ensure_checked(&self.proxy.temporary_roots, disk).await;
        for beneath in root::beneath(&self.proxy.temporary_roots, &preload.path) {
            match beneath.open(false, root::Name::Remove, disk).await {
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

/// The entry of `file`. It has no Last-Modified: the application's own response to the same target may be
/// from the same second.
fn entry(preload: &Preload<'_>, path: &[u8], file: Arc<OpenFile>, etag: Etag) -> Entry {
    let form = entry::Form {
        name: path,
        coding: None,
        varies: false,
        etag,
        original: None,
    };
    let mut entry = entry::entry(form, file.meta(), false, Content::File(file));
    let by_name = mime::of(path).as_bytes();
    let mut fields = Fields::default();
    fields.add("Content-Type", preload.media_type.unwrap_or(by_name));
    fields.add("ETag", entry.etag.as_bytes());
    // The content belongs to one principal, for a limited time.
    fields.add("Cache-Control", b"private, no-cache");
    fields.add("Accept-Ranges", b"bytes");
    entry.fields = fields;
    entry.modified = None;
    entry
}

#[cfg(test)]
mod tests {
    use crate::rig::{Backend, Rig, settle};

    /// A request whose response preloads a file with this name; returns once it has been served.
    async fn preload(rig: &Rig, app: &Backend, name: &str) {
        let path = rig.root.path().join(name);
        std::fs::write(&path, "content").expect("a file");
        let mut client = rig.client(4096);
        let request = "GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.send(request).await;
        let (mut backend, _) = app.asked().await;
        let header = format!("X-Sendfile-Preload: /next {} ttl=9", path.display());
        backend
            .send(format!("HTTP/1.1 204 No Content\r\n{header}\r\n\r\n"))
            .await;
        client.rest().await;
        client.close().await;
    }

    #[test]
    fn no_more_files_are_opened_at_a_time_than_the_limit() {
        let (rig, app) = Rig::proxy("temporary_roots = [\"{root}\"]\n");
        let service = rig.worker.service();
        let limit = &service.upstreams[0].preload_limit;
        let mut permits: Vec<_> = (0..).map_while(|_| limit.try_take()).collect();
        let exists = |name| rig.root.path().join(name).exists();
        rig.run(async {
            preload(&rig, &app, "first").await;
            permits.pop();
            for name in ["second", "third"] {
                preload(&rig, &app, name).await;
                // The open removes the name.
                while exists(name) || limit.try_take().is_none() {
                    settle().await;
                }
            }
            assert!(exists("first"));
        });
        rig.assert_idle();
    }
}
