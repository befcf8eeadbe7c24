//! Temporary files: what is written is complete before it gets its name.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_config::account::{ACCESS_LIST, access_list};
use levity_disk::Meta;
use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid,
    XattrFlags, fchmod, fchown, fgetxattr, flock, fremovexattr, fsetxattr, fstat, futimens, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;

use super::folder::Folder;

/// The start of the names of temporary files. They are hidden, so that no server sends one.
const PREFIX: &[u8] = b".levity-precompress-";

/// Whether it is the name of a temporary file.
pub(super) fn is_temporary(name: &CStr) -> bool {
    name.to_bytes().starts_with(PREFIX)
}

/// Removes a temporary file, unless its writer still runs: that one holds a lock. Where it fails, the next run tries
/// again.
pub(super) fn remove_stale(folder: &Folder, name: &CStr) {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&folder.fd, name, flags, Mode::empty()) else {
        return;
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = unlinkat(&folder.fd, name, AtFlags::empty());
    }
}

/// A file that is removed on drop, unless it was renamed. All methods block.
#[derive(Debug)]
pub(super) struct Temporary<'f> {
    folder: &'f Folder,
    name: CString,
    file: File,
    is_renamed: bool,
}

impl<'f> Temporary<'f> {
    /// A new file in `folder`, for this process only until it is complete.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn create(folder: &'f Folder) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let owner_only = Mode::RUSR | Mode::WUSR;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let own = format!("{}-{number}", process::id());
            let name = CString::new([PREFIX, own.as_bytes()].concat()).expect("no NUL");
            let file = match openat(&folder.fd, &name, flags, owner_only) {
                Ok(file) => File::from(file),
                // An earlier process with the same number left it behind.
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            if is_own(&file)? {
                return Ok(Self {
                    folder,
                    name,
                    file,
                    is_renamed: false,
                });
            }
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file the owner, permissions and time of modification that `original` had when `stat` was read, and
    /// waits until the disk has it.
    ///
    /// # Errors
    /// Those of `fchmod`, `futimens` and `fsync`, and of reading and writing an access control list. An owner that this
    /// process may not set is no error.
    pub fn complete(&self, original: &File, stat: &Stat) -> io::Result<()> {
        let user = Some(Uid::from_raw(stat.st_uid));
        let group = Some(Gid::from_raw(stat.st_gid));
        let has_group =
            fchown(&self.file, user, group).is_ok() || fchown(&self.file, None, group).is_ok();
        let list = access_list(|name, bytes| fgetxattr(original, name, bytes))?;
        let mode = match list.is_some() && !has_group {
            // Its list would name the wrong group, and without it others could get more than it allows.
            true => Mode::from_raw_mode(stat.st_mode & 0o700),
            false => mode(stat.st_mode, has_group),
        };
        let list = list.filter(|_| has_group);
        set_access_list(&self.file, list.as_deref())?;
        fchmod(&self.file, mode)?;
        let meta = Meta::from(*stat);
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: meta.mtime_s,
                tv_nsec: meta.mtime_ns.into(),
            },
        };
        futimens(&self.file, &times)?;
        self.file.sync_all()
    }

    /// Gives the file its name, in place of another file of that name.
    ///
    /// # Errors
    /// Those of `rename`.
    pub fn rename(mut self, name: &CStr) -> io::Result<()> {
        renameat(&self.folder.fd, &self.name, &self.folder.fd, name)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = unlinkat(&self.folder.fd, &self.name, AtFlags::empty());
        }
    }
}

/// Locks a new file, so that no other run takes it for one that was left behind. Returns whether it still has its name:
/// another run may have removed it before it was locked.
fn is_own(file: &File) -> io::Result<bool> {
    // Some remote file systems refuse locks. There no file is taken for one that was left behind. Elsewhere this waits
    // for a run that is about to remove the file.
    while let Err(Errno::INTR) = flock(file, FlockOperation::LockExclusive) {}
    Ok(fstat(file)?.st_nlink > 0)
}

/// Replaces the access control list of a file, which it may have from its folder.
fn set_access_list(file: &File, list: Option<&[u8]>) -> io::Result<()> {
    let set = match list {
        Some(list) => fsetxattr(file, ACCESS_LIST, list, XattrFlags::empty()),
        None => fremovexattr(file, ACCESS_LIST),
    };
    match set {
        Err(Errno::NODATA | Errno::OPNOTSUPP) if list.is_none() => Ok(()),
        set => Ok(set?),
    }
}

/// The permissions of a copy of a file with `mode`. Without its group, the group gets only what everybody gets: it may
/// have other members.
fn mode(mode: u32, has_group: bool) -> Mode {
    let mode = mode & 0o777;
    let group = match has_group {
        true => mode & 0o070,
        false => mode & 0o070 & (mode << 3),
    };
    Mode::from_raw_mode(mode & 0o707 | group)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn modes() {
        assert_eq!(mode(0o104_755, true).as_raw_mode(), 0o755);
        assert_eq!(mode(0o100_640, true).as_raw_mode(), 0o640);
        assert_eq!(mode(0o100_640, false).as_raw_mode(), 0o600);
        assert_eq!(mode(0o100_664, false).as_raw_mode(), 0o644);
    }

    #[test]
    fn is_removed_unless_renamed() {
        let path = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(path.path()).expect("open");
        let count = || fs::read_dir(path.path()).expect("a folder").count();
        let first = Temporary::create(&folder).expect("create");
        let second = Temporary::create(&folder).expect("create");
        assert!(is_temporary(&first.name));
        assert_eq!(count(), 2);
        // Both are in use.
        remove_stale(&folder, &first.name);
        assert_eq!(count(), 2);
        first.rename(c"a").expect("rename");
        drop(second);
        assert_eq!(count(), 1);
        fs::write(path.path().join(".levity-precompress-1-1"), "left").expect("write");
        remove_stale(&folder, c".levity-precompress-1-1");
        assert_eq!(count(), 1);
    }

    /// Another run removes the file while it holds the lock.
    #[test]
    fn a_file_that_was_removed_before_it_was_locked_is_not_own() {
        let path = tempfile::tempdir().expect("a folder");
        let path = path.path().join("file");
        let own = File::create(&path).expect("create");
        assert!(is_own(&own).expect("a lock"));
        drop(own);
        let own = File::create(&path).expect("create");
        let other = File::open(&path).expect("open");
        flock(&other, FlockOperation::NonBlockingLockExclusive).expect("a lock");
        let waiting = std::thread::spawn(move || is_own(&own));
        fs::remove_file(&path).expect("remove");
        drop(other);
        assert!(!waiting.join().expect("no panic").expect("a lock"));
    }

    /// The list of acl(5): the owner reads and writes, user 7 reads, nobody else does.
    fn list() -> Vec<u8> {
        let entry = |tag: u16, permissions: u16, id: u32| {
            let bytes = [tag.to_le_bytes(), permissions.to_le_bytes()].concat();
            [bytes, id.to_le_bytes().to_vec()].concat()
        };
        let (version, any) = (2_u32.to_le_bytes().to_vec(), u32::MAX);
        let entries = [
            entry(0x01, 6, any),
            entry(0x02, 4, 7),
            entry(0x04, 0, any),
            entry(0x10, 4, any),
            entry(0x20, 0, any),
        ];
        [version, entries.concat()].concat()
    }

    #[test]
    fn has_the_access_control_list_of_the_original_and_not_that_of_its_folder() {
        let path = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(path.path()).expect("open");
        let inherited = "system.posix_acl_default";
        match fsetxattr(&folder.fd, inherited, &list(), XattrFlags::empty()) {
            // Not every file system has them.
            Err(Errno::OPNOTSUPP) => return,
            set => set.expect("a list"),
        }
        for list in [Some(list()), None] {
            let original = File::create(path.path().join("original")).expect("create");
            set_access_list(&original, list.as_deref()).expect("a list");
            let stat = fstat(&original).expect("fstat");
            let copy = Temporary::create(&folder).expect("create");
            copy.complete(&original, &stat).expect("complete");
            let of_copy = access_list(|name, bytes| fgetxattr(&copy.file, name, bytes));
            assert_eq!(of_copy.expect("its list"), list);
            assert_eq!(fstat(&copy.file).expect("fstat").st_mode, stat.st_mode);
        }
    }

    #[test]
    fn has_the_owner_mode_and_time_of_the_original() {
        let path = tempfile::tempdir().expect("a folder");
        let original = path.path().join("original");
        fs::write(&original, "text").expect("write");
        if rustix::process::geteuid().is_root() {
            chown(&original, Some(12_345), Some(23_456)).expect("chown");
        }
        fs::set_permissions(&original, fs::Permissions::from_mode(0o640)).expect("chmod");
        let opened = File::open(&original).expect("open");
        let modified = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_456_789);
        opened.set_modified(modified).expect("utimes");
        let folder = Folder::open(path.path()).expect("open");
        let copy = Temporary::create(&folder).expect("create");
        copy.complete(&opened, &fstat(&opened).expect("fstat"))
            .expect("complete");
        copy.rename(c"copy").expect("rename");
        let of = |name: &str| {
            let metadata = fs::metadata(path.path().join(name)).expect("stat");
            let time = (metadata.mtime(), metadata.mtime_nsec());
            (metadata.uid(), metadata.gid(), metadata.mode(), time)
        };
        assert_eq!(of("copy"), of("original"));
    }
}
