//! What all files of a release have in common: version, time, folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::target::Target;
use super::tool::tool;
use crate::files;
use crate::run::{self, Result};

/// Names the time in place of the last commit, in seconds since 1970 (<https://reproducible-builds.org/specs/source-date-epoch>).
pub const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The list of sums.
const SUMS: &str = "SHA256SUMS";

/// The folder for what is not part of the release. One that was interrupted leaves it.
const WORK: &str = "levity-work";

pub struct Release {
    pub version: String,
    /// The time of all files, in seconds since 1970.
    pub epoch: String,
    /// The folder of the files.
    pub output: PathBuf,
}

impl Release {
    /// The release of the checkout.
    ///
    /// # Errors
    /// If nothing says its time.
    pub fn read(output: PathBuf) -> Result<Self> {
        let metadata = run::metadata()?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let levity = packages.find(|package| package["name"] == "levity");
        let version = levity.and_then(|package| package["version"].as_str());
        Ok(Self {
            version: version.ok_or("cargo metadata names no levity")?.to_owned(),
            epoch: epoch()?,
            output,
        })
    }

    /// The name of a file of the release.
    pub fn file(&self, target: &Target, end: &str) -> String {
        format!("levity-{}-{}-linux.{end}", self.version, target.processor)
    }

    /// The folder for what is not part of the release.
    pub fn work(&self) -> PathBuf {
        self.output.join(WORK)
    }

    /// Removes an older release, and makes the folders.
    ///
    /// # Errors
    /// If something else is in the folder of the files: it stays.
    pub fn empty(&self) -> Result<()> {
        let failed = |error| format!("{}: {error}", self.output.display());
        if self.output.exists() {
            let entries = files::entries(&self.output)?;
            if let Some(other) = entries.iter().find(|path| !is_of_a_release(path)) {
                return Err(format!(
                    "{} is not of a release; nothing was removed",
                    other.display()
                ));
            }
            fs::remove_dir_all(&self.output).map_err(failed)?;
        }
        fs::create_dir_all(self.work()).map_err(failed)
    }

    pub fn remove_work(&self) -> Result<()> {
        fs::remove_dir_all(self.work())
            .map_err(|error| format!("{}: {error}", self.work().display()))
    }

    /// The time in a format of `date(1)`.
    pub fn date(&self, format: &str) -> Result<String> {
        let time = format!("--date=@{}", self.epoch);
        let text = run::output(tool("date").args(["--utc", &time, format]))?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// Writes the sums of all files, and says what they are.
    pub fn write_sums(&self) -> Result<()> {
        let mut sums = String::new();
        for path in files::entries(&self.output)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            sums += &format!("{}  {name}\n", sha256(&path)?);
        }
        print!("{sums}");
        let path = self.output.join(SUMS);
        fs::write(&path, sums).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Whether a file or folder may be removed for another release.
fn is_of_a_release(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_packed = name.starts_with("levity-") || name.starts_with("levity_");
    (is_packed && path.is_file()) || [SUMS, WORK].contains(&&*name)
}

fn epoch() -> Result<String> {
    if let Ok(epoch) = std::env::var(EPOCH) {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"])
        .current_dir(run::root());
    let time = run::output(&mut git)
        .map_err(|error| format!("{error}\nwithout a commit, set {EPOCH} to a time"))?;
    Ok(String::from_utf8_lossy(&time).trim().to_owned())
}

/// The SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let line = run::output(tool("sha256sum").arg("--").arg(path))?;
    let line = String::from_utf8_lossy(&line);
    // A name with unusual characters is marked in front of the sum.
    let sum = line.trim_start_matches('\\').split_whitespace().next();
    Ok(sum.ok_or("sha256sum prints nothing")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_release_is_removed() {
        let folder = std::env::temp_dir().join(format!("levity-release-{}", std::process::id()));
        let release = Release {
            version: "1.0.0".to_owned(),
            epoch: "0".to_owned(),
            output: folder.clone(),
        };
        let package = folder.join("levity_1.0.0_amd64.deb");
        release.empty().unwrap();
        fs::write(&package, "").unwrap();
        release.empty().unwrap();
        assert!(!package.exists());
        let mine = folder.join("mine");
        fs::write(&mine, "").unwrap();
        assert!(release.empty().is_err());
        assert!(mine.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
