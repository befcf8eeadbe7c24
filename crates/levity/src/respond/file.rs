//! A file's answer: conditions first, then ranges (RFC 9110, 13.2.2 and 14).

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_disk::{Meta, OpenFile, Ready};
use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::encoding::Coding;
use levity_wire::http1::Method;
use levity_wire::range::{self, Range};
use levity_wire::{date, mime};

use super::version::Version;
use super::{Body, Fields, FileBody, OF_CONTENT, Response, error};
use crate::cache::{Content, Entry, Hot};
use crate::request::Request;
use levity_config::Etag;

/// A file written more recently may change again without its time changing: file systems keep time
/// in ticks, and clients compare seconds.
const SETTLED_AGE: Duration = Duration::from_secs(2);

/// Twice the largest tick of a kernel's clock (100 Hz). The modification time may have been set back after a
/// write (`rsync -t`, `cp -p`); the change time then shows the write, unless another one came in the same
/// tick.
const TICK: Duration = Duration::from_millis(20);

/// Answers with `hot`; `ready` holds bytes from its offset on that were read on the way.
pub fn file(request: &Request, hot: Rc<Hot>, ready: Option<(u64, Ready)>) -> Response {
    let entry = &hot.entry;
    let validators = Validators {
        etag: Some(entry.etag.as_bytes()),
        modified: entry.modified,
    };
    match condition::evaluate(true, |name| request.headers_named(name), &validators) {
        Verdict::Proceed => {}
        Verdict::Failed => return without_content(412, entry),
        Verdict::NotModified => {
            let mut response = Response::new(304);
            response.fields.add_lines_but(&entry.fields, OF_CONTENT);
            return response;
        }
    }
    match requested_range(request, entry, &validators) {
        Range::Whole => whole(hot, ready),
        Range::Part { first, last } => part(hot, ready, first, last),
        Range::Unsatisfiable => {
            let mut response = without_content(416, entry);
            let range = format!("bytes */{}", entry.meta.size);
            response.fields.add("Content-Range", range.as_bytes());
            response
        }
    }
}

fn without_content(status: u16, entry: &Entry) -> Response {
    let mut response = error(status, "");
    if entry.varies {
        response.fields.add("Vary", VARY);
    }
    response
}

/// What an answer depends on besides the path (RFC 9110, 12.5.5).
const VARY: &[u8] = b"Accept-Encoding";

/// RFC 9110, 14.2: only GET, and only while If-Range holds.
fn requested_range(request: &Request, entry: &Entry, validators: &Validators<'_>) -> Range {
    let Some(value) = request.header("range") else {
        return Range::Whole;
    };
    // A date proves nothing while the file may still change within its second (8.8.2.2), nor of files
    // with variants, which have the same date: parts of two of them would be put together.
    let proves = entry.strong && !entry.varies;
    let validators = Validators {
        modified: validators.modified.filter(|_| proves),
        ..*validators
    };
    let holds = request
        .header("if-range")
        .is_none_or(|value| condition::if_range(value, &validators));
    if request.head.method == Method::Get && holds {
        range::parse(value, entry.meta.size)
    } else {
        Range::Whole
    }
}

/// Answers with all of `hot`, whatever the request says of conditions and ranges.
pub fn whole(hot: Rc<Hot>, ready: Option<(u64, Ready)>) -> Response {
    let mut response = with_content(200, &hot.entry);
    let bytes = hot.entry.meta.size;
    response.body = body(hot, ready, 0, bytes);
    response
}

fn with_content(status: u16, entry: &Entry) -> Response {
    let mut response = Response::new(status);
    response.fields.add_lines(&entry.fields);
    if let Some(coding) = entry.coding {
        let name = coding.name().as_bytes();
        response.fields.add("Content-Encoding", name);
    }
    response
}

fn part(hot: Rc<Hot>, ready: Option<(u64, Ready)>, first: u64, last: u64) -> Response {
    let mut response = with_content(206, &hot.entry);
    let range = format!("bytes {first}-{last}/{}", hot.entry.meta.size);
    response.fields.add("Content-Range", range.as_bytes());
    response.body = body(hot, ready, first, last - first + 1);
    response
}

fn body(hot: Rc<Hot>, ready: Option<(u64, Ready)>, offset: u64, bytes: u64) -> Body {
    let file = match &hot.entry.content {
        Content::File(file) => file.clone(),
        Content::Memory(..) => {
            let start = usize::try_from(offset).expect("a kept body is small");
            let bytes = usize::try_from(bytes).expect("a kept body is small");
            return Body::Memory(hot, start..start + bytes);
        }
    };
    Body::File(part_of(hot, file, ready, offset..offset + bytes))
}

/// A part of `file`, whose entry is that of `hot`.
pub fn part_of(
    hot: Rc<Hot>,
    file: Arc<OpenFile>,
    ready: Option<(u64, Ready)>,
    range: std::ops::Range<u64>,
) -> Box<FileBody> {
    Box::new(FileBody {
        version: Version::new(hot.entry.meta, hot.entry.strong),
        hot,
        file,
        offset: range.start,
        remaining: range.end - range.start,
        ready: ready
            .filter(|(at, _)| *at == range.start)
            .map(|(_, ready)| ready),
    })
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
        fields: fields.as_bytes().to_vec(),
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
