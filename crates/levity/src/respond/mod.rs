//! Respond: from what was found to status, headers and body. No system calls.

pub mod error;
pub mod file;
pub mod listing;
pub mod redirect;
pub mod version;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, Ready};

use self::version::Version;
use crate::cache::Hot;
use crate::upstream::answer::Answer;
use crate::upstream::sendfile::Afterwards;
use crate::upstream::sendfile::parts::Parts;
use crate::upstream::tunnel::Tunnel;

pub use error::error;

/// Header lines in order, each with its CRLF.
#[derive(Debug, Default, Clone)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Makes room for so many bytes of lines at once.
    pub fn reserve(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    /// Adds a line.
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        for part in [name.as_ref(), b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// Adds lines that are complete already.
    pub fn add_lines(&mut self, lines: &[u8]) {
        self.0.extend_from_slice(lines);
    }

    /// Adds those of complete lines whose names, in whatever case, are none of these.
    pub fn add_lines_but(&mut self, lines: &[u8], but: &[&str]) {
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let name = line.split(|&byte| byte == b':').next().unwrap_or(line);
            if !is_one_of(name, but) {
                self.0.extend_from_slice(line);
            }
        }
    }

    /// Puts a line in place of every one of that name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    /// The names of all lines, in their order.
    pub fn names(&self) -> Vec<String> {
        let lines = self.0.split(|&byte| byte == b'\n');
        let names = lines.filter_map(|line| line.split(|&byte| byte == b':').next());
        let names = names.filter(|name| !name.is_empty());
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Takes out every line of that name, in whatever case.
    pub fn remove(&mut self, name: &str) {
        let mut kept = Vec::with_capacity(self.0.len());
        for line in self.0.split_inclusive(|&byte| byte == b'\n') {
            let line_name = line.split(|&byte| byte == b':').next().unwrap_or(line);
            if !line_name.eq_ignore_ascii_case(name.as_bytes()) {
                kept.extend_from_slice(line);
            }
        }
        self.0 = kept;
    }

    /// The value of the first line of that name, in whatever case.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let line = self.0.split(|&byte| byte == b'\n').find(|line| {
            let line_name = line.get(..name.len());
            line_name.is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
                && line.get(name.len()) == Some(&b':')
        })?;
        Some(line[name.len() + 1..].trim_ascii())
    }

    /// Replaces values of lines of that name, in whatever case, where `edit` gives another.
    pub fn edit(&mut self, name: &str, mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        let mut edited: Option<Vec<u8>> = None;
        let mut before = 0;
        for line in self.0.split_inclusive(|&byte| byte == b'\n') {
            let colon = line.iter().position(|&byte| byte == b':');
            let (line_name, value) = line.split_at(colon.unwrap_or(line.len()));
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let is_meant = line_name.eq_ignore_ascii_case(name.as_bytes());
            let other = if is_meant { edit(value) } else { None };
            match (&mut edited, other) {
                (lines, Some(other)) => {
                    let lines = lines.get_or_insert_with(|| self.0[..before].to_vec());
                    for part in [line_name, b": ", &other, b"\r\n"] {
                        lines.extend_from_slice(part);
                    }
                }
                (Some(lines), None) => lines.extend_from_slice(line),
                (None, None) => {}
            }
            before += line.len();
        }
        if let Some(edited) = edited {
            self.0 = edited;
        }
    }

    /// The lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Fields that describe content and are not for a 304, which has none (RFC 9110, 15.4.5). Last-Modified
/// is not among them: a route may have removed the ETag.
pub const OF_CONTENT: &[&str] = &["content-type", "content-encoding", "content-language"];

/// Whether `name`, in whatever case, is one of these.
pub fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    let mut names = names.iter();
    names.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// What follows the head.
#[derive(Debug)]
pub enum Body {
    /// Nothing, and no `Content-Length` either: the status forbids both.
    None,
    /// Made for this response.
    Text(Vec<u8>),
    /// A listing.
    Page(listing::Page),
    /// A part of a file that the cache holds.
    Memory(Rc<Hot>, Range<usize>),
    /// A part of a file that is read while it is sent.
    File(Box<FileBody>),
    /// Parts of files, one behind the other.
    Parts(Box<Parts>),
    /// What a backend sends while it is sent on.
    Upstream {
        /// Where it comes from.
        answer: Box<Answer>,
        /// In bytes; `None` when only its end tells.
        length: Option<u64>,
    },
    /// Whatever is said after a change of protocol.
    Tunnel(Box<Tunnel>),
}

/// A part of a file on its way.
#[derive(Debug)]
pub struct FileBody {
    /// Whose content it is.
    pub hot: Rc<Hot>,
    /// The same file, open.
    pub file: Arc<OpenFile>,
    /// Where the next byte comes from.
    pub offset: u64,
    /// Bytes to go.
    pub remaining: u64,
    /// What an engine has handed over already; starts at `offset`.
    pub ready: Option<Ready>,
    /// What tells whether the file is still the one that was announced.
    pub version: Version,
}

impl Body {
    /// In bytes; `None` when that is not known, or when there is none to speak of.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::None | Self::Tunnel(_) => None,
            Self::Text(text) => Some(text.len() as u64),
            Self::Page(page) => Some(page.bytes().len() as u64),
            Self::Memory(_, range) => Some(range.len() as u64),
            Self::File(file) => Some(file.remaining),
            Self::Parts(parts) => Some(parts.length()),
            Self::Upstream { length, .. } => *length,
        }
    }

    /// Whether only its end tells how long it is.
    pub fn is_open_ended(&self) -> bool {
        matches!(self, Self::Upstream { length: None, .. })
    }
}

/// An answer, before it is filtered and sent.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What goes with it; empty for the standard name.
    pub reason: Vec<u8>,
    /// `fields` have a Date: that of a backend.
    pub has_date: bool,
    /// `fields` have a Server, or are to have none: that is the backend's or the route's to say.
    pub has_server: bool,
    /// All headers but those that sending decides: length, date, connection.
    pub fields: Fields,
    /// The content.
    pub body: Body,
    /// The connection cannot go on after this.
    pub close: bool,
    /// What is to be done when it has been sent.
    pub afterwards: Option<Box<Afterwards>>,
}

impl Response {
    /// An answer without content or headers yet.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            reason: Vec::new(),
            has_date: false,
            has_server: false,
            fields: Fields::default(),
            body: Body::None,
            close: false,
            afterwards: None,
        }
    }

    /// What is to be done when it has been sent.
    pub fn afterwards_mut(&mut self) -> &mut Afterwards {
        self.afterwards.get_or_insert_default()
    }
}

/// The methods that files answer to.
pub const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";

/// The answer to OPTIONS.
pub fn options() -> Response {
    let mut response = Response::new(204);
    response.fields.add("Allow", ALLOW);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing_changes_the_lines_of_the_name_that_it_is_told_to() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("x-b", b"2");
        fields.add("X-Bc", b"3");
        fields.add("X-B", b"4: 5");
        let as_they_were = fields.as_bytes().to_vec();
        fields.edit("x-b", |_| None);
        assert_eq!(fields.as_bytes(), as_they_were);
        fields.edit("X-B", |value| (value == b"4: 5").then(|| b"six".to_vec()));
        fields.edit("x-a", |_| Some(Vec::new()));
        assert_eq!(
            fields.as_bytes(),
            b"X-A: \r\nx-b: 2\r\nX-Bc: 3\r\nX-B: six\r\n"
        );
    }

    #[test]
    fn removing_takes_every_line_of_the_name_and_no_other() {
        let mut fields = Fields::default();
        fields.add("X-A", b"1");
        fields.add("X-Ab", b"2");
        fields.add("x-a", b"3: x-a");
        fields.remove("X-a");
        assert_eq!(fields.as_bytes(), b"X-Ab: 2\r\n");
    }
}
