//! Handlers that serve files.

use std::io;
use std::rc::Rc;

use levity_disk::Ready;
use levity_telemetry::diagnostics;
use levity_telemetry::step::Step;
use levity_wire::http1::Method;

use super::{Handling, Outcome};
use crate::cache::EntryRef;
use crate::http::error::{self, error};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::resolve::{self, Found};
use crate::respond;
use crate::route::{Files, Location};
use crate::scripts::PathKind;
use crate::worker::Worker;

impl<'a> Handling<'a> {
    /// Serves a file or a directory; the last handler of a location.
    pub(super) async fn files(&mut self, request: &Request, files: &Files) -> Outcome<'a> {
        if let Some(refusal) = refused_method(request.head.method) {
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
        if !files.shows(files.beneath(&request.path)) {
            return error(404, "");
        }
        match self.resolve(request, files).await {
            Ok(Found::File(cached, ready)) => {
                self.file_response(request, files, cached, ready).await
            }
            Ok(Found::Directory(directory)) if !request.names_directory() => {
                drop(directory);
                respond::redirect::to_directory(request)
            }
            Ok(Found::Directory(directory)) if files.listing => {
                let entries_max = self.service.config.limits.listing_entries;
                match self.disk.list(directory, entries_max).await {
                    Ok(listing) => respond::listing::listing(&request.path, listing).await,
                    Err(error) => failed(self.worker, files, request, &error),
                }
            }
            Ok(Found::Directory(_)) => error(403, "listing is off for this directory"),
            Err(error) => failed(self.worker, files, request, &error),
        }
    }

    async fn file_response(
        &mut self,
        request: &Request,
        files: &Files,
        cached: Rc<EntryRef>,
        ready: Option<(u64, Ready)>,
    ) -> Response {
        // The cache trusts a variant on a file system that may block, even after its read has failed.
        match files.variants.as_ref().filter(|_| !self.is_replacing) {
            Some(variants) => {
                self.in_kept_form(request, files, variants, (cached, ready))
                    .await
            }
            None => respond::file::file(request, cached, ready),
        }
    }

    async fn resolve(&mut self, request: &Request, files: &Files) -> io::Result<Found> {
        let trace = &mut self.disk.trace;
        trace.enter(Step::Resolve);
        let now = trace.step_began();
        self.disk.use_options_of(files);
        let found = resolve::resolve(self.worker, files, request, now, &mut self.disk).await;
        self.disk.trace.enter(Step::Respond);
        found
    }

    /// Serves a file if it exists; otherwise continues with the next handler.
    pub(super) async fn existing_file(
        &mut self,
        request: &Request,
        location: &Location,
    ) -> Outcome<'a> {
        let Some(files) = location.files.as_ref().filter(|_| self.script.is_none()) else {
            return Outcome::Next;
        };
        let may_be_file = matches!(request.head.method, Method::Get | Method::Head)
            && !request.has_body()
            && !request.has_encoded_slash
            && files.shows(files.beneath(&request.path));
        if !may_be_file {
            return Outcome::Next;
        }
        match self.resolve(request, files).await {
            Ok(Found::File(cached, ready)) => {
                let response = self.file_response(request, files, cached, ready);
                return Outcome::Response(response.await);
            }
            Ok(Found::Directory(_)) => self.path_kind = PathKind::Directory,
            Err(error) => match failed(self.worker, files, request, &error) {
                response if response.status == 404 => self.path_kind = PathKind::Missing,
                response => return Outcome::Response(response),
            },
        }
        Outcome::Next
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
