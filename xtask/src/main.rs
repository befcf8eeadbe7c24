//! `cargo xtask`: every habit of the project as one command.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod files;
mod fuzz;
mod licences;
mod lines;
mod python;
mod run;
mod tests;
mod tools;

use run::Result;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask ci                          what must pass before a change is merged
cargo xtask test [--full] [FILTER]      all tests; --full takes the slow ones too
cargo xtask bench SCENARIO [OPTIONS]    huc, w1, w3, idle or all; as root; -h lists the options
cargo xtask fuzz [TARGET [SECONDS]]     fuzz one target, or list them
cargo xtask docs                        write the parts of docs/ that come from the code
cargo xtask files [PART]                list source files, each with what it is for
cargo xtask lines                       count the lines of product code";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["ci"] => ci::run(),
        ["test", rest @ ..] => tests::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["docs"] => docs(),
        ["files"] => files::run(""),
        ["files", part] => files::run(part),
        ["lines"] => lines::run(),
        _ => Err(format!("usage:\n{USAGE}")),
    }
}

/// The reference pages are compared with the code by tests, which write them when told to.
fn docs() -> Result<()> {
    for test in [
        ["-p", "levity-config", "--test", "reference"],
        ["-p", "levity-telemetry", "--lib", "docs"],
    ] {
        let mut cargo = run::cargo(&["test"]);
        run::run(cargo.args(test).env("LEVITY_WRITE_DOCS", "1"))?;
    }
    Ok(())
}
