//! HTTP/1 requests: the header section.

use levity_wire::http1::{
    Framing, Limits, Method, RequestHead, Target, Version, host_name, parse_request, write,
};

use super::{
    SMALL, UNLIMITED, only_end_to_end_fields_are_passed_on, path, prefixes_agree, same_headers,
    same_lines, write_headers,
};

/// A request has the same meaning however the input is split, and another parser of the same
/// grammar agrees.
pub fn request_head(bytes: &[u8]) {
    for limits in [&Limits::default(), &SMALL] {
        let mut head = RequestHead::default();
        let parsed = parse_request(bytes, &mut head, limits);
        if parsed == Ok(true) {
            head_is_sound(bytes, &head, limits);
            framing_has_one_source(bytes, &head);
            httparse_agrees(bytes, &head);
            request_is_written_as_read(bytes, &head);
            only_end_to_end_fields_are_passed_on(bytes, &head.headers);
            path(head.path.of(bytes));
        }
        prefixes_agree(bytes, parsed, &head, head.bytes, |bytes, head| {
            parse_request(bytes, head, limits)
        });
    }
}

fn head_is_sound(bytes: &[u8], head: &RequestHead, limits: &Limits) {
    assert!(head.bytes <= bytes.len() && head.bytes <= limits.head_bytes_max);
    assert!(head.headers.len() <= limits.headers_max);
    let text = &bytes[..head.bytes];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(!text[..head.bytes - 2].ends_with(b"\r\n\r\n") && !text.contains(&0));
    match head.host {
        Some(host) => assert!(host_name(host.of(text)).is_ok()),
        None => assert_eq!(head.version, Version::Http10),
    }
    let rooted = matches!(head.target, Target::Origin | Target::Absolute);
    assert_eq!(head.path.of(text).first(), rooted.then_some(&b'/'));
    assert_eq!(
        head.target == Target::Authority,
        head.method == Method::Connect
    );
    assert!(!head.target_span.is_empty() && !head.method_span.is_empty());
}

fn framing_has_one_source(bytes: &[u8], head: &RequestHead) {
    let lengths = head.headers.named(bytes, "content-length").count();
    let codings = head.headers.named(bytes, "transfer-encoding").count();
    match head.framing {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
        Framing::Chunked => assert!(lengths == 0 && codings > 0),
    }
    assert!(head.headers.named(bytes, "host").count() <= 1);
}

/// httparse accepts every accepted request and splits it in the same way. It knows versions 1.0 and
/// 1.1 only and requires a target in UTF-8.
fn httparse_agrees(bytes: &[u8], head: &RequestHead) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Err(httparse::Error::Version) => return,
        Err(httparse::Error::Token) if str::from_utf8(head.target_span.of(bytes)).is_err() => {
            return;
        }
        parsed => parsed.expect("accepted here, so accepted there").unwrap(),
    };
    assert_eq!(len, head.bytes);
    assert_eq!(
        request.method.map(str::as_bytes),
        Some(head.method_span.of(bytes))
    );
    assert_eq!(
        request.path.map(str::as_bytes),
        Some(head.target_span.of(bytes))
    );
    assert_eq!(request.version == Some(0), head.version == Version::Http10);
    same_headers(request.headers, bytes, &head.headers);
}

/// Any HTTP/1.1 request can be written and parsed again.
fn request_is_written_as_read(bytes: &[u8], head: &RequestHead) {
    if head.version == Version::Http10 {
        return;
    }
    let mut out = Vec::new();
    write::request_line(
        &mut out,
        head.method_span.of(bytes),
        head.target_span.of(bytes),
    )
    .expect("what was read can be written");
    write_headers(&mut out, bytes, &head.headers);
    let mut again = RequestHead::default();
    let parsed = parse_request(&out, &mut again, &UNLIMITED);
    assert_eq!((parsed, again.bytes), (Ok(true), out.len()));
    assert_eq!(again.target_span.of(&out), head.target_span.of(bytes));
    assert_eq!((again.method, again.framing), (head.method, head.framing));
    assert_eq!(again.keep_alive, head.keep_alive);
    same_lines(&out, &again.headers, bytes, &head.headers);
}
