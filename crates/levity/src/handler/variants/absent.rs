//! What stands for kept forms of files in a build without compression: no location has a store of them.

use super::Handling;
use crate::http::response::Response;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::route::{FileVariants, Files};

impl Handling<'_> {
    /// The response of a file in the best form that is kept.
    pub(super) async fn in_kept_form(
        &mut self,
        _: &Request,
        _: (&Files, &[u8]),
        variants: &FileVariants,
        _: ServableFile,
    ) -> Response {
        match variants.store.never {}
    }
}
