//! The handler that gives every request of a location the same response.

use levity_config::Fixed;

use super::chain::{Asked, Decision, Handler, Internal, OtherName};
use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::message::client::Client;
use crate::message::request::Request;

impl Handler for Fixed {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        response(self).into()
    }

    fn explain(&self, _: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        explanation.set_reason("`respond` gives this status to every request here");
        explanation.add(Topic::Handler, format!("`respond` with {}", self.status));
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Response(response(self))
    }

    fn for_other_name(&self, _: &Request, _: bool) -> OtherName {
        match self.status {
            400.. => OtherName::End(Some(response(self))),
            _ => OtherName::Pass,
        }
    }
}

/// The response of `fixed`.
fn response(fixed: &Fixed) -> Response {
    let mut response = error(fixed.status, "");
    match fixed.status {
        204 | 304 => {
            response.fields.remove("content-type");
            response.body = Body::None;
        }
        // The status and its name tell what is wrong; below 400 there is nothing to tell.
        400.. if fixed.body.is_empty() => {}
        _ => {
            response.body = Body::Text(fixed.body.clone().into_bytes());
            response.is_error_text = false;
        }
    }
    for (name, value) in &fixed.headers {
        response.fields.set(name, value.as_bytes());
    }
    response
}
