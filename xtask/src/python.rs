//! Python packages that tests need and Debian does not have, in a folder of the build.

use crate::run::{self, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The Python that Debian's packages belong to, whatever other comes first in the path.
const PYTHON: &str = "/usr/bin/python3";

/// Pinned, with their hashes.
const REQUIREMENTS: &str = "crates/levity/tests/apps/python/requirements.txt";

/// Where tests look for them.
const FOLDER: &str = "target/python";

/// Installs them unless they are there. A folder of packages is enough: an environment would add
/// nothing but a second interpreter.
pub fn install() -> Result<()> {
    let wanted = run::root().join(REQUIREMENTS);
    let wanted_text =
        fs::read(&wanted).map_err(|error| format!("{}: {error}", wanted.display()))?;
    if fs::read(installed()).is_ok_and(|text| text == wanted_text) {
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
    fs::write(installed(), wanted_text)
        .map_err(|error| format!("{}: {error}", installed().display()))
}

/// A copy of the requirements, written when they have been met.
fn installed() -> PathBuf {
    run::root().join(FOLDER).join("requirements.txt")
}
