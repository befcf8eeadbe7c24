//! Handlers that find the script of a request.

use std::io;
use std::time::Instant;

use levity_telemetry::step::Step;

use super::chain::{Asked, Decision, Handler, Internal, Waiting, Waits};
use super::files::failed;
use super::{Handling, Outcome, explain};
use crate::explanation::{Explanation, Topic};
use crate::files::scripts::{PathKind, Scripts};
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::script_search::{Located, ScriptSearch};
use crate::route::{Files, Location, Sought};

/// Finds the script of a directory whose index names list scripts before files.
pub struct IndexScript;

impl Handler for IndexScript {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        Decision::Wait(self)
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let text = format!("a script as index{}", explain::goes_on(outcome));
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Upstream
    }
}

impl Waits for IndexScript {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.index_script(asked.request, asked.location()))
    }
}

/// Finds the script for the upstream; without one the response is 404.
pub struct Script;

impl Handler for Script {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        match cx.script {
            Some(_) => Decision::Now(Outcome::Next),
            None => Decision::Wait(self),
        }
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let text = format!("the script of the path{}", explain::goes_on(outcome));
        explanation.add(Topic::Handler, text);
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Upstream
    }
}

impl Waits for Script {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.script(asked.request, asked.location()))
    }
}

impl<'a> Handling<'a> {
    /// Finds the script of a directory whose index names list scripts before files.
    async fn index_script(&mut self, request: &Request, location: &'a Location) -> Outcome<'a> {
        let (files, scripts) = scripts(location);
        let now = self.begin_search();
        let worker = self.worker;
        let (rules, moved, disk) = self.searching(request, location);
        let known = (rules, moved);
        let mut search = ScriptSearch::new(worker, (location, files), request, known, now, disk);
        match search.locate_before_files(scripts).await {
            Ok(located) => self.use_located(request, location, located),
            Err(error) => self.search_failed(files, request, &error),
        }
    }

    /// Finds the script. Without one the response is 404.
    async fn script(&mut self, request: &Request, location: &'a Location) -> Outcome<'a> {
        let (files, scripts) = scripts(location);
        let (kind, now) = (self.path_kind, self.begin_search());
        let worker = self.worker;
        let (rules, moved, disk) = self.searching(request, location);
        let known = (rules, moved);
        let mut search = ScriptSearch::new(worker, (location, files), request, known, now, disk);
        if kind == PathKind::Directory && !request.names_directory() {
            match search.has_index(scripts).await {
                Ok(true) => return self.to_folder(request, location),
                Ok(false) => {}
                Err(error) => return self.search_failed(files, request, &error),
            }
        }
        match search.locate(scripts, kind).await {
            Ok(None) => {
                self.explain_refusal("there is no script for the path");
                Outcome::Response(error(404, ""))
            }
            Ok(located) => self.use_located(request, location, located),
            Err(error) => self.search_failed(files, request, &error),
        }
    }

    /// Begins a search; returns the time.
    fn begin_search(&mut self) -> Instant {
        self.disk.trace.enter(Step::Resolve);
        self.disk.trace.step_began()
    }

    /// Has the script run by the next handler, or the request go on where it belongs to.
    fn use_located(
        &mut self,
        request: &Request,
        location: &'a Location,
        located: Option<Located>,
    ) -> Outcome<'a> {
        match located {
            None => Outcome::Next,
            Some(Ok(script)) => {
                if let Some(explanation) = &self.worker.explanation {
                    let files = scripts(location).0;
                    explain::script(files, &script, explanation);
                    let name = files.path_of(&request.path, script.name());
                    self.explain_found(request, location, (&name, Sought::Script));
                }
                self.script = Some(script);
                Outcome::Next
            }
            Some(Err(elsewhere)) => {
                let what = (&elsewhere.name[..], Sought::Script);
                self.explain_found(request, location, what);
                self.move_to(request, elsewhere)
            }
        }
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
