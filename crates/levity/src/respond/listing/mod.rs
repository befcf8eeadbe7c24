//! Directory listings, in the form that the client accepts.
//!
//! A directory is read in pieces of at least 512 names or 16 KiB of names, a trip each. NDJSON is
//! sent as the pieces arrive. The other forms are in order, so they need all names in memory, once
//! for all clients that ask at about the same time ([`snapshot`]): each piece is sorted by the pool
//! while the next one is read, and the runs are merged by jobs of 8192 entries. The result
//! (24 bytes per entry, the name, and 2 bytes for its place) serves all clients that ask while it
//! is made or for `disk.entry_ttl` after it was begun. Where the memory of all listings does not
//! suffice, a listing is sent unsorted, and says so. A body of less than 64 KiB from a directory of
//! one piece has its length.

pub mod html;
mod json;
mod ndjson;
mod order;
pub mod snapshot;
mod text;
mod time;

use std::sync::Arc;

use levity_config::ArchiveForm;
use levity_disk::{DirectoryReader, Entry, Kind, Listing};
use levity_wire::accept;

use self::html::Readme;
use self::snapshot::{SharedSnapshot, Snapshot, cut};
use super::generated::{Gathered, Generated, Output, Unreadable};
use crate::files::disk_client::DetachedDisk;
use crate::http::error::error;
use crate::http::response::{Body, OwnedBytes, Response, StreamError};
use crate::message::request::Request;
use crate::route::{NameRules, OwnedRules};
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource, Shortage};

/// A body of a small directory up to this size is sent with its length.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// Bodies up to this size do not count towards the memory of listings: slow readers of them block no others.
const SMALL_BYTES: usize = 16 * 1024;

/// The memory for one client of a [`Snapshot`], in bytes: its place in it, and a piece of the body.
const CLIENT_BYTES: usize = 24 * 1024;

/// The memory for one client that reads the directory, in bytes: a piece of it too.
const READER_BYTES: usize = 112 * 1024;

/// The descriptors for one client that reads the directory: that of the directory, which may be common to several clients, and
/// one with a position of its own.
const READER_FILES: usize = 2;

/// Entries are looked at in turns of at most this many, also if none is shown.
const TURN_ENTRIES: usize = 256;

/// A turn also ends when routes have looked at so many bytes of names, which takes about 200 us.
pub const TURN_WORK: usize = 128 * 1024;

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Html,
    /// One object.
    Json,
    /// One object per line, not sorted.
    Ndjson,
    /// One line per entry.
    Text,
}

/// What clients may name in Accept, by preference.
const MEDIA_TYPES: [(&str, Form); 6] = [
    ("text/html", Form::Html),
    ("application/json", Form::Json),
    ("application/x-ndjson", Form::Ndjson),
    ("application/ndjson", Form::Ndjson),
    ("application/jsonl", Form::Ndjson),
    ("text/plain", Form::Text),
];

impl Form {
    /// The form that a client prefers; HTML for a client that does not say, or accepts none: an error would help nobody.
    pub fn of(request: &Request) -> Self {
        let offered = MEDIA_TYPES.map(|(name, _)| name);
        let preferred = accept::preferred(request.headers_named("accept"), &offered);
        preferred.map_or(Self::Html, |index| MEDIA_TYPES[index].1)
    }

    /// Whether its entries are in order.
    pub fn is_sorted(self) -> bool {
        self != Self::Ndjson
    }

    fn content_type(self) -> &'static [u8] {
        match self {
            Self::Html => b"text/html; charset=utf-8",
            Self::Json => b"application/json",
            Self::Ndjson => b"application/x-ndjson",
            Self::Text => b"text/plain; charset=utf-8",
        }
    }
}

/// What follows the last entry.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// The directory has more names.
    is_cut: bool,
    /// The entries are in order.
    is_sorted: bool,
}

/// A listing to be made.
pub struct Subject {
    /// The form.
    pub form: Form,
    /// The path of the request: decoded, with a slash at both ends.
    pub path: Vec<u8>,
    /// The names that are left out.
    pub names: Arc<NameRules>,
    /// The rules of the location, for the request, if others of the site have other ones. What these keep from the client is left out.
    pub rules: Option<OwnedRules>,
    /// The forms in which an HTML page offers the directory as one file.
    pub archives: Vec<ArchiveForm>,
    /// The text below an HTML page.
    pub readme: Option<Readme>,
}

impl Subject {
    fn begin(&self, out: &mut Vec<u8>, is_sorted: bool) {
        match self.form {
            Form::Html => html::begin(out, &self.path, &self.archives, is_sorted),
            Form::Json => json::begin(out, &self.path),
            Form::Ndjson | Form::Text => {}
        }
    }

    fn entry(&self, out: &mut Vec<u8>, entry: &Entry<'_>, is_first: bool) {
        match self.form {
            Form::Html => html::entry(out, entry),
            Form::Json => json::entry(out, entry, is_first),
            Form::Ndjson => ndjson::entry(out, entry),
            Form::Text => text::entry(out, entry),
        }
    }

    fn end(&self, out: &mut Vec<u8>, ending: Ending) {
        match self.form {
            Form::Html => html::end(out, ending, self.readme.as_ref()),
            Form::Json => json::end(out, ending),
            Form::Ndjson => ndjson::end(out, ending),
            Form::Text => text::end(out, ending),
        }
    }

    fn shows(&self, entry: &Entry<'_>) -> bool {
        !self.names.hide(entry.name) && entry.kind != Kind::Other && self.may_list(entry)
    }

    fn may_list(&self, entry: &Entry<'_>) -> bool {
        self.rules.as_ref().is_none_or(|rules| {
            let slash: &[u8] = match entry.kind {
                Kind::Directory => b"/",
                _ => b"",
            };
            rules
                .rules()
                .may_list(&[&self.path, entry.name, slash].concat())
        })
    }

    /// The bytes that routes look at for `entry`.
    fn work(&self, entry: &Entry<'_>) -> usize {
        let work = |rules: &OwnedRules| rules.rules().work(self.path.len() + entry.name.len());
        self.rules.as_ref().map_or(0, work)
    }

    /// The response to this listing with `body`.
    fn response(&self, body: Body) -> Response {
        let mut response = Response::new(200);
        let fields = &mut response.fields;
        fields.add("Content-Type", self.form.content_type());
        // A listing has no validator.
        fields.add("Cache-Control", b"no-cache");
        fields.add("Vary", b"Accept");
        if self.form == Form::Html {
            fields.add("Content-Security-Policy", html::POLICY.as_bytes());
        }
        response.body = body;
        response
    }
}

/// The writer of a listing.
struct Writer {
    subject: Subject,
    output: Output,
    is_first: bool,
    /// Entries since the last turn.
    entries: usize,
    /// Bytes that routes have looked at since the last turn.
    work: usize,
    _hold: Hold,
}

impl Writer {
    async fn entry(&mut self, entry: &Entry<'_>) {
        if self.subject.shows(entry) {
            let is_first = std::mem::replace(&mut self.is_first, false);
            self.subject.entry(&mut self.output.bytes, entry, is_first);
        }
        self.entries += 1;
        self.work += self.subject.work(entry);
        if self.entries == TURN_ENTRIES || self.work >= TURN_WORK {
            (self.entries, self.work) = (0, 0);
            // Of a large page that is about the size of a piece.
            self.output.flush().await;
        }
        self.output.flush_if_full().await;
    }

    fn end(mut self, ending: Ending) -> Output {
        self.subject.end(&mut self.output.bytes, ending);
        self.output
    }
}

/// A listing of the entries in `snapshot`, in order. `shared` lets other clients find it.
fn sorted(
    subject: Subject,
    claims: &Claims,
    snapshot: Arc<Snapshot>,
    shared: Option<Arc<SharedSnapshot>>,
    hold: Hold,
) -> Generated {
    let of_snapshot = claims.hold(snapshot.clone());
    Generated::new(move |output| async move {
        let mut writer = writer(subject, output, hold);
        writer.subject.begin(&mut writer.output.bytes, true);
        let mut cursor = snapshot.start();
        while let Some(entry) = snapshot.next(&mut cursor) {
            writer.entry(&entry).await;
        }
        drop((shared, of_snapshot));
        Ok(writer.end(Ending {
            is_cut: snapshot.is_cut,
            is_sorted: true,
        }))
    })
}

/// A listing of the entries in `piece` and of those that `reader` reads then.
fn unsorted(
    subject: Subject,
    disk: DetachedDisk,
    (reader, mut piece, hold): Reading,
    entries_max: usize,
) -> Generated {
    Generated::new(move |output| async move {
        let mut writer = writer(subject, output, hold);
        writer.subject.begin(&mut writer.output.bytes, false);
        let mut names_left = entries_max;
        let is_cut = loop {
            let (is_last, is_cut) = (piece.is_last, cut(&mut piece, names_left));
            names_left -= piece.len();
            for entry in piece.entries() {
                writer.entry(&entry).await;
            }
            if is_last || is_cut {
                break is_cut;
            }
            // The client gets what is known before the disk has the next entries.
            writer.output.flush().await;
            let next = disk.entries_after(piece, &reader).await;
            piece = next.map_err(|error| unreadable(error, &writer.subject, &disk))?;
        };
        Ok(writer.end(Ending {
            is_cut,
            is_sorted: false,
        }))
    })
}

fn writer(subject: Subject, output: Output, hold: Hold) -> Writer {
    Writer {
        subject,
        output,
        is_first: true,
        entries: 0,
        work: 0,
        _hold: hold,
    }
}

fn unreadable(error: std::io::Error, subject: &Subject, disk: &DetachedDisk) -> StreamError {
    Unreadable::boxed(error, &subject.path, disk.core())
}

/// What the client of a listing holds until it has received it.
pub struct Hold {
    _memory: Held,
    /// For one that reads the directory.
    _files: Option<Held>,
}

/// Waits until the client of `claims` may read a directory.
///
/// # Errors
/// When other clients have what that takes for too long.
pub async fn admit_reader(claims: &Claims) -> Result<Hold, Shortage> {
    let files = claims.take(Resource::Files, READER_FILES, Portion::Whole);
    let files = files.await?;
    let memory = claims.take(Resource::Listings, READER_BYTES, Portion::Whole);
    Ok(Hold {
        _memory: memory.await?,
        _files: Some(files),
    })
}

/// The response when there is no memory for another listing.
pub fn refused() -> Response {
    error(503, "too many listings at once")
}

/// The response with the entries of `snapshot`; 503 when there was no memory for another client for too long.
pub async fn of_snapshot(
    subject: Subject,
    claims: &Claims,
    snapshot: Arc<Snapshot>,
    shared: Arc<SharedSnapshot>,
) -> Response {
    let memory = claims.take(Resource::Listings, CLIENT_BYTES, Portion::Whole);
    let Ok(memory) = memory.await else {
        return refused();
    };
    let hold = Hold {
        _memory: memory,
        _files: None,
    };
    streamed(subject, |subject| {
        sorted(subject, claims, snapshot, Some(shared), hold)
    })
}

/// The response with the entries in `piece` and those that `reader` reads then.
pub fn of_reader(
    subject: Subject,
    disk: DetachedDisk,
    reading: Reading,
    entries_max: usize,
) -> Response {
    streamed(subject, |subject| {
        unsorted(subject, disk, reading, entries_max)
    })
}

/// A directory, its first entries, and what its reader holds.
pub type Reading = (Arc<DirectoryReader>, Listing, Hold);

/// The header of these responses, for HEAD.
pub fn header(subject: Subject) -> Response {
    streamed(subject, |_| Generated::new(|output| async { Ok(output) }))
}

fn streamed(subject: Subject, body: impl FnOnce(Subject) -> Generated) -> Response {
    let mut response = subject.response(Body::None);
    response.body = stream(body(subject));
    response
}

fn stream(generated: Generated) -> Body {
    Body::Stream {
        stream: Box::new(generated),
        length: None,
    }
}

/// The response for a directory of one piece: with its length, if it is not too long. `entries` is a snapshot, or the
/// piece and the maximum number of entries. 503 as in [`of_snapshot`].
pub async fn of_one_piece(
    subject: Subject,
    claims: &Claims,
    disk: DetachedDisk,
    (reader, hold): (Arc<DirectoryReader>, Hold),
    entries: Entries,
) -> Response {
    let mut response = subject.response(Body::None);
    let generated = match entries {
        Entries::Sorted(snapshot) => sorted(subject, claims, snapshot, None, hold),
        Entries::Piece(piece, entries_max) => {
            unsorted(subject, disk, (reader, piece, hold), entries_max)
        }
    };
    response.body = match generated.gather(WHOLE_BYTES_MAX).await {
        Ok(Gathered::Start(rest)) => stream(rest),
        Ok(Gathered::Whole(text)) => match Page::new(text, claims).await {
            Ok(page) => Body::Page(Box::new(page)),
            Err(_) => return refused(),
        },
        Err(failure) => return failure.response(),
    };
    response
}

/// The entries of a directory of one piece.
pub enum Entries {
    /// In order.
    Sorted(Arc<Snapshot>),
    /// In the order of the file system; and the maximum number of entries.
    Piece(Listing, usize),
}

/// A listing that is being sent.
#[derive(Debug)]
struct Page {
    text: Vec<u8>,
    _memory: Option<Held>,
}

impl Page {
    async fn new(mut text: Vec<u8>, claims: &Claims) -> Result<Self, Shortage> {
        text.shrink_to_fit();
        let memory = match text.len() {
            0..=SMALL_BYTES => None,
            bytes => Some(
                claims
                    .take(Resource::Listings, bytes, Portion::Whole)
                    .await?,
            ),
        };
        Ok(Self {
            text,
            _memory: memory,
        })
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl OwnedBytes for Page {}
