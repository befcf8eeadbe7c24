//! What is known of a file that was opened, and the header fields that follow from it.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_disk::{Meta, OpenFile};
use levity_wire::encoding::Coding;
use levity_wire::{date, mime};

use crate::http::fields::Fields;
use levity_config::Etag;

/// Bodies up to this size, in bytes, are kept in memory and leave in one write with their head.
pub const BODY_BYTES_MAX: u64 = 64 * 1024;

/// A file written more recently may change again without its time changing: file systems keep time
/// in ticks, and clients compare seconds.
const SETTLED_AGE: Duration = Duration::from_secs(2);

/// Twice the largest tick of a kernel's clock (100 Hz). The modification time may have been set back after a
/// write (`rsync -t`, `cp -p`); the change time then shows the write, unless another one came in the same
/// tick.
pub const TICK: Duration = Duration::from_millis(20);

/// What an answer depends on besides the path (RFC 9110, 12.5.5).
pub const VARY: &[u8] = b"Accept-Encoding";

/// What a file's name led to, and what every response about it needs.
#[derive(Debug)]
pub struct Entry {
    /// As `fstat` told it.
    pub meta: Meta,
    /// Quoted, with `W/` when weak.
    pub etag: String,
    /// The version can be told from every other by its ETag alone, so it may be reused.
    pub strong: bool,
    /// Those that depend on the file only; without `Content-Encoding`, which an answer without content
    /// does not have.
    pub fields: Fields,
    /// The coding of the content, of a variant.
    pub coding: Option<Coding>,
    /// The time of Last-Modified, in seconds since 1970.
    pub modified: Option<u64>,
    /// The file has variants, or is one: which is sent depends on Accept-Encoding.
    pub varies: bool,
    /// Where the content is.
    pub content: Content,
}

/// Where a file's content is to be had.
#[derive(Debug)]
pub enum Content {
    /// All of it here: it is small and settled. The file stays open, so that the kernel does not
    /// forget its name: looking it up again would wait for the disk.
    Memory(Box<[u8]>, Arc<OpenFile>),
    /// In the file, which stays open while the entry lives.
    File(Arc<OpenFile>),
}

impl Entry {
    /// Whether a response needs nothing but this entry.
    pub fn suffices(&self, needs_body: bool) -> bool {
        !needs_body
            || matches!(self.content, Content::Memory(..))
            || self.meta.size > BODY_BYTES_MAX
    }
}

/// What a file is to those who ask for it.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// Its name, or that of the file that it is a variant of: the type of the content comes from it.
    pub name: &'a [u8],
    /// Of a variant.
    pub coding: Option<Coding>,
    /// There are variants.
    pub varies: bool,
    /// What the ETag is made from.
    pub etag: Etag,
}

/// The facts of a file that was just opened.
///
/// `settled`: the content read is that of one version, and it was last written long enough ago
/// that another write would have changed its time. Only then is the ETag strong.
pub fn entry(form: Form<'_>, meta: Meta, settled: bool, content: Content) -> Entry {
    let etag = etag(&meta, form, settled);
    let mut fields = Fields::default();
    fields.add("Content-Type", mime::of(form.name).as_bytes());
    if let Some(seconds) = modified(&meta) {
        fields.add("Last-Modified", &date::format(seconds));
    }
    fields.add("ETag", etag.as_bytes());
    fields.add("Accept-Ranges", b"bytes");
    if form.varies {
        fields.add("Vary", VARY);
    }
    Entry {
        meta,
        etag,
        strong: settled,
        fields,
        coding: form.coding,
        modified: modified(&meta),
        varies: form.varies,
        content,
    }
}

/// Modification time and size in hexadecimal. By default also a hash of what tells two versions of equal
/// size and modification time apart: the inode, if a new file replaced the old one, and the change time,
/// which programs cannot set. The device counts because images of file systems repeat inodes and times.
/// A hash, so that the tag does not disclose an inode number.
///
/// A variant has its coding in its tag, since it may have the size and the time of its file by chance
/// (RFC 9110, 8.8.3.3).
fn etag(meta: &Meta, form: Form<'_>, strong: bool) -> String {
    let weak = if strong { "" } else { "W/" };
    let time = i128::from(meta.mtime_s) * 1_000_000_000 + i128::from(meta.mtime_ns);
    let mut etag = format!("{weak}\"{time:x}-{:x}", meta.size);
    if form.etag == Etag::File {
        let _ = write!(etag, "-{:x}", version_hash(meta));
    }
    if let Some(coding) = form.coding {
        let _ = write!(etag, "-{}", coding.name());
    }
    etag.push('"');
    etag
}

/// The same in every process, unlike that of a `HashMap`: a restart must not change the tags.
fn version_hash(meta: &Meta) -> u64 {
    let mut hasher = DefaultHasher::new();
    (meta.device, meta.inode, meta.ctime_s, meta.ctime_ns).hash(&mut hasher);
    hasher.finish()
}

/// Times before 1970 have no HTTP date worth sending.
fn modified(meta: &Meta) -> Option<u64> {
    u64::try_from(meta.mtime_s).ok()
}

/// Whether a file was last changed so long ago that another change would show in its times.
pub fn is_settled(meta: &Meta) -> bool {
    let now = SystemTime::now();
    let is_older = |seconds: i64, nanoseconds, age_min| {
        // Before 1970: long ago.
        let Ok(seconds) = u64::try_from(seconds) else {
            return true;
        };
        let then = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(then).is_ok_and(|age| age > age_min)
    };
    // A time in whole seconds comes from a file system that keeps no others.
    let tick = match meta.ctime_ns {
        0 => SETTLED_AGE,
        _ => TICK,
    };
    is_older(meta.mtime_s, meta.mtime_ns, SETTLED_AGE)
        && is_older(meta.ctime_s, meta.ctime_ns, tick)
}
