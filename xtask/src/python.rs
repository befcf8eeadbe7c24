//! Python packages for tests that Debian does not have, installed into the target folder.

use crate::run::{self, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The Python of Debian, which has its packages; another one may come first in the path.
const PYTHON: &str = "/usr/bin/python3";

/// The packages, with versions and hashes.
const REQUIREMENTS: &str = "crates/levity/tests/apps/python/requirements.txt";

/// The folder in which tests find them.
const FOLDER: &str = "target/python";

/// Installs them unless they are installed. A plain folder is enough: a virtual environment would only add an
/// interpreter.
pub fn install() -> Result<()> {
    let path = run::root().join(REQUIREMENTS);
    let requirements = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if fs::read(installed()).is_ok_and(|text| text == requirements) {
        return Ok(());
    }
    run::run(
        Command::new(PYTHON)
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--require-hashes", "--root-user-action", "ignore"])
            .args(["--upgrade", "--target", FOLDER, "--requirement"])
            .arg(REQUIREMENTS)
            .current_dir(run::root()),
    )?;
    fs::write(installed(), requirements)
        .map_err(|error| format!("{}: {error}", installed().display()))
}

/// A copy of the requirements, written after the installation.
fn installed() -> PathBuf {
    run::root().join(FOLDER).join("requirements.txt")
}
