//! Giving names to files, and changing them.
//!
//! Both directories are opened first, beneath the root and without following links; the kernel changes the names
//! in these directories only.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::open_file::OpenFile;
use super::root::Root;
use super::unlink;

/// Gives `file` the name `path`. Blocks.
pub(crate) fn link(file: &OpenFile, root: &Root, path: &CStr) -> io::Result<()> {
    unlink::check_kind(file)?;
    let (parent, name) = root.resolver.parent(path)?;
    let linked = file.link_temporary(|temporary| temporary.move_to(&parent, name));
    Ok(linked.unwrap_or_else(|| link_fd(file.as_fd(), parent.as_fd(), name))?)
}

fn link_fd(file: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = AtFlags::EMPTY_PATH;
    match retry_on_intr(|| rustix::fs::linkat(file, c"", parent, name, flags)) {
        // Before Linux 6.10 the flag takes CAP_DAC_READ_SEARCH. The name may also be in a folder that was removed.
        Err(Errno::NOENT) => link_through_proc(file, parent, name),
        result => result,
    }
}

fn link_through_proc(
    file: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = AtFlags::SYMLINK_FOLLOW;
    retry_on_intr(|| rustix::fs::linkat(CWD, &path, parent, name, flags))
}

/// Gives the file called `from` the name `to`. Blocks.
pub(crate) fn rename(root: &Root, from: &CStr, to: &CStr, replace: bool) -> io::Result<()> {
    let (old_parent, old) = root.resolver.parent(from)?;
    let (new_parent, new) = root.resolver.parent(to)?;
    let flags = match replace {
        true => RenameFlags::empty(),
        false => RenameFlags::NOREPLACE,
    };
    Ok(retry_on_intr(|| {
        rustix::fs::renameat_with(&old_parent, old, &new_parent, new, flags)
    })?)
}

#[cfg(test)]
mod tests {
    use super::super::create;
    use super::super::resolver::Symlinks;
    use super::*;
    use std::fs;

    #[test]
    fn a_descriptor_is_linked_in_both_ways() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let file = create::nameless(&root, c".", 0o600).unwrap();
        let folder = root.resolver.folder(c".").unwrap();
        for (name, link) in [
            (c"one", link_fd as fn(_, _, _) -> _),
            (c"two", link_through_proc),
        ] {
            link(file.as_fd(), folder.as_fd(), name).unwrap();
            let taken: Result<(), Errno> = link(file.as_fd(), folder.as_fd(), name);
            assert_eq!(taken, Err(Errno::EXIST));
        }
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 2);
        assert_eq!(file.refresh().unwrap().links, 2);
    }
}
