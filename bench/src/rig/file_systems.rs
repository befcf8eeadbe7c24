//! File systems of several kinds with the same small tree, each mounted below the document root.

use super::Rig;
use super::journal::{Guard, Step, run_quietly};
use super::slow_disk::{attach_loop, create_dir, mount_as};
use super::tree::{FileSet, write_hot};
use crate::failure::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each of them also holds.
pub const COLD: FileSet = FileSet {
    files: 300,
    bytes: 100_000,
};
/// Room for the tree; btrfs does not go below 109 MiB.
const IMAGE_BYTES: u64 = 256 << 20;

/// One kind of file system, or one way to mount it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The baseline.
    Ext4,
    /// Writable, and each read updates the access time.
    Ext4Atime,
    /// Two directories of the machine's disk as an overlay.
    Overlay,
    /// No disk at all.
    Tmpfs,
    /// Copy on write, with checksums.
    Btrfs,
}

/// A mounted file system. It is unmounted when dropped; the order of the fields matters.
pub struct Mounted {
    /// Its kind.
    pub kind: Kind,
    _mount: Guard,
    _loop: Option<Guard>,
    _image: Option<Guard>,
}

impl Kind {
    /// All kinds; the baseline comes first.
    pub const ALL: [Self; 5] = [
        Self::Ext4,
        Self::Ext4Atime,
        Self::Overlay,
        Self::Tmpfs,
        Self::Btrfs,
    ];

    /// The name in tables and paths.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4Atime => "ext4-atime",
            Self::Overlay => "overlay",
            Self::Tmpfs => "tmpfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The URL path of its tree.
    #[must_use]
    pub fn prefix(self) -> String {
        format!("/fs/{}", self.name())
    }

    /// Mounts it and writes the tree.
    ///
    /// # Errors
    /// The kernel or the tool does not support it; the caller skips it.
    pub fn mount(self, rig: &Rig) -> Result<Mounted> {
        let point = rig.docroot.join("fs").join(self.name());
        create_dir(&point)?;
        let mounted = match self {
            Self::Ext4 => self.mount_image(rig, &point, "ext4", "rw,noatime"),
            Self::Ext4Atime => self.mount_image(rig, &point, "ext4", "rw,strictatime"),
            Self::Btrfs => self.mount_image(rig, &point, "btrfs", "rw,noatime"),
            Self::Tmpfs => self.mount_bare(rig, &point, "tmpfs", "mode=755"),
            Self::Overlay => self.mount_overlay(rig, &point),
        }?;
        if self != Self::Overlay {
            fill(&point)?;
        }
        Ok(mounted)
    }

    fn mount_image(self, rig: &Rig, point: &Path, kind: &str, options: &str) -> Result<Mounted> {
        let image = rig.setup.dir.join(format!("{}.img", self.name()));
        let remove = rig.journal().note(Step::RemoveFile(image.clone()))?;
        let file = File::create(&image).context(|| format!("create {}", image.display()))?;
        file.set_len(IMAGE_BYTES)
            .context(|| format!("size {}", image.display()))?;
        run_quietly(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))?;
        let (loop_guard, device) = attach_loop(rig.journal(), &image, &["--direct-io=on"])?;
        let mount = mount_as(rig.journal(), kind, &device.node(), point, options)?;
        Ok(Mounted {
            kind: self,
            _mount: mount,
            _loop: Some(loop_guard),
            _image: Some(remove),
        })
    }

    fn mount_bare(self, rig: &Rig, point: &Path, kind: &str, options: &str) -> Result<Mounted> {
        let mount = mount_as(rig.journal(), kind, Path::new(kind), point, options)?;
        Ok(Mounted {
            kind: self,
            _mount: mount,
            _loop: None,
            _image: None,
        })
    }

    /// The lower directory holds the tree, as a container's image does.
    fn mount_overlay(self, rig: &Rig, point: &Path) -> Result<Mounted> {
        let layer = |name: &str| -> Result<PathBuf> {
            let path = rig.setup.dir.join("overlay").join(name);
            create_dir(&path)?;
            Ok(path)
        };
        let (lower, upper, work) = (layer("lower")?, layer("upper")?, layer("work")?);
        fill(&lower)?;
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        self.mount_bare(rig, point, "overlay", &options)
    }
}

fn fill(root: &Path) -> Result<()> {
    write_hot(root)?;
    let cold = root.join("cold");
    fs::create_dir_all(&cold).context(|| format!("create {}", cold.display()))?;
    COLD.fill(&cold)
}
