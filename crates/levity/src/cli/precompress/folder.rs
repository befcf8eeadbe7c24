//! An open folder, and the files in it.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use levity_disk::Meta;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// An open folder. All paths are relative to one, so that a folder that becomes a link leads nowhere else.
#[derive(Debug)]
pub(super) struct Folder {
    pub fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder to be walked; here a link is followed.
    ///
    /// # Errors
    /// Those of `open`, among them `ENOTDIR`.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder {
            fd: openat(CWD, path, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// Opens a folder in this one; a link is an error.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn child(&self, name: &CStr) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder {
            fd: openat(&self.fd, name, flags, Mode::empty())?,
            path: self.path(name),
        })
    }

    /// The path of this folder, for messages.
    pub fn own_path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in this folder, for messages.
    pub fn path(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// The metadata of a file in this folder; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of `fstatat`, except `ENOENT`.
    pub fn meta(&self, name: &CStr) -> io::Result<Option<Meta>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Meta::from(stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The permissions of a file that exists, in bits such as 0o644. Blocks.
    ///
    /// # Errors
    /// Those of `fstatat`.
    pub fn permissions(&self, name: &CStr) -> io::Result<u32> {
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(stat.st_mode & 0o777)
    }

    /// All names in this folder, sorted.
    ///
    /// # Errors
    /// Those of `getdents64`.
    pub fn names(&self) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_owned();
            if ![&b"."[..], b".."].contains(&name.as_bytes()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
