//! Resolution of paths beneath one directory by `openat2` (Linux 5.6), so that the kernel itself keeps a
//! request inside its root.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use super::closer::DeferredFd;
use super::crossing::{self, HANDLE, KnownDevices, OtherDevice};
use super::meta::Meta;
use super::secrets::Secrets;
use crate::syscall;

/// `openat2` fails with EAGAIN when a rename raced with a `..` in the path: attempts before giving up.
const RACES_MAX: usize = 16;

/// Whether a symbolic link may lead out of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Links are followed if they stay beneath the root (`RESOLVE_BENEATH`).
    Beneath,
    /// All links are followed. A path that starts with a slash or contains a `..` is refused nevertheless.
    Follow,
}

/// The directory of a root and the rules for paths beneath it.
#[derive(Debug)]
pub(super) struct Resolver {
    /// Closed by the closing threads: an event loop may hold the last reference to a replaced root, and the last
    /// close of a removed directory may wait for the journal.
    pub(super) directory: DeferredFd,
    /// `st_dev` of the root: of `directory`, or of the single file in it.
    pub(super) device: u64,
    /// The only name that exists.
    pub(super) single: Option<CString>,
    pub(super) symlinks: Symlinks,
    /// Files that are absent.
    pub(super) secrets: Arc<Secrets>,
}

impl Resolver {
    /// The name to look up for `path`: in a root of a single file always the same one.
    pub(super) fn name<'a>(&'a self, path: &'a CStr) -> Result<&'a CStr, Errno> {
        if self.symlinks == Symlinks::Follow && leaves(path.to_bytes()) {
            return Err(Errno::XDEV);
        }
        match &self.single {
            None => Ok(path),
            Some(name) if path == c"." || path == name.as_c_str() => Ok(name),
            Some(_) => Err(Errno::NOENT),
        }
    }

    pub(super) fn resolve(&self) -> ResolveFlags {
        match self.symlinks {
            Symlinks::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Follow => ResolveFlags::NO_MAGICLINKS,
        }
    }

    pub(super) fn handle(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        settled(|| self.openat2(name, HANDLE, self.resolve()))
    }

    /// Calls `open` unless `name` leads to a device that is not among `known`. The inner result is that of
    /// `open`.
    pub(super) fn within<T>(
        &self,
        name: &CStr,
        known: KnownDevices<'_>,
        resolve: ResolveFlags,
        open: impl Fn(ResolveFlags) -> Result<T, Errno>,
    ) -> Result<Result<T, Errno>, OtherDevice> {
        if known.are_only(self.device) {
            match settled(|| open(resolve | ResolveFlags::NO_XDEV)) {
                Err(Errno::XDEV) => {}
                result => return Ok(result),
            }
        }
        let start = crossing::Start {
            directory: self.directory.as_fd(),
            device: self.device,
            beneath: resolve.contains(ResolveFlags::BENEATH),
        };
        match crossing::first_new(start, name, known) {
            Some(device) => Err(OtherDevice(device)),
            None => Ok(settled(|| open(resolve))),
        }
    }

    /// The metadata of the file at a path, without opening it for reading. Blocks.
    ///
    /// # Errors
    /// [`OtherDevice`] if the path leads to a device that is not among `known`.
    pub(super) fn metadata(&self, path: &CStr, known: KnownDevices<'_>) -> io::Result<Meta> {
        let name = self.name(path)?;
        let open = |resolve| self.openat2(name, HANDLE, resolve);
        let fd = self.within(name, known, self.resolve(), open)??;
        Ok(Meta::from(rustix::fs::fstat(&fd)?))
    }

    /// Opens the directory that contains the last name of `path`, without following symbolic links and never
    /// outside the root. Returns it with that name. Blocks.
    ///
    /// # Errors
    /// ELOOP if a link is on the way, EXDEV if the path leaves the root, EISDIR if the last name can only be a
    /// directory.
    pub(super) fn parent<'a>(&'a self, path: &'a CStr) -> io::Result<(OwnedFd, &'a CStr)> {
        let name = self.name(path)?;
        let bytes = name.to_bytes();
        let (directory, leaf) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (CString::new(&bytes[..slash + 1])?, slash + 1),
            None => (c".".to_owned(), 0),
        };
        if matches!(&bytes[leaf..], b"" | b"." | b"..") {
            return Err(Errno::ISDIR.into());
        }
        let parent = self.directory_at(&directory)?;
        let leaf = CStr::from_bytes_with_nul(&name.to_bytes_with_nul()[leaf..]);
        Ok((parent, leaf.expect("the end of a name with its zero")))
    }

    /// Opens the directory `path`, without following symbolic links and never outside the root. Blocks.
    ///
    /// # Errors
    /// ELOOP if a link is on the way, EXDEV if the path leaves the root, ENOTDIR, ENOENT.
    pub(super) fn folder(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        self.directory_at(self.name(path)?)
    }

    fn directory_at(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = HANDLE | OFlags::DIRECTORY;
        settled(|| self.openat2(name, flags, NO_LINKS))
    }

    pub(super) fn openat2(
        &self,
        name: &CStr,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| syscall::openat2(&self.directory, name, flags, resolve))
    }
}

/// Repeats `open` while a rename interferes.
fn settled<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..RACES_MAX {
        match open() {
            Err(Errno::AGAIN) => continue,
            result => return result,
        }
    }
    Err(Errno::BUSY)
}

/// Beneath the root and without following any link, whatever the root allows.
pub(super) const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Whether a path could leave its root even without a link.
fn leaves(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Whether an error means that the path left its root, by `..` or by a symbolic link.
pub fn left_root(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}
