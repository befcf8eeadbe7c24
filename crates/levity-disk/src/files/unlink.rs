//! Removing the names of files.
//!
//! When its name is to be removed, the path may lead to another file: a directory on the way was replaced by
//! a symbolic link, or the name was given to another file. So the parent is opened first, beneath the root
//! and without following links. The name is looked up in that directory, and removed only if it is a name of
//! the open file: the inode number of an open file is not reused.
//!
//! The kernel cannot compare and remove in one call. In between another process may give the name to another
//! file, which then loses it; but that takes write access to the directory, which includes the right to
//! remove names in it. Nothing outside that directory is touched, and no directory is removed.

use std::ffi::CStr;
use std::io;

use rustix::fs::AtFlags;
use rustix::io::{Errno, retry_on_intr};

use super::meta::{Kind, Meta};
use super::open_file::OpenFile;
use super::root::Root;

/// Removes the name `path` beneath `root`, if it is a name of `file`, or without a `file` of any regular file. Blocks.
pub(crate) fn unlink(root: &Root, path: &CStr, file: Option<&OpenFile>) -> io::Result<()> {
    if let Some(file) = file {
        check_kind(file)?;
    }
    let (parent, name) = root.resolver.parent(path)?;
    let there = Meta::from(rustix::fs::statat(
        &parent,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?);
    match file {
        Some(file) if (there.device, there.inode) != (file.meta.device, file.meta.inode) => {
            return Err(Errno::STALE.into());
        }
        Some(_) => {}
        None => regular(there.kind)?,
    }
    Ok(retry_on_intr(|| {
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())
    })?)
}

/// Fails unless `file` is a regular file, whose name may be changed.
pub(crate) fn check_kind(file: &OpenFile) -> Result<(), Errno> {
    regular(file.meta.kind)
}

fn regular(kind: Kind) -> Result<(), Errno> {
    match kind {
        Kind::Regular => Ok(()),
        Kind::Directory => Err(Errno::ISDIR),
        Kind::Other => Err(Errno::INVAL),
    }
}
