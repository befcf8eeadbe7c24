//! `cargo xtask fuzz`: runs one fuzz target for a limited time.

use crate::run::{self, Result, cargo};
use std::fs;

const SECONDS: &str = "60";

/// Runs `TARGET [SECONDS]`; without a target, the error lists the targets.
pub fn run(words: &[&str]) -> Result<()> {
    let (target, seconds) = match words {
        [target] => (target, SECONDS),
        [target, seconds] => (target, *seconds),
        _ => {
            return Err(format!(
                "usage: cargo xtask fuzz TARGET [SECONDS]; targets: {}",
                targets()?.join(", ")
            ));
        }
    };
    if !targets()?.iter().any(|known| known == target) {
        return Err(format!(
            "no fuzz target {target}; targets: {}",
            targets()?.join(", ")
        ));
    }
    if run::output(&mut cargo(&["fuzz", "--version"])).is_err() {
        return Err(
            "cargo-fuzz is missing: cargo install cargo-fuzz && rustup toolchain install nightly"
                .into(),
        );
    }
    // Uses the cargo of rustup in place of the one that runs this: the sanitizers need a nightly compiler.
    let mut fuzz = std::process::Command::new("cargo");
    fuzz.args([
        "+nightly",
        "fuzz",
        "run",
        target,
        "--",
        &format!("-max_total_time={seconds}"),
    ]);
    run::run(fuzz.current_dir(run::root()).env_remove("RUSTUP_TOOLCHAIN"))
}

/// The files in `fuzz/fuzz_targets`, without their extension.
fn targets() -> Result<Vec<String>> {
    let dir = run::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut targets: Vec<_> = names
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}
