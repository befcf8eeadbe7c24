//! The response of a file: conditions are evaluated first, then ranges (RFC 9110, 13.2.2 and 14).

use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, Ready};
use levity_wire::byteranges::Byteranges;
use levity_wire::condition::{self, Validators, Verdict};
use levity_wire::http1::Method;
use levity_wire::range::{self, Part, Range};

use crate::files::cache::EntryRef;
use crate::files::entry::{Content, Entry, VARY};
use crate::http::error::error;
use crate::http::file_version::Version;
use crate::http::response::{Body, FileBody, Multipart, PartSource, Response};
use crate::message::fields::{CONTENT_HEADERS, Fields};
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;

/// The response of `file` to `request`.
pub fn file(request: &Request, file: ServableFile) -> Response {
    let (cached, ready) = file.into_parts();
    let entry = &cached.entry;
    let mut response = match verdict(request, &cached) {
        Verdict::Failed => return without_content(412, entry),
        Verdict::NotModified => {
            let mut response = Response::new(304);
            response
                .fields
                .extend_except(cached.fields(), CONTENT_HEADERS);
            response
        }
        Verdict::Proceed => match requested_range(request, &cached) {
            Range::Whole => all(cached.clone(), ready),
            Range::Part(Part { first, last }) => part(cached.clone(), ready, first, last),
            Range::Several(parts) if !saves_bytes(entry, &parts) => all(cached.clone(), ready),
            Range::Several(parts) => several(cached.clone(), ready, parts),
            Range::Unsatisfiable => {
                let mut response = without_content(416, entry);
                let range = format!("bytes */{}", entry.meta.size);
                response.fields.add("Content-Range", range.as_bytes());
                return response;
            }
        },
    };
    if cached.has_content_etag() {
        use_etag_of_client(request, &cached, &mut response);
    }
    response
}

/// Gives `response` the ETag that the client knows, of the two that the file has.
fn use_etag_of_client(request: &Request, cached: &EntryRef, response: &mut Response) {
    if response.status == 304 && request.header("if-none-match").is_none() {
        // The client has named a date only: it may have either of them.
        return response.fields.remove("etag");
    }
    let etag = etag(request, cached);
    if etag != cached.etag() {
        response.merge_base();
        response.fields.set("ETag", etag.as_bytes());
    }
}

/// Whether the client's copy of `cached` is current: the response is a 304.
pub fn is_current(request: &Request, cached: &EntryRef) -> bool {
    verdict(request, cached) == Verdict::NotModified
}

/// The ETag of the response to `request`: the one that the client knows. It may have got that of the version before that
/// of the content was known, and it updates or continues only what has the same (RFC 9110, 15.3.7.3; RFC 9111, 4.3.4).
fn etag<'c>(request: &Request, cached: &'c EntryRef) -> &'c str {
    let (own, of_version) = (cached.etag(), &cached.entry.etag);
    if !cached.has_content_etag() || !request.head.conditional {
        return own;
    }
    let names = |etag: &str| {
        let conditions = ["if-match", "if-none-match", "if-range"];
        let mut values = conditions
            .iter()
            .flat_map(|name| request.headers_named(name));
        values.any(|value| condition::lists(value, etag.as_bytes()))
    };
    match names(own) || !names(of_version) {
        true => own,
        false => of_version,
    }
}

fn verdict(request: &Request, cached: &EntryRef) -> Verdict {
    let validators = Validators {
        etag: Some(etag(request, cached).as_bytes()),
        modified: cached.entry.modified,
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

/// The range of the request: only for GET, and only if If-Range matches (RFC 9110, 14.2). One of an empty file is ignored: clients that ask
/// for ranges of everything take 416 for a failure.
fn requested_range(request: &Request, cached: &EntryRef) -> Range {
    let Some(value) = request.header("range") else {
        return Range::Whole;
    };
    let holds = request.header("if-range").is_none() || names_version(request, cached);
    if request.head.method == Method::Get && holds && cached.entry.meta.size > 0 {
        range::parse(value, cached.entry.meta.size)
    } else {
        Range::Whole
    }
}

/// Whether If-Range names the version of `cached`. A date is no strong validator while the file may still change within
/// its second (RFC 9110, 8.8.2.2), nor for files with variants, which share their date: parts of two variants would be
/// combined.
pub fn names_version(request: &Request, cached: &EntryRef) -> bool {
    let entry = &cached.entry;
    let is_strong = entry.strong && !entry.varies;
    let validators = Validators {
        etag: Some(etag(request, cached).as_bytes()),
        modified: entry.modified.filter(|_| is_strong),
    };
    let value = request.header("if-range");
    value.is_some_and(|value| condition::if_range(value, &validators))
}

/// The whole content of `file`, regardless of conditions and ranges.
pub fn whole(file: ServableFile) -> Response {
    let (cached, ready) = file.into_parts();
    all(cached, ready)
}

fn all(cached: Rc<EntryRef>, ready: Option<(u64, Ready)>) -> Response {
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

/// Whether `parts` with their headers are shorter than all of the file. Otherwise the ranges are ignored: a request of many
/// small ones must not cost more than one without (RFC 9110, 17.15).
fn saves_bytes(entry: &Entry, parts: &[Part]) -> bool {
    let mut of_parts = Fields::default();
    if let Some(content_type) = entry.fields.value("content-type") {
        of_parts.add("Content-Type", content_type);
    }
    let framing = Byteranges::new(0, of_parts.as_bytes(), entry.meta.size);
    framing.length(parts) < entry.meta.size
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
