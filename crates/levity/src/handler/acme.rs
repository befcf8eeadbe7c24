//! The handler that answers authorities which look whether a name leads here (RFC 8555, 8.3).

use levity_acme::challenges::Challenges;

use crate::http::response::{Body, Response};
use crate::message::request::Request;

/// Where authorities look.
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// The response to an authority; `None` for every other request, also for a token that somebody else has ordered.
pub fn response(challenges: &Challenges, request: &Request) -> Option<Response> {
    let token = request.path.strip_prefix(FOLDER)?;
    let content = challenges.http(std::str::from_utf8(token).ok()?)?;
    let mut response = Response::new(200);
    response
        .fields
        .set("content-type", b"application/octet-stream");
    response.body = Body::Text(content.into_bytes());
    Some(response)
}
