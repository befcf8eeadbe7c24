//! Adds the digests that a client wants (RFC 9530) to responses with files.

use levity_wire::digest;
use levity_wire::http1::Method;

use super::Handling;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::route::{FileDigests, Files};

impl Handling<'_> {
    /// Runs [`Handling::add_digests`] where digests are on.
    pub(super) async fn add_wanted_digests(
        &mut self,
        request: &Request,
        files: &Files,
        response: &mut Response,
    ) {
        if let Some(digests) = &files.digests {
            // Boxed: most locations have none.
            Box::pin(self.add_digests(request, digests, response)).await;
        }
    }

    /// Adds Repr-Digest and Content-Digest to `response`, if the client wants them, the response has a file, and the
    /// digest is known or can be made without a disk.
    ///
    /// Not where the content will be compressed on its way: its bytes are not known before they are sent.
    async fn add_digests(
        &mut self,
        request: &Request,
        digests: &FileDigests,
        response: &mut Response,
    ) {
        // Only a response with all or a part of a file has one.
        let Some(entry) = response.base.as_ref().map(|base| base.entry.clone()) else {
            return;
        };
        let compress = digests.compress.as_ref();
        if compress.is_some_and(|compress| {
            compress.applies_to_file(&entry) && compress.coding(request).is_some()
        }) {
            return;
        }
        let has_all = response.status == 200 && request.head.method == Method::Get;
        for (wanted, name, applies) in [
            ("want-repr-digest", "Repr-Digest", true),
            // That of a part would have to be made for each request, and HEAD has no content.
            ("want-content-digest", "Content-Digest", has_all),
        ] {
            if !applies {
                continue;
            }
            let Some(algorithm) = digest::wanted(request.headers_named(wanted)) else {
                continue;
            };
            let stream = self.disk.connection();
            let value = digests
                .store
                .value(self.worker, &entry, algorithm, stream)
                .await;
            if let Some(value) = value {
                response.fields.add(name, value.as_bytes());
            }
        }
    }
}
