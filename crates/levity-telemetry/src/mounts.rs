//! Finds the mount of a device number in the kernel's list. File systems are not asked, because they may not answer.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use levity_disk::MountPoint;
use rustix::fs::Dev;

/// See proc_pid_mountinfo(5). Reading it waits for no device.
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Bytes of the list that are read. Mounts beyond them are unknown.
const MOUNTINFO_BYTES_MAX: u64 = 4 << 20;

/// All mounts, in the order of mounting.
#[derive(Debug, Default)]
pub struct Mounts(Vec<MountPoint>);

impl Mounts {
    /// Reads the list. Waits for other threads of the kernel that mount something, not for a device.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn read() -> io::Result<Self> {
        let mut text = Vec::new();
        let file = File::open(MOUNTINFO)?;
        file.take(MOUNTINFO_BYTES_MAX).read_to_end(&mut text)?;
        Ok(Self::parse(&text))
    }

    /// Parses the list; lines that are not understood are skipped.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        Self(lines.filter_map(MountPoint::parse).collect())
    }

    /// The mount that a root with this device lies on, if there is one, else the one with this device
    /// that has the shortest path.
    pub fn of<'r>(
        &self,
        device: Dev,
        mut roots: impl Iterator<Item = (Dev, &'r Path)>,
    ) -> Option<&MountPoint> {
        // A btrfs or an overlay gives its files other device numbers than the listed one.
        match roots.find(|(of_root, _)| *of_root == device) {
            Some((_, root)) => self.above(root),
            None => self.shortest(device),
        }
    }

    /// The mount that contains `path`, whose symbolic links are not followed.
    pub fn above(&self, path: &Path) -> Option<&MountPoint> {
        let above = self.0.iter().filter(|mount| path.starts_with(&mount.path));
        // Of two at the same place the later one hides the earlier, and `max_by_key` takes the last.
        above.max_by_key(|mount| mount.path.as_os_str().len())
    }

    fn shortest(&self, device: Dev) -> Option<&MountPoint> {
        let same = self.0.iter().filter(|mount| mount.device == device);
        same.min_by_key(|mount| mount.path.as_os_str().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    const TEXT: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /srv rw - autofs systemd-1 rw
31 22 0:44 /vol /srv rw master:3 propagate_from:2 - nfs4 host:/vol rw
32 22 8:17 / /mnt/a\\040b\\134c rw - xfs /dev/sdb1 rw
33 22 8:17 /sub /m rw - xfs /dev/sdb1 rw
nonsense
34 22 0:50 / /data rw - btrfs /dev/sdc rw";

    fn found(device: Dev, root: Option<(Dev, &str)>) -> Option<(String, String)> {
        let mounts = Mounts::parse(TEXT);
        let roots = root.into_iter();
        let mount = mounts.of(
            device,
            roots.map(|(device, path)| (device, Path::new(path))),
        )?;
        Some((mount.path.display().to_string(), mount.file_system.clone()))
    }

    fn is(path: &str, file_system: &str) -> Option<(String, String)> {
        Some((path.to_owned(), file_system.to_owned()))
    }

    #[test]
    fn a_device_is_found_by_number() {
        assert_eq!(found(makedev(8, 1), None), is("/", "ext4"));
        assert_eq!(found(makedev(0, 44), None), is("/srv", "nfs4"));
        assert_eq!(found(makedev(8, 17), None), is("/m", "xfs"));
        assert_eq!(found(makedev(9, 9), None), None);
    }

    #[test]
    fn a_root_says_which_of_several() {
        let device = makedev(8, 17);
        let root = Some((device, "/mnt/a b\\c/www"));
        assert_eq!(found(device, root), is("/mnt/a b\\c", "xfs"));
    }

    #[test]
    fn a_root_tells_what_the_number_does_not() {
        let subvolume = makedev(0, 99);
        assert_eq!(
            found(subvolume, Some((subvolume, "/data/x"))),
            is("/data", "btrfs")
        );
        assert_eq!(
            found(subvolume, Some((subvolume, "/srv/x"))),
            is("/srv", "nfs4")
        );
    }

    #[test]
    fn this_machine_has_mounts() {
        let mounts = Mounts::read().expect("/proc");
        assert!(mounts.above(Path::new("/proc/self")).is_some());
    }
}
