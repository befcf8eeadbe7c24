//! The mount that contains a path: a job that opens a file there is charged to the device of that mount.
//!
//! The table is the kernel's (`/proc/self/mountinfo`), read again when it has changed. Finding the device by
//! opening the path would be too late: an open on a mount that does not answer would hold a slot of another
//! device. Symbolic links into a mount are handled by [`crossing`](super::crossing).
//!
//! Mounts of one file system in several places (bind mounts) have the same device number and so share a
//! queue. That is right: behind them is the same disk, or the same server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::probe;
use crate::thread::lock;

/// Stands for a device that is not known.
pub(super) const UNKNOWN: u64 = 0;

/// All mounts that this process sees, the deepest first.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Mount>);

/// A mount point: relative to `/` in a [`Table`], relative to the root in [`Beneath`], without slashes at
/// its ends.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    path: Vec<u8>,
    device: u64,
    traits: Traits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Traits {
    is_remote: bool,
    /// Its files may have another `st_dev`: that of their subvolume or layer.
    has_volumes: bool,
}

/// The latest table, and the file that it was read from.
struct Current {
    file: File,
    table: Arc<Table>,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

impl Table {
    /// The table as of now. Does not wait for a disk: the kernel generates the file from memory, and it is read
    /// only if it has changed (proc_pid_mountinfo(5)). Takes a lock: not for event loops. Empty if `/proc` is
    /// not mounted.
    pub(crate) fn now() -> Arc<Table> {
        let mut current = lock(&CURRENT);
        if current.as_ref().is_none_or(Current::has_changed) {
            *current = Current::read(current.take()).ok();
        }
        let table = current.as_ref().map(|current| &current.table);
        table.map(Arc::clone).unwrap_or_default()
    }

    fn parse(text: &[u8]) -> Table {
        let lines = text.split(|&byte| byte == b'\n');
        let mut mounts: Vec<_> = lines.filter_map(mount).collect();
        // Of two mounts on one mount point the later one is visible.
        mounts.reverse();
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        Table(mounts)
    }

    /// `st_dev` of the mount that contains `path`, which is absolute and without links.
    pub(crate) fn device(&self, path: &[u8]) -> Option<u64> {
        device(&self.0, path.strip_prefix(b"/")?)
    }

    /// Whether `device` is remote, or not known.
    pub(super) fn is_remote(&self, device: u64) -> bool {
        !self.has(device, |traits| !traits.is_remote)
    }

    /// Whether a file with `st_dev` may be on the mounted `device`. Any may be on [`UNKNOWN`].
    pub(super) fn may_hold(&self, device: u64, st_dev: u64) -> bool {
        let is_other = || self.has(st_dev, |_| true);
        device == UNKNOWN
            || device == st_dev
            || self.has(device, |traits| traits.has_volumes) && !is_other()
    }

    fn has(&self, device: u64, is_it: impl Fn(Traits) -> bool) -> bool {
        let mut mounts = self.0.iter();
        mounts.any(|mount| mount.device == device && is_it(mount.traits))
    }

    /// The mounts beneath `root`, which is absolute and without links.
    fn beneath(&self, root: &[u8]) -> Vec<Mount> {
        let root = root.strip_prefix(b"/").unwrap_or(root);
        let beneath = |mount: &Mount| {
            let within = mount.path.strip_prefix(root)?;
            let path = if root.is_empty() {
                within
            } else {
                within.strip_prefix(b"/")?
            };
            (!path.is_empty()).then(|| Mount {
                path: path.to_vec(),
                ..*mount
            })
        };
        self.0.iter().filter_map(beneath).collect()
    }
}

impl Current {
    fn read(old: Option<Current>) -> std::io::Result<Current> {
        let mut file = match old {
            Some(old) => old.file,
            None => File::open("/proc/self/mountinfo")?,
        };
        file.rewind()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let table = Arc::new(Table::parse(&text));
        Ok(Current { file, table })
    }

    /// The kernel reports each change once.
    fn has_changed(&self) -> bool {
        let mut events = [PollFd::new(&self.file, PollFlags::PRI)];
        let now = Timespec::default();
        let ready = poll(&mut events, Some(&now));
        !matches!(ready, Ok(0))
    }
}

/// The mounts beneath a root, as of the latest table.
#[derive(Debug, Default)]
pub(crate) struct Beneath {
    known: Mutex<(Arc<Table>, Vec<Mount>)>,
    are_none: AtomicBool,
}

impl Beneath {
    /// `st_dev` of the mount beneath `root` that contains `path`; `None` if it is in the root's own mount.
    /// Takes a lock: not for event loops.
    pub(crate) fn device(&self, root: &Path, path: &[u8]) -> Option<u64> {
        let now = Table::now();
        let mut known = lock(&self.known);
        if !Arc::ptr_eq(&known.0, &now) {
            let mounts = now.beneath(root.as_os_str().as_bytes());
            self.are_none.store(mounts.is_empty(), Ordering::Relaxed);
            *known = (now, mounts);
        }
        device(&known.1, path)
    }

    /// Whether there was none at the last call of [`Beneath::device`], which is the first to see a later one. Takes
    /// no lock.
    pub(crate) fn are_none(&self) -> bool {
        self.are_none.load(Ordering::Relaxed)
    }
}

fn device(mounts: &[Mount], path: &[u8]) -> Option<u64> {
    let mut around = mounts.iter().filter(|mount| is_within(path, &mount.path));
    around.next().map(|mount| mount.device)
}

fn mount(line: &[u8]) -> Option<Mount> {
    let point = MountPoint::parse(line)?;
    let path = point.path.as_os_str().as_bytes();
    Some(Mount {
        path: path.strip_prefix(b"/")?.to_vec(),
        device: point.device,
        traits: Traits {
            is_remote: point.is_remote(),
            has_volumes: matches!(&*point.file_system, "btrfs" | "bcachefs" | "overlay"),
        },
    })
}

/// A file system where it is mounted, as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Its `st_dev`; a btrfs or an overlay gives its files another one.
    pub device: u64,
    /// The directory on which it is mounted.
    pub path: PathBuf,
    /// Its type, such as `ext4` or `nfs4`.
    pub file_system: String,
}

impl MountPoint {
    /// Whether the type is that of a file system on a network or in user space, where any call may wait for a
    /// reply. The file system is not asked.
    pub fn is_remote(&self) -> bool {
        probe::is_remote(&self.file_system)
    }

    /// Parses a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)): ID, parent, `major:minor`, the mounted part,
    /// the mount point with spaces and the like as octal escapes, options, and after ` - ` the type.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let path = OsString::from_vec(unescaped(fields.nth(1)?)).into();
        let file_system = fields.skip_while(|field| *field != b"-").nth(1)?;
        let file_system = String::from_utf8_lossy(file_system).into_owned();
        Some(Self {
            device,
            path,
            file_system,
        })
    }
}

fn is_within(path: &[u8], mount: &[u8]) -> bool {
    let rest = path.strip_prefix(mount);
    rest.is_some_and(|rest| mount.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => plain.push(*first),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    const TABLE: &[u8] = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 8:2 / /srv/www/big rw - ext4 /dev/sdb1 rw
31 30 0:50 / /srv/www/big/far\\040away rw - nfs4 host:/x rw
32 21 8:3 / /srv/www2 rw - ext4 /dev/sdc1 rw
33 30 8:9 / /srv/www/big rw - ext4 /dev/sdd1 rw
broken
";

    fn numbered(major: u32, minor: u32) -> Option<u64> {
        Some(rustix::fs::makedev(major, minor))
    }

    #[test]
    fn the_deepest_and_latest_counts() {
        let mounts = Table::parse(TABLE).beneath(b"/srv/www");
        let device = |path: &[u8]| device(&mounts, path);
        assert_eq!(device(b"big/file"), numbered(8, 9));
        assert_eq!(device(b"big"), numbered(8, 9));
        assert_eq!(device(b"big/far away/file"), numbered(0, 50));
        assert_eq!(device(b"bigger/file"), None);
        assert_eq!(device(b"."), None);
    }

    #[test]
    fn the_root_itself_is_not_beneath() {
        let table = Table::parse(TABLE);
        assert_eq!(device(&table.beneath(b"/srv/www2"), b"a"), None);
        let all = table.beneath(b"/");
        assert_eq!(all.len(), 4);
        assert!(device(&all, b"srv/www2/a").is_some() && device(&all, b"srv").is_none());
    }

    #[test]
    fn every_path_is_in_a_mount() {
        let table = Table::parse(TABLE);
        assert_eq!(table.device(b"/"), numbered(8, 1));
        assert_eq!(table.device(b"/srv/www"), numbered(8, 1));
        assert_eq!(table.device(b"/srv/www/big/a"), numbered(8, 9));
        assert_eq!(Table::default().device(b"/"), None);
    }

    #[test]
    fn remote_mounts_are_known_by_their_type() {
        for (name, expected) in [
            ("nfs4", true),
            ("fuse.sshfs", true),
            ("cifs", true),
            ("virtiofs", true),
            ("fuseblk", false),
            ("tmpfs", false),
            ("ext4", false),
            ("overlay", false),
        ] {
            let line = format!("30 21 0:50 / /far rw - {name} a rw");
            let mount = MountPoint::parse(line.as_bytes()).expect("a mount");
            assert_eq!(mount.is_remote(), expected, "{name}");
        }
    }

    #[test]
    fn a_file_may_be_on_a_device_with_another_number() {
        let table = Table::parse(
            b"21 1 8:1 / / rw - ext4 a rw\n30 21 0:50 / /far rw - nfs4 b rw\n31 21 0:60 / /volumes rw - btrfs c rw\n",
        );
        let [local, far, volumes, volume] = [(8, 1), (0, 50), (0, 60), (0, 61)]
            .map(|(major, minor)| rustix::fs::makedev(major, minor));
        assert!(table.is_remote(far) && !table.is_remote(local) && table.is_remote(volume));
        for (device, st_dev, expected) in [
            (local, local, true),
            (local, far, false),
            (local, volume, false),
            (volumes, volumes, true),
            (volumes, volume, true),
            (volumes, local, false),
            (far, volume, false),
            (UNKNOWN, local, true),
        ] {
            assert_eq!(
                table.may_hold(device, st_dev),
                expected,
                "{device:x} {st_dev:x}"
            );
        }
    }

    #[test]
    fn this_machine_has_a_table() {
        let proc = fs::metadata("/proc").unwrap().dev();
        let beneath = Beneath::default();
        assert_eq!(beneath.device(Path::new("/"), b"proc/version"), Some(proc));
        assert!(
            Arc::ptr_eq(&Table::now(), &Table::now()),
            "nothing has changed"
        );
    }
}
