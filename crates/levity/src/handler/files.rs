//! Handlers that serve files.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use levity_config::UploadMethod;
use levity_disk::{OpenFile, Ready};
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;
use levity_wire::http1::Method;
use levity_wire::mime;
use levity_wire::path::file_name;

use super::chain::{Asked, Decision, Handler, Internal, OtherName, Waiting, Waits};
use super::{Handling, NewTarget, Outcome, explain, target_for};
use crate::explanation::{Explanation, Topic};
use crate::files::cache::EntryRef;
use crate::http::error::{self, error};
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::servable;
use crate::resolve::servable::object::ServableFile;
use crate::resolve::{self, Found, Named};
use crate::respond;
use crate::route::{Files, Location, Sought};
use crate::worker::Worker;

/// Serves a file or a directory; the last handler of a location.
impl Handler for Arc<Files> {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        cx.file_in_memory(asked.request, asked.location(), self)
    }

    /// The search and what was found are explained where that is known.
    fn explain(&self, _: &Outcome<'_>, _: &Client, _: &Explanation) {}

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::File(self)
    }

    fn for_other_name(&self, asked: &Request, _: bool) -> OtherName {
        OtherName::End(refusal_of_file(asked, self))
    }
}

impl Waits for Arc<Files> {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.files(asked.request, asked.location(), self))
    }
}

/// Searches a file that is not in memory.
struct Search;

impl Waits for Search {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.file_on_disk(asked.request, asked.location()))
    }
}

impl<'a> Handling<'a> {
    /// Sends a file that is fresh in memory as it is. Everything else waits, or may have to.
    fn file_in_memory(
        &mut self,
        request: &Request,
        location: &'a Location,
        files: &'a Arc<Files>,
    ) -> Decision<'a> {
        let (named, at) = (named(request, files), (location, &**files));
        // Before the look into the cache, which counts the request: who waits looks once more.
        if !self.may_be_in_memory(request, at, named) || !self.sends_as_it_is(files) {
            return Decision::Wait(files);
        }
        let found = match self.known(request, files, named) {
            None => return Decision::Wait(&Search),
            Some(Ok(Found::Directory(_))) => return Decision::Wait(files),
            Some(Ok(Found::File(cached, ready))) => Ok((cached, ready)),
            Some(Err(error)) => Err(error),
        };
        self.disk.trace.enter(Step::Respond);
        let file = match found {
            Ok(found) => self.servable(request, at, named, found),
            Err(error) => return failed(self.worker, files, request, &error).into(),
        };
        Decision::Now(match file {
            Ok(file) => Outcome::Response(respond::file::file(request, file)),
            Err(elsewhere) => elsewhere,
        })
    }

    /// Whether all that is to be known about a request is what `named` leads to.
    fn may_be_in_memory(
        &self,
        request: &Request,
        (location, files): (&Location, &Files),
        named: Named<'_>,
    ) -> bool {
        matches!(request.head.method, Method::Get | Method::Head)
            && self.body.is_complete()
            && self.worker.explanation.is_none()
            && !request.has_encoded_slash
            && files.shows(named.path)
            && !is_folder_without_slash(request, named)
            && !location.may_be_form(&request.path)
    }

    /// The outcome of a request for what [`file_in_memory`](Self::file_in_memory) has not found.
    async fn file_on_disk(&mut self, request: &Request, location: &'a Location) -> Outcome<'a> {
        let files = location.files.as_deref();
        let files = files.expect("the location has the files of its handler");
        let (named, at) = (named(request, files), (location, files));
        let found = self.search(request, at, named).await;
        self.disk.trace.enter(Step::Respond);
        self.outcome_of_search(request, at, named, found).await
    }

    async fn files(
        &mut self,
        request: &Request,
        location: &'a Location,
        files: &Files,
    ) -> Outcome<'a> {
        if let Some(refusal) = refused_method(request.head.method) {
            self.explain_refusal(explain::METHODS_OF_FILES);
            return Outcome::Response(self.refuse(refusal).await);
        }
        match self.file(request, location, files).await {
            // Where the request goes on, somebody may want its body.
            Outcome::Response(response) => {
                let dropped = self.drop_body(false).await;
                Outcome::Response(dropped.err().unwrap_or(response))
            }
            elsewhere => elsewhere,
        }
    }

    async fn file(
        &mut self,
        request: &Request,
        location: &'a Location,
        files: &Files,
    ) -> Outcome<'a> {
        if request.head.method == Method::Options {
            return Outcome::Response(respond::options());
        }
        if request.has_encoded_slash {
            return Outcome::Response(error(400, "escaped slash in the path"));
        }
        let named = named(request, files);
        if !files.shows(named.path) {
            self.explain_hidden(files, named.path);
            return Outcome::Response(error(404, ""));
        }
        // Boxed: few requests are for such a name.
        if location.may_be_form(&request.path)
            && let Some(refusal) = Box::pin(self.refusal_of_originals(request, location)).await
        {
            return Outcome::Response(refusal);
        }
        let at = (location, files);
        let found = self.resolve(request, at, named).await;
        self.outcome_of_search(request, at, named, found).await
    }

    async fn outcome_of_search(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        named: Named<'_>,
        found: io::Result<Found>,
    ) -> Outcome<'a> {
        let at = (location, files);
        let file = match found {
            Ok(Found::File(..)) if is_folder_without_slash(request, named) => {
                return self.to_folder(request, location);
            }
            Ok(Found::File(cached, ready)) => self.servable(request, at, named, (cached, ready)),
            Ok(Found::Directory(directory)) => {
                return Box::pin(self.folder(request, at, directory)).await;
            }
            Err(error) => {
                return Outcome::Response(failed(self.worker, files, request, &error));
            }
        };
        match file {
            Ok(file) => {
                let response = self.file_response(request, (files, named.path), file);
                Outcome::Response(response.await)
            }
            Err(elsewhere) => elsewhere,
        }
    }

    /// Has the client ask for a folder by its path with a slash, which relative links need.
    ///
    /// A rule may have led here from a name that is not that of the folder, or that no rule has with a slash. Then nobody knows whether
    /// that name with a slash leads here too, and the client may not know the path of the folder: the request goes on as one for the
    /// folder.
    pub(super) fn to_folder(&self, request: &Request, location: &Location) -> Outcome<'a> {
        let (sent, query) = request.sent_path_and_query();
        let leads_nowhere = || {
            let rules = self.rules(request, location);
            request.is_rewritten() && rules.has_route_only_without_slash(sent)
        };
        if file_name(sent) == file_name(&request.path) && !leads_nowhere() {
            if let Some(explanation) = &self.worker.explanation {
                explanation.add(
                    Topic::Handler,
                    "redirects to the path with a slash at its end: it is that of a folder, in which relative links begin",
                );
            }
            return Outcome::Response(respond::redirect::to_directory(sent, query));
        }
        Outcome::Rewritten(NewTarget {
            target: target_for(&with_slash(&request.path), request),
            may_be_internal: location.internal,
            by_rule: true,
        })
    }

    /// The response for a directory without index.
    pub(super) async fn folder(
        &mut self,
        request: &Request,
        at: (&'a Location, &Files),
        directory: Arc<OpenFile>,
    ) -> Outcome<'a> {
        Outcome::Response(if !request.names_directory() {
            let name = with_slash(&request.path);
            match self.rules(request, at.0).is_internal(&name) {
                true => error(404, ""),
                false => return self.to_folder(request, at.0),
            }
        } else if at.1.listing {
            self.listing(request, at, directory).await
        } else {
            error(403, "listing is off for this directory")
        })
    }

    /// The file that the search for `named` at a location has found, to be sent; or the outcome if it belongs elsewhere.
    pub(super) fn servable(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        named: Named<'_>,
        found: (Rc<EntryRef>, Option<(u64, Ready)>),
    ) -> Result<ServableFile, Outcome<'a>> {
        let rules = || self.rules(request, location);
        let what = (named.asked, &files.index[..]);
        if self.worker.explanation.is_some() {
            let name = servable::name_of(named.asked, &files.index, found.0.led);
            self.explain_found(request, location, (&name, Sought::File));
        }
        servable::servable(found, request, what, rules)
            .map_err(|elsewhere| self.move_to(request, elsewhere))
    }

    /// Says which rules what was found at `name` has, if the request is only explained.
    pub(super) fn explain_found(
        &self,
        request: &Request,
        location: &'a Location,
        (name, sought): (&[u8], Sought),
    ) {
        if let Some(explanation) = &self.worker.explanation
            && *name != *request.path
        {
            self.rules(request, location)
                .explain(name, sought, explanation);
        }
    }

    /// Whether all files are sent without a digest of their content, and in no other form.
    fn sends_as_it_is(&self, files: &Files) -> bool {
        let has_digests = files.digests.is_some() || self.service.content_etags().is_some();
        files.variants.is_none() && !has_digests
    }

    fn needs_digests(&self, files: &Files, cached: &EntryRef) -> bool {
        files.digests.is_some() || self.lacks_content_etag(cached)
    }

    pub(super) async fn file_response(
        &mut self,
        request: &Request,
        (files, path): (&Files, &[u8]),
        file: ServableFile,
    ) -> Response {
        // The cache trusts a variant on a file system that may block, even after its read has failed.
        let variants = files.variants.as_ref().filter(|_| !self.is_replacing);
        if self.needs_digests(files, file.cached()) {
            // Boxed: few configurations have digests.
            return Box::pin(self.with_digests(request, (files, path), variants, file)).await;
        }
        match variants {
            Some(variants) => {
                self.in_kept_form(request, (files, path), variants, file)
                    .await
            }
            None => respond::file::file(request, file),
        }
    }

    pub(super) async fn resolve(
        &mut self,
        request: &Request,
        at: (&'a Location, &Files),
        named: Named<'_>,
    ) -> io::Result<Found> {
        let found = match self.known(request, at.1, named) {
            Some(found) => found,
            // Boxed: what is in memory does not need it.
            None => Box::pin(self.search(request, at, named)).await,
        };
        self.disk.trace.enter(Step::Respond);
        if let Some(explanation) = &self.worker.explanation {
            explain::search(at.1, named.path, &found, explanation);
        }
        found
    }

    /// What is known of `named`; `None` if it has to be searched.
    fn known(
        &mut self,
        request: &Request,
        files: &Files,
        named: Named<'_>,
    ) -> Option<io::Result<Found>> {
        let trace = &mut self.disk.trace;
        trace.enter(Step::Resolve);
        let now = trace.step_began();
        self.disk.use_options(files.read_options, files.chunk_bytes);
        resolve::known(self.worker, files, request, named, now)
    }

    /// Searches what is not [known](Self::known).
    async fn search(
        &mut self,
        request: &Request,
        (location, files): (&'a Location, &Files),
        named: Named<'_>,
    ) -> io::Result<Found> {
        let (worker, now) = (self.worker, self.disk.trace.step_began());
        let (rules, _, disk) = self.searching(request, location);
        let transform = |name: &[u8]| location.filters.transform(request, mime::of(name));
        let is_folder = named.path.is_empty() || named.path.ends_with(b"/");
        let is_transformed = match is_folder {
            true => files.index.iter().any(|index| transform(index)),
            false => transform(named.path),
        };
        if is_transformed {
            disk.take_no_pipes();
        }
        resolve::search(worker, files, request, named, (rules, now), disk).await
    }

    /// Says why `path`, relative to the root, is not looked for.
    pub(super) fn explain_hidden(&self, files: &Files, path: &[u8]) {
        if let Some(explanation) = &self.worker.explanation {
            explain::hidden(files, path, explanation);
        }
    }
}

/// What `request` names among `files`.
fn named<'r>(request: &'r Request, files: &'r Files) -> Named<'r> {
    Named {
        key: &request.key,
        asked: &request.path,
        path: files.beneath(&request.path),
    }
}

/// Whether `named` is the root of a location without its slash, because all of the path is stripped: links in what is there
/// would lead elsewhere.
pub(super) fn is_folder_without_slash(request: &Request, named: Named<'_>) -> bool {
    named.path.is_empty() && *named.asked == *request.path && !request.names_directory()
}

/// Methods that files do not support.
pub(super) fn refused_method(method: Method) -> Option<Response> {
    match method {
        Method::Get | Method::Head | Method::Options => None,
        Method::Unknown => Some(error(501, "unknown method")),
        _ => Some(error(405, "")),
    }
}

/// The method of `request` if it may write here.
pub(super) fn written(request: &Request) -> Option<UploadMethod> {
    match request.method() {
        b"PUT" => Some(UploadMethod::Put),
        b"DELETE" => Some(UploadMethod::Delete),
        b"MKCOL" => Some(UploadMethod::Mkcol),
        _ => None,
    }
}

/// What keeps a request for another name, `asked`, from `files`.
pub(super) fn refusal_of_file(asked: &Request, files: &Files) -> Option<Response> {
    if written(asked).is_some() {
        return Some(error(405, ""));
    }
    let shows = files.shows(files.beneath(&asked.path));
    (!shows).then(|| error(404, ""))
}

/// The response to a failed file operation. Logs failures that need the operator's attention.
pub(super) fn failed(
    worker: &Worker,
    files: &Files,
    request: &Request,
    error: &io::Error,
) -> Response {
    let response = error::from_io(error);
    let path = String::from_utf8_lossy(&request.path);
    let root = files.root.last();
    let root = root.path().display();
    if let Some(explanation) = &worker.explanation {
        explanation.set_reason(explain::failure(error));
        // Nobody made this request, so that there is nothing to log.
        return response;
    }
    if levity_disk::left_root(error) {
        diagnostics::log(format_args!(
            "refused {path}: a symbolic link leaves {root}; \
             `symlinks = \"follow\"` on its site or route in a configuration file allows that"
        ));
    } else if response.status >= 500 {
        worker.core.disk_failed(error, || {
            format!("cannot serve {path} beneath {root}: {error}")
        });
    }
    response
}

fn with_slash(path: &[u8]) -> Vec<u8> {
    [path, b"/"].concat()
}
