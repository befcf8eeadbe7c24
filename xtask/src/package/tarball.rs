//! The tarball, which is unpacked into `/usr/local` or another folder.

use std::fs;
use std::path::Path;

use super::archive::{self, Tar};
use super::installed;
use super::release::Release;
use super::staged::Staged;
use super::target::Target;
use crate::files;
use crate::run::{self, Result};

/// Where the unit expects the program.
const PREFIX: &str = "/usr/local";

pub fn write(release: &Release, target: &Target, program: &Path, notices: &str) -> Result<()> {
    let top = format!("levity-{}", release.version);
    let staged = Staged::new(release.work().join(target.processor).join("tarball"))?;
    installed::add(&staged, &top, program, notices)?;
    staged.copy(
        &format!("{top}/share/zsh/site-functions/_levity"),
        &run::root().join(installed::ZSH),
    )?;
    for name in installed::UNITS {
        let unit = files::read(&run::root().join("packaging/systemd").join(name))?;
        staged.text(
            &format!("{top}/lib/systemd/system/{name}"),
            unit.replace("/usr/bin/levity", &format!("{PREFIX}/bin/levity")),
        )?;
    }
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        staged.copy(
            &format!("{top}/share/doc/levity/{name}"),
            &run::root().join(name),
        )?;
    }
    let tar = release.work().join(target.processor).join("levity.tar");
    // Without the folders: where they exist, as links or with modes of their own, they stay as they are.
    let names = staged.files(&top)?;
    let archive = Tar {
        folder: &staged.0,
        names: &names.iter().map(String::as_str).collect::<Vec<_>>(),
        owned: &[],
    };
    archive.write(release, &tar)?;
    let packed = archive::gzip(&tar)?;
    let to = release.output.join(release.file(target, "tar.gz"));
    fs::rename(&packed, &to).map_err(|error| format!("{}: {error}", to.display()))
}
