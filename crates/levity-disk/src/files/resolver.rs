//! Paths beneath one directory, resolved by `openat2`, so that the kernel itself keeps a request inside
//! its root (Linux 5.6).

use std::ffi::{CStr, CString};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use super::closer;
use super::crossing::{self, KnownDevices, OtherDevice};
use super::meta::Meta;
use crate::syscall;

/// `openat2` says EAGAIN when a rename raced with a `..` in the path, and means "again".
const RACES_MAX: usize = 16;

/// Whether a symbolic link may lead out of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Links are followed as long as they stay beneath the root (`RESOLVE_BENEATH`).
    Beneath,
    /// Links are followed wherever they lead. A path itself may still not: one that starts with a
    /// slash or has a `..` is refused.
    Follow,
}

/// The directory of a root and the rules for paths beneath it.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) directory: ManuallyDrop<OwnedFd>,
    /// `st_dev` of `directory`.
    pub(super) directory_device: u64,
    /// `st_dev` of the root: of `directory`, or of the single file in it.
    pub(super) device: u64,
    /// The only name that there is.
    pub(super) single: Option<CString>,
    pub(super) symlinks: Symlinks,
}

impl Resolver {
    /// The name to look up for `path`, which in a root of a single file is always the same one.
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

    /// Opens `name` until no rename interferes, if it leads to no device but those `known`. What the open
    /// says is the inner result.
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

    /// The metadata of what a path leads to, without opening it for reading. Blocks.
    ///
    /// # Errors
    /// [`OtherDevice`] as [`Root::open_waiting`].
    pub(super) fn metadata(&self, path: &CStr, known: KnownDevices<'_>) -> io::Result<Meta> {
        let name = self.name(path)?;
        let open = |resolve| self.openat2(name, HANDLE, resolve);
        let fd = self.within(name, known, self.resolve(), open)??;
        Ok(Meta::from(rustix::fs::fstat(&fd)?))
    }

    /// The directory that holds the last name of `path`, through no symbolic link and never outside the
    /// root, and that name. Blocks.
    ///
    /// # Errors
    /// EISDIR when the last name can only be a directory's; as [`Root::open_straight`].
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
        let flags = HANDLE | OFlags::DIRECTORY;
        let parent = settled(|| self.openat2(&directory, flags, STRAIGHT))?;
        let leaf = CStr::from_bytes_with_nul(&name.to_bytes_with_nul()[leaf..]);
        Ok((parent, leaf.expect("the end of a name with its zero")))
    }

    pub(super) fn openat2(
        &self,
        name: &CStr,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| syscall::openat2(&*self.directory, name, flags, resolve))
    }
}

impl Drop for Resolver {
    /// By the threads that close files: a loop may be the last to hold a root that was replaced, and if the
    /// directory has been removed by then, the close frees it and may wait for the journal.
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing reads the field afterwards.
        let directory = unsafe { ManuallyDrop::take(&mut self.directory) };
        closer::close(self.directory_device, directory);
    }
}

/// Opens until no rename interferes.
fn settled<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..RACES_MAX {
        match open() {
            Err(Errno::AGAIN) => continue,
            result => return result,
        }
    }
    Err(Errno::BUSY)
}

pub(super) const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Beneath the root and along no link of any kind, whatever the root itself allows.
pub(super) const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Whether a path on its own, without any link, could lead out of its root.
fn leaves(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Whether an error means that the path led out of its root, by `..` or by a symbolic link.
pub fn left_root(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}
