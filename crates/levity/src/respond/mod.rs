//! Respond: from what was found to status, headers and body. No system calls.

pub mod completion;
pub mod error;
pub mod file;
pub mod listing;
pub mod redirect;
pub mod version;

use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, Ready};

use self::completion::CompletionHook;
use self::version::Version;
use crate::cache::EntryRef;
use crate::disk_client::DiskClient;
use crate::fields::Fields;
use crate::upstream::answer::Answer;
use crate::upstream::tunnel::Tunnel;

pub use error::error;

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
    Memory(Rc<EntryRef>, Range<usize>),
    /// A part of a file that is read while it is sent.
    File(Box<FileBody>),
    /// Parts of files, one behind the other.
    Parts(Box<dyn FileParts>),
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

/// The next part, once it is open; `None` behind the last.
pub type NextPart<'a> = Pin<Box<dyn Future<Output = io::Result<Option<Box<FileBody>>>> + 'a>>;

/// Parts of files, of which one is open at a time.
pub trait FileParts: fmt::Debug {
    /// In bytes, of what is left.
    fn length(&self) -> u64;

    /// The next part, open; `None` behind the last. Drop the one before first.
    ///
    /// # Errors
    /// Those of open, and one for a file that is not the same any more.
    fn next<'a>(&'a mut self, disk: &'a mut DiskClient<'_>) -> NextPart<'a>;
}

/// A part of a file on its way.
#[derive(Debug)]
pub struct FileBody {
    /// Whose content it is.
    pub cached: Rc<EntryRef>,
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
    /// Are told when it has been sent.
    pub hooks: Vec<Box<dyn CompletionHook>>,
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
            hooks: Vec::new(),
        }
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
