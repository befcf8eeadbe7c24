//! Node packages for tests that Debian does not have, installed into the target folder.

use crate::run::{self, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The folder with the names, versions and hashes of the packages.
const SOURCES: &str = "crates/levity/tests/apps/node";

/// The file that lists them all.
const LOCK: &str = "package-lock.json";

/// The folder in which tests find them.
const FOLDER: &str = "target/node";

/// Installs them unless they are installed. Scripts of the packages are not run: what they are for is in the packages.
pub fn install() -> Result<()> {
    let [sources, folder] = [SOURCES, FOLDER].map(|folder| run::root().join(folder));
    let failed = |path: PathBuf| move |error| format!("{}: {error}", path.display());
    let lock = fs::read(sources.join(LOCK)).map_err(failed(sources.join(LOCK)))?;
    let installed = folder.join("installed.json");
    if fs::read(&installed).is_ok_and(|text| text == lock) {
        return Ok(());
    }
    fs::create_dir_all(&folder).map_err(failed(folder.clone()))?;
    for name in ["package.json", LOCK] {
        let to = folder.join(name);
        fs::copy(sources.join(name), &to).map_err(failed(to))?;
    }
    let quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
    run::run(
        Command::new("npm")
            .args(["ci", "--ignore-scripts"])
            .args(quiet)
            .current_dir(&folder),
    )?;
    // Only now: an installation that was interrupted is made anew.
    fs::write(&installed, lock).map_err(failed(installed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an address, each installation would go to the registry that was near whoever wrote the file.
    #[test]
    fn packages_have_hashes_and_no_addresses() {
        let text = fs::read_to_string(run::root().join(SOURCES).join(LOCK)).unwrap();
        assert!(!text.contains("://"));
        let lock: serde_json::Value = serde_json::from_str(&text).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        assert!(packages.len() > 2);
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            for key in ["version", "integrity"] {
                assert!(package[key].is_string(), "{name} has no {key}");
            }
        }
    }
}
