//! One configuration in many files.

mod joined;
mod names;
mod on_disk;
mod order;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;
use crate::absent_roots::AbsentRoots;
use crate::files::{BYTES_MAX, FILES_MAX};

/// A folder with a configuration.
struct Folder(tempfile::TempDir);

impl Folder {
    /// With a main file.
    fn new(main: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.write("levity.toml", main);
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn load(&self) -> Result<Config, Errors> {
        load(&self.at("levity.toml"))
    }

    fn loaded(&self) -> Config {
        self.load().unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The hosts of all sites, in their order.
    fn hosts(&self) -> Vec<String> {
        let sites = self.loaded().sites.into_iter();
        sites.flat_map(|site| site.hosts).collect()
    }

    fn errors(&self) -> Errors {
        self.load().expect_err("errors")
    }

    /// Each problem as `FILE:LINE:COLUMN MESSAGE [HELP]`, with names relative to the folder.
    fn problems(&self) -> Vec<String> {
        let problem = |problem: &Problem| {
            let file = problem.file.as_ref();
            let file = file.map_or("-".into(), |file| file.display().to_string());
            let at = problem.position.as_ref();
            let at = at.map(|at| format!(":{}:{}", at.line, at.column));
            let at = format!("{file}{} ", at.unwrap_or_default());
            let help = problem.help.as_ref();
            let help = help.map_or(String::new(), |help| format!(" [{help}]"));
            self.relative(&format!("{at}{}{help}", problem.message))
        };
        self.errors().problems.iter().map(problem).collect()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.loaded().note_texts();
        notes.iter().map(|note| self.relative(note)).collect()
    }

    fn relative(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn site(host: &str) -> String {
    format!("[[site]]\nhosts = [\"{host}\"]\nrespond = {{}}\n")
}

const ALL: &str = "include = [\"sites.d/*.toml\"]\n";

const SITE_ALONE: &str = "[[site]]\nrespond = {}\n";
