//! Roots, and files opened beneath them.
//!
//! Every path goes through `openat2`, so that the kernel itself keeps a request inside its root
//! (Linux 5.6). With `RESOLVE_CACHED` (Linux 5.12) the same call answers from memory or says that it
//! would have to wait; that form is the only one that an event loop may use.

use std::borrow::Borrow;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::atime;
use crate::closer;
use crate::crossing::{self, Devices};
use crate::direct::DirectFile;
use crate::engine::Elsewhere;
use crate::inline::Inline;
use crate::mounts::Beneath;
use crate::probe::{self, FileSystem};
use crate::syscall;

/// Larger files, in bytes, are opened with `POSIX_FADV_RANDOM`: which chunk comes next is our own
/// decision, and the kernel's window (up to 8 MiB per open file) would only evict others.
const READAHEAD_BYTES_MAX: u64 = 64 * 1024;

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

/// A directory whose files may be opened, or a single file.
#[derive(Debug)]
pub struct Root {
    /// As it was given.
    named: PathBuf,
    path: PathBuf,
    directory: ManuallyDrop<OwnedFd>,
    /// `st_dev` and `st_ino` of `directory`.
    identity: (u64, u64),
    single: Option<CString>,
    symlinks: Symlinks,
    device: u64,
    file_system: FileSystem,
    /// This kernel knows `RESOLVE_CACHED`, and the file system answers from memory.
    cached: bool,
    /// When reads set the time of last access, unless `O_NOATIME` is granted.
    atime: atime::Policy,
    /// Other mounts beneath it.
    mounts: Beneath,
}

impl Root {
    /// Opens `path`, a directory or a single regular file, and finds out what its file system can do.
    ///
    /// Blocks, and reads a few pages of one file (see [`probe`]). `path` is resolved once, and what it led
    /// to is kept open: [`Op::Look`](crate::Op::Look) tells where it leads later. A single file is looked up by
    /// name at each open, under its own name or `.`; every other name is absent.
    ///
    /// # Errors
    /// Those of `open`; `InvalidInput` for anything but a directory or a regular file; `Unsupported`
    /// where `openat2` is missing (Linux before 5.6, or a seccomp filter that hides it).
    pub fn open(path: &Path, symlinks: Symlinks) -> io::Result<Arc<Root>> {
        let resolved = fs::canonicalize(path)?;
        let (place, single) = split(&resolved)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(place, flags, Mode::empty())?;
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
        Ok(Arc::new(Root {
            mounts: Beneath::default(),
            named: path.to_owned(),
            path: resolved,
            cached: cached && !file_system.may_wait,
            directory: ManuallyDrop::new(directory),
            identity,
            single,
            symlinks,
            device,
            file_system,
            atime,
        }))
    }

    /// The path by which it was opened.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Where the root is: absolute, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the path by which it was opened leads now: `None` while that is this root. Blocks.
    ///
    /// Another file never has the identity of this root, because the root keeps its own open. The path
    /// counts too: applications are told of it.
    ///
    /// # Errors
    /// Those of [`Root::open`]; ENOTDIR where a single file has taken the place of a directory; [`Elsewhere`]
    /// when the path leads to a device that is not among `known`, which is not asked.
    pub(crate) fn look(&self, known: Devices<'_>) -> io::Result<Option<Arc<Root>>> {
        if let Some(device) = crossing::first_new_from_top(&path::absolute(&self.named)?, known)? {
            return Err(Elsewhere(device).into());
        }
        let resolved = fs::canonicalize(&self.named)?;
        let (place, single) = split(&resolved)?;
        if single.is_some() != self.single.is_some() {
            return Err(Errno::NOTDIR.into());
        }
        if resolved == self.path && identity(&rustix::fs::stat(place)?) == self.identity {
            return Ok(None);
        }
        Root::open(&self.named, self.symlinks).map(Some)
    }

    /// The name that a root of a single file answers to, besides `.`; `None` for a directory.
    pub fn single(&self) -> Option<&CStr> {
        self.single.as_deref()
    }

    /// `st_dev` of the root. A mount beneath it has another.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// `st_dev` of the mount that `path` is in, as far as its name tells: links are not followed. Work
    /// there counts as this device's. Takes a lock: not for event loops.
    pub(crate) fn device_of(&self, path: &CStr) -> u64 {
        let mount = self.mounts.device(&self.path, path.to_bytes());
        mount.unwrap_or(self.device)
    }

    /// What the root's file system can do.
    pub fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// Whether changes beneath it can be watched: a directory, on a file system that learns of every
    /// change. A remote one changes without this machine being told.
    pub fn can_be_watched(&self) -> bool {
        self.cached && self.single.is_none()
    }

    /// A directory beneath the root, for [`Watcher`](crate::Watcher): not through a link or into a mount,
    /// and only from memory.
    pub(crate) fn open_directory_cached(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        if !self.can_be_watched() {
            return Err(Errno::OPNOTSUPP);
        }
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        self.openat2(path, HANDLE.union(OFlags::DIRECTORY), resolve)
    }

    /// Opens `path` if that needs no disk. Never blocks. What is no file or directory comes back as
    /// [`Kind::Other`] with a descriptor that can only be asked for its metadata.
    ///
    /// # Errors
    /// `WouldBlock` when the pool must do it: something is not in memory, the path leaves the root or
    /// crosses a mount (whose file system nobody has probed), the file system is remote, or the kernel
    /// is older than 5.12. Any other error is the final answer: absence, for one, is remembered by the
    /// kernel (not on tmpfs).
    pub fn open_cached(self: &Arc<Root>, path: &CStr) -> io::Result<Arc<OpenFile>> {
        if !self.cached {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let name = self.name(path)?;
        // Crossing into a mount is left to the pool: it may be a remote one.
        let resolve = self.resolve() | ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        let (fd, how) = match self.open_to_read(name, resolve) {
            Err(Errno::XDEV) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::NXIO | Errno::NODEV) => return Ok(self.cached_handle(name, resolve)?),
            result => result?,
        };
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        if meta.kind == Kind::Other {
            // A driver may do anything when its device is closed.
            closer::close(meta.device, fd);
            return Ok(self.cached_handle(name, resolve)?);
        }
        let file = self.file(fd, meta, name, how);
        file.read_ahead_ourselves();
        Ok(Arc::new(file))
    }

    /// Opens `path`. Blocks. Anything but a file or a directory is closed at once and comes back as
    /// [`Kind::Other`] with a descriptor that can only be asked for its metadata.
    ///
    /// Opening a named pipe or a device may have effects of its own (a waiting writer wakes up); to
    /// ask first would be a second lookup for every file.
    ///
    /// # Errors
    /// EXDEV when the path leaves the root; EBUSY when someone holds a write lease on the file and
    /// has been asked to give it up (`fcntl(F_SETLEASE)`, Samba); [`Elsewhere`] when it leads to a device
    /// that is not among `known`, which is not asked.
    pub(crate) fn open_waiting(
        self: &Arc<Root>,
        path: &CStr,
        known: Devices<'_>,
    ) -> io::Result<OpenFile> {
        let name = self.name(path)?;
        let open = |resolve| self.open_to_read(name, resolve);
        let (fd, how) = match self.within(name, known, self.resolve(), open)? {
            Err(Errno::NXIO | Errno::NODEV) => return self.open_handle(name),
            result => result?,
        };
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        if meta.kind == Kind::Other {
            drop(fd);
            return self.open_handle(name);
        }
        Ok(self.file(fd, meta, name, how))
    }

    /// Opens `path`, through no symbolic link. Blocks. Whatever is there: what it is the caller finds out.
    ///
    /// # Errors
    /// ELOOP where a link is on the way, EXDEV when the path leaves the root; [`Elsewhere`] as
    /// [`Root::open_waiting`].
    pub(crate) fn open_straight(
        self: &Arc<Root>,
        path: &CStr,
        known: Devices<'_>,
    ) -> io::Result<OpenFile> {
        let name = self.name(path)?;
        let open = |resolve| self.open_as_owner(name, resolve);
        let (fd, atime) = self.within(name, known, STRAIGHT, open)??;
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        let straight = true;
        Ok(self.file(fd, meta, name, How { atime, straight }))
    }

    /// The directory that holds the last name of `path`, through no symbolic link and never outside the
    /// root, and that name. Blocks.
    ///
    /// # Errors
    /// EISDIR when the last name can only be a directory's; as [`Root::open_straight`].
    pub(crate) fn parent<'a>(&'a self, path: &'a CStr) -> io::Result<(OwnedFd, &'a CStr)> {
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

    /// The metadata of what a path leads to, without opening it for reading. Blocks.
    ///
    /// # Errors
    /// [`Elsewhere`] as [`Root::open_waiting`].
    pub(crate) fn metadata(&self, path: &CStr, known: Devices<'_>) -> io::Result<Meta> {
        let name = self.name(path)?;
        let open = |resolve| self.openat2(name, HANDLE, resolve);
        let fd = self.within(name, known, self.resolve(), open)??;
        Ok(Meta::from(rustix::fs::fstat(&fd)?))
    }

    /// Opens `name` until no rename interferes, if it leads to no device but those `known`. What the open
    /// says is the inner result.
    fn within<T>(
        &self,
        name: &CStr,
        known: Devices<'_>,
        resolve: ResolveFlags,
        open: impl Fn(ResolveFlags) -> Result<T, Errno>,
    ) -> Result<Result<T, Errno>, Elsewhere> {
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
            Some(device) => Err(Elsewhere(device)),
            None => Ok(settled(|| open(resolve))),
        }
    }

    /// A descriptor for a pipe, a socket or a device that cannot be read from, so that there is one
    /// to ask and no harm in holding it.
    fn open_handle(self: &Arc<Root>, name: &CStr) -> io::Result<OpenFile> {
        let fd = self.handle(name)?;
        Ok(self.other(fd, name)?)
    }

    /// The same, if that needs no disk.
    fn cached_handle(
        self: &Arc<Root>,
        name: &CStr,
        resolve: ResolveFlags,
    ) -> Result<Arc<OpenFile>, Errno> {
        let fd = self.openat2(name, HANDLE, resolve)?;
        Ok(Arc::new(self.other(fd, name)?))
    }

    fn other(self: &Arc<Root>, fd: OwnedFd, name: &CStr) -> Result<OpenFile, Errno> {
        let meta = Meta {
            kind: Kind::Other,
            ..Meta::from(rustix::fs::fstat(&fd)?)
        };
        let how = How {
            atime: atime::Policy::Never,
            straight: false,
        };
        Ok(self.file(fd, meta, name, how))
    }

    fn file(self: &Arc<Root>, fd: OwnedFd, meta: Meta, name: &CStr, how: How) -> OpenFile {
        let place = (meta.kind == Kind::Directory).then(|| Place {
            root: Arc::clone(self),
            path: name.to_owned(),
        });
        OpenFile {
            meta,
            fd: ManuallyDrop::new(fd),
            place,
            answers: self.answers(&meta),
            straight: how.straight,
            access: atime::Access::new(how.atime),
            nonblocking: AtomicBool::new(true),
            random: AtomicBool::new(false),
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            spooled: false,
        }
    }

    /// Only the root's own file system was looked at: a file on another mount may wait, whatever the root
    /// does.
    fn answers(&self, meta: &Meta) -> Answers {
        match &self.file_system {
            _ if meta.device != self.device => Answers::Nothing,
            system if system.may_wait => Answers::Nothing,
            system if system.nowait => Answers::Reads,
            _ => Answers::Metadata,
        }
    }

    /// The name to look up for `path`, which in a root of a single file is always the same one.
    fn name<'a>(&'a self, path: &'a CStr) -> Result<&'a CStr, Errno> {
        if self.symlinks == Symlinks::Follow && leaves(path.to_bytes()) {
            return Err(Errno::XDEV);
        }
        match &self.single {
            None => Ok(path),
            Some(name) if path == c"." || path == name.as_c_str() => Ok(name),
            Some(_) => Err(Errno::NOENT),
        }
    }

    fn resolve(&self) -> ResolveFlags {
        match self.symlinks {
            Symlinks::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Follow => ResolveFlags::NO_MAGICLINKS,
        }
    }

    fn handle(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        settled(|| self.openat2(name, HANDLE, self.resolve()))
    }

    /// Without a symbolic link on the way where there is none: a watch needs to know.
    fn open_to_read(&self, name: &CStr, resolve: ResolveFlags) -> Result<(OwnedFd, How), Errno> {
        match self.open_as_owner(name, resolve | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.open_as_owner(name, resolve).map(|(fd, atime)| {
                let straight = false;
                (fd, How { atime, straight })
            }),
            result => result.map(|(fd, atime)| {
                let straight = true;
                (fd, How { atime, straight })
            }),
        }
    }

    /// With `O_NOATIME` where that is granted: to the owner of the file. Whether it is depends on
    /// the file, so it is tried each time (2 us more where it is refused).
    fn open_as_owner(
        &self,
        name: &CStr,
        resolve: ResolveFlags,
    ) -> Result<(OwnedFd, atime::Policy), Errno> {
        match self.openat2(name, READ | OFlags::NOATIME, resolve) {
            Err(Errno::PERM) => Ok((self.openat2(name, READ, resolve)?, self.atime)),
            result => Ok((result?, atime::Policy::Never)),
        }
    }

    fn openat2(&self, name: &CStr, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| syscall::openat2(&*self.directory, name, flags, resolve))
    }
}

impl Drop for Root {
    /// By the threads that close files: a loop may be the last to hold a root that was replaced, and if the
    /// directory has been removed by then, the close frees it and may wait for the journal.
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing reads the field afterwards.
        let directory = unsafe { ManuallyDrop::take(&mut self.directory) };
        let (device, _) = self.identity;
        closer::close(device, directory);
    }
}

/// How a file was opened.
struct How {
    atime: atime::Policy,
    /// No symbolic link was on the way.
    straight: bool,
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

/// `O_NONBLOCK`, or a named pipe without a writer would hang the open.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Beneath the root and along no link of any kind, whatever the root itself allows.
const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The directory to open for a root, and the name in it when the root is a single file.
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

/// Whether a path on its own, without any link, could lead out of its root.
fn leaves(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

fn knows_cached(directory: &OwnedFd) -> io::Result<bool> {
    let probe =
        |resolve| syscall::openat2(directory, c".", HANDLE, ResolveFlags::BENEATH | resolve);
    probe(ResolveFlags::empty()).map_err(|errno| match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("openat2 is not available ({errno}): Linux 5.6 or newer is needed, and a container must permit the call"),
        ),
        errno => errno.into(),
    })?;
    Ok(!matches!(probe(ResolveFlags::CACHED), Err(Errno::INVAL)))
}

/// Whether an error means that the path led out of its root, by `..` or by a symbolic link.
pub fn left_root(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}

/// What came of opening a variant of `original`, if it may stand in for it. One that is absent or may not
/// be opened is none.
///
/// # Errors
/// Those that say nothing of the variant: the disk fails, or the process has too many files open.
pub fn standing_in<F: Borrow<OpenFile>>(
    opened: io::Result<F>,
    original: &Meta,
) -> io::Result<Option<F>> {
    match opened {
        Ok(variant) => {
            let fits = variant.borrow().meta.may_stand_in_for(original);
            Ok(fits.then_some(variant))
        }
        Err(error) if is_out_of_reach(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that nothing can be read under a name, now and at the next try: it is absent,
/// or may not be opened. Others pass: of a disk that fails, or of a process that has too many files open.
fn is_out_of_reach(error: &io::Error) -> bool {
    const FINAL: &[Errno] = &[
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::NAMETOOLONG,
        Errno::ACCESS,
        Errno::PERM,
        Errno::LOOP,
        Errno::XDEV,
        Errno::NXIO,
        Errno::NODEV,
    ];
    Errno::from_io_error(error).is_some_and(|errno| FINAL.contains(&errno))
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A named pipe, a socket, a device, or a link that leads nowhere allowed: never read.
    Other,
}

/// What `fstat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// In bytes.
    pub size: u64,
    /// Last change of the content: seconds since 1970, negative before.
    pub mtime_s: i64,
    /// Nanoseconds after `mtime_s`. File systems step in ticks of 1 to 10 ms (multigrain ones since
    /// Linux 6.13 finer), so two changes within one tick may look the same.
    pub mtime_ns: u32,
    /// Last change of content or metadata: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds after `ctime_s`.
    pub ctime_ns: u32,
    /// Names that it has; 0 once it is deleted.
    pub links: u64,
}

impl Meta {
    /// Whether both tell of the same content: same file, size, and times of change.
    pub fn same_version(&self, other: &Meta) -> bool {
        let version = |meta: &Meta| Meta { links: 0, ..*meta };
        version(self) == version(other)
    }

    /// Whether a file may be sent in place of `original`, from which it was made: a regular file that was
    /// not written in an earlier second. An older one shows what `original` was before its last change.
    /// Seconds, because not every tool that copies a time copies all of it.
    pub fn may_stand_in_for(&self, original: &Meta) -> bool {
        let regular = self.kind == Kind::Regular && original.kind == Kind::Regular;
        regular && self.mtime_s >= original.mtime_s
    }
}

// The types of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
impl From<Stat> for Meta {
    fn from(stat: Stat) -> Meta {
        Meta {
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::Regular,
                FileType::Directory => Kind::Directory,
                _ => Kind::Other,
            },
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_s: stat.st_mtime as i64,
            mtime_ns: stat.st_mtime_nsec as u32,
            ctime_s: stat.st_ctime as i64,
            ctime_ns: stat.st_ctime_nsec as u32,
            links: stat.st_nlink as u64,
        }
    }
}

/// An open file or directory. Closed by a thread of its own, see [`Disk`](crate::Disk), because the
/// last close of a deleted file may wait for the disk.
#[derive(Debug)]
pub struct OpenFile {
    /// What `fstat` said when it was opened, or after its first bytes were read.
    pub meta: Meta,
    fd: ManuallyDrop<OwnedFd>,
    place: Option<Place>,
    answers: Answers,
    straight: bool,
    access: atime::Access,
    nonblocking: AtomicBool,
    random: AtomicBool,
    /// `None` inside when it cannot be had.
    direct: OnceLock<Option<DirectFile>>,
    direct_refused: AtomicBool,
    spooled: bool,
}

/// What the file system of an open file answers without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// Nothing is certain: it is on another mount than its root, or its file system may wait.
    Nothing,
    /// `fstat`.
    Metadata,
    /// `fstat`, and `preadv2(RWF_NOWAIT)`.
    Reads,
}

/// Where a directory was found: its links must be judged by the root's rules.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) root: Arc<Root>,
    pub(crate) path: CString,
}

impl OpenFile {
    /// A file that was just made, without a name. It is read by threads, through the page cache: what was
    /// written a moment ago is there, and may not be anywhere else yet.
    pub(crate) fn spooled(fd: OwnedFd, atime: atime::Policy) -> io::Result<OpenFile> {
        let meta = Meta::from(rustix::fs::fstat(&fd)?);
        Ok(OpenFile {
            meta,
            fd: ManuallyDrop::new(fd),
            place: None,
            answers: Answers::Nothing,
            straight: false,
            access: atime::Access::new(atime),
            nonblocking: AtomicBool::new(false),
            random: AtomicBool::new(false),
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(true),
            spooled: true,
        })
    }

    /// Whether it is written to while it is open here.
    pub(crate) fn is_spooled(&self) -> bool {
        self.spooled
    }

    /// What `fstat` said when it was opened, or after its first bytes were read.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// What an event loop may ask of it: `None` where even `fstat` of the open file may wait.
    pub fn inline(&self) -> Option<Inline<'_>> {
        (self.answers != Answers::Nothing).then(|| Inline::of(self))
    }

    /// Whether an event loop may try to read it: its file system passed the trial.
    pub fn reads_inline(&self) -> bool {
        self.answers == Answers::Reads
    }

    /// What `fstat` says now. May block.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub(crate) fn refresh(&self) -> Result<Meta, Errno> {
        Ok(Meta::from(rustix::fs::fstat(self.as_fd())?))
    }

    pub(crate) fn access(&self) -> &atime::Access {
        &self.access
    }

    /// An engine has read from it.
    pub(crate) fn was_read(&self) {
        self.access.was_read();
    }

    /// Whether a watch on its directory tells of every change of its content and of what its path leads
    /// to: it has no other name, and there was no symbolic link on the way.
    pub fn can_be_watched(&self) -> bool {
        self.straight && self.meta.links == 1
    }

    /// The same file, to be read past the page cache in whole blocks; opened by the first call. `None`
    /// where that does not work. Not for event loops.
    pub(crate) fn direct(&self) -> Option<BorrowedFd<'_>> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || DirectFile::open(self.as_fd(), self.meta.device);
        let direct = self.direct.get_or_init(open).as_ref();
        direct.map(DirectFile::as_fd)
    }

    /// A read past the page cache was refused: there will be no other.
    pub(crate) fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    /// For this crate only: a call on the descriptor may wait, and [`OpenFile::inline`] knows which do not.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Stops the kernel's own readahead: a read then fetches exactly what it asks for.
    pub(crate) fn read_ahead_ourselves(&self) {
        if self.meta.size > READAHEAD_BYTES_MAX && !self.random.swap(true, Ordering::Relaxed) {
            // Only a hint: nothing is lost where it is refused.
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Random);
        }
    }

    /// Undoes `read_ahead_ourselves`, for senders that let the kernel fetch what comes next.
    pub(crate) fn let_the_kernel_read_ahead(&self) {
        if self.random.swap(false, Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(self.as_fd(), 0, None, Advice::Normal);
        }
    }

    /// Clears `O_NONBLOCK`: a ring would answer EAGAIN instead of waiting where the file system
    /// cannot tell whether it would block. Whether it was set.
    pub(crate) fn clear_nonblocking(&self) -> io::Result<bool> {
        if !self.nonblocking.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let flags = rustix::fs::fcntl_getfl(self.as_fd())?;
        rustix::fs::fcntl_setfl(self.as_fd(), flags - OFlags::NONBLOCK)?;
        self.nonblocking.store(false, Ordering::Relaxed);
        Ok(true)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing reads the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        closer::close(self.meta.device, fd);
    }
}
