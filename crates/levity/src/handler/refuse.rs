//! The handler that refuses what no step of `try` has answered.

use levity_wire::http1::Method;

use super::chain::{Asked, Decision, Handler, Internal, OtherName};
use super::files::refused_method;
use super::{Handling, Outcome, explain};
use crate::explanation::{Explanation, Topic};
use crate::http::error::error;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::respond;

/// Refuses with an error of this status what no file answers; the last handler.
pub struct Refuse(pub u16);

impl Handler for Refuse {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        let response = match asked.request.head.method {
            Method::Options => respond::options(),
            method => refused_method(method).unwrap_or_else(|| error(self.0, "")),
        };
        response.into()
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        explanation.set_reason(match outcome {
            Outcome::Response(refusal) if refusal.status == 405 => explain::METHODS_OF_FILES,
            _ => "no step of `try` has found anything",
        });
        explanation.add(Topic::Handler, format!("nothing was found: {}", self.0));
    }

    fn behind_internal<'s>(&'s self, _: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        Internal::Refusal(self.0, "nothing in its `try` answers")
    }

    fn for_other_name(&self, _: &Request, _: bool) -> OtherName {
        OtherName::End(Some(error(self.0, "")))
    }
}
