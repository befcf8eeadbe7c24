//! The rules of another name, which a request has to pass beside those of its own: whoever reads or writes a compressed form reads
//! or writes its original, and whoever makes or removes a folder by its name does so with the path that has the slash.

use super::upload::written;
use super::{Handling, Outcome, respond, target_for};
use crate::explanation::Topic;
use crate::http::error::error;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::route::{Files, Handler, Location, Upload};

impl<'a> Handling<'a> {
    /// The refusal of a request for a compressed form by the location of the original, if that has other rules and refuses a
    /// request for it; whether the original exists does not count.
    pub(super) async fn refusal_of_originals(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Option<Response> {
        let originals = self.rules(request, location).of_originals(&request.path);
        for (other, name) in originals.collect::<Vec<_>>() {
            let refusal = self.refusal_at(request, other, name).await;
            if refusal.is_some() {
                return refusal;
            }
        }
        None
    }

    /// The refusal of a request for the path of a folder without its slash by the location of the folder, as above.
    pub(super) async fn refusal_of_folder(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Option<Response> {
        if request.names_directory() {
            return None;
        }
        let name = [&request.path[..], b"/"].concat();
        let other = self.rules(request, location).elsewhere(&name)?;
        self.refusal_at(request, other, &name).await
    }

    /// What keeps a request for `name` at `location` from what lies there, with the method, client, headers and query of `request`.
    async fn refusal_at(
        &mut self,
        request: &Request,
        location: &'a Location,
        name: &[u8],
    ) -> Option<Response> {
        if let Some(explanation) = &self.worker.explanation {
            let name = String::from_utf8_lossy(name);
            let text = format!("the rules of {name} count too: {}", location.place());
            explanation.add(Topic::Route, text);
        }
        if location.internal {
            return Some(error(404, ""));
        }
        let mut asked = request.clone();
        if let Err(reject) = asked.set_target(&target_for(name, request), false) {
            return Some(error(reject.status, reject.reason));
        }
        let writes = written(request).is_some();
        for handler in &location.handlers {
            let outcome = match handler {
                Handler::Gate(gate) => self.gate(&asked, gate).await,
                Handler::RateLimits(limits) => self.rate_limits(&asked, limits),
                Handler::Upload(upload) if writes => return refusal_to_write(&asked, upload),
                Handler::Files(files) => return refusal_of_file(&asked, files, writes),
                Handler::ExistingFile(step) => {
                    return refusal_of_file(&asked, &step.files, writes);
                }
                Handler::Respond(fixed) if fixed.status >= 400 => {
                    return Some(respond::response(fixed));
                }
                _ => Outcome::Next,
            };
            if let Outcome::Response(refusal) = outcome {
                return Some(refusal);
            }
        }
        None
    }
}

fn refusal_to_write(request: &Request, upload: &Upload) -> Option<Response> {
    if !written(request).is_some_and(|method| upload.permits(method)) {
        return Some(error(405, ""));
    }
    let accepts = upload.accepts(upload.files.beneath(&request.path));
    (!accepts).then(|| error(403, "nothing can be written by this name"))
}

fn refusal_of_file(request: &Request, files: &Files, writes: bool) -> Option<Response> {
    if writes {
        return Some(error(405, ""));
    }
    let shows = files.shows(files.beneath(&request.path));
    (!shows).then(|| error(404, ""))
}
