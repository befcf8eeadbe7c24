//! Filters: changes of a location to its responses. A new filter is a file here, and one line in
//! `compile/filters.rs`.
//!
//! A [`Filter`] changes the header on the loop, and makes no system call. What changes bodies is a
//! job of the pool of `levity-compute`: at most 64 KiB at a time. A filter that decodes gets 2 KiB
//! per job, which may become 2 MiB. Text (`substitute.rs`) is replaced before the compression. It
//! is the only filter that decodes what a backend sent compressed (`decode.rs`), within bounds on
//! the ratio and on the output of one job; its memory is the window of the coding (16 MiB at most)
//! and 2 MiB for what one job makes.

pub mod cache_control;
#[cfg_attr(not(feature = "compress"), path = "compress/absent.rs")]
pub mod compress;
pub mod cors;
#[cfg_attr(not(feature = "compress"), path = "decode/absent.rs")]
pub mod decode;
mod directives;
pub mod header_rules;
pub mod hsts;
pub mod path_headers;
pub mod security_headers;
pub mod substitute;

use std::cell::LazyCell;

use levity_wire::http1::Method;

use crate::explanation::{Explanation, Topic};
use crate::http::filter::{Filter, FilteredHead, Filters};
use crate::http::response::{Body, Response};
use crate::message::fields::Fields;
use crate::message::request::Request;
use crate::shares::claim::Claims;

/// Headers that say how long a response may be kept.
const KEEPING: &[&str] = &["Cache-Control", "Expires"];

/// Applies `filters` in order.
pub fn apply(
    filters: &Filters,
    request: &Request,
    response: &mut Response,
    claims: &LazyCell<Claims, impl FnOnce() -> Claims>,
) {
    let base = response.base.as_ref().filter(|_| response.status == 200);
    // To ask them all costs 7 % of a small response over HTTP/2: what is compressed is a long list of types.
    if base.is_some_and(|base| base.is_passed_by(filters.number())) {
        return;
    }
    for filter in filters.list() {
        apply_one(&**filter, request, response, claims);
    }
    let base = response.base.as_ref().filter(|_| response.status == 200);
    if let Some(base) = base {
        // Whoever changes something takes it away.
        base.set_passed_by(filters.number());
    }
}

/// The same, and says which of them changes which header.
pub fn apply_and_explain(
    filters: &Filters,
    request: &Request,
    response: &mut Response,
    claims: &LazyCell<Claims, impl FnOnce() -> Claims>,
    explanation: &Explanation,
) {
    for filter in filters.list() {
        response.merge_base();
        let before = response.fields.clone();
        apply_one(&**filter, request, response, claims);
        for (sign, line) in before.changes(&response.fields) {
            let line = String::from_utf8_lossy(line);
            explanation.add(Topic::Header, format!("{sign} {line}  ({})", filter.key()));
        }
    }
}

/// How long `response`, to which no filter was applied, may be kept by `filters`, as that of a request for `path`.
pub fn keeping(filters: &Filters, request: &Request, path: &[u8], response: &Response) -> Fields {
    let base = response.base.as_ref();
    let mut fields = base.map_or_else(Fields::default, |base| base.fields().clone());
    fields.extend(&response.fields);
    let mut has_server = response.has_server;
    for filter in filters.list() {
        let head = FilteredHead {
            status: response.status,
            length: response.content_length(),
            fields: &mut fields,
            has_server: &mut has_server,
            path,
            is_of_application: response.is_of_application,
        };
        filter.header(request, head);
    }
    fields.take(KEEPING)
}

/// Has `response` say what [`keeping`] has returned for the page that stands in for its path, whatever the rules of the path say.
pub fn keep_as(
    page: &[u8],
    keeping: &Fields,
    response: &mut Response,
    explanation: Option<&Explanation>,
) {
    response.merge_base();
    let own = response.fields.take(KEEPING);
    response.fields.extend(keeping);
    let Some(explanation) = explanation else {
        return;
    };
    let page = String::from_utf8_lossy(page);
    for (sign, line) in own.changes(keeping) {
        let line = String::from_utf8_lossy(line);
        explanation.add(Topic::Header, format!("{sign} {line}  (as for {page})"));
    }
}

fn apply_one(
    filter: &dyn Filter,
    request: &Request,
    response: &mut Response,
    claims: &LazyCell<Claims, impl FnOnce() -> Claims>,
) {
    if let Some(base) = response.base.as_ref().filter(|_| response.status == 200)
        && filter.passes(base.fields())
    {
        return;
    }
    response.merge_base();
    filter.header(request, head(request, response));
    if may_change_body(request, response)
        && let Some(body) = filter.body(request, head(request, response), claims)
    {
        // An upstream's response to HEAD announces the length of the unchanged body.
        response.fields.remove("content-length");
        response.filters.push(body);
    }
}

fn head<'r>(request: &'r Request, response: &'r mut Response) -> FilteredHead<'r> {
    FilteredHead {
        status: response.status,
        length: response.content_length(),
        fields: &mut response.fields,
        has_server: &mut response.has_server,
        path: &request.path,
        is_of_application: response.is_of_application,
    }
}

/// Whether the response has all of a representation as its body, or would have it if the request were not HEAD.
fn may_change_body(request: &Request, response: &Response) -> bool {
    let is_head = request.head.method == Method::Head;
    let has_content = match response.body {
        Body::None => is_head && !matches!(response.status, 204 | 304),
        // Receivers share the bytes of what they get.
        Body::Held { .. } | Body::Upgrade { .. } => false,
        _ => true,
    };
    has_content && response.status != 206 && response.fields.value("content-range").is_none()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use levity_disk::{Root, Symlinks};

    use super::*;
    use crate::files::cache::{Cache, EntryRef};
    use crate::files::entry::{self, Content};
    use crate::http::filter::{BodyFilter, FilterError};
    use levity_config::Etag;

    /// Returns a filter for every body.
    struct Greedy;

    #[derive(Debug)]
    struct Nothing;

    impl Filter for Greedy {
        fn key(&self) -> &'static str {
            "greedy"
        }

        fn header(&self, _: &Request, _: FilteredHead<'_>) {}

        fn body(
            &self,
            _: &Request,
            _: FilteredHead<'_>,
            _: &Claims,
        ) -> Option<Box<dyn BodyFilter>> {
            Some(Box::new(Nothing))
        }
    }

    impl BodyFilter for Nothing {
        fn push(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn finish(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }

        fn ns_per_byte(&self) -> u32 {
            0
        }
    }

    thread_local! {
        static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    /// Changes responses whose header has an ETag that the server did not make, and counts how often it is asked.
    struct Asked;

    impl Filter for Asked {
        fn key(&self) -> &'static str {
            "asked"
        }

        fn header(&self, _: &Request, head: FilteredHead<'_>) {
            head.fields.add("Changed", b"yes");
        }

        fn passes(&self, base: &Fields) -> bool {
            ASKED.set(ASKED.get() + 1);
            base.value("etag") != Some(b"\"other\"")
        }
    }

    fn file() -> Rc<EntryRef> {
        let root = Root::open("/".as_ref(), Symlinks::Beneath).expect("a root");
        let file = root.open_cached(c".").expect("it is in memory");
        let (form, meta) = (entry::plain_form(b"file", Etag::File), file.meta());
        Cache::uncached(Arc::new(entry::entry(
            form,
            meta,
            true,
            Content::File(file),
        )))
    }

    #[test]
    fn what_changes_nothing_is_asked_once_for_each_header_of_a_file() {
        let file = file();
        let claims = LazyCell::new(|| Claims::alone(0));
        let asked = |filters: &Filters, status| {
            let before = ASKED.get();
            let mut response = Response::new(status);
            response.base = Some(file.clone());
            apply(filters, &Request::default(), &mut response, &claims);
            let is_changed = response.fields.value("changed").is_some();
            (ASKED.get() - before, is_changed)
        };
        let [one, other] = [(), ()].map(|()| Filters::new(vec![Box::new(Asked)]));
        assert_eq!(asked(&one, 200), (1, false));
        assert_eq!(asked(&one, 200), (0, false));
        // Only a response of 200 is one of the file as it is.
        assert_eq!(asked(&one, 206), (0, true));
        assert_eq!(asked(&other, 200), (1, false));
        assert_eq!(asked(&one, 200), (1, false));
        file.set_content_etag("\"other\"".into());
        assert_eq!(asked(&one, 200), (1, true));
        assert_eq!(asked(&one, 200), (1, true));
    }

    /// Whether a filter may change the body of a response to this method.
    fn changes(method: &str, status: u16, body: Body, field: Option<&str>) -> bool {
        let mut response = Response::new(status);
        response.body = body;
        if let Some(name) = field {
            response.fields.add(name, b"bytes 0-2/9");
        }
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let request = Request::parsed(request.as_bytes(), &Default::default());
        let request = request.expect("a request");
        apply(
            &Filters::new(vec![Box::new(Greedy)]),
            &request,
            &mut response,
            &LazyCell::new(|| Claims::alone(0)),
        );
        !response.filters.is_empty()
    }

    #[test]
    fn only_whole_content_is_changed() {
        let text = || Body::Text(b"one".to_vec());
        assert!(changes("GET", 200, text(), None));
        assert!(changes("GET", 404, text(), None));
        assert!(!changes("GET", 206, text(), None));
        assert!(!changes("GET", 200, text(), Some("Content-Range")));
        assert!(!changes("GET", 304, Body::None, None));
        assert!(!changes("HEAD", 204, Body::None, None));
        assert!(changes("HEAD", 200, Body::None, None));
    }
}
