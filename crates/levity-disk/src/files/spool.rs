//! Files without a name, for data that does not fit into memory: written, read back and freed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::atime;
use super::create::{self, NEW};
use super::meta::Meta;
use super::open_file::OpenFile;
use super::temporary;

/// No other user may open the file, through `/proc` or by the name that it may have for a moment.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The start of the name that a file may have for a moment.
const PREFIX: &str = ".levity-spool-";

/// A directory in which [`op::Create::Spooled`](crate::op::Create::Spooled) creates files without a name.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    directory: OwnedFd,
    device: u64,
    atime: atime::Policy,
    /// The file system supports `O_TMPFILE`. If not, files have a name for a moment.
    nameless: bool,
}

impl Spool {
    /// Opens the directory `path`, and tries to create a file there. Blocks.
    ///
    /// The directory should be on a local file system, best on a disk: tmpfs takes memory, and NFS keeps a name
    /// for each file while it is open.
    ///
    /// # Errors
    /// The errors of `open` for a directory and for a new file in it: ENOENT, ENOTDIR, EACCES, EROFS, ENOSPC.
    pub fn open(path: &Path) -> io::Result<Arc<Spool>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let spool = Spool {
            path: path.to_owned(),
            device: Meta::from(rustix::fs::fstat(&directory)?).device,
            atime: atime::Policy::of_mount(&directory)?,
            nameless: is_nameless(&directory)?,
            directory,
        };
        Ok(Arc::new(spool))
    }

    /// The path that [`Spool::open`] was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `st_dev`.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Creates an empty file, open for reading and writing. Blocks.
    pub(crate) fn create(&self) -> io::Result<OpenFile> {
        let fd = match self.nameless {
            true => without_name(&self.directory),
            false => with_name(&self.directory),
        };
        OpenFile::written(fd?, self.atime)
    }
}

/// Whether `O_TMPFILE` works; if not, tries the other way. Leaves no file behind.
fn is_nameless(directory: &OwnedFd) -> Result<bool, Errno> {
    match without_name(directory) {
        Ok(_) => Ok(true),
        Err(errno) if create::is_unsupported(errno) => with_name(directory).map(|_| false),
        Err(errno) => Err(errno),
    }
}

fn without_name(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    // EXCL: it cannot be linked to a name later either.
    create::without_name(directory, OFlags::EXCL, MODE)
}

/// If the process is killed between the two calls, an empty file is left.
fn with_name(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    let open = |name: &CStr| rustix::fs::openat(&directory, name, NEW, MODE);
    let (name, fd) = temporary::find(PREFIX, open)?;
    rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn directory(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn both_ways_create_a_private_file_without_a_name() {
        let tree = tempfile::tempdir().unwrap();
        let folder = directory(tree.path());
        let mut files = vec![with_name(&folder).unwrap(), with_name(&folder).unwrap()];
        files.extend(without_name(&folder));
        for file in files {
            let stat = fstat(&file).unwrap();
            assert_eq!((stat.st_mode & 0o7777, stat.st_nlink), (0o600, 0));
            let flags = rustix::io::fcntl_getfd(&file).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            assert_eq!(rustix::io::pwrite(&file, b"bytes", 3).unwrap(), 5);
            let mut read = [1; 9];
            assert_eq!(rustix::io::pread(&file, &mut read, 0).unwrap(), 8);
            assert_eq!(&read[..8], b"\0\0\0bytes");
        }
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_is_tried_when_it_is_opened() {
        let tree = tempfile::tempdir().unwrap();
        let spool = Spool::open(tree.path()).unwrap();
        assert_eq!(spool.path(), tree.path());
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 0);
        let refused = |name: &str| {
            let error = Spool::open(&tree.path().join(name)).unwrap_err();
            error.raw_os_error()
        };
        fs::write(tree.path().join("file"), "").unwrap();
        assert_eq!(refused("absent"), Some(libc::ENOENT));
        assert_eq!(refused("file"), Some(libc::ENOTDIR));
        // A directory in which not even root can create files.
        let error = Spool::open(Path::new("/proc/self")).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o500)).unwrap();
        let allowed = Spool::open(tree.path()).is_ok();
        assert_eq!(allowed, rustix::process::geteuid().is_root());
    }
}
