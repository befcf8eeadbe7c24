//! Handlers that serve files.

use std::io;
use std::rc::Rc;

use levity_disk::Ready;
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;
use levity_wire::http1::Method;

use super::{Handling, Outcome, explain};
use crate::cache::EntryRef;
use crate::http::error::{self, error};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::resolve::{self, Found, Named};
use crate::respond;
use crate::route::{Candidate, FileStep, Files, Location};
use crate::scripts::PathKind;
use crate::worker::Worker;

impl<'a> Handling<'a> {
    /// Serves a file or a directory; the last handler of a location.
    pub(super) async fn files(&mut self, request: &Request, files: &Files) -> Outcome<'a> {
        if let Some(refusal) = refused_method(request.head.method) {
            self.explain_refusal(explain::METHODS_OF_FILES);
            return Outcome::Response(Box::pin(self.refuse(refusal)).await);
        }
        if !self.body.is_complete() {
            // Boxed: such a request rarely has a body.
            if let Err(refusal) = Box::pin(self.drop_body(false)).await {
                return Outcome::Response(refusal);
            }
        }
        Outcome::Response(self.file(request, files).await)
    }

    async fn file(&mut self, request: &Request, files: &Files) -> Response {
        if request.head.method == Method::Options {
            return respond::options();
        }
        if request.has_encoded_slash {
            return error(400, "escaped slash in the path");
        }
        let named = Named {
            key: &request.key,
            path: files.beneath(&request.path),
        };
        if !files.shows(named.path) || self.has_guarded_index(request, files, &request.path) {
            self.explain_hidden(files, named.path);
            return error(404, "");
        }
        match self.resolve(request, files, named).await {
            Ok(Found::File(cached, ready)) if self.sends_as_it_is(files, &cached) => {
                respond::file::file(request, cached, ready)
            }
            Ok(Found::File(cached, ready)) => {
                self.file_response(request, (files, named.path), (cached, ready))
                    .await
            }
            Ok(Found::Directory(directory)) if !request.names_directory() => {
                drop(directory);
                respond::redirect::to_directory(request)
            }
            Ok(Found::Directory(directory)) if files.listing => {
                // Boxed: most requests are for files.
                Box::pin(self.listing(request, files, directory)).await
            }
            Ok(Found::Directory(_)) => error(403, "listing is off for this directory"),
            Err(error) => failed(self.worker, files, request, &error),
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
        (cached, ready): (Rc<EntryRef>, Option<(u64, Ready)>),
    ) -> Response {
        // The cache trusts a variant on a file system that may block, even after its read has failed.
        let variants = files.variants.as_ref().filter(|_| !self.is_replacing);
        if self.needs_digests(files, &cached) {
            // Boxed: few configurations have digests.
            let file = (cached, ready);
            return Box::pin(self.with_digests(request, (files, path), variants, file)).await;
        }
        match variants {
            Some(variants) => {
                self.in_kept_form(request, (files, path), variants, (cached, ready))
                    .await
            }
            None => respond::file::file(request, cached, ready),
        }
    }

    pub(super) async fn resolve(
        &mut self,
        request: &Request,
        files: &Files,
        named: Named<'_>,
    ) -> io::Result<Found> {
        let trace = &mut self.disk.trace;
        trace.enter(Step::Resolve);
        let now = trace.step_began();
        self.disk.use_options_of(files);
        let found = resolve::resolve(self.worker, files, request, named, now, &mut self.disk).await;
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

    /// Whether what lies at `path` is guarded by another location.
    pub(super) fn is_guarded(&self, request: &Request, files: &Files, path: &[u8]) -> bool {
        self.service
            .guards_elsewhere(path, self.route_input(request), files)
    }

    /// Whether an index file of the folder at `path` is guarded by another location: the folder is then not served at all.
    fn has_guarded_index(&self, request: &Request, files: &Files, path: &[u8]) -> bool {
        path.ends_with(b"/")
            && files.index.iter().any(|index| {
                let path = [path, index.as_slice()].concat();
                self.is_guarded(request, files, &path)
            })
    }

    /// Serves the file or folder of a step of `try` if it exists; otherwise continues with the next handler.
    pub(super) async fn existing_file(
        &mut self,
        request: &Request,
        location: &Location,
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
            path: step.files.beneath(&path),
        };
        // The operator has named a fixed file; a client chooses any other.
        let is_other = !is_fixed && *path != *request.path;
        if !step.files.shows(named.path)
            || (is_other && self.is_guarded(request, &step.files, &path))
            || self.has_guarded_index(request, &step.files, &path)
        {
            self.explain_hidden(&step.files, named.path);
            return Outcome::Next;
        }
        let found = self.resolve(request, &step.files, named).await;
        let outcome = self.outcome_of_step(request, step, named, found).await;
        self.served_key = key;
        outcome
    }

    async fn outcome_of_step(
        &mut self,
        request: &Request,
        step: &FileStep,
        named: Named<'_>,
        found: io::Result<Found>,
    ) -> Outcome<'a> {
        let files = &*step.files;
        let is_folder = matches!(step.candidate, Candidate::Folder);
        let kind = match found {
            Ok(Found::File(..)) if is_folder && !request.names_directory() => {
                return Outcome::Response(respond::redirect::to_directory(request));
            }
            Ok(Found::File(cached, ready)) => {
                let response = self.file_response(request, (files, named.path), (cached, ready));
                return Outcome::Response(response.await);
            }
            Ok(Found::Directory(_)) if is_folder && files.listing && !request.names_directory() => {
                return Outcome::Response(respond::redirect::to_directory(request));
            }
            Ok(Found::Directory(directory)) if is_folder && files.listing => {
                let listing = self.listing(request, files, directory);
                return Outcome::Response(Box::pin(listing).await);
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
        worker.disk_failed(error, || {
            format!("cannot serve {path} beneath {root}: {error}")
        });
    }
    response
}
