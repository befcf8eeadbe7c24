//! The devices on the way along a path, found without accessing a device that is not known yet.
//!
//! A job waits in the queue of one device, and the time that it takes is charged to that device. But a path
//! may lead into another mount: through a symbolic link, or because the mount is new. If an open entered
//! it, a mount that does not answer would take the slots of a device that does. So an open accesses only
//! devices that its job was charged to (`RESOLVE_NO_XDEV`). If the path leads beyond them, it is walked here
//! one name at a time, and the job moves to the queue of the first device that is new to it.
//!
//! The walk only selects the queue. The kernel decides what is opened in the end, in one call from the root.
//! If a link or a mount changes in between, one job may wait for a device that it is not charged to.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::mounts::{Table, UNKNOWN};
use crate::syscall::openat2;

/// Bound on the links that a walk follows, as in the kernel (MAXSYMLINKS).
pub(super) const LINKS_MAX: usize = 40;

/// Bound on the devices that one job is charged to, one after the other. The last one is charged for all
/// others on the way.
const DEVICES_MAX: usize = 8;

/// Opens a location in the tree, not the file there (`O_PATH`).
pub(super) const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// For one name: opens a link itself instead of its target.
const STEP: OFlags = HANDLE.union(OFlags::NOFOLLOW);

/// The devices that a job may access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownDevices<'a> {
    /// The devices that it was charged to before.
    pub(crate) previous: &'a [u64],
    /// The device that it is charged to now.
    pub(crate) charged: u64,
}

impl KnownDevices<'_> {
    pub(crate) fn only(device: u64) -> KnownDevices<'static> {
        KnownDevices {
            previous: &[],
            charged: device,
        }
    }

    /// Whether `device` is the only one.
    pub(crate) fn are_only(&self, device: u64) -> bool {
        self.charged == device && self.previous.is_empty()
    }

    fn has(&self, device: u64) -> bool {
        self.charged == device || self.previous.contains(&device)
    }
}

/// An error: an open has reached a device that its job was not charged to. The scheduler moves the job to the
/// queue of that device; nobody else sees the error.
#[derive(Debug)]
pub(crate) struct OtherDevice(pub(crate) u64);

impl From<OtherDevice> for io::Error {
    fn from(other: OtherDevice) -> io::Error {
        io::Error::other(other)
    }
}

impl OtherDevice {
    /// The device, if `error` is an `OtherDevice`.
    pub(crate) fn of(error: &io::Error) -> Option<u64> {
        let other = error.get_ref()?.downcast_ref::<OtherDevice>()?;
        Some(other.0)
    }
}

impl fmt::Display for OtherDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the path leads to device {:#x}", self.0)
    }
}

impl std::error::Error for OtherDevice {}

/// Where a walk begins, and how far it may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    /// `st_dev` of the directory, which may be accessed.
    pub(crate) device: u64,
    /// A link that leads out of the directory ends the walk: the open would fail.
    pub(crate) beneath: bool,
}

/// The first device on the way along `path` that is not among `known`; `None` if there is none, or if the
/// path does not exist. Blocks on the known devices, and on no other.
pub(crate) fn first_new(start: Start<'_>, path: &CStr, known: KnownDevices<'_>) -> Option<u64> {
    if known.previous.len() + 1 >= DEVICES_MAX {
        return None;
    }
    Walk::new(start, path).run(known).ok().flatten()
}

/// The absolute path to which the first absolute link along `path` leads, of a walk that may not leave the directory; `None` if
/// there is no such link. Blocks on the known devices, and on no other.
pub(super) fn absolute_target(
    start: Start<'_>,
    path: &CStr,
    known: KnownDevices<'_>,
) -> Option<PathBuf> {
    let mut walk = Walk::new(start, path);
    let ended = walk.run(known);
    ended.err().and(walk.absolute)
}

/// As [`first_new`], for an absolute path. The device of `/` is accessed in any case.
pub(crate) fn first_new_from_top(path: &Path, known: KnownDevices<'_>) -> io::Result<Option<u64>> {
    let Some(device) = Table::now().device(b"/") else {
        return Ok(None);
    };
    let top = rustix::fs::open("/", HANDLE, Mode::empty())?;
    let start = Start {
        directory: top.as_fd(),
        device,
        beneath: false,
    };
    let path = CString::new(path.as_os_str().as_bytes())?;
    Ok(first_new(start, &path, known))
}

/// Goes along `path`, which is absolute, from device to device. `enter` is called for each before it is accessed, and ends the walk
/// with an error.
pub(super) fn along(path: &Path, mut enter: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let charged = Table::now().device(b"/").unwrap_or(UNKNOWN);
    enter(charged)?;
    let mut previous = Vec::new();
    loop {
        let known = KnownDevices {
            previous: &previous,
            charged,
        };
        let Some(device) = first_new_from_top(path, known)? else {
            return Ok(());
        };
        enter(device)?;
        previous.push(device);
    }
}

struct Walk<'a> {
    start: Start<'a>,
    /// The directory that the walk has reached; `None` for the start.
    at: Option<OwnedFd>,
    /// Levels below the start.
    depth: usize,
    /// The names that are left to walk.
    rest: VecDeque<CString>,
    links: usize,
    /// Where the absolute link leads that has ended the walk.
    absolute: Option<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(start: Start<'a>, path: &CStr) -> Self {
        let mut walk = Walk {
            start,
            at: None,
            depth: 0,
            rest: VecDeque::new(),
            links: 0,
            absolute: None,
        };
        walk.prepend(path.to_bytes());
        walk
    }

    fn run(&mut self, known: KnownDevices<'_>) -> Result<Option<u64>, Errno> {
        while !self.rest.is_empty() && !self.stays()? {
            let Some(name) = self.rest.pop_front() else {
                break;
            };
            let up = name.as_c_str() == c"..";
            if up && self.depth == 0 && self.start.beneath {
                return Err(Errno::XDEV);
            }
            let next = match openat2(self.fd(), &name, STEP, ResolveFlags::NO_XDEV) {
                Err(Errno::XDEV) => {
                    let device = self.device_of(&name)?;
                    if device != self.start.device && !known.has(device) {
                        return Ok(Some(device));
                    }
                    openat2(self.fd(), &name, STEP, ResolveFlags::empty())?
                }
                next => next?,
            };
            if let Some(device) = self.enter(next, up, known)? {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Whether the rest of the path is in the present mount and without a link: the common case once a mount
    /// is reached.
    fn stays(&self) -> Result<bool, Errno> {
        let names: Vec<_> = self.rest.iter().map(|name| name.to_bytes()).collect();
        let rest = CString::new(names.join(&b'/')).map_err(|_| Errno::INVAL)?;
        let no_symlinks = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        match openat2(self.fd(), &rest, HANDLE, no_symlinks) {
            Ok(_) => Ok(true),
            Err(Errno::XDEV | Errno::LOOP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Enters `next`, or the start of its target if it is a link. Returns the device of `/` if a link leads
    /// there and that device is not known.
    fn enter(
        &mut self,
        next: OwnedFd,
        up: bool,
        known: KnownDevices<'_>,
    ) -> Result<Option<u64>, Errno> {
        let stat = rustix::fs::fstat(&next)?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            self.depth = match up {
                true => self.depth.saturating_sub(1),
                false => self.depth + 1,
            };
            self.at = Some(next);
            return Ok(None);
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(&next, c"", Vec::new())?;
        if target.to_bytes().starts_with(b"/") {
            if self.start.beneath {
                let mut absolute = PathBuf::from(OsStr::from_bytes(target.to_bytes()));
                let rest = self.rest.iter();
                absolute.extend(rest.map(|name| OsStr::from_bytes(name.to_bytes())));
                self.absolute = Some(absolute);
                return Err(Errno::XDEV);
            }
            let device = Table::now().device(b"/").ok_or(Errno::NOENT)?;
            if device != self.start.device && !known.has(device) {
                return Ok(Some(device));
            }
            self.at = Some(rustix::fs::open("/", HANDLE, Mode::empty())?);
        }
        self.prepend(target.to_bytes());
        Ok(None)
    }

    /// Puts the names of `path` before those that are left.
    fn prepend(&mut self, path: &[u8]) {
        let names = path.split(|&byte| byte == b'/').rev();
        for name in names.filter(|name| !name.is_empty() && *name != b".") {
            let name = CString::new(name).expect("the kernel's paths have no zero");
            self.rest.push_front(name);
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.at
            .as_ref()
            .map_or(self.start.directory, |at| at.as_fd())
    }

    /// `st_dev` of the mount at `name`, or of the one that `..` leads to, according to the table of mounts: the
    /// mount itself is not accessed.
    fn device_of(&self, name: &CStr) -> Result<u64, Errno> {
        let link = format!("/proc/self/fd/{}", self.fd().as_raw_fd());
        let at = rustix::fs::readlink(link, Vec::new())?;
        let at = at.to_bytes();
        let path = match name.to_bytes() {
            b".." => at[..at.iter().rposition(|&byte| byte == b'/').unwrap_or(0)].to_vec(),
            name => [at.strip_suffix(b"/").unwrap_or(at), b"/", name].concat(),
        };
        let path = if path.is_empty() { b"/".to_vec() } else { path };
        Table::now().device(&path).ok_or(Errno::NOENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Root, Symlinks};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    /// Walks `path` from `root`, for a job that is charged to the device of the root.
    fn walked(root: &Path, path: &CStr, beneath: bool) -> Option<u64> {
        let directory = rustix::fs::open(root, HANDLE, Mode::empty()).unwrap();
        let device = fs::metadata(root).unwrap().dev();
        let start = Start {
            directory: directory.as_fd(),
            device,
            beneath,
        };
        first_new(start, path, KnownDevices::only(device))
    }

    fn proc() -> Option<u64> {
        Some(fs::metadata("/proc").unwrap().dev())
    }

    #[test]
    fn a_mount_on_the_way_is_found() {
        let root = Path::new("/");
        assert_eq!(walked(root, c"proc/version", true), proc());
        assert_eq!(walked(root, c"proc", true), proc());
        assert_eq!(walked(root, c".", true), None);
        assert_eq!(walked(root, c"absent/name", true), None);
    }

    #[test]
    fn a_known_device_is_walked_through() {
        let root = rustix::fs::open("/", HANDLE, Mode::empty()).unwrap();
        let start = Start {
            directory: root.as_fd(),
            device: fs::metadata("/").unwrap().dev(),
            beneath: true,
        };
        let known = KnownDevices {
            previous: &[start.device],
            charged: proc().unwrap(),
        };
        assert_eq!(first_new(start, c"proc/version", known), None);
        let everywhere = KnownDevices {
            previous: &[start.device; DEVICES_MAX - 1],
            charged: start.device,
        };
        assert_eq!(first_new(start, c"proc/version", everywhere), None);
    }

    /// A root whose link was switched into a mount that may not answer.
    #[test]
    fn a_look_at_a_root_asks_no_new_device() {
        let tree = tempfile::tempdir().unwrap();
        let link = tree.path().join("link");
        symlink(tree.path(), &link).unwrap();
        let root = Root::open(&link, Symlinks::Beneath).unwrap();
        assert!(
            root.check(KnownDevices::only(root.device()))
                .unwrap()
                .is_none()
        );
        fs::remove_file(&link).unwrap();
        symlink("/proc", &link).unwrap();
        let other = root.check(KnownDevices::only(root.device())).unwrap_err();
        assert_eq!(OtherDevice::of(&other), proc());
        let known = KnownDevices {
            previous: &[root.device()],
            charged: proc().unwrap(),
        };
        let switched = root.check(known).unwrap().unwrap();
        assert_eq!(switched.path(), Path::new("/proc"));
    }

    #[test]
    fn links_are_followed_as_the_root_says() {
        let tree = tempfile::tempdir().unwrap();
        let (root, at) = (tree.path(), |name| tree.path().join(name));
        fs::create_dir_all(at("a/b")).unwrap();
        symlink("/proc/version", at("absolute")).unwrap();
        symlink("a/b/../../absolute", at("indirect")).unwrap();
        symlink("round", at("round")).unwrap();
        let up = "../".repeat(root.components().count());
        symlink(format!("{up}proc"), at("a/relative")).unwrap();
        for path in [c"absolute", c"indirect", c"a/relative/version"] {
            assert_eq!(walked(root, path, true), None, "{path:?} would be refused");
            // Where the tree is on a mount of its own, that of `/` may come first.
            assert!(walked(root, path, false).is_some(), "{path:?}");
        }
        assert_eq!(walked(root, c"round", false), None);
        assert_eq!(walked(root, c"a/b", false), None);
    }
}
