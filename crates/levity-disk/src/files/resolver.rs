//! Resolution of paths beneath one directory by `openat2` (Linux 5.6), so that the kernel itself keeps a
//! request inside its root.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use super::closer::DeferredFd;
use super::crossing::{self, HANDLE, KnownDevices, LINKS_MAX, OtherDevice};
use super::meta::Meta;
use super::secrets::Secrets;
use crate::syscall;

/// `openat2` fails with EAGAIN when a rename raced with a `..` in the path: attempts before giving up.
const RACES_MAX: usize = 16;

/// Whether a symbolic link may lead out of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Links are followed if they stay beneath the root (`RESOLVE_BENEATH`). An absolute one does if its target begins with the
    /// path of the root.
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
    /// The absolute paths of `directory`: as configured, and without links. None for a single file.
    pub(super) paths: Vec<PathBuf>,
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

    /// Calls `open` with `name` unless that leads to a device that is not among `known`. The inner result is that of
    /// `open`.
    ///
    /// For the kernel each absolute link leaves the root, wherever it leads. So the name is written anew without the link, if
    /// that leads beneath the root, and the kernel confines the new one as it does any other.
    pub(super) fn within<T>(
        &self,
        name: &CStr,
        known: KnownDevices<'_>,
        resolve: ResolveFlags,
        open: impl Fn(&CStr, ResolveFlags) -> Result<T, Errno>,
    ) -> Result<Result<T, Errno>, OtherDevice> {
        let mut at = Cow::Borrowed(name);
        for _ in 0..LINKS_MAX {
            let opened = self.on_known(&at, known, resolve, &open)?;
            if !matches!(opened, Err(Errno::XDEV)) {
                return Ok(opened);
            }
            match self.without_absolute_link(&at, known, resolve) {
                Some(next) => at = Cow::Owned(next),
                None => return Ok(opened),
            }
        }
        Ok(Err(Errno::LOOP))
    }

    fn on_known<T>(
        &self,
        name: &CStr,
        known: KnownDevices<'_>,
        resolve: ResolveFlags,
        open: impl Fn(&CStr, ResolveFlags) -> Result<T, Errno>,
    ) -> Result<Result<T, Errno>, OtherDevice> {
        if known.are_only(self.device) {
            match settled(|| open(name, resolve | ResolveFlags::NO_XDEV)) {
                Err(Errno::XDEV) => {}
                result => return Ok(result),
            }
        }
        match crossing::first_new(self.start(resolve), name, known) {
            Some(device) => Err(OtherDevice(device)),
            None => Ok(settled(|| open(name, resolve))),
        }
    }

    /// The name beneath the root to which the first absolute link along `name` leads; `None` if there is none, or if it leads
    /// elsewhere.
    fn without_absolute_link(
        &self,
        name: &CStr,
        known: KnownDevices<'_>,
        resolve: ResolveFlags,
    ) -> Option<CString> {
        let follows = !resolve.contains(ResolveFlags::NO_SYMLINKS);
        if !follows || !resolve.contains(ResolveFlags::BENEATH) || self.paths.is_empty() {
            return None;
        }
        let target = crossing::absolute_target(self.start(resolve), name, known)?;
        let mut paths = self.paths.iter();
        let beneath = paths.find_map(|path| target.strip_prefix(path).ok())?;
        let beneath = match beneath.as_os_str().is_empty() {
            true => Path::new("."),
            false => beneath,
        };
        CString::new(beneath.as_os_str().as_bytes()).ok()
    }

    fn start(&self, resolve: ResolveFlags) -> crossing::Start<'_> {
        crossing::Start {
            directory: self.directory.as_fd(),
            device: self.device,
            beneath: resolve.contains(ResolveFlags::BENEATH),
        }
    }

    /// The metadata of the file at a path, without opening it for reading. Blocks.
    ///
    /// # Errors
    /// [`OtherDevice`] if the path leads to a device that is not among `known`.
    pub(super) fn metadata(&self, path: &CStr, known: KnownDevices<'_>) -> io::Result<Meta> {
        let name = self.name(path)?;
        let fd = self.handle(name, known)?;
        Ok(Meta::from(rustix::fs::fstat(&fd)?))
    }

    /// Opens `name` without reading it (`O_PATH`). Blocks.
    ///
    /// # Errors
    /// [`OtherDevice`] as [`Resolver::metadata`].
    pub(super) fn handle(&self, name: &CStr, known: KnownDevices<'_>) -> io::Result<OwnedFd> {
        let open = |name: &CStr, resolve| self.openat2(name, HANDLE, resolve);
        Ok(self.within(name, known, self.resolve(), open)??)
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
