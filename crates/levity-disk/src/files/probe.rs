//! The capabilities of a file system, found out by trying, not by the version of the kernel.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::meta::{Kind, Meta};
use super::names::{Enough, next_names, reopen, stat_name};
use crate::syscall;

/// Bound on the names to look at in search of a file to read.
const NAMES_MAX: usize = 1024;

/// Bound on the levels of directories to search.
const DEPTH_MAX: usize = 3;

/// In bytes: two pages, so that the boundary between them is tried too.
const TRIED_BYTES: usize = 2 * PAGE_BYTES;

const PAGE_BYTES: usize = 4096;

/// The file system of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name as in `mount`: `ext4` (also for ext2 and ext3), `overlay`, `nfs`; or its type in hexadecimal.
    pub name: String,
    /// Whether `preadv2(RWF_NOWAIT)` works: a read can be tried without blocking on the disk.
    pub nowait: bool,
    /// Whether even `open` and `fstat` of a file in use may block: the file system is remote, in user space,
    /// stacked on another one, or unknown.
    pub may_wait: bool,
    /// The reason for the value of `nowait`.
    pub reason: String,
}

impl FileSystem {
    /// Whether it is in memory: changes do not wait for a journal.
    pub fn is_memory(&self) -> bool {
        self.name == "tmpfs"
    }
}

/// Probes the file system of `directory` by reading a few bytes of `single`, or of some file beneath it on
/// the same `device`. Blocks.
pub(crate) fn file_system(
    directory: &OwnedFd,
    single: Option<&CStr>,
    device: u64,
) -> io::Result<FileSystem> {
    let magic = magic(directory, single)?;
    let (name, kind) = describe(magic);
    let (nowait, reason) = if let Some(why) = kind.may_wait() {
        (false, format!("{name} {why}"))
    } else {
        try_nowait(directory, single, device, magic)
    };
    Ok(FileSystem {
        name,
        nowait,
        may_wait: kind != Type::Local,
        reason,
    })
}

/// `f_type` of the file system that holds the root.
fn magic(directory: &OwnedFd, single: Option<&CStr>) -> io::Result<u32> {
    let statfs = match single {
        None => rustix::fs::fstatfs(directory)?,
        Some(name) => rustix::fs::fstatfs(rustix::fs::openat(
            directory,
            name,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?)?,
    };
    // Signed or unsigned, 32 or 64 bits, depending on the architecture: the type is the low 32 bits.
    Ok(statfs.f_type as u32)
}

/// Kinds of file systems, by how long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// On a local device or in memory: calls on open files answer from memory.
    Local,
    /// On a network or in a process in user space.
    Remote,
    /// Stacked on another file system, which may be remote. Which one is unknown: the options of an overlay
    /// name its layers as seen by the mounting process, perhaps in another mount namespace.
    Stacked,
    /// Not in the table.
    Unknown,
}

impl Type {
    /// Why a call may block; `None` if it does not.
    fn may_wait(self) -> Option<&'static str> {
        match self {
            Type::Local => None,
            Type::Remote => Some("may wait for a reply to any call"),
            Type::Stacked => Some("may wait for the file systems below it"),
            Type::Unknown => Some("is not known: any call may wait"),
        }
    }
}

/// File system types (from `linux/magic.h` and the drivers) and their names.
const TYPES: &[(u32, &str, Type)] = &[
    (0x0000_EF53, "ext4", Type::Local),
    (0x5846_5342, "xfs", Type::Local),
    (0x9123_683E, "btrfs", Type::Local),
    (0xCA45_1A4E, "bcachefs", Type::Local),
    (0xF2F5_2010, "f2fs", Type::Local),
    (0x2FC1_2FC1, "zfs", Type::Local),
    (0x3153_464A, "jfs", Type::Local),
    (0x0000_3434, "nilfs2", Type::Local),
    (0x794C_7630, "overlay", Type::Stacked),
    (0x0102_1994, "tmpfs", Type::Local),
    (0x8584_58F6, "ramfs", Type::Local),
    (0x7371_7368, "squashfs", Type::Local),
    (0xE0F5_E1E2, "erofs", Type::Local),
    (0x0000_9660, "iso9660", Type::Local),
    (0x1501_3346, "udf", Type::Local),
    (0x0000_4D44, "vfat", Type::Local),
    (0x2011_BAB0, "exfat", Type::Local),
    (0x7366_746E, "ntfs3", Type::Local),
    (0x0000_482B, "hfsplus", Type::Local),
    (0x0000_F15F, "ecryptfs", Type::Stacked),
    (0x0000_9FA0, "proc", Type::Local),
    (0x6265_6572, "sysfs", Type::Local),
    (0x6573_5546, "fuse", Type::Remote),
    (0x0000_6969, "nfs", Type::Remote),
    (0xFF53_4D42, "cifs", Type::Remote),
    (0xFE53_4D42, "smb2", Type::Remote),
    (0x0000_517B, "smb", Type::Remote),
    (0x0102_1997, "9p", Type::Remote),
    (0x00C3_6400, "ceph", Type::Remote),
    (0x5346_414F, "afs", Type::Remote),
    (0x6B41_4653, "kafs", Type::Remote),
    (0x7375_7245, "coda", Type::Remote),
    (0x0116_1970, "gfs2", Type::Remote),
    (0x7461_636F, "ocfs2", Type::Remote),
    (0x0BD0_0BD0, "lustre", Type::Remote),
    (0x4750_4653, "gpfs", Type::Remote),
    (0x2003_0528, "orangefs", Type::Remote),
    (0x786F_4256, "vboxsf", Type::Remote),
];

fn describe(magic: u32) -> (String, Type) {
    match TYPES.iter().find(|(known, ..)| *known == magic) {
        Some((_, name, kind)) => ((*name).to_owned(), *kind),
        None => (format!("{magic:#x}"), Type::Unknown),
    }
}

/// Whether a file system of this type, as in `mount`, is remote: `nfs4` and `fuse.sshfs` begin with a name of the table.
/// `fuseblk` is a file system on a local disk.
pub(super) fn is_remote(name: &str) -> bool {
    let is_it = |known: &str, kind| kind == Type::Remote && name.starts_with(known);
    name == "virtiofs"
        || (name != "fuseblk" && TYPES.iter().any(|(_, known, kind)| is_it(known, *kind)))
}

/// Whether `preadv2(RWF_NOWAIT)` works, and why.
fn try_nowait(
    directory: &OwnedFd,
    single: Option<&CStr>,
    device: u64,
    magic: u32,
) -> (bool, String) {
    if let Some(file) = readable_file(directory, single, device) {
        return verdict(try_on(&file), "of a file in it");
    }
    match temporary_file(directory) {
        Some(file) => verdict(try_on(&file), "of a temporary file"),
        None => guess(magic),
    }
}

fn verdict(outcome: Result<(), String>, of: &str) -> (bool, String) {
    match outcome {
        Ok(()) => (true, format!("preadv2(RWF_NOWAIT) {of} worked")),
        Err(why) => (false, format!("preadv2(RWF_NOWAIT) {of}: {why}")),
    }
}

/// The answer without a file to try: yes for the file systems that are known to work.
fn guess(magic: u32) -> (bool, String) {
    let (name, _) = describe(magic);
    let nowait = matches!(&*name, "ext4" | "xfs" | "btrfs");
    let known = if nowait {
        "answers"
    } else {
        "is not known to answer"
    };
    let reason = format!("no file to try: {name} {known} preadv2(RWF_NOWAIT)");
    (nowait, reason)
}

/// Reads the start of `file` into the page cache and then with `RWF_NOWAIT`. Also checks whether the boundary
/// of a page that is not cached looks like the end of the file, as on Linux 5.9 and 5.10 (fixed by 06c0444290
/// in 5.11).
fn try_on(file: &OwnedFd) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(TRIED_BYTES);
    let cached =
        syscall::pread(file.as_fd(), bytes.spare_capacity_mut(), 0).map_err(describe_errno)?;
    match syscall::append_cached(file.as_fd(), &mut bytes, cached, 0) {
        Ok(0) if cached > 0 => return Err("0 bytes of a page just read".to_owned()),
        Ok(_) => {}
        // The page was evicted in between. The call works nevertheless.
        Err(Errno::AGAIN) => {}
        Err(errno) => return Err(describe_errno(errno)),
    }
    if cached <= PAGE_BYTES {
        return Ok(());
    }
    let page = PAGE_BYTES as u64;
    let _ = rustix::fs::fadvise(file, page, None, Advice::DontNeed);
    match syscall::append_cached(file.as_fd(), &mut bytes, PAGE_BYTES, page) {
        Ok(0) => Err("a page that is not cached looks like the end of the file".to_owned()),
        _ => Ok(()),
    }
}

fn describe_errno(errno: Errno) -> String {
    match errno {
        Errno::OPNOTSUPP => "not supported here (EOPNOTSUPP)".to_owned(),
        errno => errno.to_string(),
    }
}

/// A regular file that is not empty, on the device of the root.
fn readable_file(directory: &OwnedFd, single: Option<&CStr>, device: u64) -> Option<OwnedFd> {
    match single {
        Some(name) => open_regular(directory, name),
        None => search(directory, device, &mut { NAMES_MAX }, DEPTH_MAX),
    }
}

/// Searches a directory for a file, then its subdirectories, until `names_left` names have been looked at.
fn search(
    directory: &OwnedFd,
    device: u64,
    names_left: &mut usize,
    depth: usize,
) -> Option<OwnedFd> {
    let mut found: Vec<CString> = Vec::new();
    let anew = reopen(directory.as_fd()).ok()?;
    next_names(anew.as_fd(), |name, _| {
        found.push(name.to_owned());
        Enough(found.len() >= *names_left)
    })
    .ok()?;
    found.truncate(*names_left);
    *names_left -= found.len();
    let mut directories = Vec::new();
    for name in &found {
        // Not into a mount: it may not answer, and the start of the server would block.
        let Ok(stat) = stat_name(directory.as_fd(), name) else {
            continue;
        };
        let meta = Meta::from(stat);
        match meta.kind {
            _ if meta.device != device => {}
            Kind::Regular if meta.size > 0 => {
                if let Some(file) = open_regular(directory, name) {
                    return Some(file);
                }
            }
            Kind::Directory if depth > 1 => directories.push(name),
            _ => {}
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    directories.into_iter().find_map(|name| {
        let below = rustix::fs::openat(directory, name.as_c_str(), flags, Mode::empty()).ok()?;
        search(&below, device, names_left, depth - 1)
    })
}

fn open_regular(directory: &OwnedFd, name: &CStr) -> Option<OwnedFd> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    let meta = Meta::from(rustix::fs::fstat(&file).ok()?);
    (meta.kind == Kind::Regular && meta.size > 0).then_some(file)
}

/// A file without a name: nothing is left behind.
fn temporary_file(directory: &OwnedFd) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    rustix::io::write(&file, &[0; TRIED_BYTES]).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Root, Symlinks};
    use std::path::Path;

    fn of(path: &Path) -> FileSystem {
        Root::open(path, Symlinks::Beneath)
            .unwrap()
            .file_system()
            .clone()
    }

    #[test]
    fn unknown_types_are_hexadecimal() {
        assert_eq!(describe(0xABCD), ("0xabcd".to_owned(), Type::Unknown));
        assert_eq!(describe(0x6969), ("nfs".to_owned(), Type::Remote));
    }

    #[test]
    fn only_a_known_local_file_system_never_waits() {
        for (magic, waits) in [
            (0xEF53, false),
            (0x6969, true),
            (0x794C_7630, true),
            (0xF15F, true),
            (0xABCD, true),
        ] {
            assert_eq!(describe(magic).1.may_wait().is_some(), waits, "{magic:#x}");
        }
    }

    #[test]
    fn proc_is_recognised() {
        let proc = of(Path::new("/proc"));
        assert_eq!(
            (&*proc.name, proc.nowait, proc.may_wait),
            ("proc", false, false)
        );
    }

    #[test]
    fn an_empty_tree_is_tried_with_a_temporary_file() {
        let tree = tempfile::tempdir().unwrap();
        let empty = of(tree.path());
        assert!(empty.reason.contains("temporary file"), "{}", empty.reason);
        std::fs::create_dir_all(tree.path().join("a/b")).unwrap();
        std::fs::write(tree.path().join("a/b/file"), [1; 9000]).unwrap();
        let filled = of(tree.path());
        assert!(filled.reason.contains("a file in it"), "{}", filled.reason);
        assert_eq!((empty.name, empty.nowait), (filled.name, filled.nowait));
    }

    #[test]
    fn without_a_file_the_type_decides() {
        assert!(guess(0xEF53).0);
        let (nowait, reason) = guess(0x0102_1994);
        assert!(!nowait && reason.contains("no file to try"), "{reason}");
    }

    #[test]
    fn the_false_end_of_file_is_looked_for_in_a_cold_page() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("file");
        std::fs::write(&path, [1; 9000]).unwrap();
        let file = OwnedFd::from(std::fs::File::open(&path).unwrap());
        let expected = of(tree.path()).nowait;
        assert_eq!(try_on(&file).is_ok(), expected);
    }
}
