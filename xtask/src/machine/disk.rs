//! The disk of the machine: a Debian 12 with little more than systemd, a kernel, and what a server usually has.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::SCRIPTS;
use crate::files;
use crate::run::{self, Result};

/// What is installed beside the packages that every Debian has.
const PACKAGES: &[&str] = &[
    "adduser",
    "ca-certificates",
    "curl",
    "dbus",
    "debconf",
    "iproute2",
    "linux-image-amd64",
    "logrotate",
    "systemd",
    "systemd-sysv",
    "udev",
];

/// The size of the file, which has holes. 0.9 GiB are used.
const SIZE: &str = "3G";

/// The unit that runs the checks.
const UNIT: &str = "checks.service";

/// Makes `disk.img`, `vmlinuz` and `initrd.img` in `folder`, unless they are there. Blocks, for some minutes the first time.
pub fn make(folder: &Path) -> Result<()> {
    let unit = run::root().join(SCRIPTS).join(UNIT);
    let list = PACKAGES.join("\n") + &files::read(&unit)?;
    let made = folder.join("made");
    if fs::read_to_string(&made).is_ok_and(|text| text == list) {
        return Ok(());
    }
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let tree = folder.join("tree");
    run::run(&mut debian(&unit, &tree))?;
    for name in ["vmlinuz", "initrd.img"] {
        fs::copy(tree.join(name), folder.join(name)).map_err(failed)?;
    }
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.arg("-q")
        .arg("-d")
        .args([&tree, &folder.join("disk.img")]);
    run::run(mkfs.arg(SIZE))?;
    fs::remove_dir_all(&tree).map_err(failed)?;
    // Only now: an installation that was interrupted is made anew.
    fs::write(made, list).map_err(failed)
}

/// Installs a Debian 12 into the folder `tree`.
fn debian(unit: &Path, tree: &Path) -> Command {
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap
        .args(["--quiet", "--mode=root", "--variant=minbase"])
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(format!(
            "--customize-hook=copy-in {} /etc/systemd/system",
            unit.display()
        ))
        .arg(format!(
            "--customize-hook=chroot \"$1\" systemctl enable {UNIT}"
        ))
        .arg("bookworm")
        .arg(tree);
    mmdebstrap
}
