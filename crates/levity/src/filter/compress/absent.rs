//! What stands for compression in a build without it. The configuration refuses `compress`, so no location has it.

use std::convert::Infallible;
use std::sync::Arc;

use levity_config::LocationOptions;
use levity_wire::encoding::Coding;

use crate::files::entry::Entry;
use crate::http::filter::{Filter, FilteredHead};
use crate::loop_core::compute::Compute;
use crate::message::request::Request;

/// The compression of a location: there is none.
pub struct Compress(Infallible);

impl Compress {
    /// The compression that options ask for, which the configuration has refused.
    pub fn new(_: &LocationOptions, _: &Arc<Compute>) -> Option<Self> {
        None
    }

    /// Whether a file is compressed for clients that accept it.
    pub fn applies_to_file(&self, _: &Entry) -> bool {
        match self.0 {}
    }

    /// The coding that a client prefers.
    pub fn coding(&self, _: &Request) -> Option<Coding> {
        match self.0 {}
    }
}

impl Filter for Compress {
    fn key(&self) -> &'static str {
        match self.0 {}
    }

    fn header(&self, _: &Request, _: FilteredHead<'_>) {
        match self.0 {}
    }
}
