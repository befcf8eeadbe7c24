//! `root` of sites and routes.

use std::fs;
use std::path::{Component, Path, PathBuf};

use levity_disk::patiently;

use crate::on_disk::found;
use crate::section::Section;

/// A folder of the server itself.
#[derive(Clone, Copy)]
pub(crate) struct OwnFolder<'a> {
    /// The key that names it.
    pub(crate) key: &'static str,
    /// What the server keeps there.
    pub(crate) content: &'static str,
    pub(crate) path: Option<&'a Path>,
}

/// Reads `root`. Reports a folder that has files in common with one of `others`: clients could get these under their names,
/// and what else lies there would be taken for files of the server.
pub(crate) fn read(section: &Section<'_>, others: &[OwnFolder<'_>]) -> Option<PathBuf> {
    const KEY: &str = "root";
    let root = section.root_folder(KEY)?;
    for other in others {
        if let Some(message) = other.path.and_then(|path| shared(&root, other.key, path)) {
            let help = format!("keep {} in a folder that is not served", other.content);
            section.report(KEY, message, Some(help));
        }
    }
    Some(root)
}

/// How `root` and the folder that `key` names lie in each other.
fn shared(root: &Path, key: &str, folder: &Path) -> Option<String> {
    // Only the paths of a text without a file are relative.
    if !root.is_absolute() || !folder.is_absolute() {
        return None;
    }
    let (own, theirs) = (root.display(), folder.display());
    let (root, folder) = (normal(root), normal(folder));
    if root == folder {
        Some(format!("{own} is also `{key}`"))
    } else if folder.starts_with(&root) {
        Some(format!("`{key}`, {theirs}, lies in {own}"))
    } else if root.starts_with(&folder) {
        Some(format!("{own} lies in `{key}`, {theirs}"))
    } else {
        None
    }
}

/// The path of a folder without links, if it may be looked up on the disk and is there; otherwise as by [`normal`]. May block.
pub(crate) fn resolved(path: &Path, may_look_up: bool) -> PathBuf {
    let resolved = may_look_up.then(|| found(patiently(path, |path| fs::canonicalize(path))).ok());
    resolved.flatten().unwrap_or_else(|| normal(path))
}

/// An absolute path without `.` and `..`. Links are not resolved: two names of one folder may stay different.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            _ => normal.push(component),
        }
    }
    normal
}
