//! Finds files in the store.

use std::io;

use levity_wire::dictionary::Digest;

use super::name::{Kind, Name, Resource, Stored};
use super::store::VariantStore;
use crate::exchange::worker::Worker;
use crate::files::disk_client::DiskClient;
use crate::files::entry::{Entry, Original};
use crate::resolve::{self, Found};

impl VariantStore {
    /// The variant called `name`, with bytes that were read already and their offset. `None` if there is none; one that
    /// has been removed from the folder is forgotten.
    pub async fn find(
        &self,
        worker: &Worker,
        original: Original<'_>,
        name: Name,
        disk: &mut DiskClient<'_>,
    ) -> Option<Found> {
        if !self.index.touch(name) {
            return None;
        }
        let content_type = original.entry.fields.value("content-type");
        let cache_key = name.cache_key(content_type.unwrap_or_default());
        let kind = Kind::Coded(original.coding);
        let path = Stored { name, kind }.file_name();
        let path = path.as_bytes();
        let found = resolve::variant(worker, &self.root, &cache_key, path, original, disk).await;
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
