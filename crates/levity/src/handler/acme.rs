//! The handler that answers authorities which look whether a name leads here (RFC 8555, 8.3).

use std::sync::Arc;

use super::chain::{Asked, Decision, Handler};
use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::http::response::{Body, Response};
use crate::message::client::Client;
use crate::message::request::Request;
use crate::tls::authorities::Challenges;

/// Where authorities look.
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// Answers authorities that look whether the name of the site leads here.
pub struct Acme(pub Arc<Challenges>);

impl Handler for Acme {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        response(&self.0, asked.request).into()
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        if let Outcome::Response(_) = outcome {
            explanation.add(
                Topic::Handler,
                "an authority looks whether the name leads here",
            );
        }
    }
}

/// The response to an authority; `None` for every other request, also for a token that somebody else has ordered.
fn response(challenges: &Challenges, request: &Request) -> Option<Response> {
    let token = request.path.strip_prefix(FOLDER)?;
    let content = challenges.http(std::str::from_utf8(token).ok()?)?;
    let mut response = Response::new(200);
    response
        .fields
        .set("content-type", b"application/octet-stream");
    response.body = Body::Text(content.into_bytes());
    Some(response)
}
