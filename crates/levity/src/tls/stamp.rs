//! Versions of files.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use levity_disk::patiently_for_each;

/// What tells versions of a file apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// That of a file; `None` if it cannot be found. Blocks.
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// The versions of `files`; `None` of those that cannot be found, or do not respond. Blocks.
pub fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamps = patiently_for_each(files, Stamp::of).into_iter();
    stamps.map(|stamp| stamp.ok().flatten()).collect()
}
