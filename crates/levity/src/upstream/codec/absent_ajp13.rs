//! What stands for AJP13 in a build without it. The configuration refuses upstreams of this protocol.

use std::convert::Infallible;
use std::time::Duration;

use levity_wire::Reject;

use super::{EncodeError, Event};
use crate::upstream::upstream_request::UpstreamRequest;

/// Connections are never checked.
pub const QUIET_MAX: Duration = Duration::MAX;

/// A connection to a container: there is none.
#[derive(Debug)]
pub struct Ajp13(Infallible);

impl Default for Ajp13 {
    fn default() -> Self {
        unreachable!("the configuration refuses AJP13")
    }
}

impl Ajp13 {
    /// See [`Codec::begin`](super::Codec::begin).
    pub fn begin(&mut self, _: &UpstreamRequest<'_>, _: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self.0 {}
    }

    /// See [`Codec::room`](super::Codec::room).
    pub fn room(&self) -> usize {
        match self.0 {}
    }

    /// See [`Codec::body`](super::Codec::body).
    pub fn body(&mut self, _: &[u8], _: &mut Vec<u8>) {
        match self.0 {}
    }

    /// See [`Codec::end_of_body`](super::Codec::end_of_body).
    pub fn settle(&mut self, _: &mut Vec<u8>) {
        match self.0 {}
    }

    /// See [`Codec::decode`](super::Codec::decode).
    pub fn decode(&mut self, _: &[u8], _: &mut dyn FnMut(Event<'_>)) -> Result<(), Reject> {
        match self.0 {}
    }

    /// See [`Codec::closed`](super::Codec::closed).
    pub fn closed(&mut self) -> Result<(), Reject> {
        match self.0 {}
    }

    /// See [`Codec::is_reusable`](super::Codec::is_reusable).
    pub fn is_reusable(&self) -> bool {
        match self.0 {}
    }

    /// See [`Codec::ping`](super::Codec::ping).
    pub fn ping(&mut self) -> &'static [u8] {
        match self.0 {}
    }

    /// See [`Codec::pong`](super::Codec::pong).
    pub fn pong(&mut self, _: &[u8]) -> Result<bool, Reject> {
        match self.0 {}
    }
}
