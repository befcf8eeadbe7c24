//! Trailers of chunked bodies.

use levity_wire::http1::{Chunked, Trailers, is_forbidden_in_trailers};

type Field = (String, String);

fn fields(trailers: &Trailers) -> Vec<Field> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("tests are UTF-8");
    trailers
        .fields()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// The trailers of a body that arrives in these pieces, and whether it is complete.
fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (Vec<Field>, bool) {
    let mut decoder = Chunked::default();
    let mut trailers = Trailers::default();
    let mut done = false;
    for piece in pieces {
        let decoded = decoder.decode_with_trailers(piece.as_bytes(), |_| {}, &mut trailers);
        done = decoded.expect("a good body").done;
    }
    (fields(&trailers), done)
}

fn field(name: &str, value: &str) -> Field {
    (name.to_owned(), value.to_owned())
}

const BODY: &str = "1;x\r\na\r\n2\r\n\r\n\r\n0;y\r\n\
    X-Checksum:\t abc \r\n\
    Server-Timing: db;dur=5\r\n\
    Content-Length: 7\r\n\
    X-Empty:\r\n\
    x-checksum: a:b\r\n\
    \r\n";

#[test]
fn fields_come_in_the_order_they_were_sent_however_they_arrive() {
    let expected = vec![
        field("X-Checksum", "abc"),
        field("Server-Timing", "db;dur=5"),
        field("X-Empty", ""),
        field("x-checksum", "a:b"),
    ];
    assert_eq!(read([BODY]), (expected.clone(), true));
    let single: Vec<_> = (0..BODY.len()).map(|at| &BODY[at..=at]).collect();
    assert_eq!(read(single), (expected.clone(), true));
    for cut in 0..BODY.len() {
        let (start, rest) = BODY.split_at(cut);
        assert_eq!(read([start, rest]), (expected.clone(), true), "at {cut}");
    }
}

#[test]
fn a_prefix_never_gives_a_field_that_the_whole_has_not() {
    let (whole, _) = read([BODY]);
    for cut in 0..BODY.len() {
        let (prefix, done) = read([&BODY[..cut]]);
        assert!(!done && whole.starts_with(&prefix), "cut at {cut}");
    }
}

#[test]
fn a_body_without_trailers_has_none() {
    assert_eq!(read(["1\r\na\r\n0\r\n\r\n"]), (vec![], true));
}

#[test]
fn the_bound_is_that_of_the_decoder() {
    let line = format!("X:{}\r\n", "t".repeat(1021));
    let text = "0\r\n".to_owned() + &line.repeat(8);
    assert_eq!(read([&text[..], "\r\n"]).0.len(), 8);
    let mut trailers = Trailers::default();
    let reject = Chunked::default()
        .decode_with_trailers((text + "Y").as_bytes(), |_| {}, &mut trailers)
        .expect_err("more than its bound");
    assert_eq!((reject.status, reject.by_upstream().status), (431, 502));
    assert_eq!(fields(&trailers).len(), 8);
}

#[test]
fn headers_that_act_before_the_body_are_forbidden_trailers() {
    let forbidden = [
        "Transfer-Encoding",
        "CONTENT-LENGTH",
        "Trailer",
        "Connection",
        "Host",
        "Content-Type",
        "content-encoding",
        "Content-Range",
        "Content-Security-Policy",
        "If-Match",
        "Range",
        "Cache-Control",
        "Authorization",
        "Proxy-Authorization",
        "Proxy-Anything",
        "WWW-Authenticate",
        "Cookie",
        "Set-Cookie",
        "Location",
        "Date",
        "X-Forwarded-For",
        "Forwarded",
        "Access-Control-Allow-Origin",
        "Sec-Fetch-Site",
    ];
    for name in forbidden {
        assert!(is_forbidden_in_trailers(name.as_bytes()), "{name}");
    }
    let allowed = [
        "Content-Digest",
        "ETag",
        "Grpc-Status",
        "Server-Timing",
        "Authentication-Info",
        "X-Checksum",
        "Contents",
        "If",
        "Hosts",
        "",
    ];
    for name in allowed {
        assert!(!is_forbidden_in_trailers(name.as_bytes()), "{name}");
    }
}
