//! Serves files in a compressed form that a store keeps.

use std::rc::Rc;

use levity_disk::Ready;
use levity_wire::condition;
use levity_wire::http1::Method;

use super::Handling;
use crate::cache::EntryRef;
use crate::http::request::Request;
use crate::resolve::Found;
use crate::respond;
use crate::route::FileVariants;

impl Handling<'_> {
    /// The variant to send in place of `cached`, the file found for `request`. If there is none, but the client would
    /// take one, the request counts towards making one.
    pub(super) async fn variant(
        &mut self,
        request: &Request,
        variants: &FileVariants,
        cached: &EntryRef,
    ) -> Option<(Rc<EntryRef>, Option<(u64, Ready)>)> {
        let original = &cached.entry;
        let coding = variants.compress.coding_of_file(request, original)?;
        // The client may have the file as it was compressed on its way, or as it is.
        let names_original = request.header("if-match").is_some();
        if names_original || respond::file::is_current(request, original) {
            return None;
        }
        let store = &variants.store;
        let found = store.find(self.worker, original, coding, &mut self.disk);
        match Box::pin(found).await {
            Some(Found::File(variant, ready)) => {
                is_wanted(request, &variant).then_some((variant, ready))
            }
            _ if request.head.method != Method::Get => None,
            _ => {
                store.requested(self.worker, original, coding);
                None
            }
        }
    }
}

/// Whether a range is meant to be one of `variant`: only if the client names it. Without If-Range it may be the
/// continuation of the file itself.
fn is_wanted(request: &Request, variant: &EntryRef) -> bool {
    request.header("range").is_none()
        || request.header("if-range").is_some_and(|value| {
            condition::if_range(value, &respond::file::range_validators(&variant.entry))
        })
}
