//! Where files are written, and which locations see that.

use std::path::Path;
use std::sync::Arc;

use super::resources::Resources;
use crate::handler::upload::Upload;
use crate::route::location::Files;
use crate::stores::uploads::related::RelatedUploads;

/// The handler of uploads, where files may answer.
pub fn upload(
    of: &levity_config::Location,
    files: Option<&Arc<Files>>,
    has_proxy: bool,
    resources: &Resources<'_>,
) -> Option<Arc<Upload>> {
    let mut settings = of.uploads()?.clone();
    settings.resume_parts = settings.resume_parts.min(resources.kept_files_max);
    let files = files?.clone();
    let store = files
        .uploads
        .iter()
        .find_map(RelatedUploads::of_folder)?
        .clone();
    let scripts = resources.scripts.iter();
    let scripts = scripts.filter(|(other, _)| overlap(store.root(), other));
    Some(Arc::new(Upload {
        scripts: scripts.map(|(_, scripts)| scripts.clone()).collect(),
        settings,
        files,
        store,
        has_proxy,
    }))
}

/// Whether two folders have files in common. Their paths have no links.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Resources<'_> {
    /// The uploads that change files beneath the root at `path`. Blocks.
    pub fn uploads(&mut self, path: &Path) -> Vec<RelatedUploads> {
        if self.stores.uploads.is_empty() {
            return Vec::new();
        }
        let root = self.roots.resolved(path);
        let stores = self.stores.uploads.iter();
        let related = stores.filter_map(|store| RelatedUploads::new(store, root.as_deref()?));
        related.collect()
    }
}
