//! `root` of sites and routes.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::section::Section;

/// Reads `root`. Reports a folder that has files in common with `disk.variants`: clients could get them under their
/// names, and what else lies in that folder would be taken for variants.
pub(crate) fn read(section: &Section<'_>, variants: Option<&Path>) -> Option<PathBuf> {
    const KEY: &str = "root";
    let root = section.folder(KEY)?;
    // Only the paths of a text without a file are relative.
    let variants = variants.filter(|variants| variants.is_absolute());
    let Some(variants) = variants.filter(|_| root.is_absolute()) else {
        return Some(root);
    };
    let (own, theirs) = (root.display(), variants.display());
    let (normal, kept) = (normal(&root), normal(variants));
    let message = if normal == kept {
        format!("{own} is also `disk.variants`")
    } else if kept.starts_with(&normal) {
        format!("`disk.variants`, {theirs}, lies in {own}")
    } else if normal.starts_with(&kept) {
        format!("{own} lies in `disk.variants`, {theirs}")
    } else {
        return Some(root);
    };
    let help = "keep variants in a folder that is not served".to_owned();
    section.report(KEY, message, Some(help));
    Some(root)
}

/// The path of a folder without links, if it may be looked up on the disk and is there; otherwise as by [`normal`]. May block.
pub(crate) fn resolved(path: &Path, may_look_up: bool) -> PathBuf {
    let resolved = may_look_up.then(|| fs::canonicalize(path).ok());
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
