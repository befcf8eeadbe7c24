//! The response of a file: conditions are evaluated first, then ranges (RFC 9110, 13.2.2 and 14).

use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, Ready};
use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::http1::Method;
use levity_wire::range::{self, Part, Range};

use crate::cache::EntryRef;
use crate::entry::{Content, Entry, VARY};
use crate::http::error::error;
use crate::http::fields::CONTENT_HEADERS;
use crate::http::file_version::Version;
use crate::http::request::Request;
use crate::http::response::{Body, FileBody, Multipart, PartSource, Response};

/// The response of `cached` to `request`. `ready` holds bytes that the lookup has read already, with their
/// offset.
pub fn file(request: &Request, cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Response {
    let entry = &cached.entry;
    match verdict(request, entry) {
        Verdict::Proceed => {}
        Verdict::Failed => return without_content(412, entry),
        Verdict::NotModified => {
            let mut response = Response::new(304);
            response
                .fields
                .extend_except(&entry.fields, CONTENT_HEADERS);
            return response;
        }
    }
    match requested_range(request, entry) {
        Range::Whole => whole(cached, ready),
        Range::Several(parts) => several(cached, ready, parts),
        Range::Part(Part { first, last }) => part(cached, ready, first, last),
        Range::Unsatisfiable => {
            let mut response = without_content(416, entry);
            let range = format!("bytes */{}", entry.meta.size);
            response.fields.add("Content-Range", range.as_bytes());
            response
        }
    }
}

/// Whether the client's copy of `entry` is current: the response is a 304.
pub fn is_current(request: &Request, entry: &Entry) -> bool {
    verdict(request, entry) == Verdict::NotModified
}

fn verdict(request: &Request, entry: &Entry) -> Verdict {
    let validators = Validators {
        etag: Some(entry.etag.as_bytes()),
        modified: entry.modified,
    };
    match request.head.conditional {
        true => condition::evaluate(true, |name| request.headers_named(name), &validators),
        false => Verdict::Proceed,
    }
}

fn without_content(status: u16, entry: &Entry) -> Response {
    let mut response = error(status, "");
    if entry.varies {
        response.fields.add("Vary", VARY);
    }
    response
}

/// The range of the request: only for GET, and only if If-Range matches (RFC 9110, 14.2).
fn requested_range(request: &Request, entry: &Entry) -> Range {
    let Some(value) = request.header("range") else {
        return Range::Whole;
    };
    let validators = range_validators(entry);
    let holds = request
        .header("if-range")
        .is_none_or(|value| condition::if_range(value, &validators));
    if request.head.method == Method::Get && holds {
        range::parse(value, entry.meta.size)
    } else {
        Range::Whole
    }
}

/// The validators for If-Range. A date is no strong one while the file may still change within its second (RFC 9110,
/// 8.8.2.2), nor for files with variants, which share their date: parts of two variants would be combined.
pub fn range_validators(entry: &Entry) -> Validators<'_> {
    let is_strong = entry.strong && !entry.varies;
    Validators {
        etag: Some(entry.etag.as_bytes()),
        modified: entry.modified.filter(|_| is_strong),
    }
}

/// The whole content of `cached`, regardless of conditions and ranges.
pub fn whole(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Response {
    let mut response = with_content(200, &cached);
    let bytes = cached.entry.meta.size;
    response.body = body(cached, ready, 0, bytes);
    response
}

fn with_content(status: u16, cached: &Rc<EntryRef>) -> Response {
    let mut response = Response::new(status);
    response.base = Some(cached.clone());
    if let Some(coding) = cached.entry.coding {
        let name = coding.name().as_bytes();
        response.fields.add("Content-Encoding", name);
    }
    response
}

fn part(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>, first: u64, last: u64) -> Response {
    let mut response = with_content(206, &cached);
    let range = format!("bytes {first}-{last}/{}", cached.entry.meta.size);
    response.fields.add("Content-Range", range.as_bytes());
    response.body = body(cached, ready, first, last - first + 1);
    response
}

fn several(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>, parts: Vec<Part>) -> Response {
    let mut response = with_content(206, &cached);
    let source = match &cached.entry.content {
        Content::Memory(..) => PartSource::Memory(cached),
        Content::File(file) => {
            let file = file.clone();
            let first = parts[0];
            let range = first.first..first.first + first.len();
            PartSource::File(part_of(cached, file, ready, range))
        }
    };
    response.body = Body::Multipart(Box::new(Multipart {
        source,
        parts,
        framing: None,
    }));
    response
}

fn body(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>, offset: u64, bytes: u64) -> Body {
    let file = match &cached.entry.content {
        Content::File(file) => file.clone(),
        Content::Memory(..) => {
            let start = usize::try_from(offset).expect("a body in memory is small");
            let bytes = usize::try_from(bytes).expect("a body in memory is small");
            return Body::Memory(cached, start..start + bytes);
        }
    };
    Body::File(part_of(cached, file, ready, offset..offset + bytes))
}

/// A range of `file`, which belongs to the entry `cached`.
pub fn part_of(
    cached: Rc<EntryRef>,
    file: Arc<OpenFile>,
    ready: Option<(u64, Ready)>,
    range: std::ops::Range<u64>,
) -> Box<FileBody> {
    Box::new(FileBody {
        version: Version::new(cached.entry.meta, cached.entry.strong),
        cached,
        file,
        offset: range.start,
        remaining: range.end - range.start,
        ready: ready
            .filter(|(at, _)| *at == range.start)
            .map(|(_, ready)| ready),
    })
}
