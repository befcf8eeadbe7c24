//! The X-Sendfile family: an application names files to be sent in place of its response body, or sends the request
//! elsewhere (`reroute.rs`).
//!
//! The backend's connection is released first. Files are opened below a root that is configured, and bypass
//! the caches: applications reuse names, and the earlier file of a name may have belonged to another client.

pub mod completion;
pub mod parts;
pub mod preload;
pub mod receipt;
pub mod reroute;
pub mod root;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{First, Kind, OpenFile, Opened};
use levity_wire::http1::Method;
use levity_wire::path::file_name;
use levity_wire::sendfile_header::{self, Delegation};
use levity_wire::{Reject, date, mime};

use self::completion::CompletionHook;
use self::parts::Parts;
use self::receipt::Receipt;
use self::root::{Beneath, Name};
use crate::files::cache::Cache;
use crate::files::disk_client::{DiskClient, FIRST_BYTES, WHOLE_BYTES};
use crate::files::entry::{self, Content, Entry};
use crate::files::root::SendfileRoot;
use crate::gateway::Fetched;
use crate::http::error;
use crate::http::response::{Body, BodyStream, Response};
use crate::http::send::Sent;
use crate::message::fields::{CONTENT_HEADERS, Fields};
use crate::message::origin::Origin;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::respond::file;
use crate::route::{Files, Rules, Service, Sought};
use crate::upstream::backend::Backend;
use crate::upstream::codec::head::{DelegationHeader, Head};
use crate::upstream::proxy::Proxy;
use crate::worker::Worker;
use levity_config::Etag;
use levity_telemetry::access_log::End;
use levity_telemetry::diagnostics;

/// Headers that describe the discarded body.
const BODY_HEADERS: [&str; 3] = ["Content-Range", "Accept-Ranges", "Content-Length"];

/// The maximum of a header value that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 256;

/// A response of a backend that delegates its body to this server.
pub struct Delegated {
    head: Head,
    header: DelegationHeader,
    /// The origin that the application was requested under.
    origin: Origin,
    proxy: Arc<Proxy>,
    backend: Arc<Backend>,
    /// When the application's response arrived.
    since: Instant,
    /// The source of a file's ETag.
    etag: Etag,
}

/// Removes a file once the client has received all of it.
struct RemoveWhenSent {
    beneath: Beneath,
    file: Arc<OpenFile>,
}

impl CompletionHook for RemoveWhenSent {
    fn completed(self: Box<Self>, worker: &Rc<Worker>, _: &Arc<Service>, sent: &Sent) {
        let is_whole = sent.end == End::Complete && sent.content_bytes >= self.file.meta().size;
        if is_whole {
            self.beneath.remove(&worker.core, self.file);
        }
    }
}

impl Delegated {
    /// Takes a response that contains a delegation. Its body, if any, is discarded, and the backend is free
    /// afterwards.
    pub fn of(fetched: Fetched, proxy: Arc<Proxy>, origin: Origin, etag: Etag) -> Self {
        let Fetched {
            mut head,
            rest,
            backend,
        } = fetched;
        let header = head.delegations.swap_remove(0);
        rest.discard();
        Self {
            head,
            header,
            origin,
            proxy,
            backend,
            since: Instant::now(),
            etag,
        }
    }

    /// The kind of delegation.
    pub fn delegation(&self) -> Delegation {
        self.header.delegation
    }

    /// Whether there is more than one delegation.
    pub fn is_contradictory(&self) -> bool {
        !self.head.delegations.is_empty()
    }

    /// The path or URL in the header.
    pub fn value(&self) -> &[u8] {
        &self.header.value
    }

    /// Logs the reason, and returns an error response; the client sees only the status.
    pub fn refuse(&self, status: u16, reason: impl fmt::Display) -> Response {
        let DelegationHeader { name, value, .. } = &self.header;
        diagnostics::log(format_args!(
            "upstream {}, backend {}: {}: {}: {reason} ({status})",
            self.proxy.upstream.settings.name,
            self.backend.name,
            name.escape_ascii(),
            escaped(value),
        ));
        error::error(status, "")
    }

    /// Adds the application's headers to a response from elsewhere.
    ///
    /// # Errors
    /// An error response, unchanged: the headers describe the delegated content.
    pub fn with_headers(&self, mut response: Response) -> Result<Response, Response> {
        if response.status >= 400 {
            return Err(response);
        }
        let fields = self.own_fields();
        response.merge_base();
        for name in fields.names() {
            response.fields.remove(&name);
        }
        response.has_date |= self.head.has_date;
        response.has_server |= self.head.has_server;
        let except = match response.status {
            304 => CONTENT_HEADERS,
            _ => &[],
        };
        response.fields.extend_except(&fields, except);
        Ok(response)
    }

    /// The receipt for the response to this delegation, if the application has requested one.
    pub fn receipt(&self, subject: receipt::Subject) -> Option<Box<dyn CompletionHook>> {
        let path = self.head.receipt.as_ref()?;
        let (proxy, origin) = (self.proxy.clone(), &self.origin);
        let receipt = Receipt::new(proxy, &self.backend, origin, path, subject, self.since);
        Some(Box::new(receipt))
    }

    /// The application's headers without those that describe its body.
    fn own_fields(&self) -> Fields {
        let mut fields = self.head.fields.clone();
        for name in BODY_HEADERS {
            fields.remove(name);
        }
        fields
    }

    /// Sends the file at `path` of an internal location with these rules.
    ///
    /// # Errors
    /// The error response if there is no such file, or if it cannot be opened.
    pub async fn internal_file(
        &self,
        (files, path, rules): (&Files, &[u8], Rules<'_, '_>),
        request: &Request,
        disk: &mut DiskClient<'_>,
    ) -> Result<Response, Response> {
        disk.use_options(files.read_options, files.chunk_bytes);
        if !files.shows(files.beneath(path)) {
            return Err(self.refuse(404, "names with a leading dot and scripts are not sent"));
        }
        let name = files.beneath(path);
        let other = sendfile_header::utf8_of_latin1(name);
        let other =
            other.filter(|name| rules.suffice_for(&files.path_of(path, name), Sought::File));
        let names = [Some(name.to_vec()), other];
        disk.ensure_checked(&files.root, Instant::now()).await;
        let beneath = |path| Beneath::new(&files.root, path);
        let candidates = names.into_iter().flatten().map(beneath).collect();
        let found = self.first_of(candidates, wants_body(request), disk).await?;
        Ok(self.whole(found, request))
    }

    /// Sends the file at `path` of an internal location that falls back to its upstream; `None` when there is
    /// no such file.
    ///
    /// # Errors
    /// The error response if the file cannot be opened.
    pub async fn file_before(
        &self,
        files: &Files,
        path: &[u8],
        request: &Request,
        disk: &mut DiskClient<'_>,
    ) -> Option<Result<Response, Response>> {
        let name = files.beneath(path);
        if name.is_empty() || !files.shows(name) {
            return None;
        }
        disk.use_options(files.read_options, files.chunk_bytes);
        disk.ensure_checked(&files.root, Instant::now()).await;
        let beneath = Beneath::new(&files.root, name.to_vec());
        let opened = beneath.open(wants_body(request), Name::Keep, disk).await;
        match opened {
            Ok(opened) if opened.file.meta().kind == Kind::Regular => {
                Some(Ok(self.whole(Found { beneath, opened }, request)))
            }
            Ok(_) => None,
            Err(error) if error::from_io(&error).status == 404 => None,
            Err(error) => Some(Err(self.unopened(&beneath, &error))),
        }
    }

    /// Sends the file or files of the delegation. Adds to `hooks` what is done with them afterwards.
    ///
    /// # Errors
    /// The error response if the application may not name the file, or if it cannot be opened.
    pub async fn file(
        &self,
        request: &Request,
        disk: &mut DiskClient<'_>,
        hooks: &mut Vec<Box<dyn CompletionHook>>,
    ) -> Result<Response, Response> {
        disk.use_default_options();
        let roots = match self.header.delegation {
            Delegation::TemporaryFile => &self.proxy.temporary_roots,
            _ => &self.proxy.sendfile_roots,
        };
        root::ensure_checked(roots, disk).await;
        match self.header.delegation {
            Delegation::FileParts => self.parts(disk).await,
            Delegation::TemporaryFile => self.temporary(request, disk, hooks).await,
            _ => self.lasting(request, disk).await,
        }
    }

    /// Opens the file that is the content of a message.
    ///
    /// # Errors
    /// As [`file`](Self::file), and if something else is delegated.
    #[cfg(feature = "mailbox")]
    pub async fn open_for_message(
        &self,
        disk: &mut DiskClient<'_>,
    ) -> Result<Arc<OpenFile>, Response> {
        if self.is_contradictory() || self.delegation() != Delegation::File {
            return Err(self.refuse(502, "the content of a message is one whole file"));
        }
        disk.use_default_options();
        root::ensure_checked(&self.proxy.sendfile_roots, disk).await;
        let candidates = self.candidates(&self.proxy.sendfile_roots, "sendfile_roots")?;
        let found = self.first_of(candidates, false, disk).await?;
        Ok(found.opened.file)
    }

    async fn lasting(
        &self,
        request: &Request,
        disk: &mut DiskClient<'_>,
    ) -> Result<Response, Response> {
        let candidates = self.candidates(&self.proxy.sendfile_roots, "sendfile_roots")?;
        let found = self.first_of(candidates, wants_body(request), disk).await?;
        Ok(self.whole(found, request))
    }

    /// Sends a file that is removed after it has been sent, or as soon as it is open, so that it is gone even
    /// if this server crashes.
    async fn temporary(
        &self,
        request: &Request,
        disk: &mut DiskClient<'_>,
        hooks: &mut Vec<Box<dyn CompletionHook>>,
    ) -> Result<Response, Response> {
        let candidates = self.candidates(&self.proxy.temporary_roots, "temporary_roots")?;
        let found = self.first_of(candidates, wants_body(request), disk).await?;
        if self.proxy.upstream.settings.keep_until_sent {
            hooks.push(Box::new(RemoveWhenSent {
                beneath: found.beneath.clone(),
                file: found.opened.file.clone(),
            }));
        }
        Ok(self.whole(found, request))
    }

    /// The possible paths of the file: as sent, and with its escapes decoded, since applications disagree
    /// about that.
    fn candidates(
        &self,
        roots: &[SendfileRoot],
        key: &'static str,
    ) -> Result<Vec<Beneath>, Response> {
        let path = sendfile_header::file_path(&self.header.value)
            .map_err(|reject| self.refuse(502, reject.reason))?;
        let paths = [Some(Cow::Borrowed(path.raw)), path.decoded.map(Cow::Owned)];
        self.beneath(paths.into_iter().flatten(), roots, key)
    }

    fn beneath<'p>(
        &self,
        paths: impl Iterator<Item = Cow<'p, [u8]>>,
        roots: &[SendfileRoot],
        key: &'static str,
    ) -> Result<Vec<Beneath>, Response> {
        if roots.is_empty() {
            let reason = format_args!("the upstream has no `{key}`");
            return Err(self.refuse(502, reason));
        }
        let found: Vec<_> = paths.flat_map(|path| root::beneath(roots, &path)).collect();
        match found.is_empty() {
            true => Err(self.refuse(502, format_args!("not beneath any of `{key}`"))),
            false => Ok(found),
        }
    }

    /// What happens to the file's name.
    fn name(&self) -> Name {
        match self.header.delegation {
            Delegation::TemporaryFile if self.proxy.upstream.settings.keep_until_sent => {
                Name::RemoveLater
            }
            Delegation::TemporaryFile => Name::Remove,
            _ => Name::Keep,
        }
    }

    /// Opens the first of `candidates` that exists, and reads its first bytes if the open needs a disk trip
    /// anyway.
    async fn first_of(
        &self,
        candidates: Vec<Beneath>,
        wants_body: bool,
        disk: &mut DiskClient<'_>,
    ) -> Result<Found, Response> {
        let name = self.name();
        let mut absent = String::new();
        for beneath in candidates {
            match beneath.open(wants_body, name, disk).await {
                Ok(opened) if opened.file.meta().kind == Kind::Regular => {
                    return Ok(Found { beneath, opened });
                }
                Ok(_) => return Err(self.refuse(502, "not a regular file")),
                Err(error) if root::is_absent(&error) => absent = self.explain(&beneath, &error),
                Err(error) => return Err(self.unopened(&beneath, &error)),
            }
        }
        Err(self.refuse(404, absent))
    }

    /// The response to a file that may exist but cannot be opened.
    fn unopened(&self, beneath: &Beneath, error: &io::Error) -> Response {
        if levity_disk::is_dead(error) {
            // A dead disk is logged once for all requests.
            return error::error(status_of(error), "");
        }
        self.refuse(status_of(error), self.explain(beneath, error))
    }

    fn explain(&self, beneath: &Beneath, error: &io::Error) -> String {
        beneath.explain(error, &self.header.value)
    }

    /// The response with the application's headers and the file's content. Conditions and ranges are
    /// evaluated against the file if the application's response was an ordinary one.
    fn whole(&self, found: Found, request: &Request) -> Response {
        let Found { beneath, opened } = found;
        let cached = Cache::uncached(Arc::new(self.entry(&beneath.path, &opened)));
        let ready = opened.first.map(|ready| (0, ready));
        let is_ordinary = matches!(request.head.method, Method::Get | Method::Head)
            && matches!(self.head.status, 200 | 206);
        let file = ServableFile::named_on_purpose(cached, ready);
        let response = match is_ordinary {
            true => file::file(request, file),
            false => self.with_status(file::whole(file)),
        };
        self.finished(response)
    }

    fn with_status(&self, mut response: Response) -> Response {
        response.status = self.head.status;
        response.reason = self.head.reason.as_slice().into();
        response
    }

    fn finished(&self, mut response: Response) -> Response {
        response.has_date = self.head.has_date;
        response.has_server = self.head.has_server;
        response
    }

    /// The metadata of the file; headers of the application take precedence.
    fn entry(&self, path: &[u8], opened: &Opened) -> Entry {
        let form = entry::Form {
            name: file_name(path),
            coding: None,
            varies: false,
            etag: self.etag,
            original: None,
        };
        let meta = opened.file.meta();
        let content = Content::File(opened.file.clone());
        let settled = opened.stable && entry::is_settled(&meta);
        let mut entry = entry::entry(form, meta, settled, content);
        let mut fields = self.own_fields();
        match fields.value("etag").map(str::from_utf8) {
            Some(Ok(etag)) => entry.etag = etag.to_owned(),
            _ => fields.set("ETag", entry.etag.as_bytes()),
        }
        match fields.value("last-modified").and_then(date::parse) {
            Some(modified) => entry.modified = Some(modified),
            None => {
                fields.remove("last-modified");
                if let Some(modified) = entry.modified {
                    fields.add("Last-Modified", &date::format(modified));
                }
            }
        }
        if fields.value("content-type").is_none() {
            fields.add("Content-Type", mime::of(file_name(path)).as_bytes());
        }
        fields.add("Accept-Ranges", b"bytes");
        entry.fields = fields;
        entry
    }

    /// Sends parts of files as one body, without a validator and without range support.
    async fn parts(&self, disk: &mut DiskClient<'_>) -> Result<Response, Response> {
        let refuse = |reject: Reject| self.refuse(502, reject.reason);
        let ranges = sendfile_header::file_parts(&self.header.value).map_err(refuse)?;
        let roots = &self.proxy.sendfile_roots;
        let mut body = Parts::default();
        for part in ranges {
            let path = std::iter::once(part.path);
            let candidates = self.beneath(path, roots, "sendfile_roots")?;
            // The content is read when it is sent: the beginnings of all parts might need much memory.
            let found = self.first_of(candidates, false, disk).await?;
            let size = found.opened.file.meta().size;
            let end = part.last.map_or(size, |last| last.saturating_add(1));
            if part.first > size || end > size {
                let reason = format_args!("the part ends behind the file, which has {size} bytes");
                return Err(self.refuse(502, reason));
            }
            body.add(found, part.first..end);
        }
        let mut response = self.with_status(Response::new(self.head.status));
        response.fields = self.own_fields();
        if response.fields.value("content-type").is_none() {
            response
                .fields
                .add("Content-Type", b"application/octet-stream");
        }
        response.body = Body::Parts(Box::new(body));
        Ok(self.finished(response))
    }
}

/// The status for a delegation that fails with `error`: 503 for an overloaded disk, which passes; otherwise
/// 502, a mistake of the application.
pub fn status_of(error: &io::Error) -> u16 {
    match error::from_io(error).status {
        503 => 503,
        _ => 502,
    }
}

/// The escaped start of a value for a log line, cut so that the reason fits into the line too.
fn escaped(value: &[u8]) -> String {
    match value.get(..LOGGED_BYTES_MAX) {
        Some(start) if start.len() < value.len() => format!("{}...", start.escape_ascii()),
        _ => value.escape_ascii().to_string(),
    }
}

fn wants_body(request: &Request) -> bool {
    request.head.method != Method::Head
}

/// An open file.
struct Found {
    beneath: Beneath,
    opened: Opened,
}

/// The read that is combined with the open, for a response with a body.
fn first(wants_body: bool) -> Option<First> {
    wants_body.then_some(First {
        offset: 0,
        len: FIRST_BYTES,
        len_max: WHOLE_BYTES - 1,
    })
}
