//! Archives with the same bytes for the same files: sorted, with owners and times that are fixed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::release::Release;
use super::tool::tool;
use crate::run::{self, Result};

/// What an archive consists of.
pub struct Tar<'a> {
    /// The folder that names are relative to.
    pub folder: &'a Path,
    /// The files and folders, with everything in them.
    pub names: &'a [&'a str],
    /// Paths within, each with the number of the user and group to whom it belongs. All others belong to root.
    pub owned: &'a [(&'a str, &'a str)],
}

impl Tar<'_> {
    /// Writes the archive to `to`.
    pub fn write(&self, release: &Release, to: &Path) -> Result<()> {
        let mut tar = self.tar(release, "--create", "0", to);
        for (path, _) in self.owned {
            tar.arg(format!("--exclude={path}"));
        }
        run::output(tar.args(self.names))?;
        for (path, owner) in self.owned {
            run::output(self.tar(release, "--append", owner, to).arg(path))?;
        }
        Ok(())
    }

    fn tar(&self, release: &Release, action: &str, owner: &str, to: &Path) -> Command {
        let mut tar = tool("tar");
        tar.arg(action)
            .args(["--format=ustar", "--sort=name", "--numeric-owner"])
            .args([format!("--owner={owner}"), format!("--group={owner}")])
            .arg(format!("--mtime=@{}", release.epoch))
            .arg("--file")
            .arg(to)
            .arg("--directory")
            .arg(self.folder);
        tar
    }
}

/// Compresses a file; the result has `.gz` behind its name. The file itself is kept.
pub fn gzip(path: &Path) -> Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let to = PathBuf::from(name);
    let output = File::create(&to).map_err(|error| format!("{}: {error}", to.display()))?;
    let mut gzip = tool("gzip");
    gzip.args(["--no-name", "--stdout"]).arg(path);
    run::run(gzip.stdout(Stdio::from(output)))?;
    Ok(to)
}
