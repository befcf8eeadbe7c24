//! The rules of another name, which a request has to pass beside those of its own: whoever reads or writes a compressed form reads
//! or writes its original, and a name that is written is that of a file or of a folder, without a slash and with it.

use super::chain::{Asked, Chain, Decision, OtherName};
use super::{Handling, Outcome, target_for};
use crate::explanation::Topic;
use crate::http::error::error;
use crate::http::response::Response;
use crate::message::request::Request;
use crate::route::Location;

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
            let has_same_uploads = other.fingerprint.upload == location.fingerprint.upload;
            let refusal = self
                .refusal_at(request, (location, other), name, has_same_uploads)
                .await;
            if refusal.is_some() {
                return refusal;
            }
        }
        None
    }

    /// The refusal of a request that writes a name by the location of the other spelling of it, with or without the slash of a
    /// folder: a name is that of a file or of a folder.
    #[cfg(feature = "upload")]
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
                self.refusal_at(request, (location, other), &name, true)
                    .await
            }
            Err(crate::route::TooLong) => Some(error(
                414,
                "the target is too long for the number of routes",
            )),
        }
    }

    /// What keeps a request at `location` for `name` at the location `other` from what lies there, with the method, client, headers
    /// and query of `request`. `has_same_uploads` is as in [`for_other_name`](super::chain::Handler::for_other_name).
    async fn refusal_at(
        &mut self,
        request: &Request,
        (location, other): (&'a Location, &'a Location),
        name: &[u8],
        has_same_uploads: bool,
    ) -> Option<Response> {
        if let Some(explanation) = &self.worker.explanation {
            let name = String::from_utf8_lossy(name);
            let text = format!("the rules of {name} count too: {}", other.place());
            explanation.add(Topic::Route, text);
        }
        // Whom another location lets in is nobody for this one.
        let identity = self.identity.clone();
        let refusal = self
            .refusal_by(request, (location, other), name, has_same_uploads)
            .await;
        self.identity = identity;
        refusal
    }

    async fn refusal_by(
        &mut self,
        request: &Request,
        (location, other): (&'a Location, &'a Location),
        name: &[u8],
        has_same_uploads: bool,
    ) -> Option<Response> {
        if other.internal && !location.internal {
            return Some(error(404, ""));
        }
        let mut asked = request.clone();
        if let Err(reject) = asked.set_target(&target_for(name, request), false) {
            return Some(error(reject.status, reject.reason));
        }
        let (request, mut chain) = (&asked, Chain::of(other));
        while let Some((handler, rest)) = chain.split_first() {
            chain = rest;
            match handler.for_other_name(request, has_same_uploads) {
                OtherName::Pass => {}
                OtherName::End(refusal) => return refusal,
                OtherName::Ask => {
                    let asked = Asked { request, rest };
                    let outcome = match handler.decide(self, asked) {
                        Decision::Now(outcome) => outcome,
                        Decision::Wait(waits) => waits.wait(self, asked).await,
                    };
                    self.count_refusal(handler, &outcome);
                    if let Outcome::Response(refusal) = outcome {
                        return Some(refusal);
                    }
                }
            }
        }
        None
    }
}
