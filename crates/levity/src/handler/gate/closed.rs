//! The gate of a location whose files do not respond.

use levity_telemetry::stats::GateKind;

use super::super::Handling;
use super::super::chain::{Decision, Gate};
use crate::http::error::error;
use crate::message::client::Client;
use crate::message::request::Request;

/// Lets nobody in: files that the location needs do not respond.
pub struct Closed;

impl Gate for Closed {
    const KIND: Option<GateKind> = None;

    fn ask<'s>(&'s self, _: &mut Handling<'s>, _: &Request) -> Decision<'s> {
        error(503, "").into()
    }

    fn name(&self, _: &Client) -> String {
        "files that do not respond or are absent".to_owned()
    }
}
