//! Request lines and headers, rule by rule.

use levity_wire::http1::{
    Framing, Limits, Method, Reject, RequestHead, Target, Version, host_name, parse_request,
};

fn parse(text: &[u8]) -> Result<Option<RequestHead>, Reject> {
    let mut head = RequestHead::default();
    let complete = parse_request(text, &mut head, &Limits::default())?;
    Ok(complete.then_some(head))
}

#[track_caller]
fn accept(text: &str) -> RequestHead {
    match parse(text.as_bytes()) {
        Ok(Some(head)) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[track_caller]
fn refuse(text: &[u8], status: u16, reason: &str) {
    let reject = parse(text).expect_err(&text.escape_ascii().to_string());
    assert_eq!(
        (reject.status, reject.reason),
        (status, reason),
        "{}",
        text.escape_ascii()
    );
}

/// A GET request with these lines after its Host.
fn with_lines(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A request with this request line and a Host.
fn with_line(line: &str) -> String {
    format!("{line}\r\nHost: a\r\n\r\n")
}

const BROWSER: &str = "GET /pool/main/l/linux.deb?x=1&y HTTP/1.1\r\n\
    Host: mirror.example.org:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
    Accept:\t text/html , */*;q=0.8 \t\r\n\
    X-Empty:\r\n\
    If-None-Match: \"a\"\r\n\
    if-none-match: \"b\"\r\n\
    \r\n";

const GOLDEN: &[&str] = &[
    BROWSER,
    "\r\nGET / HTTP/1.0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
    "GET http://b.example/x?y HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "POST /upload HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n",
    "PUT /\u{e9} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX: \u{e9}\r\n\r\n",
];

#[test]
fn a_browser_request_is_read_in_full() {
    let head = accept(BROWSER);
    let bytes = BROWSER.as_bytes();
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.method_span.of(bytes), b"GET");
    assert_eq!(
        (head.version, head.target),
        (Version::Http11, Target::Origin)
    );
    assert_eq!(head.target_span.of(bytes), b"/pool/main/l/linux.deb?x=1&y");
    assert_eq!(head.path.of(bytes), b"/pool/main/l/linux.deb");
    assert_eq!(head.query.map(|query| query.of(bytes)), Some(&b"x=1&y"[..]));
    assert_eq!(
        head.host.map(|host| host.of(bytes)),
        Some(&b"mirror.example.org:8080"[..])
    );
    assert_eq!(head.headers.len(), 6);
    assert_eq!(
        head.headers.first(bytes, "accept"),
        Some(&b"text/html , */*;q=0.8"[..])
    );
    assert_eq!(head.headers.first(bytes, "x-empty"), Some(&b""[..]));
    assert_eq!(head.headers.first(bytes, "x-absent"), None);
    let tags: Vec<_> = head.headers.named(bytes, "if-none-match").collect();
    assert_eq!(tags, [b"\"a\"", b"\"b\""]);
    assert_eq!(
        (head.framing, head.keep_alive, head.expect_continue),
        (Framing::None, true, false)
    );
    assert_eq!(head.bytes, bytes.len());
}

#[test]
fn every_prefix_of_a_good_head_asks_for_more() {
    for text in GOLDEN {
        accept(text);
        for cut in 0..text.len() {
            assert_eq!(
                parse(&text.as_bytes()[..cut]),
                Ok(None),
                "{text:?} cut at {cut}"
            );
        }
    }
}

#[test]
fn following_bytes_do_not_change_the_result() {
    for text in GOLDEN {
        let followed = [text.as_bytes(), b"\0\nGET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(&followed), Ok(Some(accept(text))), "{text:?}");
    }
}

#[test]
fn a_used_head_is_as_good_as_a_new_one() {
    let mut head = RequestHead::default();
    for text in GOLDEN {
        assert_eq!(
            parse_request(text.as_bytes(), &mut head, &Limits::default()),
            Ok(true)
        );
        assert_eq!(head, accept(text));
    }
    head.clear();
    assert_eq!(head, RequestHead::default());
}

#[test]
fn parsing_again_does_not_allocate() {
    let mut head = accept(BROWSER);
    let buffer = head.headers.as_ptr();
    head.clear();
    assert_eq!(head.headers.as_ptr(), buffer);
    assert_eq!(
        parse_request(BROWSER.as_bytes(), &mut head, &Limits::default()),
        Ok(true)
    );
    assert_eq!(head.headers.as_ptr(), buffer);
}

#[test]
fn methods_are_case_sensitive() {
    let methods = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("PATCH", Method::Patch),
        ("TRACE", Method::Trace),
        ("get", Method::Unknown),
        ("PROPFIND", Method::Unknown),
        ("M-SEARCH", Method::Unknown),
    ];
    for (token, method) in methods {
        assert_eq!(
            accept(&with_line(&format!("{token} / HTTP/1.1"))).method,
            method,
            "{token}"
        );
    }
}

#[test]
fn versions() {
    let version = |line: &str| accept(&with_line(line)).version;
    assert_eq!(version("GET / HTTP/1.0"), Version::Http10);
    assert_eq!(version("GET / HTTP/1.1"), Version::Http11);
    assert_eq!(version("GET / HTTP/1.2"), Version::Http11);
    assert_eq!(version("GET / HTTP/1.9"), Version::Http11);
    for line in ["GET / HTTP/2.0", "GET / HTTP/0.9", "GET / HTTP/3.0"] {
        refuse(
            with_line(line).as_bytes(),
            505,
            "HTTP version not supported",
        );
    }
    refuse(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        505,
        "HTTP version not supported",
    );
    refuse(b"GET /\r\n", 400, "request line without a version");
    for version in [
        "http/1.1",
        "HTTP/1.10",
        "HTTP/01.1",
        "HTTP/1",
        "HTTP/2",
        "HTTP/1,1",
        "x",
        "",
    ] {
        refuse(
            with_line(&format!("GET / {version}")).as_bytes(),
            400,
            "bad HTTP version",
        );
    }
}

#[test]
fn malformed_request_lines() {
    let cases = [
        ("GET", "request line without a target"),
        (" GET / HTTP/1.1", "bad method"),
        ("G(T / HTTP/1.1", "bad method"),
        ("G\tT / HTTP/1.1", "bad method"),
        ("G\u{e9}T / HTTP/1.1", "bad method"),
        ("GET\t/ HTTP/1.1", "bad method"),
        ("GET  / HTTP/1.1", "white space in the request target"),
        ("GET /  HTTP/1.1", "white space in the request target"),
        ("GET / HTTP/1.1 ", "white space in the request target"),
        ("GET /a b HTTP/1.1", "white space in the request target"),
        ("GET /a\tb HTTP/1.1", "white space in the request target"),
        ("GET /a#b HTTP/1.1", "fragment in the request target"),
        ("GET  HTTP/1.1", "request target of an unknown form"),
        ("GET a HTTP/1.1", "request target of an unknown form"),
        ("GET a/b HTTP/1.1", "request target of an unknown form"),
        ("GET ../a HTTP/1.1", "request target of an unknown form"),
        ("GET ftp://a/ HTTP/1.1", "request target of an unknown form"),
        ("GET http:/a HTTP/1.1", "request target of an unknown form"),
        (
            "GET a.example:80 HTTP/1.1",
            "request target of an unknown form",
        ),
        ("GET * HTTP/1.1", "target * is for OPTIONS only"),
        ("OPTIONS *x HTTP/1.1", "request target of an unknown form"),
        ("GET http:// HTTP/1.1", "bad host"),
        ("GET http:///a HTTP/1.1", "bad host"),
        ("GET http://user@a/ HTTP/1.1", "bad host"),
        ("GET http://a\\b/ HTTP/1.1", "bad host"),
        ("CONNECT / HTTP/1.1", "bad host"),
        ("CONNECT http://a:80/ HTTP/1.1", "bad host"),
        ("CONNECT a HTTP/1.1", "CONNECT without a port"),
        ("CONNECT a: HTTP/1.1", "CONNECT without a port"),
    ];
    for (line, reason) in cases {
        refuse(with_line(line).as_bytes(), 400, reason);
    }
}

#[test]
fn targets() {
    // request line, form, path, query, host
    let cases = [
        ("GET / HTTP/1.1", Target::Origin, "/", None, "a"),
        ("GET /? HTTP/1.1", Target::Origin, "/", Some(""), "a"),
        (
            "GET /a?b?c HTTP/1.1",
            Target::Origin,
            "/a",
            Some("b?c"),
            "a",
        ),
        ("GET //b/c HTTP/1.1", Target::Origin, "//b/c", None, "a"),
        (
            "GET /a|b\\c\"{} HTTP/1.1",
            Target::Origin,
            "/a|b\\c\"{}",
            None,
            "a",
        ),
        (
            "GET /\u{e9}?\u{e9} HTTP/1.1",
            Target::Origin,
            "/\u{e9}",
            Some("\u{e9}"),
            "a",
        ),
        (
            "GET http://b:1/x?y HTTP/1.1",
            Target::Absolute,
            "/x",
            Some("y"),
            "b:1",
        ),
        (
            "GET HTTPS://b/x HTTP/1.1",
            Target::Absolute,
            "/x",
            None,
            "b",
        ),
        ("GET http://b HTTP/1.1", Target::Absolute, "/", None, "b"),
        (
            "GET http://b?y/z HTTP/1.1",
            Target::Absolute,
            "/",
            Some("y/z"),
            "b",
        ),
        (
            "GET http://b/?y HTTP/1.1",
            Target::Absolute,
            "/",
            Some("y"),
            "b",
        ),
        ("OPTIONS * HTTP/1.1", Target::Asterisk, "", None, "a"),
        (
            "CONNECT b:443 HTTP/1.1",
            Target::Authority,
            "",
            None,
            "b:443",
        ),
        (
            "CONNECT [::1]:443 HTTP/1.1",
            Target::Authority,
            "",
            None,
            "[::1]:443",
        ),
    ];
    for (line, target, path, query, host) in cases {
        let text = with_line(line);
        let (head, bytes) = (accept(&text), text.as_bytes());
        assert_eq!(head.target, target, "{line}");
        assert_eq!(head.path.of(bytes), path.as_bytes(), "{line}");
        assert_eq!(
            head.query.map(|span| span.of(bytes)),
            query.map(str::as_bytes),
            "{line}"
        );
        assert_eq!(
            head.host.map(|span| span.of(bytes)),
            Some(host.as_bytes()),
            "{line}"
        );
    }
}

#[test]
fn a_target_may_hold_bytes_that_are_not_utf8() {
    let head = parse(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.map(|head| head.is_some()), Ok(true));
}

#[test]
fn line_ends_and_control_characters() {
    let cases: &[(&[u8], &str)] = &[
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n", "bare LF as a line end"),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", "bare LF as a line end"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n", "bare LF as a line end"),
        (
            b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "bare LF as a line end",
        ),
        (
            b"\r\rGET / HTTP/1.1\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x0b\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
            "control character in the header section",
        ),
        (
            b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
            "control character in the header section",
        ),
    ];
    for (text, reason) in cases {
        refuse(text, 400, reason);
    }
}

#[test]
fn a_tls_handshake_is_refused_without_waiting_for_a_line_end() {
    refuse(
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        400,
        "control character in the header section",
    );
}

#[test]
fn malformed_header_lines() {
    let cases = [
        ("X\r\n", "header line without a colon"),
        (
            ": b\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "X : b\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "X\t: b\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "X Y: b\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "X(: b\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            "X\u{e9}: b\r\n",
            "bad header name, or white space before its colon",
        ),
        ("X: a\r\n b\r\n", "folded header line"),
        ("X: a\r\n\tb\r\n", "folded header line"),
        (" X: a\r\n", "folded header line"),
    ];
    for (lines, reason) in cases {
        refuse(with_lines(lines).as_bytes(), 400, reason);
    }
    refuse(
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        400,
        "folded header line",
    );
}

#[test]
fn empty_lines_before_the_request_are_skipped_up_to_a_bound() {
    let request = with_lines("");
    for count in 0..=4 {
        let text = "\r\n".repeat(count) + &request;
        assert_eq!(accept(&text).bytes, text.len());
    }
    let reason = "too many empty lines before the request line";
    refuse(("\r\n".repeat(5) + &request).as_bytes(), 400, reason);
}

#[test]
fn one_valid_host() {
    refuse(b"GET / HTTP/1.1\r\n\r\n", 400, "missing Host");
    refuse(b"GET http://a/ HTTP/1.1\r\n\r\n", 400, "missing Host");
    refuse(with_lines("Host: a\r\n").as_bytes(), 400, "repeated Host");
    refuse(
        b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
        400,
        "repeated Host",
    );
    refuse(
        b"GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n",
        400,
        "bad host",
    );
    assert_eq!(accept("GET / HTTP/1.0\r\n\r\n").host, None);
}

#[test]
fn host_names() {
    let cases = [
        ("a", "a"),
        ("A.Example.ORG", "a.example.org"),
        ("a.example:80", "a.example"),
        ("a.example:", "a.example"),
        ("a.example.", "a.example"),
        ("a.example.:65535", "a.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("my_app-1", "my_app-1"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("a!$&'()*+,;=~b.example:80", "a!$&'()*+,;=~b.example"),
        ("[::1]", "[::1]"),
        ("[FE80::1]:80", "[fe80::1]"),
        ("[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]"),
    ];
    for (host, name) in cases {
        assert_eq!(host_name(host.as_bytes()).as_deref(), Ok(name), "{host}");
    }
    assert!(host_name("a".repeat(255).as_bytes()).is_ok());
}

#[test]
fn bad_hosts() {
    let cases = [
        "",
        ":",
        ":80",
        ".",
        "..",
        "a..b",
        ".a",
        "a b",
        "a/b",
        "a?b",
        "a@b",
        "a%41",
        "a\\b",
        "a\"b",
        "<a>",
        "a\u{e9}",
        "a:80:80",
        "a:x",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:000080",
        "::1",
        "[",
        "[]",
        "[::1",
        "[::1]x",
        "[::1]:x",
        "[1.2.3.4]",
        "[::g]",
        "[fe80::1%eth0]",
    ];
    for host in cases {
        assert!(host_name(host.as_bytes()).is_err(), "{host:?}");
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        refuse(text.as_bytes(), 400, "bad host");
    }
    assert!(host_name("a".repeat(256).as_bytes()).is_err());
}

#[test]
fn content_length() {
    for (value, length) in [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        let head = accept(&with_lines(&format!("Content-Length: {value}\r\n")));
        assert_eq!(head.framing, Framing::Length(length));
    }
    let bad = [
        "",
        "+1",
        "-1",
        "1 2",
        "1,1",
        "1, 1",
        "0x1",
        "1a",
        "1.0",
        "1;",
        "18446744073709551616",
        "99999999999999999999",
        "\u{661}",
    ];
    for value in bad {
        let text = with_lines(&format!("Content-Length: {value}\r\n"));
        refuse(text.as_bytes(), 400, "bad Content-Length");
    }
    let two = with_lines("Content-Length: 1\r\ncontent-length: 2\r\n");
    refuse(two.as_bytes(), 400, "conflicting Content-Length");
    let same = with_lines("Content-Length: 1\r\nContent-Length: 1\r\n");
    refuse(same.as_bytes(), 400, "repeated Content-Length");
}

#[test]
fn transfer_encoding() {
    for value in ["chunked", "Chunked", " CHUNKED\t"] {
        let head = accept(&with_lines(&format!("transfer-ENCODING:{value}\r\n")));
        assert_eq!(head.framing, Framing::Chunked, "{value}");
    }
    let cases = [
        ("gzip, chunked", 501, "unknown transfer coding"),
        ("identity, chunked", 501, "unknown transfer coding"),
        ("x;y=z, chunked", 501, "unknown transfer coding"),
        (
            "gzip\r\nTransfer-Encoding: chunked",
            501,
            "unknown transfer coding",
        ),
        ("gzip", 400, "chunked is not the last transfer coding"),
        ("identity", 400, "chunked is not the last transfer coding"),
        ("xchunked", 400, "chunked is not the last transfer coding"),
        ("chunkedx", 400, "chunked is not the last transfer coding"),
        ("chunked, gzip", 400, "transfer coding after chunked"),
        ("chunked, chunked", 400, "transfer coding after chunked"),
        (
            "chunked\r\nTransfer-Encoding: chunked",
            400,
            "transfer coding after chunked",
        ),
        (
            "chunked\r\nTransfer-Encoding: identity",
            400,
            "transfer coding after chunked",
        ),
        ("chunked,", 400, "transfer coding after chunked"),
        (",chunked", 400, "bad Transfer-Encoding"),
        ("", 400, "bad Transfer-Encoding"),
        ("\"chunked\"", 400, "bad Transfer-Encoding"),
        ("gzip chunked", 400, "bad Transfer-Encoding"),
        ("chunked;x=y", 400, "chunked with a parameter"),
        ("chunked ;", 400, "chunked with a parameter"),
        (
            "chunked\r\nContent-Length: 1",
            400,
            "Transfer-Encoding together with Content-Length",
        ),
        (
            "chunked\r\nContent-Length: 0",
            400,
            "Transfer-Encoding together with Content-Length",
        ),
        (
            "x\r\nContent-Length: 0",
            400,
            "Transfer-Encoding together with Content-Length",
        ),
    ];
    for (value, status, reason) in cases {
        let lines = format!("Transfer-Encoding: {value}\r\n");
        refuse(with_lines(&lines).as_bytes(), status, reason);
    }
    let length_first = with_lines("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n");
    refuse(
        length_first.as_bytes(),
        400,
        "Transfer-Encoding together with Content-Length",
    );
    let http10 = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    refuse(http10, 400, "Transfer-Encoding in HTTP/1.0");
}

#[test]
fn keep_alive() {
    let cases = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: x , close\r\n", false),
        ("1.1", "Connection: x\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Keep-Alive: timeout=5\r\n", false),
    ];
    for (version, lines, keep_alive) in cases {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(accept(&text).keep_alive, keep_alive, "{text}");
    }
}

#[test]
fn expect_continue() {
    assert!(accept(&with_lines("Expect: 100-Continue\r\n")).expect_continue);
    assert!(!accept(&with_lines("Expect: 200-ok\r\n")).expect_continue);
    assert!(!accept(&with_lines("")).expect_continue);
    assert!(!accept("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expect_continue);
}

const SMALL: Limits = Limits {
    line_bytes_max: 20,
    header_bytes_max: 16,
    head_bytes_max: 60,
    headers_max: 3,
};

fn with_small_limits(text: &str) -> Result<bool, u16> {
    parse_request(text.as_bytes(), &mut RequestHead::default(), &SMALL)
        .map_err(|reject| reject.status)
}

#[test]
fn the_request_line_is_bounded_exactly() {
    assert_eq!(
        with_small_limits("GET /345678 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Ok(true)
    );
    assert_eq!(with_small_limits("GET /345678 HTTP/1.1"), Ok(false));
    assert_eq!(with_small_limits("GET /345678 HTTP/1.1\r"), Ok(false));
    assert_eq!(
        with_small_limits("GET /3456789 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Err(414)
    );
    assert_eq!(with_small_limits("GET /3456789 HTTP/1.1"), Err(414));
    assert_eq!(with_small_limits("GET /3456789 HTTP/1.1\r"), Err(414));
}

#[test]
fn a_header_line_is_bounded_exactly() {
    let line = |line: &str| with_small_limits(&format!("GET / HTTP/1.1\r\nHost: a\r\n{line}"));
    assert_eq!(line("X: 3456789012345\r\n\r\n"), Ok(true));
    assert_eq!(line("X: 3456789012345"), Ok(false));
    assert_eq!(line("X: 3456789012345\r"), Ok(false));
    assert_eq!(line("X: 34567890123456\r\n\r\n"), Err(431));
    assert_eq!(line("X: 34567890123456"), Err(431));
    assert_eq!(line("X: 34567890123456\r"), Err(431));
}

#[test]
fn the_head_is_bounded_exactly_and_a_full_buffer_never_asks_for_more() {
    let start = "GET / HTTP/1.1\r\nHost: a\r\nX: 3456789012345\r\n";
    let fits = format!("{start}X: 3456789012\r\n\r\n");
    let exceeds = format!("{start}X: 34567890123\r\n\r\n");
    assert_eq!((fits.len(), exceeds.len()), (60, 61));
    assert_eq!(with_small_limits(&fits), Ok(true));
    assert_eq!(with_small_limits(&format!("{fits}body")), Ok(true));
    assert_eq!(with_small_limits(&fits[..59]), Ok(false));
    assert_eq!(with_small_limits(&exceeds), Err(431));
    assert_eq!(with_small_limits(&exceeds[..59]), Ok(false));
    assert_eq!(with_small_limits(&exceeds[..60]), Err(431));
}

#[test]
fn header_lines_are_counted_exactly() {
    let start = "GET / HTTP/1.1\r\nHost: a\r\nA:\r\nB:\r\n";
    assert_eq!(with_small_limits(&format!("{start}\r\n")), Ok(true));
    assert_eq!(with_small_limits(&format!("{start}C:\r\n\r\n")), Err(431));
    assert_eq!(with_small_limits(&format!("{start}C:\r\n")), Err(431));
}

#[test]
fn unlimited_limits_do_not_overflow() {
    let limits = Limits {
        line_bytes_max: usize::MAX,
        header_bytes_max: usize::MAX,
        head_bytes_max: usize::MAX,
        headers_max: usize::MAX,
    };
    let mut head = RequestHead::default();
    assert_eq!(
        parse_request(BROWSER.as_bytes(), &mut head, &limits),
        Ok(true)
    );
}
