//! Digests in responses with files: those that a client wants (RFC 9530), and ETags of the content.

use levity_wire::digest;
use levity_wire::http1::Method;

use super::Handling;
use crate::files::cache::EntryRef;
use crate::http::response::Response;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::respond;
use crate::route::{FileDigests, FileVariants, Files};

impl Handling<'_> {
    /// Whether `cached` may get the ETag of its content.
    pub(super) fn lacks_content_etag(&self, cached: &EntryRef) -> bool {
        self.service.content_etags().is_some() && !cached.has_content_etag()
    }

    /// The response of a file, at a path in `files`, where digests may be needed.
    pub(super) async fn with_digests(
        &mut self,
        request: &Request,
        (files, path): (&Files, &[u8]),
        variants: Option<&FileVariants>,
        file: ServableFile,
    ) -> Response {
        self.find_content_etag(file.cached()).await;
        if let Some(variants) = variants {
            return self
                .in_kept_form(request, (files, path), variants, file)
                .await;
        }
        let mut response = respond::file::file(request, file);
        if let Some(digests) = &files.digests {
            self.add_digests(request, digests, &mut response).await;
        }
        response
    }

    /// Gives `cached` the ETag of its content, where that is configured, and if the digest is known or can be made without
    /// a disk. Otherwise the digest is begun.
    pub(super) async fn find_content_etag(&self, cached: &EntryRef) {
        if let Some(store) = self.service.content_etags()
            && !cached.has_content_etag()
        {
            let etag = store.etag(&self.worker.core, &cached.entry, self.disk.connection());
            if let Some(etag) = etag.await {
                cached.set_content_etag(etag);
            }
        }
    }

    /// Adds Repr-Digest and Content-Digest to `response`, if the client wants them, the response has a file, and the
    /// digest is known or can be made without a disk.
    ///
    /// Not where the content will be compressed on its way: its bytes are not known before they are sent.
    pub(super) async fn add_digests(
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
                .value(&self.worker.core, &entry, algorithm, stream)
                .await;
            if let Some(value) = value {
                response.fields.add(name, value.as_bytes());
            }
        }
    }
}
