//! Lines of the files of a configuration, and remarks about them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A line of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The file, as messages name it; `None` where the configuration has one file only.
    pub file: Option<Arc<Path>>,
    /// Counted from 1; 0 without a file.
    pub number: usize,
    /// The number of lines before it, with those of the files before its own.
    pub(crate) order: usize,
}

impl Line {
    /// A line of a file that is no part of the configuration.
    pub(crate) fn of_other_file(number: usize) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }
}

/// `line 3`, or `line 3 of sites.d/a.toml` where there are several files.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.number)?;
        match &self.file {
            Some(file) => write!(f, " of {}", file.display()),
            None => Ok(()),
        }
    }
}

/// A remark for the operator that is not an error, such as a key under another server's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is about; `None` for the configuration as a whole.
    pub line: Option<Line>,
    /// A phrase without a full stop.
    pub text: String,
}

impl Note {
    /// A remark about the configuration as a whole, or about this machine.
    #[must_use]
    pub fn without_line(text: String) -> Self {
        Self { line: None, text }
    }
}

/// With the line before it.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "{line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}
