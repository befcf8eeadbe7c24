//! HTTP/1 responses: the header section.

use levity_wire::http1::{
    Limits, Method, RequestInfo, ResponseFraming, ResponseHead, Version, parse_response, write,
};

use super::{
    SMALL, UNLIMITED, only_end_to_end_fields_are_passed_on, prefixes_agree, same_headers,
    same_lines, write_headers,
};

/// A response has the same meaning however the input is split, and another parser of the same
/// grammar agrees, for every kind of request.
pub fn response_head(bytes: &[u8]) {
    for (limits, asked) in [&Limits::default(), &SMALL]
        .into_iter()
        .flat_map(|limits| ASKED.map(|asked| (limits, asked)))
    {
        let mut head = ResponseHead::default();
        let parsed = parse_response(bytes, &mut head, asked, limits);
        if parsed == Ok(true) {
            response_is_sound(bytes, &head, limits);
            body_has_one_end(bytes, &head, asked);
            httparse_agrees_on_response(bytes, &head);
            response_is_written_as_read(bytes, &head, asked);
            only_end_to_end_fields_are_passed_on(bytes, &head.headers);
        }
        assert!(parsed.is_ok() || parsed.is_err_and(|reject| reject.status == 502));
        prefixes_agree(bytes, parsed, &head, head.bytes, |bytes, head| {
            parse_response(bytes, head, asked, limits)
        });
    }
    a_value_cannot_end_its_line(bytes);
}

const ASKED: [RequestInfo; 4] = [
    asked(Method::Get, false),
    asked(Method::Get, true),
    asked(Method::Head, false),
    asked(Method::Connect, false),
];

const fn asked(method: Method, upgrade: bool) -> RequestInfo {
    RequestInfo { method, upgrade }
}

fn response_is_sound(bytes: &[u8], head: &ResponseHead, limits: &Limits) {
    assert!(head.bytes <= bytes.len() && head.bytes <= limits.head_bytes_max);
    assert!(head.headers.len() <= limits.headers_max);
    let text = &bytes[..head.bytes];
    assert!(text.starts_with(b"HTTP/1.") && text.ends_with(b"\r\n\r\n"));
    assert!(!text[..head.bytes - 2].ends_with(b"\r\n\r\n") && !text.contains(&0));
    assert!((100..=999).contains(&head.status));
}

fn body_has_one_end(bytes: &[u8], head: &ResponseHead, asked: RequestInfo) {
    let lengths = head.headers.named(bytes, "content-length").count();
    let codings = head.headers.named(bytes, "transfer-encoding").count();
    assert!(lengths <= 1 && (lengths == 0 || codings == 0));
    let without = asked.method == Method::Head || matches!(head.status, 100..=199 | 204 | 304);
    match head.framing {
        ResponseFraming::None => assert!(without && head.status != 101),
        ResponseFraming::Length(_) => assert!(!without && lengths == 1),
        ResponseFraming::Chunked => assert!(!without && codings > 0),
        ResponseFraming::UntilClose => assert!(!without && (lengths, codings) == (0, 0)),
        ResponseFraming::Tunnel => assert!(match head.status {
            101 => asked.upgrade && head.upgrade.is_some(),
            status => asked.method == Method::Connect && status / 100 == 2,
        }),
    }
    let open_ended = matches!(
        head.framing,
        ResponseFraming::UntilClose | ResponseFraming::Tunnel
    );
    assert!(!(head.keep_alive && open_ended));
}

/// httparse knows versions 1.0 and 1.1 only, and omits a reason with non-ASCII bytes.
fn httparse_agrees_on_response(bytes: &[u8], head: &ResponseHead) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Err(httparse::Error::Version) => return,
        parsed => parsed.expect("accepted here, so accepted there").unwrap(),
    };
    assert_eq!((len, response.code), (head.bytes, Some(head.status)));
    assert_eq!(response.version == Some(0), head.version == Version::Http10);
    let reason = head.reason.of(bytes);
    if reason.is_ascii() {
        assert_eq!(response.reason.map(str::as_bytes), Some(reason));
    }
    same_headers(response.headers, bytes, &head.headers);
}

fn response_is_written_as_read(bytes: &[u8], head: &ResponseHead, asked: RequestInfo) {
    if head.version == Version::Http10 {
        return;
    }
    let mut out = Vec::new();
    out.extend(format!("HTTP/1.1 {} ", head.status).bytes());
    out.extend_from_slice(head.reason.of(bytes));
    out.extend_from_slice(b"\r\n");
    write_headers(&mut out, bytes, &head.headers);
    let mut again = ResponseHead::default();
    let parsed = parse_response(&out, &mut again, asked, &UNLIMITED);
    assert_eq!((parsed, again.bytes), (Ok(true), out.len()));
    assert_eq!((again.status, again.framing), (head.status, head.framing));
    assert_eq!(again.keep_alive, head.keep_alive);
    same_lines(&out, &again.headers, bytes, &head.headers);
}

fn a_value_cannot_end_its_line(value: &[u8]) {
    let mut out = b"HTTP/1.1 200 \r\n".to_vec();
    let before = out.len();
    if write::field(&mut out, b"X", value).is_err() {
        assert_eq!(out.len(), before);
        return;
    }
    write::end_of_head(&mut out);
    let mut head = ResponseHead::default();
    let parsed = parse_response(&out, &mut head, ASKED[0], &UNLIMITED);
    assert_eq!((parsed, head.bytes), (Ok(true), out.len()));
    let values: Vec<_> = head.headers.named(&out, "x").collect();
    assert_eq!((values.len(), head.headers.len()), (1, 1));
    assert_eq!(values[0], value.trim_ascii());
}
