//! What stands for the handler of uploads in a build without them: there is no store for which it could be asked.

use std::sync::Arc;

use super::chain::{Asked, Decision, Handler};
use super::{Handling, Outcome};
use crate::explanation::Explanation;
use crate::files::scripts::Scripts;
use crate::message::client::Client;
use crate::route::Files;
use crate::stores::uploads::store::UploadStore;

/// What clients would write beneath the root of a location.
pub struct Upload {
    /// As configured.
    pub settings: levity_config::Upload,
    /// The files.
    pub files: Arc<Files>,
    /// There is none.
    pub store: Arc<UploadStore>,
    /// Other methods would be left to an upstream.
    pub has_proxy: bool,
    /// The scripts among these files at any location.
    pub scripts: Vec<Scripts>,
}

impl Handler for Arc<Upload> {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        match self.store.never {}
    }

    fn explain(&self, _: &Outcome<'_>, _: &Client, _: &Explanation) {
        match self.store.never {}
    }
}
