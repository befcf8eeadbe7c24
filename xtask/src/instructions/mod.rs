//! `cargo xtask instructions`: counts the machine instructions of one request, by function. A server runs under ptrace(2), one
//! instruction at a time, so no counters of the processor are needed.

mod client;
mod clock;
mod count;
mod frames;
mod measure;
mod options;
mod record;
mod server;
mod symbols;
mod thread;

use crate::run::{self, Result};
use measure::{CASES, Case, Measurement};
use options::{Mode, Options};
use record::Record;
use server::Server;
use std::path::{Path, PathBuf};

/// Counts as `words` say; see [`options`].
///
/// # Errors
/// If the program does not serve, and with `--check` if a case needs more instructions than the record says.
pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::read(words)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    let compiler = symbols::compiler(&binary)?;
    let mut record = Record::read()?;
    let mut complaints = Vec::new();
    for case in CASES.iter().filter(|case| options.wants(case.name)) {
        let measurement = measure(case, &binary, &options)?;
        println!("{}", measurement.table(options.functions));
        match options.mode {
            Mode::Show => (),
            Mode::Check => complaints.extend(record.check(&measurement, &compiler)),
            Mode::Record => complaints.extend(record.take(&measurement, &compiler)),
        }
    }
    if options.mode == Mode::Record {
        record.write()?;
    }
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(complaints.join("\n")),
    }
}

fn measure(case: &'static Case, binary: &Path, options: &Options) -> Result<Measurement> {
    let server = Server::start(binary)?;
    case.measure(&server, options.inlined)
        .map_err(|error| format!("{}: {error}", case.name))
}

fn build() -> Result<PathBuf> {
    run::run(&mut run::cargo(&[
        "build",
        "--profile",
        "dist",
        "--locked",
        "--package",
        "levity",
    ]))?;
    let metadata = run::metadata()?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    Ok(Path::new(target).join("dist/levity"))
}
