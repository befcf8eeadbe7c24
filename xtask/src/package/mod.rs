//! `cargo xtask package`: what a release consists of, as files in `target/package`.
//!
//! One commit gives the same bytes, whatever the folder of the checkout, the time zone, the umask, the home of cargo and
//! other [variables of the environment](tool). The time in all files is that of the commit. Compiler, compressors,
//! authorities (`ca-certificates`) and licences of libraries are those of the packages of the machine.

mod archive;
mod build;
mod components;
mod debian;
mod image;
mod installed;
mod notices;
mod options;
mod release;
mod sbom;
mod staged;
mod tarball;
mod target;
mod tool;

use std::fs;
use std::path::Path;

use crate::run::Result;
use options::Options;
use release::Release;
use target::Target;

/// Makes the files: `[--all] [--binary PATH] [--output FOLDER]`.
pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::read(words)?;
    let release = Release::read(options.output)?;
    release.empty()?;
    for target in options.targets {
        pack(&release, target, options.binary.as_deref())?;
    }
    release.remove_work()?;
    release.write_sums()
}

fn pack(release: &Release, target: &Target, binary: Option<&Path>) -> Result<()> {
    let built = match binary {
        Some(path) => path.to_owned(),
        None => build::build(release, target)?,
    };
    let program = build::stripped(release, target, &built)?;
    let components = components::of(target)?;
    let notices = notices::text(&components)?;
    tarball::write(release, target, &program, &notices)?;
    debian::write(release, target, &program, &notices)?;
    image::write(release, target, &program, &notices)?;
    let sbom = release.output.join(release.file(target, "cdx.json"));
    fs::write(&sbom, sbom::text(release, &components)?)
        .map_err(|error| format!("{}: {error}", sbom.display()))
}
