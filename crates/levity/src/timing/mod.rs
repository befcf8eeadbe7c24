//! `levity timing`: where the time of a run went, told from its access log.
//!
//! A log is read once, in bounded memory: `lines` makes a `Request` of each line,
//! `run` adds them up, `table`, `verdict` and `picture` say what came out.

mod lines;
mod picture;
mod readers;
mod run;
mod spread;
mod table;
mod verdict;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::cli::{EXIT_FAILURE, Streams};
use lines::Trouble;
use run::Run;

/// What `levity timing` was asked for.
#[derive(Debug)]
pub struct Options {
    /// The log; `-` is standard input.
    pub log: PathBuf,
    /// Where to write a picture.
    pub svg: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

/// Reads the log and says what it tells; gives the exit status. May block.
pub fn run(options: &Options, streams: &mut Streams<'_>) -> u8 {
    match told(options, streams) {
        Ok(()) => 0,
        Err(message) => {
            // Nobody is left to tell when this fails.
            let _ = writeln!(streams.err, "error: {message}");
            EXIT_FAILURE
        }
    }
}

fn told(options: &Options, streams: &mut Streams<'_>) -> Result<(), String> {
    let name = options.log.display();
    let unread = |error: io::Error| format!("cannot read {name}: {error}");
    let mut log = open(&options.log).map_err(unread)?;
    let mut run = Run::default();
    let troubles = lines::read(&mut log, |request| run.add(&request)).map_err(unread)?;
    if run.is_empty() {
        return Err(nothing(&name.to_string(), &troubles));
    }
    let text = match options.json {
        true => format!("{}\n", table::json(&run, &troubles)),
        false => table::text(&run),
    };
    // A reader that has gone away is no reason to fail.
    let _ = streams.out.write_all(text.as_bytes());
    if !options.json {
        let _ = streams
            .err
            .write_all(troubles.told(&name.to_string()).as_bytes());
    }
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

/// Why a log is of no use.
fn nothing(name: &str, troubles: &lines::Troubles) -> String {
    let how = "write `format = \"json\"` and `timing = \"chunk\"` (or \"request\") under [log], run the server, and try again";
    match troubles.first() {
        None => format!("{name} has no lines"),
        Some((_, Trouble::Combined)) => {
            format!(
                "{name} is in the combined format, which does not say where the time went: {how}"
            )
        }
        Some((line, trouble)) => {
            format!("{name} has no line of a JSON access log; line {line}: {trouble}: {how}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(log: &str, json: bool) -> (u8, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        std::fs::write(&file, log).unwrap();
        let options = Options {
            log: file,
            svg: Some(folder.path().join("svg")),
            json,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams {
            out: &mut out,
            err: &mut err,
            colour: false,
        };
        let status = run(&options, &mut streams);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status, text(out), text(err))
    }

    const LINE: &str = "{\"time\":\"2026-11-20T19:42:07.000042Z\",\"status\":200,\"bytes\":5,\"dur\":0.010000,\
        \"ttfb\":0.009,\"io_wait\":0.008,\"src\":\"disk\",\"timing_us\":{\"parse\":10.5,\"send\":9989.500,\"queue\":7000.000,\
        \"read\":900.000,\"write\":100.000},\"trips\":1,\"engine\":\"threads\"}\n";

    #[test]
    fn a_combined_log_is_refused_with_what_to_do() {
        let line = "192.0.2.7 - - [20/Nov/2026:19:42:07 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" bytes=5 dur=0.1\n";
        let (status, out, err) = timing(line, false);
        assert_eq!((status, out.as_str()), (EXIT_FAILURE, ""));
        assert!(
            err.contains("combined format") && err.contains("`format = \"json\"`"),
            "{err}"
        );
    }

    #[test]
    fn an_empty_log_and_one_of_something_else_are_refused() {
        assert!(timing("", false).2.ends_with("has no lines\n"));
        let (status, _, err) = timing("\n{\"a\":1}\n", false);
        assert!(
            status == EXIT_FAILURE && err.contains("line 2: no `time`"),
            "{err}"
        );
    }

    #[test]
    fn bad_lines_are_counted_and_named() {
        let log = format!("{LINE}nonsense\n{LINE}{{\"time\":\"yesterday\"}}\n");
        let (status, out, err) = timing(&log, false);
        assert_eq!(status, 0);
        assert!(out.starts_with("2 requests"), "{out}");
        assert!(err.contains("2 lines were left out"), "{err}");
        assert!(
            err.contains("line 2: not JSON") && err.contains("line 4: no `time`"),
            "{err}"
        );
        let (_, out, err) = timing(&log, true);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&value["requests"], &value["bad_lines"]["count"]),
            (&2.into(), &2.into())
        );
        assert_eq!(
            (&value["bad_lines"]["first"][0]["line"], err.as_str()),
            (&2.into(), "")
        );
    }

    /// Anybody's figures are left out or added up, without an overflow and without a long picture.
    #[test]
    fn figures_of_nobody_do_no_harm() {
        let large = "1125899906842623";
        let mut log = LINE.replace("0.010000", "9e14");
        log += &LINE.replace("\"bytes\":5", "\"bytes\":18446744073709551615");
        log += &LINE.replace("\"trips\":1", "\"trips\":18446744073709551615");
        log += &LINE.replace("\"src\":\"disk\"", "\"src\":\"\\u202e\\u001b[2J\"");
        log += &LINE.replace(
            "\"src\":\"disk\"",
            &format!("\"src\":\"{}\"", "x".repeat(65)),
        );
        for second in 10..60 {
            let at = format!(":{second}.000042Z");
            let chunks = format!(
                "\"trips\":1,\"chunks_us\":[[0,{large},{large},{large},{large},{large}],\
                [0,{second},{large},{second}{second}{second},{large},1]]"
            );
            log += &LINE
                .replace(":07.000042Z", &at)
                .replace("\"trips\":1", &chunks);
        }
        let (status, out, err) = timing(&log, false);
        assert_eq!(status, 0);
        assert!(out.starts_with("51 requests in"), "{out}");
        assert!(err.starts_with("4 lines were left out"), "{err}");
        assert!(!out.contains(['\u{1b}', '\u{202e}']), "{out}");
    }

    #[test]
    fn a_log_without_timing_gives_what_it_has() {
        let (before, rest) = LINE.split_once(",\"timing_us\"").unwrap();
        assert!(rest.contains("trips"));
        let (status, out, _) = timing(&format!("{before}}}\n"), false);
        assert_eq!(status, 0);
        assert!(
            out.contains("io_wait") && out.contains("`timing = \"chunk\"`"),
            "{out}"
        );
    }
}
