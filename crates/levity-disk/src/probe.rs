//! What a file system can do: found out by trying, never by the kernel's version.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::listing::names;
use crate::open::{Kind, Meta};
use crate::syscall;

/// Names to look at, at most, for a file to try a read on.
const NAMES_MAX: usize = 1024;

/// Levels of directories to look into for one.
const DEPTH_MAX: usize = 3;

/// In bytes: enough for two pages, so that the edge between them is tried too.
const TRIED_BYTES: usize = 2 * PAGE_BYTES;

const PAGE_BYTES: usize = 4096;

/// What the file system of a root can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// As `mount` calls it: `ext4` (for ext2 and ext3 too), `overlay`, `nfs`; or the type in hex.
    pub name: String,
    /// `preadv2(RWF_NOWAIT)` works: a read can be tried without waiting for the disk.
    pub nowait: bool,
    /// A network, or a process in user space, answers: even `open` and `fstat` of what was just used
    /// may wait.
    pub remote: bool,
    /// Why `nowait` is what it is, in words.
    pub reason: String,
}

impl FileSystem {
    /// There is no device below: nothing that is changed waits for a journal.
    pub fn is_memory(&self) -> bool {
        self.name == "tmpfs"
    }
}

/// Finds out what the file system of `directory` can do, by reading a little of `single` or of some
/// file beneath on the same `device`. Blocks.
pub(crate) fn file_system(
    directory: &OwnedFd,
    single: Option<&CStr>,
    device: u64,
) -> io::Result<FileSystem> {
    let magic = magic(directory, single)?;
    let (name, remote) = describe(magic);
    let (nowait, reason) = if remote {
        (false, format!("{name} may wait for a reply to any call"))
    } else {
        try_nowait(directory, single, device, magic)
    };
    Ok(FileSystem {
        name,
        nowait,
        remote,
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
    // Signed or not, 32 or 64 bits: only the low 32 are the type.
    Ok(statfs.f_type as u32)
}

/// Names of file system types (`linux/magic.h`, and each driver's own), and whether they are remote.
const TYPES: &[(u32, &str, bool)] = &[
    (0x0000_EF53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683E, "btrfs", false),
    (0xCA45_1A4E, "bcachefs", false),
    (0xF2F5_2010, "f2fs", false),
    (0x2FC1_2FC1, "zfs", false),
    (0x3153_464A, "jfs", false),
    (0x0000_3434, "nilfs2", false),
    (0x794C_7630, "overlay", false),
    (0x0102_1994, "tmpfs", false),
    (0x8584_58F6, "ramfs", false),
    (0x7371_7368, "squashfs", false),
    (0xE0F5_E1E2, "erofs", false),
    (0x0000_9660, "iso9660", false),
    (0x1501_3346, "udf", false),
    (0x0000_4D44, "vfat", false),
    (0x2011_BAB0, "exfat", false),
    (0x7366_746E, "ntfs3", false),
    (0x0000_482B, "hfsplus", false),
    (0x0000_F15F, "ecryptfs", false),
    (0x0000_9FA0, "proc", false),
    (0x6265_6572, "sysfs", false),
    (0x6573_5546, "fuse", true),
    (0x0000_6969, "nfs", true),
    (0xFF53_4D42, "cifs", true),
    (0xFE53_4D42, "smb2", true),
    (0x0000_517B, "smb", true),
    (0x0102_1997, "9p", true),
    (0x00C3_6400, "ceph", true),
    (0x5346_414F, "afs", true),
    (0x6B41_4653, "kafs", true),
    (0x7375_7245, "coda", true),
    (0x0116_1970, "gfs2", true),
    (0x7461_636F, "ocfs2", true),
    (0x0BD0_0BD0, "lustre", true),
    (0x4750_4653, "gpfs", true),
    (0x2003_0528, "orangefs", true),
    (0x786F_4256, "vboxsf", true),
];

fn describe(magic: u32) -> (String, bool) {
    match TYPES.iter().find(|(known, ..)| *known == magic) {
        Some((_, name, remote)) => ((*name).to_owned(), *remote),
        None => (format!("{magic:#x}"), false),
    }
}

/// Whether `preadv2(RWF_NOWAIT)` works, and how that is known.
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

/// Without a file to try it on: those that are known to answer.
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

/// Reads the start of `file` so that it is cached, and asks for it again without waiting; then
/// whether the edge of a page that is not cached looks like the end of the file, as on Linux 5.9 and
/// 5.10 (fixed by 06c0444290 in 5.11).
fn try_on(file: &OwnedFd) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(TRIED_BYTES);
    let cached =
        syscall::pread(file.as_fd(), bytes.spare_capacity_mut(), 0).map_err(describe_errno)?;
    match syscall::append_cached(file.as_fd(), &mut bytes, cached, 0) {
        Ok(0) if cached > 0 => return Err("0 bytes of a page just read".to_owned()),
        Ok(_) => {}
        // Someone else may have evicted the page in between: it answers, which is what counts.
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

/// A regular file with something in it, on the root's own device.
fn readable_file(directory: &OwnedFd, single: Option<&CStr>, device: u64) -> Option<OwnedFd> {
    match single {
        Some(name) => open_regular(directory, name),
        None => search(directory, device, &mut { NAMES_MAX }, DEPTH_MAX),
    }
}

/// Files first, then the directories next to them, until `names_left` names have been looked at.
fn search(
    directory: &OwnedFd,
    device: u64,
    names_left: &mut usize,
    depth: usize,
) -> Option<OwnedFd> {
    let (found, _) = names(directory.as_fd(), *names_left).ok()?;
    *names_left -= found.len();
    let mut directories = Vec::new();
    for name in &found {
        let Ok(stat) = rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
        else {
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

/// A file without a name, which leaves nothing behind.
fn temporary_file(directory: &OwnedFd) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    rustix::io::write(&file, &[0; TRIED_BYTES]).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Root, Symlinks};
    use std::path::Path;

    fn of(path: &Path) -> FileSystem {
        Root::open(path, Symlinks::Beneath)
            .unwrap()
            .file_system()
            .clone()
    }

    #[test]
    fn unknown_types_are_hexadecimal() {
        assert_eq!(describe(0xABCD), ("0xabcd".to_owned(), false));
        assert_eq!(describe(0x6969), ("nfs".to_owned(), true));
    }

    #[test]
    fn the_kernel_s_own_trees_are_told_apart() {
        let proc = of(Path::new("/proc"));
        assert_eq!(
            (&*proc.name, proc.nowait, proc.remote),
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
