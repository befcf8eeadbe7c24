//! What the command line asks for.

use std::path::{Path, PathBuf};

use super::target::{TARGETS, Target};
use crate::run::{self, Result};

const USAGE: &str = "usage: cargo xtask package [--all] [--binary PATH] [--output FOLDER]\n\
    --all            for every processor; without it, for that of this machine\n\
    --binary PATH    pack this program for this machine instead of building one\n\
    --output FOLDER  default: target/package; an older release there is removed";

/// What is packed, and where to.
pub struct Options {
    pub targets: &'static [Target],
    /// A program that exists already.
    pub binary: Option<PathBuf>,
    pub output: PathBuf,
}

impl Options {
    /// # Errors
    /// For words that are not in the usage, and for a program together with `--all`.
    pub fn read(words: &[&str]) -> Result<Self> {
        let mut all = false;
        let mut options = Self {
            targets: Target::here()?,
            binary: None,
            output: run::root().join("target/package"),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut path = || words.next().map(absolute).ok_or_else(|| USAGE.to_owned());
            match *word {
                "--all" => all = true,
                "--binary" => options.binary = Some(path()??),
                "--output" => options.output = path()??,
                _ => return Err(USAGE.to_owned()),
            }
        }
        match (all, &options.binary) {
            (true, Some(_)) => Err("--binary is one program, and --all needs several".to_owned()),
            (true, None) => Ok(Self {
                targets: TARGETS,
                ..options
            }),
            (false, _) => Ok(options),
        }
    }
}

fn absolute(path: &&str) -> Result<PathBuf> {
    std::path::absolute(Path::new(path)).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        assert_eq!(Options::read(&[]).unwrap().targets.len(), 1);
        assert_eq!(Options::read(&["--all"]).unwrap().targets.len(), 2);
        let options = Options::read(&["--binary", "/a", "--output", "/b"]).unwrap();
        assert_eq!(options.binary, Some("/a".into()));
        assert_eq!(options.output, Path::new("/b"));
        for words in [&["--binary"][..], &["all"], &["--all", "--binary", "/a"]] {
            assert!(Options::read(words).is_err(), "{words:?}");
        }
    }
}
