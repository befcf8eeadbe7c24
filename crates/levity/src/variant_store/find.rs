//! Finds files in the store.

use std::io;

use levity_wire::dictionary::Digest;
use levity_wire::encoding::Coding;

use super::name::{Kind, Name, Resource, Stored};
use super::store::VariantStore;
use crate::disk_client::DiskClient;
use crate::entry::Entry;
use crate::resolve::{self, Found, Original};
use crate::worker::Worker;

impl VariantStore {
    /// The content of `original` in `coding`, called `name`, with bytes that were read already and their offset. `None`
    /// if there is none; one that has been removed from the folder is forgotten.
    pub async fn find(
        &self,
        worker: &Worker,
        original: &Entry,
        coding: Coding,
        name: Name,
        disk: &mut DiskClient<'_>,
    ) -> Option<Found> {
        if !self.index.touch(name) {
            return None;
        }
        let content_type = original.fields.value("content-type").unwrap_or_default();
        let as_variant = Original {
            entry: original,
            coding,
        };
        let kind = Kind::Coded(coding);
        let path = Stored { name, kind }.file_name();
        let (path, cache_key) = (path.as_bytes(), name.cache_key(content_type));
        let found = resolve::variant(worker, &self.root, &cache_key, path, as_variant, disk).await;
        match found {
            Ok(found @ Found::File(..)) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index.remove(name);
                None
            }
            // The disk of the store may be busy or fail: the file is compressed on its way meanwhile.
            _ => None,
        }
    }

    /// The dictionary with `digest` that was the content of `resource`, if it is kept.
    pub fn dictionary(&self, resource: Resource, digest: Digest) -> Option<Stored> {
        self.index.dictionary(Name::of_digest(resource, digest))
    }

    /// Whether the present content of `resource` is kept as a dictionary.
    pub fn is_dictionary(&self, original: &Entry, resource: Resource) -> bool {
        self.index
            .touch(Name::of_dictionary(&original.meta, resource))
    }
}
