//! Creating files beneath a root.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::meta::Kind;
use super::open_file::OpenFile;
use super::root::Root;
use super::temporary::TemporaryName;

/// Access of a file that is created here.
pub(super) const READ_AND_WRITE: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

/// With a name that nothing has yet, not even a link.
pub(super) const NEW: OFlags = READ_AND_WRITE
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW);

/// Creates a file without a name that can be linked to one. Blocks.
pub(crate) fn nameless(root: &Root, folder: &CStr, mode: u32) -> io::Result<OpenFile> {
    let directory = root.resolver.folder(folder)?;
    let mode = permissions(mode);
    match without_name(&directory, OFlags::empty(), mode) {
        Err(errno) if is_unsupported(errno) => temporary(root, directory, mode),
        fd => open_file(fd?, root),
    }
}

/// Creates a file under a name that nothing has yet. Blocks.
pub(crate) fn named(root: &Root, path: &CStr, mode: u32) -> io::Result<OpenFile> {
    let (parent, name) = root.resolver.parent(path)?;
    let fd = open(&parent, name, NEW, permissions(mode))?;
    open_file(fd, root)
}

/// Opens the file called `path`, or creates it. Blocks.
pub(crate) fn appended(root: &Root, path: &CStr, mode: u32) -> io::Result<OpenFile> {
    let (parent, name) = root.resolver.parent(path)?;
    // Without O_APPEND, under which Linux ignores the offset of a `pwrite`.
    let flags = READ_AND_WRITE | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let fd = open(&parent, name, flags, permissions(mode))?;
    open_file(fd, root)
}

/// A file in `directory` with a name for the meantime.
fn temporary(root: &Root, directory: OwnedFd, mode: Mode) -> io::Result<OpenFile> {
    let (name, fd) = TemporaryName::find(directory, |directory, name| {
        open(directory, name, NEW, mode)
    })?;
    let mut file = OpenFile::written(fd, root.atime)?;
    file.set_temporary(name);
    Ok(file)
}

fn open_file(fd: OwnedFd, root: &Root) -> io::Result<OpenFile> {
    let file = OpenFile::written(fd, root.atime)?;
    match file.meta.kind {
        Kind::Regular => Ok(file),
        _ => Err(Errno::INVAL.into()),
    }
}

fn open(directory: &OwnedFd, name: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| rustix::fs::openat(directory, name, flags, mode))
}

/// Creates a file without a name in `directory`.
pub(super) fn without_name(
    directory: impl AsFd,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = READ_AND_WRITE | OFlags::TMPFILE | flags;
    retry_on_intr(|| rustix::fs::openat(&directory, c".", flags, mode))
}

/// Whether an error of [`without_name`] means that the file system, or (EISDIR) the kernel, cannot do that.
pub(super) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::ISDIR)
}

/// The permission bits of `mode`.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

#[cfg(test)]
mod tests {
    use super::super::link::link;
    use super::super::resolver::Symlinks;
    use super::super::temporary::TEMPORARY_PREFIX;
    use super::*;
    use std::fs;

    /// The way that file systems without `O_TMPFILE` take.
    #[test]
    fn a_temporary_name_goes_with_the_file_or_becomes_another() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let names = || {
            let entries = fs::read_dir(tree.path()).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let create = || {
            let folder = root.resolver.folder(c".").unwrap();
            temporary(&root, folder, permissions(0o600)).unwrap()
        };
        let [dropped, linked] = [create(), create()];
        assert_eq!(names().len(), 2);
        assert!(
            names()
                .iter()
                .all(|name| name.starts_with(TEMPORARY_PREFIX))
        );
        drop(dropped);
        // Another test may have a disk, whose closing threads then do it.
        let start = std::time::Instant::now();
        while names().len() > 1 {
            assert!(start.elapsed().as_secs() < 30, "{:?}", names());
            std::thread::yield_now();
        }
        fs::write(tree.path().join("taken"), "").unwrap();
        let error = link(&linked, &root, c"taken").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        link(&linked, &root, c"final").unwrap();
        assert_eq!(names(), ["final", "taken"]);
        link(&linked, &root, c"second").unwrap();
        drop(linked);
        assert_eq!(names(), ["final", "second", "taken"]);
    }
}
