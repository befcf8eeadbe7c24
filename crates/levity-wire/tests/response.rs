//! Status lines and headers, rule by rule.

use levity_wire::http1::{
    Limits, Method, Reject, RequestInfo, ResponseFraming, ResponseHead, Version, parse_response,
};

const GET: RequestInfo = RequestInfo {
    method: Method::Get,
    upgrade: false,
};
const HEAD: RequestInfo = RequestInfo {
    method: Method::Head,
    upgrade: false,
};
const CONNECT: RequestInfo = RequestInfo {
    method: Method::Connect,
    upgrade: false,
};
const UPGRADE: RequestInfo = RequestInfo {
    method: Method::Get,
    upgrade: true,
};

fn parse(text: &[u8], asked: RequestInfo) -> Result<Option<ResponseHead>, Reject> {
    let mut head = ResponseHead::default();
    let complete = parse_response(text, &mut head, asked, &Limits::default())?;
    Ok(complete.then_some(head))
}

#[track_caller]
fn accept(text: &str, asked: RequestInfo) -> ResponseHead {
    match parse(text.as_bytes(), asked) {
        Ok(Some(head)) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[track_caller]
fn refuse(text: &[u8], asked: RequestInfo, reason: &str) {
    let reject = parse(text, asked).expect_err(&text.escape_ascii().to_string());
    assert_eq!(
        (reject.status, reject.reason),
        (502, reason),
        "{}",
        text.escape_ascii()
    );
}

/// A response of this status with these lines.
fn with_lines(status: u16, lines: &str) -> String {
    format!("HTTP/1.1 {status} \r\n{lines}\r\n")
}

const PAGE: &str = "HTTP/1.1 200 Very OK\r\n\
    Server: tests\r\n\
    Content-Type:\t text/html \t\r\n\
    Content-Length: 12\r\n\
    Set-Cookie: a=1\r\n\
    X-Empty:\r\n\
    set-cookie: b=2\r\n\
    \r\n";

const GOLDEN: &[(&str, RequestInfo)] = &[
    (PAGE, GET),
    ("HTTP/1.1 200\r\n\r\n", GET),
    ("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", GET),
    ("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n", GET),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", GET),
    (
        "HTTP/1.1 200 O\u{e9}\r\nContent-Length: 5\r\nX: \u{e9}\r\n\r\n",
        HEAD,
    ),
    ("HTTP/1.1 100 Continue\r\n\r\n", GET),
    (
        "HTTP/1.1 101 \r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        UPGRADE,
    ),
    ("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", GET),
    ("HTTP/1.1 200 Connected\r\n\r\n", CONNECT),
];

#[test]
fn a_page_is_read_in_full() {
    let head = accept(PAGE, GET);
    let bytes = PAGE.as_bytes();
    assert_eq!((head.version, head.status), (Version::Http11, 200));
    assert_eq!(head.reason.of(bytes), b"Very OK");
    assert_eq!(head.headers.len(), 6);
    assert_eq!(
        head.headers.first(bytes, "content-type"),
        Some(&b"text/html"[..])
    );
    assert_eq!(head.headers.first(bytes, "x-empty"), Some(&b""[..]));
    assert_eq!(head.headers.first(bytes, "x-absent"), None);
    let cookies: Vec<_> = head.headers.named(bytes, "set-cookie").collect();
    assert_eq!(cookies, [b"a=1", b"b=2"]);
    assert_eq!(head.framing, ResponseFraming::Length(12));
    assert!(head.keep_alive && head.upgrade.is_none() && !head.is_interim());
    assert_eq!(head.bytes, bytes.len());
}

#[test]
fn every_prefix_of_a_good_head_asks_for_more() {
    for (text, asked) in GOLDEN {
        accept(text, *asked);
        for cut in 0..text.len() {
            assert_eq!(
                parse(&text.as_bytes()[..cut], *asked),
                Ok(None),
                "{text:?} cut at {cut}"
            );
        }
    }
}

#[test]
fn following_bytes_do_not_change_the_result() {
    for (text, asked) in GOLDEN {
        let followed = [text.as_bytes(), b"\0\nHTTP/1.1 200 OK\r\n"].concat();
        assert_eq!(
            parse(&followed, *asked),
            Ok(Some(accept(text, *asked))),
            "{text:?}"
        );
    }
}

#[test]
fn a_used_head_is_as_good_as_a_new_one() {
    let mut head = ResponseHead::default();
    for (text, asked) in GOLDEN {
        let parsed = parse_response(text.as_bytes(), &mut head, *asked, &Limits::default());
        assert_eq!(parsed, Ok(true));
        assert_eq!(head, accept(text, *asked));
    }
    head.clear();
    assert_eq!(head, ResponseHead::default());
}

#[test]
fn an_interim_response_ends_where_the_next_head_begins() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let text = format!("{hints}{PAGE}");
    let interim = accept(&text, GET);
    assert!(interim.is_interim());
    assert_eq!(interim.framing, ResponseFraming::None);
    assert_eq!(interim.bytes, hints.len());
    assert_eq!(accept(&text[interim.bytes..], GET), accept(PAGE, GET));
    for (status, is_interim) in [(100, true), (102, true), (199, true), (200, false)] {
        let head = accept(&with_lines(status, ""), GET);
        assert_eq!(head.is_interim(), is_interim, "{status}");
    }
}

#[test]
fn status_lines() {
    // line, status, reason
    let cases = [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 599  a\tb ", 599, " a\tb "),
        ("HTTP/1.1 299 200 OK", 299, "200 OK"),
        ("HTTP/1.9 418 I'm a teapot", 418, "I'm a teapot"),
    ];
    for (line, status, reason) in cases {
        let text = format!("{line}\r\n\r\n");
        let head = accept(&text, GET);
        assert_eq!(head.status, status, "{line}");
        assert_eq!(head.reason.of(text.as_bytes()), reason.as_bytes(), "{line}");
    }
}

#[test]
fn every_status_is_read() {
    for status in (100..=999).filter(|&status| status != 101) {
        let text = format!("HTTP/1.1 {status} why\r\n\r\n");
        let mut head = ResponseHead::default();
        let parsed = parse_response(text.as_bytes(), &mut head, GET, &Limits::default());
        assert_eq!((parsed, head.status), (Ok(true), status));
        assert_eq!(head.reason.of(text.as_bytes()), b"why");
    }
}

#[test]
fn malformed_status_lines() {
    let cases = [
        ("", "bad status line"),
        ("HTTP/1.1", "bad status line"),
        ("HTTP/1.1 ", "bad status line"),
        ("HTTP/1.1 20", "bad status line"),
        ("HTTP/1.1 2000", "bad status line"),
        ("HTTP/1.1 20 OK", "bad status line"),
        ("HTTP/1.1 2000 OK", "bad status line"),
        ("HTTP/1.1  200 OK", "bad status line"),
        ("HTTP/1.1\t200 OK", "bad status line"),
        ("HTTP/1.1 200\tOK", "bad status line"),
        ("HTTP/1.1 200OK", "bad status line"),
        ("HTTP/1.1 +20 OK", "bad status line"),
        ("HTTP/1.1 2x0 OK", "bad status line"),
        ("HTTP/1.1 099 OK", "bad status line"),
        ("HTTP/1.1 1000 OK", "bad status line"),
        ("ICY 200 OK", "bad HTTP version"),
        ("http/1.1 200 OK", "bad HTTP version"),
        (" HTTP/1.1 200 OK", "bad HTTP version"),
        ("HTTP/1.10 200 OK", "bad status line"),
        ("HTTP/2.0 200 OK", "HTTP version not supported"),
        ("HTTP/0.9 200 OK", "HTTP version not supported"),
        ("SSH-2.0-OpenSSH_9", "bad HTTP version"),
    ];
    for (line, reason) in cases {
        refuse(format!("{line}\r\n\r\n").as_bytes(), GET, reason);
    }
}

#[test]
fn an_empty_line_is_not_skipped() {
    refuse(format!("\r\n{PAGE}").as_bytes(), GET, "bad status line");
}

#[test]
fn line_ends_control_characters_and_header_lines_are_those_of_requests() {
    let cases: &[(&[u8], &str)] = &[
        (b"HTTP/1.1 200 OK\nX: a\r\n\r\n", "bare LF as a line end"),
        (b"HTTP/1.1 200 OK\r\nX: a\n\r\n", "bare LF as a line end"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n\n", "bare LF as a line end"),
        (
            b"HTTP/1.1 200 O\rK\r\n",
            "control character in the header section",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: a\rY: b\r\n",
            "control character in the header section",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: \0\r\n",
            "control character in the header section",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: \x7f\r\n",
            "control character in the header section",
        ),
        (b"\x01\x06\0\x01", "control character in the header section"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n", "folded header line"),
        (b"HTTP/1.1 200 OK\r\n\tb\r\n", "folded header line"),
        (b"HTTP/1.1 200 OK\r\nX\r\n", "header line without a colon"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n",
            "bad header name, or white space before its colon",
        ),
        (
            b"HTTP/1.1 200 OK\r\n: 1\r\n",
            "bad header name, or white space before its colon",
        ),
    ];
    for (text, reason) in cases {
        refuse(text, GET, reason);
    }
}

#[test]
fn where_the_body_ends() {
    use ResponseFraming::{Chunked, Length, None, Tunnel, UntilClose};
    let length = "Content-Length: 5\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    let cases = [
        (GET, 200, "", UntilClose),
        (GET, 200, length, Length(5)),
        (GET, 200, "Content-Length: 0\r\n", Length(0)),
        (GET, 200, chunked, Chunked),
        (GET, 500, length, Length(5)),
        (GET, 205, length, Length(5)),
        (GET, 204, "", None),
        (GET, 204, "Content-Length: 0\r\n", None),
        (GET, 304, "", None),
        (GET, 304, length, None),
        (GET, 304, chunked, None),
        (GET, 100, "", None),
        (GET, 100, "Content-Length: 0\r\n", None),
        (HEAD, 200, "", None),
        (HEAD, 200, length, None),
        (HEAD, 200, chunked, None),
        (HEAD, 404, length, None),
        (CONNECT, 200, "", Tunnel),
        (CONNECT, 200, length, Tunnel),
        (CONNECT, 204, "", Tunnel),
        (CONNECT, 299, chunked, Tunnel),
        (CONNECT, 300, length, Length(5)),
        (CONNECT, 407, "", UntilClose),
        (CONNECT, 100, "", None),
        (UPGRADE, 200, length, Length(5)),
        (UPGRADE, 426, "", UntilClose),
    ];
    for (asked, status, lines, framing) in cases {
        let head = accept(&with_lines(status, lines), asked);
        assert_eq!(head.framing, framing, "{asked:?} {status} {lines}");
        let ends_itself = !matches!(framing, UntilClose | Tunnel);
        assert_eq!(head.keep_alive, ends_itself, "{asked:?} {status} {lines}");
    }
}

#[test]
fn a_body_that_must_not_be_there_spoils_the_connection_or_the_head() {
    for lines in ["Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n"] {
        let head = accept(&with_lines(204, lines), GET);
        assert_eq!(
            (head.framing, head.keep_alive),
            (ResponseFraming::None, false)
        );
        for status in [100, 103] {
            let text = with_lines(status, lines);
            refuse(text.as_bytes(), GET, "1xx response with a body");
        }
    }
}

#[test]
fn contradictory_framing_is_refused_even_where_there_is_no_body() {
    let cases = [
        ("Content-Length: \r\n", "bad Content-Length"),
        ("Content-Length: +1\r\n", "bad Content-Length"),
        ("Content-Length: 1, 1\r\n", "bad Content-Length"),
        (
            "Content-Length: 18446744073709551616\r\n",
            "bad Content-Length",
        ),
        (
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "repeated Content-Length",
        ),
        (
            "Content-Length: 1\r\ncontent-length: 2\r\n",
            "conflicting Content-Length",
        ),
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding together with Content-Length",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Transfer-Encoding together with Content-Length",
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            "unknown transfer coding",
        ),
        (
            "Transfer-Encoding: gzip\r\n",
            "chunked is not the last transfer coding",
        ),
        (
            "Transfer-Encoding: identity\r\n",
            "chunked is not the last transfer coding",
        ),
        (
            "Transfer-Encoding: chunked, gzip\r\n",
            "transfer coding after chunked",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "transfer coding after chunked",
        ),
        ("Transfer-Encoding: \r\n", "bad Transfer-Encoding"),
        (
            "Transfer-Encoding: chunked;a=b\r\n",
            "chunked with a parameter",
        ),
    ];
    for (lines, reason) in cases {
        for (asked, status) in [
            (GET, 200),
            (HEAD, 200),
            (GET, 304),
            (GET, 204),
            (CONNECT, 200),
        ] {
            refuse(with_lines(status, lines).as_bytes(), asked, reason);
        }
    }
    let http10 = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    refuse(http10, GET, "Transfer-Encoding in HTTP/1.0");
}

#[test]
fn keep_alive() {
    let cases = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, Close\r\n", false),
        ("1.1", "Connection: x\r\nConnection: close\r\n", false),
        ("1.1", "Proxy-Connection: close\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Keep-Alive: timeout=5\r\n", false),
    ];
    for (version, lines, keep_alive) in cases {
        let text = format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n{lines}\r\n");
        assert_eq!(accept(&text, GET).keep_alive, keep_alive, "{text}");
    }
}

#[test]
fn protocols_are_switched_only_for_who_asked() {
    let switch = with_lines(101, "Connection: upgrade\r\nUpgrade: websocket\r\n");
    let head = accept(&switch, UPGRADE);
    assert_eq!(
        (head.framing, head.keep_alive, head.is_interim()),
        (ResponseFraming::Tunnel, false, false)
    );
    let protocol = head.upgrade.map(|span| span.of(switch.as_bytes()));
    assert_eq!(protocol, Some(&b"websocket"[..]));
    for asked in [GET, HEAD, CONNECT] {
        refuse(switch.as_bytes(), asked, "unrequested 101");
    }
    let without = [
        "",
        "Connection: upgrade\r\n",
        "Upgrade: websocket\r\n",
        "Connection: x\r\nUpgrade: websocket\r\n",
    ];
    for lines in without {
        let text = with_lines(101, lines);
        refuse(
            text.as_bytes(),
            UPGRADE,
            "101 without a protocol in Upgrade",
        );
    }
    let http10 = switch.replace("1.1", "1.0");
    refuse(
        http10.as_bytes(),
        UPGRADE,
        "101 without a protocol in Upgrade",
    );
}

const SMALL: Limits = Limits {
    line_bytes_max: 20,
    header_bytes_max: 16,
    head_bytes_max: 60,
    headers_max: 3,
};

fn with_small_limits(text: &str) -> Result<bool, &'static str> {
    let parsed = parse_response(text.as_bytes(), &mut ResponseHead::default(), GET, &SMALL);
    parsed.map_err(|reject| {
        assert_eq!(reject.status, 502);
        reject.reason
    })
}

#[test]
fn bounds_are_exact_and_a_full_buffer_never_asks_for_more() {
    assert_eq!(with_small_limits("HTTP/1.1 200 4567890\r\n\r\n"), Ok(true));
    assert_eq!(with_small_limits("HTTP/1.1 200 4567890\r"), Ok(false));
    let line = Err("status line too long");
    assert_eq!(with_small_limits("HTTP/1.1 200 45678901\r\n\r\n"), line);
    assert_eq!(with_small_limits("HTTP/1.1 200 45678901"), line);

    let header = |text: &str| with_small_limits(&format!("HTTP/1.1 200\r\n{text}"));
    assert_eq!(header("X: 3456789012345\r\n\r\n"), Ok(true));
    assert_eq!(header("X: 34567890123456"), Err("header line too long"));
    assert_eq!(header("A:\r\nB:\r\nC:\r\n\r\n"), Ok(true));
    assert_eq!(
        header("A:\r\nB:\r\nC:\r\nD:\r\n"),
        Err("too many header lines")
    );

    let fits = "HTTP/1.1 200 OK!\r\nX: 3456789012345\r\nX: 3456789012345\r\nX:\r\n\r\n";
    assert_eq!(fits.len(), 60);
    assert_eq!(with_small_limits(fits), Ok(true));
    let exceeds = fits.replace("X:\r", "X:1\r");
    assert_eq!(with_small_limits(&exceeds[..59]), Ok(false));
    assert_eq!(
        with_small_limits(&exceeds[..60]),
        Err("header section too long")
    );
}
