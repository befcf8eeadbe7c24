//! Handlers that find the script of a request.

use std::io;

use levity_telemetry::step::Step;

use super::files::failed;
use super::{Handling, Outcome};
use crate::http::error::error;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::respond;
use crate::route::{Files, Location};
use crate::script_search::ScriptSearch;
use crate::scripts::{PathKind, Scripts};

impl<'a> Handling<'a> {
    /// Finds the script of a directory whose index names list scripts before files.
    pub(super) async fn index_script(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Outcome<'a> {
        let (files, scripts) = scripts(location);
        let mut search = self.search(location, files);
        match search.locate_before_files(scripts, request).await {
            Ok(script) => self.script = script,
            Err(error) => return self.search_failed(files, request, &error),
        }
        Outcome::Next
    }

    /// Finds the script, unless an earlier handler has found it. Without one the response is 404.
    pub(super) async fn script(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Outcome<'a> {
        if self.script.is_some() {
            return Outcome::Next;
        }
        let (files, scripts) = scripts(location);
        let kind = self.path_kind;
        let mut search = self.search(location, files);
        if kind == PathKind::Directory && !request.names_directory() {
            match search.has_index(scripts, request).await {
                Ok(true) => return Outcome::Response(respond::redirect::to_directory(request)),
                Ok(false) => {}
                Err(error) => return self.search_failed(files, request, &error),
            }
        }
        match search.locate(scripts, request, kind).await {
            Ok(None) => {
                self.explain_refusal("there is no script for the path");
                Outcome::Response(error(404, ""))
            }
            Ok(script) => {
                self.script = script;
                Outcome::Next
            }
            Err(error) => self.search_failed(files, request, &error),
        }
    }

    fn search<'s>(&'s mut self, location: &Location, files: &'s Files) -> ScriptSearch<'s, 'a> {
        self.disk.trace.enter(Step::Resolve);
        let now = self.disk.trace.step_began();
        ScriptSearch::new(location, files, now, &mut self.disk)
    }

    fn search_failed(&self, files: &Files, request: &Request, error: &io::Error) -> Outcome<'a> {
        let response: Response = failed(self.worker, files, request, error);
        Outcome::Response(response)
    }
}

/// The files and scripts of a location that has script handlers.
fn scripts(location: &Location) -> (&Files, &Scripts) {
    let files = location.files.as_ref().expect("scripts are files");
    let scripts = files.scripts.as_ref();
    (files, scripts.expect("the location runs scripts"))
}
