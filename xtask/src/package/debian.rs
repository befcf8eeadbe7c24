//! The package of Debian, made by debhelper from the folder `packaging/debian`.

use std::fs;
use std::path::Path;

use super::installed;
use super::release::{EPOCH, Release};
use super::staged::Staged;
use super::target::Target;
use super::tool::tool;
use crate::files;
use crate::run::{self, Result};

pub fn write(release: &Release, target: &Target, program: &Path, notices: &str) -> Result<()> {
    let source = Staged::new(release.work().join(target.processor).join("debian"))?;
    add_recipe(release, &source)?;
    installed::add(&source, "tree/usr", program, notices)?;
    source.copy(
        "tree/usr/share/zsh/vendor-completions/_levity",
        &run::root().join(installed::ZSH),
    )?;
    source.copy(
        "tree/etc/levity/levity.toml",
        &run::root().join("packaging/levity.toml"),
    )?;
    let mut rules = tool("dpkg-architecture");
    rules
        .args(["--host-arch", target.architecture, "--force", "--command"])
        .arg("debian/rules binary")
        .env(EPOCH, &release.epoch)
        .current_dir(&source.0);
    run::output(&mut rules)?;
    let name = format!("levity_{}_{}.deb", release.version, target.architecture);
    let made = release.work().join(target.processor).join(&name);
    let to = release.output.join(&name);
    fs::rename(&made, &to).map_err(|error| format!("{}: {error}", to.display()))
}

/// The folder `debian` of a source package.
fn add_recipe(release: &Release, source: &Staged) -> Result<()> {
    let packaging = run::root().join("packaging");
    for file in files::entries(&packaging.join("debian"))? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let to = format!("debian/{name}");
        match *name == *"rules" {
            true => source.program(&to, &file)?,
            false => source.copy(&to, &file)?,
        }
    }
    for unit in installed::UNITS {
        source.copy(
            &format!("debian/{unit}"),
            &packaging.join("systemd").join(unit),
        )?;
    }
    let control = files::read(&packaging.join("debian/control"))?;
    let maintainer = control
        .lines()
        .find_map(|line| line.strip_prefix("Maintainer: "));
    let changelog = format!(
        "levity ({}) unstable; urgency=medium\n\n  * Release {0}: see CHANGELOG.md in the sources.\n\n -- {}  {}\n",
        release.version,
        maintainer.ok_or("packaging/debian/control names no maintainer")?,
        release.date("--rfc-email")?,
    );
    source.text("debian/changelog", changelog)
}
