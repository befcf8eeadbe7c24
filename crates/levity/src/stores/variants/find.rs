//! What is in the store.

use std::sync::Arc;

use levity_disk::Root;
use levity_wire::dictionary::Digest;

use super::name::{Name, Resource, Stored};
use super::store::VariantStore;
use crate::files::entry::Entry;

impl VariantStore {
    /// The folder of its files.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Whether the file called `name` is kept; notes that it was used.
    pub fn touch(&self, name: Name) -> bool {
        self.index.touch(name)
    }

    /// Forgets the file called `name`, which has been removed from the folder.
    pub fn forget(&self, name: Name) {
        self.index.remove(name);
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
