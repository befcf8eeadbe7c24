//! `cargo xtask`: the routine tasks of the project.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod files;
mod fuzz;
mod go;
#[cfg(target_arch = "x86_64")]
mod instructions;
mod licences;
mod lines;
mod machine;
mod node;
mod package;
mod python;
mod run;
mod tests;
mod tools;

use run::Result;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask ci                          run the checks that must pass before a change is merged
cargo xtask test [--full] [FILTER]      run all tests, failed ones twice; --full includes slow ones
cargo xtask bench SCENARIO [OPTIONS]    run a benchmark as root; -h lists the scenarios and options
cargo xtask instructions [OPTIONS]      count the instructions of a request, on x86-64; -h lists the options
cargo xtask fuzz [TARGET [SECONDS]]     fuzz one target, or list them
cargo xtask package [OPTIONS]           make the files of a release; -h lists the options
cargo xtask machine [FOLDER]            install, run and purge a release in a Debian 12, as root
cargo xtask docs                        write the generated parts of docs/ and packaging/
cargo xtask files [PART]                list source files with a summary of each
cargo xtask lines [mailbox]             count the lines of product code";

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
        #[cfg(target_arch = "x86_64")]
        ["instructions", rest @ ..] => instructions::run(rest),
        ["package", rest @ ..] => package::run(rest),
        ["machine", rest @ ..] => machine::run(rest),
        ["docs"] => docs(),
        ["files"] => files::run(""),
        ["files", part] => files::run(part),
        ["lines"] => lines::run(),
        ["lines", "mailbox"] => lines::mailbox(),
        _ => Err(format!("usage:\n{USAGE}")),
    }
}

/// Tests compare the reference pages with the code. With this variable set they write the pages.
fn docs() -> Result<()> {
    for test in [
        ["-p", "levity-config", "--test", "reference"],
        ["-p", "levity-config", "--lib", "manual"],
        ["-p", "levity-telemetry", "--lib", "docs"],
        ["-p", "levity-telemetry", "--lib", "documentation"],
        ["-p", "levity", "--lib", "manual"],
    ] {
        let mut cargo = run::cargo(&["test"]);
        // One test may read the page that another one writes.
        let cargo = cargo.args(test).env(tests::THREADS, "1");
        run::run(cargo.env("LEVITY_WRITE_DOCS", "1"))?;
    }
    Ok(())
}
