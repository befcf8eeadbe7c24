//! Uploads as seen from a folder that has files in common with their root.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::store::UploadStore;

/// Uploads to a folder, to one around it, or to one within it.
pub struct RelatedUploads {
    store: Arc<UploadStore>,
    /// Where the root of the uploads is within the folder: empty, or a path that ends with a slash.
    within: Vec<u8>,
    /// Where the folder is within the root of the uploads, in the same form. One of the two is empty.
    around: Vec<u8>,
}

impl RelatedUploads {
    /// Those of `store` as seen from `folder`, a resolved path; `None` if no file is in both.
    pub fn new(store: &Arc<UploadStore>, folder: &Path) -> Option<Self> {
        let within = store.root().strip_prefix(folder).ok().map(with_slash);
        let around = folder.strip_prefix(store.root()).ok().map(with_slash);
        (within.is_some() || around.is_some()).then(|| Self {
            store: store.clone(),
            within: within.unwrap_or_default(),
            around: around.unwrap_or_default(),
        })
    }

    /// The uploads if they are to the folder itself.
    pub fn of_folder(&self) -> Option<&Arc<UploadStore>> {
        (self.within.is_empty() && self.around.is_empty()).then_some(&self.store)
    }

    /// When an upload last changed something in the folder of `path`, which is relative to the folder.
    pub fn changed(&self, path: &[u8]) -> Option<Instant> {
        let path = path.strip_prefix(self.within.as_slice())?;
        let changes = &self.store.changes;
        match &self.around[..] {
            [] => changes.last(path),
            around => changes.last(&[around, path].concat()),
        }
    }
}

fn with_slash(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    match path {
        [] => Vec::new(),
        _ => [path, b"/"].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_from_folders_around_and_within() {
        let store = UploadStore::new("/srv/kept".as_ref());
        let related = |folder: &str| RelatedUploads::new(&store, folder.as_ref());
        for other in ["/srv/kep", "/srv/kept2", "/other"] {
            assert!(related(other).is_none(), "{other}");
        }
        store.changes.mark(b"a/file");
        for (folder, path, is_own) in [
            ("/srv/kept", "a/file", true),
            ("/", "srv/kept/a/file", false),
            ("/srv", "kept/a/", false),
            ("/srv/kept/a", "file", false),
            ("/srv/kept/a", "", false),
        ] {
            let related = related(folder).expect(folder);
            assert!(
                related.changed(path.as_bytes()).is_some(),
                "{folder} {path}"
            );
            assert_eq!(related.of_folder().is_some(), is_own, "{folder}");
        }
        for (folder, path) in [
            ("/srv/kept", "b/file"),
            ("/srv", "a/file"),
            ("/srv", "kept2/a/file"),
            ("/srv/kept/b", "file"),
            ("/srv/kept/a", "a/file"),
        ] {
            let related = related(folder).expect(folder);
            assert_eq!(related.changed(path.as_bytes()), None, "{folder} {path}");
        }
    }
}
