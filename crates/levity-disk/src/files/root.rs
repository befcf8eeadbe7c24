//! Roots, and opens beneath them.
//!
//! With `RESOLVE_CACHED` (Linux 5.12) `openat2` answers from memory or fails with EAGAIN. An event loop
//! may use that form only.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::atime;
use super::closer::{self, DeferredFd};
use super::crossing::HANDLE;
use super::crossing::{self, KnownDevices, OtherDevice};
use super::meta::{Kind, Meta};
use super::mounts::Beneath;
use super::open_file::{Location, NonblockingCalls, OpenFile};
use super::probe::{self, FileSystem};
use super::resolver::{NO_LINKS, Resolver, Symlinks};
use super::secrets::Secrets;
use crate::syscall;

/// A directory whose files may be opened, or a single file.
#[derive(Debug)]
pub struct Root {
    /// The path that was configured.
    named: PathBuf,
    path: PathBuf,
    pub(super) resolver: Arc<Resolver>,
    /// `st_dev` and `st_ino` of the resolver's directory.
    identity: (u64, u64),
    file_system: FileSystem,
    /// The kernel supports `RESOLVE_CACHED`, and the file system answers from memory.
    cached: bool,
    /// When reads update the access time of a file that was opened without `O_NOATIME`.
    pub(super) atime: atime::Policy,
    /// The mounts beneath it.
    mounts: Beneath,
}

impl Root {
    /// Opens `path`, a directory or a single regular file, and probes its file system.
    ///
    /// Blocks, and reads a few pages of one file (see [`FileSystem`]). `path` is resolved once, and the directory
    /// is kept open: [`op::CheckRoot`](crate::op::CheckRoot) resolves the path again. A single file is looked
    /// up by name at each open, under its own name or `.`; every other name is absent.
    ///
    /// # Errors
    /// The errors of `open`; `InvalidInput` for anything but a directory or a regular file; `Unsupported`
    /// where `openat2` is missing (Linux before 5.6, or a seccomp filter that hides it).
    pub fn open(path: &Path, symlinks: Symlinks) -> io::Result<Arc<Root>> {
        Root::open_without(Arc::default(), path, symlinks)
    }

    /// As [`Root::open`], for files that are sent to clients: opens and listings do not find `secrets`. Blocks.
    ///
    /// # Errors
    /// The errors of [`Root::open`].
    pub fn open_without(
        secrets: Arc<Secrets>,
        path: &Path,
        symlinks: Symlinks,
    ) -> io::Result<Arc<Root>> {
        let resolved = fs::canonicalize(path)?;
        let (folder, single) = split(&resolved)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(folder, flags, Mode::empty())?;
        let identity = identity(&rustix::fs::fstat(&directory)?);
        let cached = knows_cached(&directory)?;
        let named = single.as_deref().unwrap_or(c".");
        let device = Meta::from(rustix::fs::statat(
            &directory,
            named,
            rustix::fs::AtFlags::empty(),
        )?)
        .device;
        let file_system = probe::file_system(&directory, single.as_deref(), device)?;
        let atime = match single.as_deref() {
            None => atime::Policy::of_mount(&directory),
            Some(name) => atime::Policy::of_mount(syscall::openat2(
                &directory,
                name,
                HANDLE,
                ResolveFlags::BENEATH,
            )?),
        }?;
        let paths = match single {
            None => vec![path::absolute(path)?, resolved.clone()],
            Some(_) => Vec::new(),
        };
        Ok(Arc::new(Root {
            mounts: Beneath::default(),
            named: path.to_owned(),
            path: resolved,
            cached: cached && !file_system.may_wait,
            resolver: Arc::new(Resolver {
                directory: DeferredFd::new(directory, identity.0),
                device,
                single,
                paths,
                symlinks,
                secrets,
            }),
            identity,
            file_system,
            atime,
        }))
    }

    /// The path that [`Root::open`] was given.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// How symbolic links are followed.
    pub fn symlinks(&self) -> Symlinks {
        self.resolver.symlinks
    }

    /// The resolved path of the root: absolute, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Resolves the path of the root again. Returns the new root if the path leads elsewhere now, `None` if
    /// it still leads to this one. Blocks.
    ///
    /// No other file can have the identity of this root, because the root keeps its directory open. A
    /// changed path counts as a change too, because applications see it.
    ///
    /// # Errors
    /// The errors of [`Root::open`]; ENOTDIR if a single file has replaced a directory; [`OtherDevice`] if the
    /// path leads to a device that is not among `known`. That device is not accessed.
    pub(crate) fn check(&self, known: KnownDevices<'_>) -> io::Result<Option<Arc<Root>>> {
        if let Some(device) = crossing::first_new_from_top(&path::absolute(&self.named)?, known)? {
            return Err(OtherDevice(device).into());
        }
        let resolved = fs::canonicalize(&self.named)?;
        let (folder, single) = split(&resolved)?;
        if single.is_some() != self.resolver.single.is_some() {
            return Err(Errno::NOTDIR.into());
        }
        if resolved == self.path && identity(&rustix::fs::stat(folder)?) == self.identity {
            return Ok(None);
        }
        let secrets = self.resolver.secrets.clone();
        Root::open_without(secrets, &self.named, self.resolver.symlinks).map(Some)
    }

    /// The name of the file if the root is a single file; `None` for a directory.
    pub fn single(&self) -> Option<&CStr> {
        self.resolver.single.as_deref()
    }

    /// `st_dev` of the root. A mount beneath it has another.
    pub fn device(&self) -> u64 {
        self.resolver.device
    }

    /// `st_dev` of the mount that contains `path`, according to the table of mounts; links are not followed.
    /// An open of `path` is charged to that device first. Takes a lock: not for event loops.
    pub(crate) fn device_of(&self, path: &CStr) -> u64 {
        let mount = self.mounts.device(&self.path, path.to_bytes());
        mount.unwrap_or(self.resolver.device)
    }

    /// `st_dev` of all paths, if the table of mounts had no mount beneath the root when it was last asked. Takes no lock.
    pub(crate) fn only_device(&self) -> Option<u64> {
        self.mounts.are_none().then_some(self.resolver.device)
    }

    /// Bytes that this user can still write to the file system of the root. Blocks.
    pub(crate) fn free_space(&self) -> io::Result<u64> {
        let system = rustix::fs::fstatvfs(&self.resolver.directory)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// The file system of the root.
    pub fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// Whether changes beneath the root can be watched: it is a directory, and its file system is local. A
    /// remote file system changes without an event on this machine.
    pub fn can_be_watched(&self) -> bool {
        self.cached && self.resolver.single.is_none()
    }

    /// Opens a directory beneath the root from memory, for [`Watcher`](crate::Watcher). Follows no link and
    /// enters no mount.
    pub(crate) fn open_directory_cached(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        if !self.can_be_watched() {
            return Err(Errno::OPNOTSUPP);
        }
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        self.resolver
            .openat2(path, HANDLE.union(OFlags::DIRECTORY), resolve)
    }

    /// Opens `path` if that needs no disk access. Does not block. Anything but a file or a directory is
    /// returned as [`Kind::Other`] with an `O_PATH` descriptor.
    ///
    /// # Errors
    /// `WouldBlock` if an engine must open it: an inode or directory block is not in memory, the path leaves
    /// the root, has an absolute link or crosses a mount (whose file system was not probed), the file system is remote, the file may have become a
    /// secret, the kernel is older than 5.12, or too many files wait to be closed (see
    /// [`set_unclosed_max`](crate::set_unclosed_max)). Any other error is final; for example, the kernel remembers absent names
    /// (not on tmpfs).
    pub fn open_cached(&self, path: &CStr) -> io::Result<Arc<OpenFile>> {
        if !self.may_open_cached() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let name = self.resolver.name(path)?;
        let resolve = self.resolve_cached();
        let opened = match self.open_to_read(name, resolve) {
            Err(Errno::XDEV) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::NXIO | Errno::NODEV) => return Ok(self.cached_handle(name, resolve)?),
            result => result?,
        };
        let meta = Meta::from(rustix::fs::fstat(&opened.fd)?);
        if meta.kind == Kind::Other {
            // Closing a device may block in its driver.
            closer::close(meta.device, opened.fd);
            return Ok(self.cached_handle(name, resolve)?);
        }
        if let Some(refused) = self.refuse_cached(&meta) {
            closer::close(meta.device, opened.fd);
            return Err(refused);
        }
        let file = self.file(opened, meta, name);
        file.disable_kernel_readahead();
        Ok(Arc::new(file))
    }

    /// As [`Root::open_cached`], but returns `held` if `path` still leads to it and it has the same version: then no
    /// file is left to be closed. `held` was opened beneath this root, a while after its last change.
    ///
    /// # Errors
    /// Those of [`Root::open_cached`].
    pub fn open_cached_again(
        &self,
        path: &CStr,
        held: &Arc<OpenFile>,
    ) -> io::Result<Arc<OpenFile>> {
        match self.still_leads_to(path, held) {
            true => Ok(Arc::clone(held)),
            false => self.open_cached(path),
        }
    }

    /// Whether `path` leads to `held`, as far as the kernel knows without disk access.
    ///
    /// The descriptor is closed here, on an event loop, where others must not be. Closing a file may wait in three places,
    /// and this close comes to none of them:
    /// - `flush` and `release` of the file system (ext4 and XFS start writing back there what was truncated before):
    ///   a descriptor with `O_PATH` has neither, nor any lock;
    /// - the last reference to an inode without names, which frees its blocks: `held` has another one, even if the
    ///   last name vanishes right now;
    /// - the last reference to the entry of a name, which may be the last one to a removed directory: `held` has the same
    ///   entry. An inode with one name has one, and had the same one when `held` was opened, since a new link or a
    ///   removed one would have changed `ctime`. Renaming moves the entry.
    fn still_leads_to(&self, path: &CStr, held: &OpenFile) -> bool {
        let version = |meta: &Meta| meta.links == 1 && meta.same_version(&held.meta);
        if !self.may_open_cached() || !version(&held.meta) {
            return false;
        }
        let no_symlinks = match held.no_symlinks {
            true => ResolveFlags::NO_SYMLINKS,
            false => ResolveFlags::empty(),
        };
        let open = |name| {
            self.resolver
                .openat2(name, HANDLE, self.resolve_cached() | no_symlinks)
        };
        let Ok(fd) = self.resolver.name(path).and_then(open) else {
            return false;
        };
        let meta = rustix::fs::fstat(&fd).map(Meta::from);
        let is_same = meta.is_ok_and(|meta| version(&meta));
        if !is_same {
            closer::close(self.resolver.device, fd);
        }
        is_same
    }

    fn may_open_cached(&self) -> bool {
        self.cached && closer::has_room(self.resolver.device)
    }

    /// How an event loop resolves a path. A mount may be remote: an engine has to open what lies there.
    fn resolve_cached(&self) -> ResolveFlags {
        self.resolver.resolve() | ResolveFlags::CACHED | ResolveFlags::NO_XDEV
    }

    /// Opens `path`. Blocks. Anything but a file or a directory is closed at once and returned as
    /// [`Kind::Other`] with an `O_PATH` descriptor.
    ///
    /// Opening a named pipe or a device may have side effects (a waiting writer wakes up). To avoid them
    /// would take a second lookup for every file.
    ///
    /// # Errors
    /// EXDEV if the path leaves the root; EBUSY if another process holds a write lease on the file, which
    /// the kernel then breaks (`fcntl(F_SETLEASE)`, Samba); [`OtherDevice`] if the path leads to a device
    /// that is not among `known`, which is not accessed; `TimedOut` if the file may be a secret, and those do not respond.
    pub(crate) fn open_waiting(
        &self,
        path: &CStr,
        known: KnownDevices<'_>,
    ) -> io::Result<OpenFile> {
        let name = self.resolver.name(path)?;
        // Without the link that was on the way, a watch would not look where the file is.
        let open = |at: &CStr, resolve| {
            let opened = self.open_to_read(at, resolve)?;
            Ok(OpenedFd {
                no_symlinks: opened.no_symlinks && at == name,
                ..opened
            })
        };
        let opened = match self
            .resolver
            .within(name, known, self.resolver.resolve(), open)?
        {
            Err(Errno::NXIO | Errno::NODEV) => return self.open_handle(name, known),
            result => result?,
        };
        let meta = Meta::from(rustix::fs::fstat(&opened.fd)?);
        if meta.kind == Kind::Other {
            drop(opened);
            return self.open_handle(name, known);
        }
        self.refuse_secret(&meta)?;
        Ok(self.file(opened, meta, name))
    }

    /// Opens `path` without following symbolic links, whatever its kind. Blocks.
    ///
    /// # Errors
    /// ELOOP if a link is on the way, EXDEV if the path leaves the root; [`OtherDevice`] as
    /// [`Root::open_waiting`].
    pub(crate) fn open_no_symlinks(
        &self,
        path: &CStr,
        known: KnownDevices<'_>,
    ) -> io::Result<OpenFile> {
        let name = self.resolver.name(path)?;
        let open = |name: &CStr, resolve| self.open_as_owner(name, resolve);
        let opened = self.resolver.within(name, known, NO_LINKS, open)??;
        let meta = Meta::from(rustix::fs::fstat(&opened.fd)?);
        self.refuse_secret(&meta)?;
        Ok(self.file(opened, meta, name))
    }

    /// The error of an open that found a secret: that of one that found nothing. `TimedOut` if that cannot be told. Blocks.
    fn refuse_secret(&self, meta: &Meta) -> io::Result<()> {
        match self.resolver.secrets.has(meta)? {
            true => Err(Errno::NOENT.into()),
            false => Ok(()),
        }
    }

    /// The same without blocking: an engine has to find out what is not known.
    fn refuse_cached(&self, meta: &Meta) -> Option<io::Error> {
        match self.resolver.secrets.is_known(meta) {
            None => Some(io::ErrorKind::WouldBlock.into()),
            Some(true) => Some(Errno::NOENT.into()),
            Some(false) => None,
        }
    }

    /// Opens a pipe, a socket or a device with `O_PATH`: the descriptor gives its metadata, and holding it
    /// has no side effects.
    fn open_handle(&self, name: &CStr, known: KnownDevices<'_>) -> io::Result<OpenFile> {
        let fd = self.resolver.handle(name, known)?;
        Ok(self.other(fd, name)?)
    }

    /// As [`Root::open_handle`], if that needs no disk access.
    fn cached_handle(&self, name: &CStr, resolve: ResolveFlags) -> Result<Arc<OpenFile>, Errno> {
        let fd = self.resolver.openat2(name, HANDLE, resolve)?;
        Ok(Arc::new(self.other(fd, name)?))
    }

    fn other(&self, fd: OwnedFd, name: &CStr) -> Result<OpenFile, Errno> {
        let meta = Meta {
            kind: Kind::Other,
            ..Meta::from(rustix::fs::fstat(&fd)?)
        };
        let opened = OpenedFd {
            fd,
            atime: atime::Policy::Never,
            no_symlinks: false,
            mount: None,
        };
        Ok(self.file(opened, meta, name))
    }

    fn file(&self, opened: OpenedFd, meta: Meta, name: &CStr) -> OpenFile {
        let fd = DeferredFd::new(opened.fd, opened.mount.unwrap_or(meta.device));
        let mut file = OpenFile::new(fd, meta, opened.atime);
        file.location = (meta.kind == Kind::Directory).then(|| Location {
            resolver: Arc::clone(&self.resolver),
            path: name.to_owned(),
        });
        file.nonblocking_calls = self.nonblocking_calls(&meta);
        file.no_symlinks = opened.no_symlinks;
        file
    }

    /// Only the root's own file system was probed: on another mount any call may block.
    fn nonblocking_calls(&self, meta: &Meta) -> NonblockingCalls {
        match &self.file_system {
            _ if meta.device != self.resolver.device => NonblockingCalls::None,
            system if system.may_wait => NonblockingCalls::None,
            system if system.nowait => NonblockingCalls::Reads,
            _ => NonblockingCalls::Metadata,
        }
    }

    /// Tries first without symbolic links: a watch needs to know whether one is on the way.
    fn open_to_read(&self, name: &CStr, resolve: ResolveFlags) -> Result<OpenedFd, Errno> {
        match self.open_as_owner(name, resolve | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.open_as_owner(name, resolve),
            result => result,
        }
    }

    /// Opens with `O_NOATIME` if that is granted, which it is to the owner of the file. It is tried for each
    /// file (2 us more where it is refused).
    fn open_as_owner(&self, name: &CStr, resolve: ResolveFlags) -> Result<OpenedFd, Errno> {
        let (fd, atime) = match self.resolver.openat2(name, READ | OFlags::NOATIME, resolve) {
            Err(Errno::PERM) => (self.resolver.openat2(name, READ, resolve)?, self.atime),
            result => (result?, atime::Policy::Never),
        };
        Ok(OpenedFd {
            fd,
            atime,
            no_symlinks: resolve.contains(ResolveFlags::NO_SYMLINKS),
            mount: resolve
                .contains(ResolveFlags::NO_XDEV)
                .then_some(self.resolver.device),
        })
    }
}

/// A file that was just opened.
struct OpenedFd {
    fd: OwnedFd,
    atime: atime::Policy,
    /// No symbolic link was on the way.
    no_symlinks: bool,
    /// The device of its mount, if that is the mount of the root. A file there may have another `st_dev`: on btrfs each
    /// subvolume has its own.
    mount: Option<u64>,
}

/// With `O_NONBLOCK`, because opening a named pipe without a writer would block.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The directory to open for a root, and the name in it if the root is a single file.
fn split(resolved: &Path) -> io::Result<(&Path, Option<CString>)> {
    let kind = fs::metadata(resolved)?.file_type();
    if kind.is_dir() {
        return Ok((resolved, None));
    }
    match (resolved.parent(), resolved.file_name()) {
        (Some(parent), Some(name)) if kind.is_file() => Ok((parent, Some(c_string(name)?))),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a directory nor a regular file",
        )),
    }
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn knows_cached(directory: &OwnedFd) -> io::Result<bool> {
    let probe =
        |resolve| syscall::openat2(directory, c".", HANDLE, ResolveFlags::BENEATH | resolve);
    probe(ResolveFlags::empty()).map_err(|errno| match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("openat2 is not available ({errno}): Linux 5.6 or newer is needed, and a container or a unit must permit the call (`RestrictSUIDSGID=` of systemd forbids it)"),
        ),
        errno => errno.into(),
    })?;
    Ok(!matches!(probe(ResolveFlags::CACHED), Err(Errno::INVAL)))
}
