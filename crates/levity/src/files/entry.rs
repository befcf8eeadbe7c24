//! The metadata of an opened file, and the headers that follow from it.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_disk::{Meta, OpenFile, Pages};
use levity_wire::dictionary::Digest;
use levity_wire::encoding::Coding;
use levity_wire::{coded_etag, date, mime};

use crate::message::fields::Fields;
use levity_config::Etag;

/// Bodies up to this size, in bytes, are kept in memory and sent in one write with their header.
pub const BODY_BYTES_MAX: u64 = 64 * 1024;

/// A file that was modified more recently may change again without a change of its times: file systems store
/// time in ticks, and clients compare seconds.
const SETTLED_AGE: Duration = Duration::from_secs(2);

/// Twice the longest tick of a kernel's clock (100 Hz). The modification time may have been set back after a
/// write (`rsync -t`, `cp -p`); the change time then shows the write, unless another write came within the
/// same tick.
pub const TICK: Duration = Duration::from_millis(20);

/// The request header that selects a variant (RFC 9110, 12.5.5).
pub const VARY: &[u8] = b"Accept-Encoding";

/// A file and everything that its responses need.
#[derive(Debug)]
pub struct Entry {
    /// The result of `fstat`.
    pub meta: Meta,
    /// Quoted, with `W/` when weak.
    pub etag: String,
    /// The ETag distinguishes this version from every other, so it is a strong validator.
    pub strong: bool,
    /// Headers that depend on the file only. Content-Encoding is not among them, because a 304 does not have
    /// it.
    pub fields: Fields,
    /// The coding of the content, for a variant.
    pub coding: Option<Coding>,
    /// The time of Last-Modified, in seconds since 1970.
    pub modified: Option<u64>,
    /// The file has variants or is one, so Accept-Encoding selects the response.
    pub varies: bool,
    /// The content.
    pub content: Content,
}

/// The location of a file's content.
#[derive(Debug)]
pub enum Content {
    /// In memory, for a small and settled file. The file stays open so that the kernel keeps its name cached:
    /// looking it up again would wait for the disk.
    Memory(Bytes, Arc<OpenFile>),
    /// In the file, which stays open as long as the entry.
    File(Arc<OpenFile>),
}

impl Content {
    /// The file, which is open in either case.
    pub fn file(&self) -> &Arc<OpenFile> {
        let (Self::Memory(_, file) | Self::File(file)) = self;
        file
    }
}

/// The minimum size of a body, in bytes, that is sent by reference. A smaller one is copied into the send buffer, which
/// costs less than two more system calls.
pub const PAGES_BYTES_MIN: usize = 16 * 1024;

/// The bytes of a cached body.
#[derive(Debug)]
pub enum Bytes {
    /// Of a small body.
    Heap(Box<[u8]>),
    /// Of one that the kernel may send without a copy.
    Pages(Pages),
}

impl Bytes {
    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let pages = (bytes.len() >= PAGES_BYTES_MIN).then(|| Pages::copy_of(bytes));
        match pages {
            Some(Ok(pages)) => Self::Pages(pages),
            _ => Self::Heap(Box::from(bytes)),
        }
    }

    /// The bytes, if the kernel may send them without a copy.
    pub fn pages(&self) -> Option<&Pages> {
        match self {
            Self::Heap(_) => None,
            Self::Pages(pages) => Some(pages),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

impl Entry {
    /// The same entry with its content in memory.
    pub fn with_body(&self, bytes: Bytes) -> Self {
        let file = self.content.file();
        Self {
            meta: self.meta,
            etag: self.etag.clone(),
            strong: self.strong,
            fields: self.fields.clone(),
            coding: self.coding,
            modified: self.modified,
            varies: self.varies,
            content: Content::Memory(bytes, file.clone()),
        }
    }

    /// The content of an entry that is in memory.
    ///
    /// # Panics
    /// If it is not.
    pub fn bytes(&self) -> &Bytes {
        match &self.content {
            Content::Memory(bytes, _) => bytes,
            Content::File(_) => unreachable!("the content is in memory"),
        }
    }

    /// Whether the content is in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.content, Content::Memory(..))
    }

    /// Whether a response can be made from this entry as it is. Otherwise the content of a small file has to be read
    /// into memory first.
    pub fn suffices(&self, needs_body: bool) -> bool {
        !needs_body || self.is_in_memory() || self.meta.size > BODY_BYTES_MAX
    }
}

/// How a file is served.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// Its name, or for a variant that of the original; it determines the content type.
    pub name: &'a [u8],
    /// The coding of a variant.
    pub coding: Option<Coding>,
    /// The file has variants.
    pub varies: bool,
    /// The source of the ETag.
    pub etag: Etag,
    /// The original, for a variant that a store made later and gave another name.
    pub original: Option<Original<'a>>,
}

/// The original of a variant in a store.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    /// Its entry.
    pub entry: &'a Entry,
    /// The coding of the variant.
    pub coding: Coding,
    /// The dictionary, if the variant is a delta.
    pub dictionary: Option<Digest>,
}

impl Original<'_> {
    /// The ETag of the variant if it is a delta. It is weak, because the tag that the client sends with its next request,
    /// without this dictionary, must come back to the original.
    fn etag_of_delta(&self) -> Option<String> {
        let etag = self.entry.etag.as_bytes();
        let coded = coded_etag::of_delta(etag, self.coding, self.dictionary?);
        let coded = coded.expect("an entry has a valid tag");
        Some(String::from_utf8(coded).expect("the tag of an entry is text"))
    }
}

/// The entry of a file that was just opened.
///
/// `settled` means that the content is of one version, and was last written long enough ago that another
/// write would have changed its times. Only then is the ETag strong.
pub fn entry(form: Form<'_>, meta: Meta, settled: bool, content: Content) -> Entry {
    let of_delta = form.original.and_then(|original| original.etag_of_delta());
    // The tag of a variant is then that of the original, whatever version of an encoder made its bytes.
    let has_foreign_tag =
        of_delta.is_some() || form.original.is_some() && form.etag == Etag::MtimeSize;
    let settled = settled && !has_foreign_tag;
    let etag = of_delta.unwrap_or_else(|| etag(&meta, form, settled));
    let mut fields = Fields::default();
    let content_type = form
        .original
        .and_then(|original| original.entry.fields.value("content-type"));
    let content_type = content_type.unwrap_or_else(|| mime::of(form.name).as_bytes());
    fields.add("Content-Type", content_type);
    let modified = modified(form.original.map_or(&meta, |original| &original.entry.meta));
    if let Some(seconds) = modified {
        fields.add("Last-Modified", &date::format(seconds));
    }
    fields.add("ETag", etag.as_bytes());
    if !has_foreign_tag {
        fields.add("Accept-Ranges", b"bytes");
    }
    if form.varies {
        fields.add("Vary", VARY);
    }
    Entry {
        meta,
        etag,
        strong: settled,
        fields,
        coding: form.coding,
        modified,
        varies: form.varies,
        content,
    }
}

/// The ETag: modification time and size in hexadecimal, and unless configured otherwise a hash of what else distinguishes
/// versions: the inode, which changes when a new file replaces the old one; the change time, which programs
/// cannot set; and the device, because images of file systems repeat inodes and times. It is hashed so that
/// the tag does not disclose inode numbers.
///
/// The tag of a variant contains its coding, because a variant may have the size and time of its original by
/// chance (RFC 9110, 8.8.3.3).
fn etag(meta: &Meta, form: Form<'_>, strong: bool) -> String {
    let weak = if strong { "" } else { "W/" };
    // Copies of a file on several servers have variants of their own, with other times.
    let original = form.original.filter(|_| form.etag == Etag::MtimeSize);
    let meta = original.map_or(meta, |original| &original.entry.meta);
    let time = i128::from(meta.mtime_s) * 1_000_000_000 + i128::from(meta.mtime_ns);
    let mut etag = format!("{weak}\"{time:x}-{:x}", meta.size);
    if form.etag != Etag::MtimeSize {
        let _ = write!(etag, "-{:x}", version_hash(meta));
    }
    if let Some(coding) = form.coding {
        let _ = write!(etag, "-{}", coding.name());
    }
    etag.push('"');
    etag
}

/// The ETag of a file that nobody writes to, so that its metadata distinguishes its versions.
pub fn etag_of_version(meta: &Meta, source: Etag) -> String {
    etag(meta, plain_form(b"", source), true)
}

/// A file that is served as it is.
pub fn plain_form(name: &[u8], etag: Etag) -> Form<'_> {
    Form {
        name,
        coding: None,
        varies: false,
        etag,
        original: None,
    }
}

/// Must not change with a restart; the hasher of a `HashMap` is seeded per process.
fn version_hash(meta: &Meta) -> u64 {
    let mut hasher = DefaultHasher::new();
    (meta.device, meta.inode, meta.ctime_s, meta.ctime_ns).hash(&mut hasher);
    hasher.finish()
}

/// The time of Last-Modified, in seconds since 1970; `None` before, which HTTP dates need not express.
///
/// It must not be later than the Date of the response (RFC 9110, 8.8.2.1). A modification time that is still to come was
/// set by a program, at the change time: the file has not been written since. The present would do too, but would be
/// another time in each response, so that no condition of a client held.
pub fn modified(meta: &Meta) -> Option<u64> {
    modified_at(meta, SystemTime::now())
}

fn modified_at(meta: &Meta, now: SystemTime) -> Option<u64> {
    let now_s = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
    let modified_s = match meta.mtime_s > now_s {
        true => meta.ctime_s.min(now_s),
        false => meta.mtime_s,
    };
    u64::try_from(modified_s).ok()
}

/// Whether a file was last changed so long ago that another change would show in its times.
pub fn is_settled(meta: &Meta) -> bool {
    is_settled_at(meta, SystemTime::now())
}

fn is_settled_at(meta: &Meta, now: SystemTime) -> bool {
    let modified = since_1970(meta.mtime_s, meta.mtime_ns);
    let changed = since_1970(meta.ctime_s, meta.ctime_ns);
    // A time that is still to come does not tell when the file was written: the change time does.
    let written = match modified > now {
        true => changed,
        false => modified,
    };
    // Times in whole seconds come from a file system with that resolution.
    let tick = match meta.ctime_ns {
        0 => SETTLED_AGE,
        _ => TICK,
    };
    let is_older = |then, age_min| now.duration_since(then).is_ok_and(|age| age > age_min);
    is_older(written, SETTLED_AGE) && is_older(changed, tick)
}

/// A time of a file; times before 1970 are all as old as that year.
fn since_1970(seconds: i64, nanoseconds: u32) -> SystemTime {
    let seconds = u64::try_from(seconds);
    seconds.map_or(UNIX_EPOCH, |seconds| {
        UNIX_EPOCH + Duration::new(seconds, nanoseconds)
    })
}

#[cfg(test)]
mod tests {
    use levity_disk::Kind;

    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    /// A file with these times, in seconds before the present.
    fn aged(modified: i64, changed: i64) -> Meta {
        Meta {
            kind: Kind::Regular,
            device: 1,
            inode: 1,
            size: 1,
            mtime_s: NOW_S - modified,
            mtime_ns: 1,
            ctime_s: NOW_S - changed,
            ctime_ns: 1,
            links: 1,
        }
    }

    #[test]
    fn the_change_time_counts_while_the_modification_time_is_to_come() {
        let now = since_1970(NOW_S, 500_000_000);
        for (modified, changed, expected, is_settled) in [
            (10, 10, 10, true),
            (10, 1, 10, true),
            (1, 1, 1, false),
            (-86_400, 10, 10, true),
            (-86_400, 1, 1, false),
            // The clock was set back, or is behind that of a file server.
            (-86_400, -60, 0, false),
            (10, -60, 10, false),
        ] {
            let meta = aged(modified, changed);
            let what = format!("{modified} {changed}");
            assert_eq!(
                modified_at(&meta, now),
                Some((NOW_S - expected) as u64),
                "{what}"
            );
            assert_eq!(is_settled_at(&meta, now), is_settled, "{what}");
        }
        let of_1969 = aged(NOW_S + 1, NOW_S + 1);
        assert_eq!(modified_at(&of_1969, now), None);
        assert!(is_settled_at(&of_1969, now));
    }
}
