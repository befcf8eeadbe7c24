//! Handlers that serve files.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, Ready};
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;
use levity_wire::http1::Method;
use levity_wire::path::file_name;

use super::{Handling, NewTarget, Outcome, explain, target_for};
use crate::explanation::Topic;
use crate::files::cache::EntryRef;
use crate::files::scripts::PathKind;
use crate::http::error::{self, error};
use crate::http::response::Response;
use crate::message::request::Request;
use crate::resolve::servable;
use crate::resolve::servable::object::ServableFile;
use crate::resolve::{self, Found, Named};
use crate::respond;
use crate::route::{Candidate, FileStep, Files, Location, Sought};
use crate::worker::Worker;

impl<'a> Handling<'a> {
    /// Serves a file or a directory; the last handler of a location.
    pub(super) async fn files(
        &mut self,
        request: &Request,
        location: &'a Location,
        files: &Files,
    ) -> Outcome<'a> {
        if let Some(refusal) = refused_method(request.head.method) {
            self.explain_refusal(explain::METHODS_OF_FILES);
            return Outcome::Response(Box::pin(self.refuse(refusal)).await);
        }
        let rest = match self.file(request, location, files).await {
            // Where the request goes on, somebody may want its body. Boxed: such a request rarely has one.
            Outcome::Response(response) if !self.body.is_complete() => {
                Box::pin(self.without_body(response))
            }
            outcome => return outcome,
        };
        Outcome::Response(rest.await)
    }

    /// The response to a request whose body nobody reads, or to an error of that.
    async fn without_body(&mut self, response: Response) -> Response {
        let dropped = self.drop_body(false).await;
        dropped.err().unwrap_or(response)
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
        let named = Named {
            key: &request.key,
            asked: &request.path,
            path: files.beneath(&request.path),
        };
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
        let file = match self.resolve(request, at, named).await {
            Ok(Found::File(..)) if is_folder_without_slash(request, named) => {
                return self.to_folder(request, location);
            }
            Ok(Found::File(cached, ready)) => {
                let file = match self.servable(request, at, named, (cached, ready)) {
                    Ok(file) => file,
                    Err(elsewhere) => return elsewhere,
                };
                if self.sends_as_it_is(files, file.cached()) {
                    return Outcome::Response(respond::file::file(request, file));
                }
                file
            }
            Ok(Found::Directory(directory)) => {
                return Box::pin(self.folder(request, at, directory)).await;
            }
            Err(error) => {
                return Outcome::Response(failed(self.worker, files, request, &error));
            }
        };
        let response = self.file_response(request, (files, named.path), file);
        Outcome::Response(response.await)
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
    async fn folder(
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
    fn servable(
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

    /// Whether a file is sent without a digest of its content, and in no other form.
    fn sends_as_it_is(&self, files: &Files, cached: &EntryRef) -> bool {
        files.variants.is_none() && !self.needs_digests(files, cached)
    }

    fn needs_digests(&self, files: &Files, cached: &EntryRef) -> bool {
        files.digests.is_some() || self.lacks_content_etag(cached)
    }

    async fn file_response(
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
        (location, files): (&'a Location, &Files),
        named: Named<'_>,
    ) -> io::Result<Found> {
        let trace = &mut self.disk.trace;
        trace.enter(Step::Resolve);
        let now = trace.step_began();
        self.disk.use_options(files.read_options, files.chunk_bytes);
        let worker = self.worker;
        let found = match resolve::known(worker, files, request, named, now) {
            Some(found) => found,
            None => {
                let (rules, _, disk) = self.searching(request, location);
                let by = (rules, now);
                // Boxed: a cache hit does not need it.
                Box::pin(resolve::search(worker, files, request, named, by, disk)).await
            }
        };
        self.disk.trace.enter(Step::Respond);
        if let Some(explanation) = &self.worker.explanation {
            explain::search(files, named.path, &found, explanation);
        }
        found
    }

    /// Says why `path`, relative to the root, is not looked for.
    fn explain_hidden(&self, files: &Files, path: &[u8]) {
        if let Some(explanation) = &self.worker.explanation {
            explain::hidden(files, path, explanation);
        }
    }

    /// Serves the file or folder of a step of `try` if it exists; otherwise continues with the next handler.
    pub(super) async fn existing_file(
        &mut self,
        request: &Request,
        location: &'a Location,
        step: &FileStep,
    ) -> Outcome<'a> {
        // An upstream may want the body.
        let may_have_body = location.proxy.is_none();
        let may_be_file = matches!(request.head.method, Method::Get | Method::Head)
            && (may_have_body || !request.has_body());
        let is_fixed = matches!(step.candidate, Candidate::At(_));
        if self.script.is_some() || !may_be_file || (request.has_encoded_slash && !is_fixed) {
            return Outcome::Next;
        }
        let Some(path) = step.candidate.path(&request.path) else {
            return Outcome::Next;
        };
        let key = request.key_of(&path);
        let named = Named {
            key: &key,
            asked: &path,
            path: step.files.beneath(&path),
        };
        if !step.files.shows(named.path) {
            self.explain_hidden(&step.files, named.path);
            return Outcome::Next;
        }
        if *path == *request.path
            && location.may_be_form(&request.path)
            && let Some(refusal) = Box::pin(self.refusal_of_originals(request, location)).await
        {
            return Outcome::Response(refusal);
        }
        let at = (location, &*step.files);
        let found = self.resolve(request, at, named).await;
        let outcome = self
            .outcome_of_step(request, (location, step), named, found)
            .await;
        self.served_key = key;
        self.sends_page =
            is_fixed && path != request.path && matches!(outcome, Outcome::Response(_));
        outcome
    }

    /// The path of the page of `try` that is sent in place of what `request` names, and the location of a request for that page, if
    /// it has the same files. How long the page may be kept is said there: the name that it stands in for may exist later.
    pub fn page_sent<'s>(
        &'s self,
        request: &'s Request,
        location: &'a Location,
    ) -> Option<(&'s [u8], &'a Location)> {
        if !self.sends_page {
            return None;
        }
        let page = request.path_of(&self.served_key);
        let of_page = self.rules(request, location).with_files_of(page);
        Some((page, of_page))
    }

    async fn outcome_of_step(
        &mut self,
        request: &Request,
        (location, step): (&'a Location, &FileStep),
        named: Named<'_>,
        found: io::Result<Found>,
    ) -> Outcome<'a> {
        let files = &*step.files;
        let is_folder = matches!(step.candidate, Candidate::Folder);
        let lacks_slash = is_folder && !request.names_directory();
        let kind = match found {
            Ok(Found::File(..)) if lacks_slash || is_folder_without_slash(request, named) => {
                return self.to_folder(request, location);
            }
            Ok(Found::File(cached, ready)) => {
                let found = (cached, ready);
                return match self.servable(request, (location, files), named, found) {
                    Ok(file) => {
                        let response = self.file_response(request, (files, named.path), file);
                        Outcome::Response(response.await)
                    }
                    Err(elsewhere) => elsewhere,
                };
            }
            Ok(Found::Directory(directory)) if is_folder && files.listing => {
                let folder = self.folder(request, (location, files), directory);
                return Box::pin(folder).await;
            }
            Ok(Found::Directory(_)) => PathKind::Directory,
            Err(error) => match failed(self.worker, files, request, &error) {
                response if response.status == 404 => PathKind::Missing,
                response => return Outcome::Response(response),
            },
        };
        match step.candidate {
            Candidate::File | Candidate::FileOrIndex => self.path_kind = kind,
            Candidate::Folder if kind == PathKind::Directory => self.path_kind = kind,
            _ => {}
        }
        Outcome::Next
    }

    /// Refuses what no file answers, at a location without upstream.
    pub(super) fn refuse_unanswered(request: &Request, status: u16) -> Response {
        match request.head.method {
            Method::Options => respond::options(),
            method => refused_method(method).unwrap_or_else(|| error(status, "")),
        }
    }
}

/// Whether `named` is the root of a location without its slash, because all of the path is stripped: links in what is there
/// would lead elsewhere.
fn is_folder_without_slash(request: &Request, named: Named<'_>) -> bool {
    named.path.is_empty() && *named.asked == *request.path && !request.names_directory()
}

/// Methods that files do not support.
fn refused_method(method: Method) -> Option<Response> {
    match method {
        Method::Get | Method::Head | Method::Options => None,
        Method::Unknown => Some(error(501, "unknown method")),
        _ => Some(error(405, "")),
    }
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
