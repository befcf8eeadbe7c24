//! Which mounts lie beneath a root: a job that opens a file there belongs to another device.
//!
//! The table is the kernel's (`/proc/self/mountinfo`), read when the root is opened. To find out
//! by opening would be too late: the first opens on a mount that does not answer would
//! hold slots of the root's own device. A path that gets into a mount through a symbolic link is not
//! seen, and neither is a mount that comes later: their opens count as the root's until it is
//! opened again, at a reload. Their reads always go by the device of the open file.
//!
//! Mounts of one file system in several places (bind mounts) have one device number and so share a
//! lane. That is right: behind them is the same disk, or the same server.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mounts beneath a root, the deepest first.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Relative to the root, without slashes at its ends.
    path: Vec<u8>,
    device: u64,
}

impl Mounts {
    /// Those beneath `root`, which is absolute and without links. Blocks for no disk: the kernel
    /// writes down names that it has in memory. None where there is no `/proc`.
    pub(crate) fn beneath(root: &Path) -> Mounts {
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Mounts::parse(&table, root.as_os_str().as_bytes())
    }

    fn parse(table: &[u8], root: &[u8]) -> Mounts {
        let lines = table.split(|&byte| byte == b'\n');
        let mut mounts: Vec<_> = lines.filter_map(|line| mount(line, root)).collect();
        // Of two on one place the later one is seen.
        mounts.reverse();
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        Mounts(mounts)
    }

    /// `st_dev` of the mount that `path` is in; `None` when it is the root's own.
    pub(crate) fn device(&self, path: &[u8]) -> Option<u64> {
        let mut around = self.0.iter().filter(|mount| is_within(path, &mount.path));
        around.next().map(|mount| mount.device)
    }
}

/// A line of the table, if it tells of a mount beneath `root`: id, parent, `major:minor`, the part that
/// is mounted, and where, with spaces and the like in octal (proc_pid_mountinfo(5)).
fn mount(line: &[u8], root: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let place = unescaped(fields.nth(1)?);
    let within = place.strip_prefix(root.strip_suffix(b"/").unwrap_or(root))?;
    let path = within.strip_prefix(b"/").filter(|path| !path.is_empty())?;
    Some(Mount {
        path: path.to_vec(),
        device,
    })
}

fn is_within(path: &[u8], mount: &[u8]) -> bool {
    let rest = path.strip_prefix(mount);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
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

    const TABLE: &[u8] = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 8:2 / /srv/www/big rw - ext4 /dev/sdb1 rw
31 30 0:50 / /srv/www/big/far\\040away rw - nfs4 host:/x rw
32 21 8:3 / /srv/www2 rw - ext4 /dev/sdc1 rw
33 30 8:9 / /srv/www/big rw - ext4 /dev/sdd1 rw
broken
";

    #[test]
    fn the_deepest_and_latest_counts() {
        let mounts = Mounts::parse(TABLE, b"/srv/www");
        let device = |path: &[u8]| mounts.device(path);
        let numbered = |major, minor| Some(rustix::fs::makedev(major, minor));
        assert_eq!(device(b"big/file"), numbered(8, 9));
        assert_eq!(device(b"big"), numbered(8, 9));
        assert_eq!(device(b"big/far away/file"), numbered(0, 50));
        assert_eq!(device(b"bigger/file"), None);
        assert_eq!(device(b"."), None);
    }

    #[test]
    fn the_root_itself_is_not_beneath() {
        assert_eq!(Mounts::parse(TABLE, b"/srv/www2").device(b"a"), None);
        let all = Mounts::parse(TABLE, b"/");
        assert_eq!(all.0.len(), 4);
        assert!(all.device(b"srv/www2/a").is_some() && all.device(b"srv").is_none());
    }

    #[test]
    fn this_machine_has_a_table() {
        let root = Mounts::beneath(Path::new("/"));
        let proc = fs::metadata("/proc").unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&proc);
        assert_eq!(root.device(b"proc/version"), Some(device));
    }
}
