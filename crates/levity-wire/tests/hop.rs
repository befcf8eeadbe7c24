//! The headers that a proxy forwards.

use levity_wire::http1::{EndToEnd, Limits, RequestHead, is_hop_by_hop, parse_request};

/// The names of the headers that are forwarded of a request with these lines.
fn passed_on(lines: &str) -> Vec<String> {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut head = RequestHead::default();
    let parsed = parse_request(text.as_bytes(), &mut head, &Limits::default());
    assert_eq!(parsed, Ok(true), "{text:?}");
    let end_to_end = EndToEnd::of(text.as_bytes(), &head.headers);
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).expect("tests are UTF-8");
    end_to_end
        .headers()
        .map(|header| name(header.name.of(text.as_bytes())))
        .collect()
}

#[test]
fn fields_about_the_connection_end_here_listed_or_not() {
    let names = [
        "Connection",
        "keep-alive",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authentication-Info",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Upgrade",
    ];
    for name in names {
        assert!(is_hop_by_hop(name.as_bytes()));
        assert_eq!(passed_on(&format!("{name}: z\r\nX: y\r\n")), ["Host", "X"]);
    }
    assert_eq!(
        passed_on("Transfer-Encoding: chunked\r\nX: y\r\n"),
        ["Host", "X"]
    );
    assert!(!is_hop_by_hop(b"Host") && !is_hop_by_hop(b"") && !is_hop_by_hop(b"T"));
}

#[test]
fn headers_listed_in_connection_are_removed() {
    let lines = "X-A: 1\r\nx-b: 2\r\nX-C: 3\r\nX-A: 4\r\nClose: 5\r\nX-D: 6\r\n\
        Connection: x-a , X-B,,close\r\nConnection: keep-alive, X-D\r\n";
    assert_eq!(passed_on(lines), ["Host", "X-C", "Close"]);
}

#[test]
fn order_and_repetition_stay() {
    let lines = "B: 1\r\nA: 2\r\nConnection: keep-alive\r\nb: 3\r\n";
    assert_eq!(passed_on(lines), ["Host", "B", "A", "b"]);
}

#[test]
fn listed_credentials_and_conditions_are_removed() {
    for name in [
        "Accept-Encoding",
        "Authorization",
        "Cookie",
        "If-Match",
        "Origin",
        "Range",
        "Set-Cookie",
        "User-Agent",
    ] {
        let lines = format!(
            "{name}: 1\r\nX-A: 2\r\nConnection: close, {}\r\n",
            name.to_uppercase()
        );
        assert_eq!(passed_on(&lines), ["Host", "X-A"], "{name}");
    }
}

#[test]
fn a_sender_cannot_have_protected_headers_removed() {
    let names = [
        "Host",
        "Content-Length",
        "Content-Type",
        "Content-Encoding",
        "Cache-Control",
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "X-Request-ID",
    ];
    for name in names {
        let line = match name {
            "Host" => String::new(),
            _ => format!("{name}: 1\r\n"),
        };
        let listed = format!("{line}Connection: close, {}, x\r\n", name.to_uppercase());
        assert!(passed_on(&listed).contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn trailers_are_asked_about_by_name() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: X-A\r\n\r\n";
    let mut head = RequestHead::default();
    let parsed = parse_request(text, &mut head, &Limits::default());
    assert_eq!(parsed, Ok(true));
    let end_to_end = EndToEnd::of(text, &head.headers);
    assert!(!end_to_end.has(b"x-a") && !end_to_end.has(b"TE"));
    assert!(end_to_end.has(b"X-B") && end_to_end.has(b"host"));
}

#[test]
fn a_request_offers_protocols_only_if_connection_lists_upgrade() {
    let offered = |version: &str, lines: &str| {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let mut head = RequestHead::default();
        let parsed = parse_request(text.as_bytes(), &mut head, &Limits::default());
        assert_eq!(parsed, Ok(true), "{text:?}");
        let value = head.upgrade.map(|span| span.of(text.as_bytes()).to_vec());
        value.map(|value| String::from_utf8(value).expect("tests are UTF-8"))
    };
    let both = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(offered("1.1", both).as_deref(), Some("websocket"));
    let two = format!("{both}Upgrade: h2c\r\n");
    assert_eq!(offered("1.1", &two).as_deref(), Some("websocket"));
    assert_eq!(offered("1.0", both), None);
    assert_eq!(offered("1.1", "Upgrade: websocket\r\n"), None);
    assert_eq!(offered("1.1", "Connection: upgrade\r\n"), None);
}

#[test]
fn connection_options_are_counted() {
    let with_options = |count: usize| {
        let empty = ",".repeat(count - 2);
        let text =
            format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: a\r\nConnection: {empty}\r\n\r\n");
        parse_request(
            text.as_bytes(),
            &mut RequestHead::default(),
            &Limits::default(),
        )
    };
    assert_eq!(with_options(64), Ok(true));
    let reject = with_options(65).expect_err("more than their bound");
    assert_eq!(
        (reject.status, reject.reason),
        (431, "too many connection options")
    );
}
