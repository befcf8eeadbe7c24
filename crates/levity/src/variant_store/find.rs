//! Finds the variant of a file in the store.

use std::io;

use levity_wire::encoding::Coding;

use super::name::Name;
use super::store::VariantStore;
use crate::disk_client::DiskClient;
use crate::entry::Entry;
use crate::resolve::{self, Found, Original};
use crate::worker::Worker;

impl VariantStore {
    /// The variant of `original` in `coding`, with bytes that were read already and their offset. `None`
    /// if there is none; one that has been removed from the folder is forgotten.
    pub async fn find(
        &self,
        worker: &Worker,
        original: &Entry,
        coding: Coding,
        disk: &mut DiskClient<'_>,
    ) -> Option<Found> {
        let key = Name::of(&original.meta, coding);
        if !self.index.touch(key) {
            return None;
        }
        let content_type = original.fields.value("content-type").unwrap_or_default();
        let as_variant = Original {
            entry: original,
            coding,
        };
        let (path, cache_key) = (key.file_name(coding), key.cache_key(content_type));
        let path = path.as_bytes();
        let found = resolve::variant(worker, &self.root, &cache_key, path, as_variant, disk).await;
        match found {
            Ok(found @ Found::File(..)) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index.remove(key);
                None
            }
            // The disk of the store may be busy or fail: the file is compressed on its way meanwhile.
            _ => None,
        }
    }
}
