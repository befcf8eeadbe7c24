//! Programs in Go for tests, built into the target folder: those that Debian lacks, or has in a version that is too old,
//! and one of our own.

use std::fs;
use std::io;
use std::path::Path;
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

/// The folder of the sources of our own program, which is called like it.
const OWN: &str = "crates/levity/tests/apps/grpc";

/// The folder with what they are built of, and themselves.
const FOLDER: &str = "target/go";

/// Builds them unless they are there. The Python packages have to be.
pub fn install() -> Result<()> {
    let folder = run::root().join(FOLDER);
    let list = PROGRAMS.join("\n") + &sources()?;
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|text| text == list) {
        return Ok(());
    }
    for program in PROGRAMS {
        run::run(go(&folder).args(["install", program]))?;
    }
    // What it needs is pinned in its `go.mod` and `go.sum`.
    run::run(
        go(&folder)
            .args(["install", "."])
            .current_dir(run::root().join(OWN)),
    )?;
    // Only now: an installation that was interrupted is made anew.
    fs::write(&installed, list).map_err(|error| format!("{}: {error}", installed.display()))
}

/// The compiler, which keeps all that it makes in `folder`.
fn go(folder: &Path) -> Command {
    let mut command = Command::new(run::root().join(GO));
    command
        .env("GOBIN", folder.join("bin"))
        .env("GOPATH", folder.join("path"))
        .env("GOCACHE", folder.join("cache"))
        // Otherwise whoever removes the target folder is refused.
        .env("GOFLAGS", "-modcacherw")
        .env("GOTOOLCHAIN", "local")
        .current_dir(run::root());
    command
}

/// The sources of our own program, one after the other.
fn sources() -> Result<String> {
    let folder = run::root().join(OWN);
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(&folder).map_err(failed)?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    let texts = files.iter().map(fs::read_to_string);
    texts
        .collect::<io::Result<String>>()
        .map_err(|error| format!("{}: {error}", folder.display()))
}
