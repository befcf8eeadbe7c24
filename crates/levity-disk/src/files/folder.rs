//! Making and removing folders.
//!
//! The folder around it is opened first, beneath the root and without following links.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::retry_on_intr;

use super::create::permissions;
use super::root::Root;

/// Makes the folder `path` beneath `root`. Blocks.
pub(crate) fn make(root: &Root, path: &CStr, mode: u32) -> io::Result<()> {
    let (parent, name) = root.resolver.parent(path)?;
    Ok(retry_on_intr(|| {
        rustix::fs::mkdirat(&parent, name, permissions(mode))
    })?)
}

/// Removes the empty folder `path` beneath `root`. Blocks.
pub(crate) fn remove(root: &Root, path: &CStr) -> io::Result<()> {
    let (parent, name) = root.resolver.parent(path)?;
    Ok(retry_on_intr(|| {
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
    })?)
}

/// Checks that the user of this process may make and remove names in the folder `path`. Blocks.
///
/// # Errors
/// EACCES or EROFS if it may not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(retry_on_intr(|| {
        rustix::fs::accessat(CWD, path, access, AtFlags::empty())
    })?)
}
