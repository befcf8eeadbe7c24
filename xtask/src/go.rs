//! Programs in Go for tests that Debian lacks, or has in a version that is too old, built into the target folder.

use std::fs;
use std::process::Command;

use crate::run::{self, Result};

/// The compiler, one of the Python packages: that of Debian is too old.
const GO: &str = "target/python/go/bin/go";

/// The programs, each with its version.
const PROGRAMS: &[&str] = &[
    "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3",
    "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.3",
    "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
];

/// The folder with what they are built of, and themselves.
const FOLDER: &str = "target/go";

/// Builds them unless they are there. The Python packages have to be.
pub fn install() -> Result<()> {
    let folder = run::root().join(FOLDER);
    let list = PROGRAMS.join("\n");
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|text| text == list) {
        return Ok(());
    }
    for program in PROGRAMS {
        run::run(
            Command::new(run::root().join(GO))
                .args(["install", program])
                .env("GOBIN", folder.join("bin"))
                .env("GOPATH", folder.join("path"))
                .env("GOCACHE", folder.join("cache"))
                // Otherwise whoever removes the target folder is refused.
                .env("GOFLAGS", "-modcacherw")
                .env("GOTOOLCHAIN", "local")
                .current_dir(run::root()),
        )?;
    }
    // Only now: an installation that was interrupted is made anew.
    fs::write(&installed, list).map_err(|error| format!("{}: {error}", installed.display()))
}
