//! The rules of another name, which a request has to pass beside those of its own: whoever reads or writes a compressed form reads
//! or writes its original, and a name that is written is that of a file or of a folder, without a slash and with it.

use std::sync::Arc;

use super::upload::written;
use super::{Handling, Outcome, respond, target_for};
use crate::explanation::Topic;
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::request::Request;
use crate::route::{Files, Handler, Location, TooLong, Upload};

impl<'a> Handling<'a> {
    /// The refusal of a request for a compressed form by the location of the original, if that asks for more and refuses a request
    /// for it; whether the original exists does not count.
    pub(super) async fn refusal_of_originals(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Option<Response> {
        // A folder of that name would be in the way of the form.
        let name = request.path.strip_suffix(b"/").unwrap_or(&request.path);
        let originals = self.rules(request, location).of_originals(name);
        for (other, name) in originals.collect::<Vec<_>>() {
            let form_of = location.upload();
            let refusal = self
                .refusal_at(request, (location, other), name, form_of)
                .await;
            if refusal.is_some() {
                return refusal;
            }
        }
        None
    }

    /// The refusal of a request that writes a name by the location of the other spelling of it, with or without the slash of a
    /// folder: a name is that of a file or of a folder.
    pub(super) async fn refusal_of_other_spelling(
        &mut self,
        request: &Request,
        location: &'a Location,
    ) -> Option<Response> {
        let name = match request.path.strip_suffix(b"/") {
            Some(name) => name.to_vec(),
            None => [&request.path[..], b"/"].concat(),
        };
        match self.rules(request, location).elsewhere(&name) {
            Ok(None) => None,
            Ok(Some(other)) => {
                self.refusal_at(request, (location, other), &name, None)
                    .await
            }
            Err(TooLong) => Some(error(
                414,
                "the target is too long for the number of routes",
            )),
        }
    }

    /// What keeps a request at `location` for `name` at the location `other` from what lies there, with the method, client, headers
    /// and query of `request`. `form_of` are the rules by which a compressed form is written.
    async fn refusal_at(
        &mut self,
        request: &Request,
        (location, other): (&'a Location, &'a Location),
        name: &[u8],
        form_of: Option<&Arc<Upload>>,
    ) -> Option<Response> {
        if let Some(explanation) = &self.worker.explanation {
            let name = String::from_utf8_lossy(name);
            let text = format!("the rules of {name} count too: {}", other.place());
            explanation.add(Topic::Route, text);
        }
        // Whom another location lets in is nobody for this one.
        let identity = self.identity.clone();
        let refusal = self
            .refusal_by(request, (location, other), name, form_of)
            .await;
        self.identity = identity;
        refusal
    }

    async fn refusal_by(
        &mut self,
        request: &Request,
        (location, other): (&'a Location, &'a Location),
        name: &[u8],
        form_of: Option<&Arc<Upload>>,
    ) -> Option<Response> {
        if other.internal && !location.internal {
            return Some(error(404, ""));
        }
        let mut asked = request.clone();
        if let Err(reject) = asked.set_target(&target_for(name, request), false) {
            return Some(error(reject.status, reject.reason));
        }
        let writes = written(request).is_some();
        for handler in &other.handlers {
            let outcome = match handler {
                Handler::Gate(gate) => self.gate(&asked, gate).await,
                Handler::RateLimits(limits) => self.rate_limits(&asked, limits),
                Handler::Upload(upload) if writes => {
                    return refusal_to_write(&asked, upload, form_of);
                }
                Handler::Files(files) => return refusal_of_file(&asked, files, writes),
                Handler::ExistingFile(step) => {
                    return refusal_of_file(&asked, &step.files, writes);
                }
                Handler::Respond(fixed) if fixed.status >= 400 => {
                    return Some(respond::response(fixed));
                }
                Handler::Refuse(status) => return Some(error(*status, "")),
                _ => Outcome::Next,
            };
            if let Outcome::Response(refusal) = outcome {
                return Some(refusal);
            }
        }
        None
    }
}

/// For a compressed form `form_of` are the rules by which it is written: they must be those of its original, or it would be sent in
/// place of what must not be replaced, or not be so large.
fn refusal_to_write(
    request: &Request,
    upload: &Upload,
    form_of: Option<&Arc<Upload>>,
) -> Option<Response> {
    if !written(request).is_some_and(|method| upload.permits(method)) {
        return Some(error(405, ""));
    }
    let is_same = form_of.is_none_or(|own| own.settings == upload.settings);
    let accepts = upload.accepts(upload.files.beneath(&request.path));
    (!is_same || !accepts).then(|| error(403, "nothing can be written by this name"))
}

fn refusal_of_file(request: &Request, files: &Files, writes: bool) -> Option<Response> {
    if writes {
        return Some(error(405, ""));
    }
    let shows = files.shows(files.beneath(&request.path));
    (!shows).then(|| error(404, ""))
}
