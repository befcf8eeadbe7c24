//! The files that the tarball and the package share, by their places beneath a prefix such as `/usr`.

use std::path::Path;

use super::staged::Staged;
use crate::files;
use crate::run::{self, Result};

/// Files of the checkout, and their places.
const FILES: &[(&str, &str)] = &[
    (
        "packaging/completions/levity.bash",
        "share/bash-completion/completions/levity",
    ),
    (
        "packaging/completions/levity.fish",
        "share/fish/vendor_completions.d/levity.fish",
    ),
    ("packaging/man/levity.1", "share/man/man1/levity.1"),
    (
        "packaging/man/levity.toml.5",
        "share/man/man5/levity.toml.5",
    ),
    (
        "packaging/welcome/index.html",
        "share/levity/welcome/index.html",
    ),
    ("README.md", "share/doc/levity/README.md"),
];

/// Units of systemd, whose place depends on who installs them.
pub const UNITS: [&str; 2] = ["levity.service", "levity.socket"];

/// The completions of zsh, whose place depends on who installs them.
pub const ZSH: &str = "packaging/completions/_levity";

/// Adds them to `staged`, beneath `prefix`.
pub fn add(staged: &Staged, prefix: &str, program: &Path, notices: &str) -> Result<()> {
    staged.program(&format!("{prefix}/bin/levity"), program)?;
    for (from, to) in FILES {
        staged.copy(&format!("{prefix}/{to}"), &run::root().join(from))?;
    }
    let documents = format!("{prefix}/share/doc/levity");
    staged.text(&format!("{documents}/NOTICES"), notices)?;
    for example in files::entries(&run::root().join("docs/examples"))? {
        let name = example.file_name().unwrap_or_default().to_string_lossy();
        staged.copy(&format!("{documents}/examples/{name}"), &example)?;
    }
    Ok(())
}
