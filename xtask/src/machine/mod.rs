//! `cargo xtask machine`: installs, runs and purges a release in a Debian 12 with a kernel and a systemd of its own. What it checks
//! are the scripts in `xtask/machine/checks`; each begins with what it is about.

mod disk;
mod guest;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;
use crate::run::{self, Result};
use crate::tools::{self, Tool};
use guest::Guest;

/// The folder with the scripts.
const SCRIPTS: &str = "xtask/machine";

/// What is kept, and the output of the last run.
const FOLDER: &str = "target/machine";

/// What makes the disk, and the machine itself.
const TOOLS: &[Tool] = &[
    Tool {
        program: "mmdebstrap",
        package: "mmdebstrap",
    },
    Tool {
        program: "mkfs.ext4",
        package: "e2fsprogs",
    },
    Tool {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
    },
];

/// How long one check may take. The slowest waits for the watchdog of the unit, 30 s.
const CHECK_TIME_MAX: Duration = Duration::from_secs(600);

/// Checks the release in a folder: `[FOLDER]`, by default that of `cargo xtask package`. As root.
///
/// # Errors
/// If a check fails; its output is printed.
pub fn run(words: &[&str]) -> Result<()> {
    let release = match words {
        [] => run::root().join("target/package"),
        [folder] if !folder.starts_with('-') => PathBuf::from(folder),
        _ => return Err("usage: cargo xtask machine [FOLDER]".into()),
    };
    if !tools::is_root() {
        return Err("only root can make the disk of the machine".into());
    }
    tools::install(TOOLS)?;
    let folder = run::root().join(FOLDER);
    disk::make(&folder.join("disk"))?;
    let shared = folder.join("host");
    share(&release, &shared)?;
    let checks = names(&shared)?;
    Guest::boot(&folder.join("disk"), &shared)?.follow(&checks)
}

/// Fills the folder that the machine sees: the files of the release, without their versions, and the scripts.
fn share(release: &Path, to: &Path) -> Result<()> {
    let failed = |error| format!("{}: {error}", to.display());
    if to.exists() {
        fs::remove_dir_all(to).map_err(failed)?;
    }
    fs::create_dir_all(to.join("checks")).map_err(failed)?;
    for (end, name) in [(".deb", "levity.deb"), (".tar.gz", "levity.tar.gz")] {
        copy(&find(release, end)?, &to.join(name))?;
    }
    let scripts = run::root().join(SCRIPTS);
    copy_files(&scripts, to)?;
    copy_files(&scripts.join("checks"), &to.join("checks"))
}

/// Copies the files of a folder, without those of its folders.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    let mut files = files::entries(from)?
        .into_iter()
        .filter(|path| path.is_file());
    files.try_for_each(|path| copy(&path, &to.join(path.file_name().unwrap_or_default())))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

/// The file of the release for this machine's processor with that end.
fn find(release: &Path, end: &str) -> Result<PathBuf> {
    let mut entries = files::entries(release)?.into_iter();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(end) && (name.contains("x86_64") || name.contains("amd64"))
    };
    entries
        .find(is_it)
        .ok_or_else(|| format!("no file for x86_64 in {} ends in {end}", release.display()))
}

/// The names of the checks, in their order.
fn names(shared: &Path) -> Result<Vec<String>> {
    let paths = files::entries(&shared.join("checks"))?;
    let name = |path: PathBuf| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    Ok(paths.into_iter().map(name).collect())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod as_root {
    use super::*;
    use crate::package;

    /// The program that the tests of the server use, as a package.
    #[test]
    #[ignore = "boots a machine and waits for its watchdog: some minutes"]
    fn the_package_installs_runs_and_goes_in_a_debian_12() {
        let here = std::env::current_exe().unwrap();
        let program = here.ancestors().nth(2).unwrap().join("levity");
        let folder = run::root().join(FOLDER).join("package");
        let [program, folder] = [&program, &folder].map(|path| path.to_str().unwrap());
        package::run(&["--binary", program, "--output", folder]).unwrap();
        run(&[folder]).unwrap_or_else(|error| panic!("{error}"));
    }
}
