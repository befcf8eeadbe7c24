//! `levity timing`: where the time of requests went, from a JSON access log.
//!
//! A log is read once, in bounded memory: `lines` makes a request of each line, `run` adds them up, and
//! `table`, `verdict` and `picture` show the result.

mod concurrency;
mod lines;
mod picture;
mod run;
mod table;
#[cfg(test)]
mod tests;
mod units;
mod verdict;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use lines::{LineError, SkippedLines};
use run::Run;

/// The arguments of `levity timing`.
#[derive(Debug)]
pub struct Options {
    /// The log; `-` is standard input.
    pub log: PathBuf,
    /// Where to write a picture.
    pub svg: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

/// Reads the log, writes the result to `out`, and a warning about skipped lines to `err`. May block.
///
/// # Errors
/// The log cannot be read, has no JSON line, or the picture cannot be written: a message for people.
pub fn run(options: &Options, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), String> {
    let name = options.log.display().to_string();
    let unread = |error: io::Error| format!("cannot read {name}: {error}");
    let mut log = open(&options.log).map_err(unread)?;
    let mut run = Run::default();
    let skipped = lines::read(&mut log, |request| run.add(&request)).map_err(unread)?;
    if run.is_empty() {
        return Err(no_requests(&name, &skipped));
    }
    let (text, warning) = match options.json {
        true => (format!("{}\n", table::json(&run, &skipped)), String::new()),
        false => (table::text(&run), skipped.warning(&name)),
    };
    // A reader that has gone away is no reason to fail.
    let _ = out.write_all(text.as_bytes());
    let _ = err.write_all(warning.as_bytes());
    if let Some(file) = &options.svg {
        let unwritten = |error| format!("cannot write {}: {error}", file.display());
        std::fs::write(file, picture::svg(&run)).map_err(unwritten)?;
    }
    Ok(())
}

fn open(log: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match log == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(log)?)),
    })
}

/// Why a log is of no use, and how to get another.
fn no_requests(name: &str, skipped: &SkippedLines) -> String {
    let how = "write `format = \"json\"` and `timing = \"chunk\"` (or \"request\") under [log], run the server, and try again";
    match skipped.errors.first() {
        None => format!("{name} has no lines"),
        Some((_, LineError::Combined)) => {
            format!(
                "{name} is in the combined format, which does not say where the time went: {how}"
            )
        }
        Some((line, error)) => {
            format!("{name} has no line of a JSON access log; line {line}: {error}: {how}")
        }
    }
}
