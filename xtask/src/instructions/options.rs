//! What the command line asks for.

use std::path::{Path, PathBuf};

use super::measure::CASES;
use crate::run::Result;

const USAGE: &str = "usage: cargo xtask instructions [--binary PATH] [--case NAME] [--functions N] [--inlined] [--check | --record]\n\
    --binary PATH    count in this program; without it, the profile dist is built\n\
    --case NAME      http1, http2 or pipelined; without it, all\n\
    --functions N    lines of the table; default: 40\n\
    --inlined        count instructions for the function in whose source they are, also where it is inlined; what is\n\
    \x20                inlined of the standard library counts for its caller\n\
    --check          fail if a case needs 1 % more than xtask/instructions.json says\n\
    --record         write the numbers to it if they are no higher";

/// The lines of a table.
const FUNCTIONS: usize = 40;

/// What is counted, and what follows.
#[derive(Debug)]
pub struct Options {
    /// A program that exists already.
    pub binary: Option<PathBuf>,
    case: Option<String>,
    pub functions: usize,
    pub inlined: bool,
    pub mode: Mode,
}

/// What follows the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Show,
    Check,
    Record,
}

impl Options {
    /// # Errors
    /// For words that are not in the usage.
    pub fn read(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            binary: None,
            case: None,
            functions: FUNCTIONS,
            inlined: false,
            mode: Mode::Show,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(USAGE);
            match *word {
                "--binary" => options.binary = Some(absolute(value()?)?),
                "--case" => options.case = Some(value()?.to_owned()),
                "--functions" => options.functions = value()?.parse().map_err(|_| USAGE)?,
                "--inlined" => options.inlined = true,
                "--check" => options.mode = options.then(Mode::Check)?,
                "--record" => options.mode = options.then(Mode::Record)?,
                _ => return Err(USAGE.to_owned()),
            }
        }
        options.require_sense()?;
        Ok(options)
    }

    fn then(&self, mode: Mode) -> Result<Mode> {
        match self.mode {
            Mode::Show => Ok(mode),
            _ => Err("--check and --record exclude each other".to_owned()),
        }
    }

    fn require_sense(&self) -> Result<()> {
        if self.inlined && self.mode != Mode::Show {
            return Err(
                "the record has functions as they are in the program, without --inlined".to_owned(),
            );
        }
        let is_known = |name: &String| CASES.iter().any(|case| case.name == name);
        match &self.case {
            Some(name) if !is_known(name) => Err(format!("no case {name}\n{USAGE}")),
            _ => Ok(()),
        }
    }

    /// Whether a case is to be counted.
    pub fn wants(&self, case: &str) -> bool {
        self.case.as_deref().is_none_or(|wanted| wanted == case)
    }
}

fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(Path::new(path)).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = Options::read(&[]).unwrap();
        assert_eq!((options.functions, options.mode), (FUNCTIONS, Mode::Show));
        assert!(options.wants("http1") && options.wants("pipelined"));
        let words = [
            "--case",
            "http2",
            "--functions",
            "7",
            "--binary",
            "/a",
            "--check",
        ];
        let options = Options::read(&words).unwrap();
        assert_eq!((options.functions, options.mode), (7, Mode::Check));
        assert_eq!(options.binary, Some("/a".into()));
        assert!(options.wants("http2") && !options.wants("http1"));
    }

    #[test]
    fn words_without_sense_are_refused() {
        for words in [
            &["--case", "http4"][..],
            &["--case"],
            &["--functions", "many"],
            &["--check", "--record"],
            &["--check", "--inlined"],
            &["http1"],
        ] {
            assert!(Options::read(words).is_err(), "{words:?}");
        }
    }
}
