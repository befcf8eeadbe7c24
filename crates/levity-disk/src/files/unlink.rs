//! Removing the name of a file that is open.
//!
//! A path is walked anew when its name is to be removed, and what it leads to then may be something else:
//! a folder on the way was replaced by a symbolic link, or the name was given to another file. So the
//! parent is opened first, beneath the root and through no link; the name is looked at in that very
//! directory, and removed there only if it is that of the open file. The number of an open file is not
//! given to another one.
//!
//! The kernel cannot compare and remove in one call. In between someone may give the name to another
//! file, which then loses it; but that takes the right to write to the directory, and with it the right
//! to remove what is in it. Nothing outside that directory is ever touched, and no directory at all.

use std::ffi::CStr;
use std::io;

use rustix::fs::AtFlags;
use rustix::io::{Errno, retry_on_intr};

use super::meta::{Kind, Meta};
use super::open_file::OpenFile;
use super::root::Root;

/// Removes the name `path` beneath `root`, if it is one of `file`. Blocks.
pub(crate) fn unlink(root: &Root, path: &CStr, file: &OpenFile) -> io::Result<()> {
    check_kind(file)?;
    let (parent, name) = root.parent(path)?;
    let there = Meta::from(rustix::fs::statat(
        &parent,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?);
    if (there.device, there.inode) != (file.meta.device, file.meta.inode) {
        return Err(Errno::STALE.into());
    }
    Ok(retry_on_intr(|| {
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())
    })?)
}

/// Whether it is a file whose name may be removed: a regular one.
pub(crate) fn check_kind(file: &OpenFile) -> Result<(), Errno> {
    match file.meta.kind {
        Kind::Regular => Ok(()),
        Kind::Directory => Err(Errno::ISDIR),
        Kind::Other => Err(Errno::INVAL),
    }
}
