//! The lines of one of the files, and the notes about them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::KEY;
use crate::Symlinks;
use crate::model::Location;
use crate::section::Section;

/// The maximum number of bytes of one of the files that are read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The maximum number of notes about one of the files: one in another notation has thousands of lines.
const NOTES_MAX: usize = 100;

/// The maximum number of characters of a line in a note.
const SHOWN_CHARS_MAX: usize = 200;

/// Collects the notes about one of the files. What is beyond [`NOTES_MAX`] is counted.
pub(super) struct Notes<'n> {
    section: &'n Section<'n>,
    name: &'static str,
    count: usize,
}

impl<'n> Notes<'n> {
    pub(super) fn new(section: &'n Section<'n>, name: &'static str) -> Self {
        Self {
            section,
            name,
            count: 0,
        }
    }

    /// The name of the file.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Notes that a line is left out. The reason and what is shown of the line are phrases.
    pub(super) fn left_out(&mut self, line: usize, reason: &str, text: &str) {
        self.add(line, &format!("is left out, because {reason}"), text);
    }

    /// Notes something about a line, counted from 1.
    pub(super) fn add(&mut self, line: usize, what: &str, text: &str) {
        self.count += 1;
        if self.count <= NOTES_MAX {
            let name = self.name;
            self.note(format!("{name}, line {line}, {what}: {}", shown(text)));
        }
    }

    fn note(&self, note: String) {
        let span = self.section.span_of(KEY);
        self.section.reader.note(&span, note);
    }
}

impl Drop for Notes<'_> {
    fn drop(&mut self) {
        if let Some(more @ 1..) = self.count.checked_sub(NOTES_MAX) {
            self.note(format!("{}: {more} more lines have notes", self.name));
        }
    }
}

/// A line for a reader: it is the text of somebody who may want to control a terminal.
fn shown(line: &str) -> String {
    let line = line.trim();
    let start = line.chars().take(SHOWN_CHARS_MAX);
    let mut shown: String = start
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if line.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str(" [...]");
    }
    shown
}

/// The lines of the file that `notes` are about, in the root of `site`; empty if there is none. Lines that are not UTF-8 are
/// empty. May block.
pub(super) fn lines(site: &Location, notes: &mut Notes<'_>) -> Vec<String> {
    let is_loaded = notes.section.reader.is_loaded;
    let Some(root) = site.root.as_deref().filter(|_| is_loaded) else {
        return Vec::new();
    };
    let may_leave = site.options.symlinks == Symlinks::Follow;
    let bytes = match read(root, notes.name, may_leave) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            notes.note(format!("{} is left out: {error}", notes.name));
            return Vec::new();
        }
    };
    let mut bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if bytes.len() > FILE_BYTES_MAX {
        let whole = bytes[..FILE_BYTES_MAX]
            .iter()
            .rposition(|&byte| byte == b'\n');
        bytes = &bytes[..whole.unwrap_or_default()];
        notes.note(format!(
            "{}: what lies behind its first {FILE_BYTES_MAX} bytes is left out",
            notes.name
        ));
    }
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    let text = |(number, line)| {
        let text = String::from_utf8_lossy(line);
        if text.contains(char::REPLACEMENT_CHARACTER) && std::str::from_utf8(line).is_err() {
            notes.left_out(number, "it is not UTF-8", &text);
            return String::new();
        }
        text.into_owned()
    };
    lines.map(text).collect()
}

/// A file of the site as clients would get it: one that a link leads to elsewhere may be secret, and notes show lines of it.
fn read(root: &Path, name: &str, may_leave: bool) -> io::Result<Vec<u8>> {
    let path = &root.join(name);
    if !may_leave && !fs::canonicalize(path)?.starts_with(fs::canonicalize(root)?) {
        return Err(io::Error::other("a symbolic link leads out of the root"));
    }
    // Opening a FIFO would wait for somebody who writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(FILE_BYTES_MAX as u64 + 4)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
