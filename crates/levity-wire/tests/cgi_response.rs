//! Headers of responses, rule by rule.

use levity_wire::cgi::{ResponseHead, parse_response};
use levity_wire::http1::{Limits, Reject};

fn parse(text: &[u8]) -> Result<Option<ResponseHead>, Reject> {
    let mut head = ResponseHead::default();
    let complete = parse_response(text, &mut head, &Limits::default())?;
    Ok(complete.then_some(head))
}

#[track_caller]
fn accept(text: &str) -> ResponseHead {
    match parse(text.as_bytes()) {
        Ok(Some(head)) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[track_caller]
fn refuse(text: &[u8], reason: &str) {
    let shown = text.escape_ascii().to_string();
    let reject = parse(text).expect_err(&shown);
    assert_eq!((reject.status, reject.reason), (502, reason), "{shown}");
}

fn fields(head: &ResponseHead, text: &str) -> Vec<(String, String)> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    head.headers
        .iter()
        .map(|header| {
            let (name, value) = (header.name, header.value);
            (
                shown(name.of(text.as_bytes())),
                shown(value.of(text.as_bytes())),
            )
        })
        .collect()
}

const PHP: &str = "Status: 404 Not Found\r\n\
    X-Powered-By: PHP/8.2.36\r\n\
    Set-Cookie: a=1\r\n\
    Set-Cookie: b=2\r\n\
    Content-type: text/html; charset=UTF-8\r\n\
    \r\n";

const GOLDEN: &[&str] = &[
    PHP,
    "Content-Type: text/plain\n\n",
    "Content-Type: text/plain\r\n\n",
    "Content-Type: text/plain\n\r\n",
    "HTTP/1.0 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n",
    "HTTP/1.1 200\nX:\n\n",
    "Location: /local?x=1\n\n",
    "Location: https://example.org/\r\nContent-Length: 12\r\n\r\n",
    "X-Name: caf\u{e9}\tau lait\n\n",
];

#[test]
fn an_answer_of_php_is_read_in_full() {
    let head = accept(PHP);
    let bytes = PHP.as_bytes();
    assert_eq!((head.status, head.content_length), (404, None));
    assert_eq!(head.reason.of(bytes), b"Not Found");
    assert_eq!(head.headers.len(), 4);
    assert_eq!(
        head.headers.first(bytes, "x-powered-by"),
        Some(&b"PHP/8.2.36"[..])
    );
    assert_eq!(head.headers.first(bytes, "status"), None);
    let cookies: Vec<_> = head.headers.named(bytes, "set-cookie").collect();
    assert_eq!(cookies, [b"a=1", b"b=2"]);
    assert_eq!(head.bytes, bytes.len());
}

#[test]
fn every_prefix_of_a_good_head_asks_for_more() {
    for text in GOLDEN {
        accept(text);
        for cut in 0..text.len() {
            let parsed = parse(&text.as_bytes()[..cut]);
            assert_eq!(parsed, Ok(None), "{text:?} cut at {cut}");
        }
    }
}

#[test]
fn following_bytes_do_not_change_the_result() {
    for text in GOLDEN {
        let followed = [text.as_bytes(), b"\0\nStatus: 500\n\n"].concat();
        assert_eq!(parse(&followed), Ok(Some(accept(text))), "{text:?}");
    }
}

#[test]
fn a_used_head_is_as_good_as_a_new_one() {
    let mut head = ResponseHead::default();
    for text in GOLDEN {
        let parsed = parse_response(text.as_bytes(), &mut head, &Limits::default());
        assert_eq!(parsed, Ok(true));
        assert_eq!(head, accept(text));
    }
    head.clear();
    assert_eq!(head, ResponseHead::default());
}

#[test]
fn both_line_ends_mean_the_same() {
    for text in GOLDEN {
        let lf = text.replace("\r\n", "\n");
        let crlf = lf.replace('\n', "\r\n");
        let (short, long) = (accept(&lf), accept(&crlf));
        assert_eq!(short.status, long.status);
        assert_eq!(fields(&short, &lf), fields(&long, &crlf));
        assert_eq!((short.bytes, long.bytes), (lf.len(), crlf.len()));
    }
}

#[test]
fn statuses() {
    let cases = [
        ("Content-Type: a/b\n\n", 200),
        ("Status: 200 OK\n\n", 200),
        ("Status: 204\n\n", 204),
        ("Status: 204 \n\n", 204),
        ("status:404 Not Found\n\n", 404),
        ("Status: 599 \u{e9}\tb\n\n", 599),
        ("Status: 600\n\n", 600),
        ("Status: 999 Denied\n\n", 999),
        ("X: y\nStatus: 410 Gone\n\n", 410),
        ("Status: 404 Not Found\nStatus: 404\n\n", 404),
        ("Status:\nX: y\n\n", 200),
        ("Location: http://a/\n\n", 302),
        ("Location: http://a/\nStatus: 301 Moved\n\n", 301),
        ("Status: 201 Created\nLocation: /new\n\n", 201),
        ("HTTP/1.1 200 OK\n\n", 200),
        ("HTTP/1.0 403 Forbidden\r\n\r\n", 403),
        ("HTTP/2.0 418\n\n", 418),
        ("HTTP/1.1 404 Not Found\nStatus: 404 Not Found\n\n", 404),
        ("HTTP/1.1 200 OK\nLocation: /a\n\n", 200),
    ];
    for (text, status) in cases {
        assert_eq!(accept(text).status, status, "{text:?}");
    }
}

#[test]
fn reasons() {
    let cases = [
        ("Status: 404 Not Found\n\n", "Not Found"),
        ("HTTP/1.1 404  a b \n\n", " a b "),
        ("HTTP/1.1 404 \n\n", ""),
        ("HTTP/1.1 404\n\n", ""),
        ("Status: 404\n\n", ""),
        ("X: y\n\n", ""),
    ];
    for (text, reason) in cases {
        let head = accept(text);
        let found = head.reason.of(text.as_bytes());
        assert_eq!(found, reason.as_bytes(), "{text:?}");
    }
}

#[test]
fn bad_statuses() {
    let values = [
        "OK", "20", "2000", "2 0", "200OK", "200\tOK", "+20", "-20", "0x2", "099", "100", "103",
        "199", "1000", "200.0", "\u{e9}0",
    ];
    for value in values {
        let text = format!("Status: {value}\n\n");
        refuse(text.as_bytes(), "bad status in a CGI response");
    }
    for line in ["HTTP/1.1 1xx", "HTTP/1.1 100 Continue", "HTTP/1.1  200 OK"] {
        let text = format!("{line}\n\n");
        refuse(text.as_bytes(), "bad status in a CGI response");
    }
    for line in [
        "HTTP/",
        "HTTP/1",
        "HTTP/1.1",
        "HTTP/1.1\t200",
        "HTTP/2 200",
        "HTTP/1.10 200",
    ] {
        let text = format!("{line}\n\n");
        refuse(text.as_bytes(), "bad status line in a CGI response");
    }
    let differ = "conflicting statuses in a CGI response";
    refuse(b"Status: 200\nStatus: 404\n", differ);
    refuse(b"HTTP/1.1 200 OK\nStatus: 404\n", differ);
}

#[test]
fn a_status_line_is_one_only_in_the_first_line() {
    let reason = "header line without a colon";
    refuse(b"X: y\nHTTP/1.1 200 OK\n", reason);
    refuse(b"http/1.1 200 OK\n", reason);
}

#[test]
fn a_location_without_a_status_is_a_redirect() {
    for text in [
        "Location: /a?b=c\n\n",
        "location:/\n\nbody",
        "Location: http://example.org/\n\n",
        "Location: /a\nSet-Cookie: a=1\n\n",
        "Location: /a\nStatus: 302 Found\n\n",
        "HTTP/1.1 302 Found\nLocation: /a\n\n",
    ] {
        assert_eq!(accept(text).status, 302, "{text:?}");
    }
    assert_eq!(accept("Location: /a\nStatus: 201\n\n").status, 201);
    assert_eq!(accept("Location:\nX: y\n\n").status, 200);
}

#[test]
fn lengths() {
    let length = |value: &str| accept(&format!("Content-Length: {value}\n\n")).content_length;
    assert_eq!(length("0"), Some(0));
    assert_eq!(length("0012"), Some(12));
    assert_eq!(length("18446744073709551615"), Some(u64::MAX));
    assert_eq!(accept("Content-Length:\nX: y\n\n").content_length, None);
    let values = [
        "-1",
        "+1",
        "1 1",
        "1,1",
        "1, 1",
        "0x1",
        "1.0",
        "1_0",
        "a",
        "18446744073709551616",
        "\u{661}",
    ];
    for value in values {
        let text = format!("Content-Length: {value}\n");
        refuse(text.as_bytes(), "bad Content-Length in a CGI response");
    }
}

#[test]
fn repeated_headers_are_rejected() {
    let cases = [
        (
            "Content-Length: 1\ncontent-length: 1\n",
            "repeated Content-Length in a CGI response",
        ),
        (
            "Content-Length: 1\nContent-Length: 2\n",
            "repeated Content-Length in a CGI response",
        ),
        (
            "Location: /a\nLocation: /a\n",
            "repeated Location in a CGI response",
        ),
        (
            "Content-Type: a/b\nContent-Type: a/b\n",
            "repeated Content-Type in a CGI response",
        ),
    ];
    for (text, reason) in cases {
        refuse(text.as_bytes(), reason);
    }
    accept("Content-Type:\nContent-Type: a/b\nLocation:\nLocation: /a\n\n");
}

#[test]
fn a_transfer_coding_is_refused() {
    for value in ["chunked", "identity", "gzip, chunked"] {
        for text in [
            format!("Transfer-Encoding: {value}\n"),
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding:{value}\r\n"),
        ] {
            refuse(text.as_bytes(), "Transfer-Encoding in a CGI response");
        }
    }
}

#[test]
fn malformed_lines() {
    let control = "control character in the headers of a CGI response";
    let name = "bad header name, or white space before its colon";
    let cases: &[(&[u8], &str)] = &[
        (b"\n", "no headers in a CGI response"),
        (b"\r\n", "no headers in a CGI response"),
        (b"\nX: y\n\n", "no headers in a CGI response"),
        (b"<html>\n", "header line without a colon"),
        (b"X: y\n<html>\n", "header line without a colon"),
        (b"X : y\n", name),
        (b": y\n", name),
        (b"X Y: z\n", name),
        (b"X\xff: z\n", name),
        (b" X: y\n", "folded header line"),
        (b"X: y\n z\n", "folded header line"),
        (b"X: y\n\tz\n", "folded header line"),
        (b"X: a\0b\n", control),
        (b"X\0", control),
        (b"X: a\x0bb\n", control),
        (b"X: a\x7f\n", control),
        (b"X: a\rb\n", control),
        (b"X: a\r\r\n", control),
        (b"X: y\n\r\r\n", control),
        (b"\x16\x03\x01", control),
    ];
    for (text, reason) in cases {
        refuse(text, reason);
    }
}

#[track_caller]
fn bounded(text: &str, limits: &Limits, reason: &str) {
    let parsed = parse_response(text.as_bytes(), &mut ResponseHead::default(), limits);
    let reject = parsed.expect_err("more than its bound");
    assert_eq!((reject.status, reject.reason), (502, reason), "{text:?}");
}

#[test]
fn bounds_are_inclusive() {
    let parse = |text: &str, limits: &Limits| {
        parse_response(text.as_bytes(), &mut ResponseHead::default(), limits)
    };
    let limits = Limits {
        line_bytes_max: 0,
        header_bytes_max: 8,
        head_bytes_max: 20,
        headers_max: 2,
    };
    let line = "header line too long in a CGI response";
    for end in ["\n", "\r\n"] {
        assert_eq!(parse(&format!("X: 45678{end}{end}"), &limits), Ok(true));
        bounded(&format!("X: 456789{end}{end}"), &limits, line);
    }
    assert_eq!(parse("X: 45678", &limits), Ok(false));
    assert_eq!(parse("X: 45678\r", &limits), Ok(false));
    bounded("X: 456789", &limits, line);
    bounded("HTTP/1.1 200 OK", &limits, line);

    assert_eq!(parse("X:1\nY:2\n\n", &limits), Ok(true));
    let lines = "too many header lines in a CGI response";
    bounded("X:1\nY:2\nZ:3\n", &limits, lines);
    bounded("X:\nY:\nZ:\n", &limits, lines);

    assert_eq!(parse("X:345678\r\nY:3456\r\n\r\n", &limits), Ok(true));
    let head = "headers of a CGI response too long";
    bounded("X:345678\r\nY:34567\r\n\r\n", &limits, head);
    bounded("X:345678\r\nY:345678\r\n", &limits, head);
}
