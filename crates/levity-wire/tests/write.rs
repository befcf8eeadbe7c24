//! The parser reads back the writer's output, and no value can end its line.

use std::num::NonZeroUsize;

use levity_wire::http1::write::{self, ChunkSize, Unwritable};
use levity_wire::http1::{Chunked, Limits, Method, RequestHead, Trailers, parse_request};

/// The bytes that a writer appends to a non-empty buffer.
fn written(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
) -> Result<String, Unwritable> {
    let mut out = b"before ".to_vec();
    let result = write(&mut out);
    let text = String::from_utf8(out).expect("tests are UTF-8");
    let added = text.strip_prefix("before ").expect("what was there stays");
    assert!(result.is_ok() || added.is_empty());
    result.map(|()| added.to_owned())
}

#[test]
fn lines() {
    assert_eq!(
        written(|out| write::request_line(out, b"M-SEARCH", b"/a?b=\xc3\xa9")),
        Ok("M-SEARCH /a?b=\u{e9} HTTP/1.1\r\n".to_owned())
    );
    assert_eq!(
        written(|out| write::request_line(out, b"OPTIONS", b"*")),
        Ok("OPTIONS * HTTP/1.1\r\n".to_owned())
    );
    assert_eq!(
        written(|out| write::field(out, b"X-A", b"b\tc, \xc3\xa9")),
        Ok("X-A: b\tc, \u{e9}\r\n".to_owned())
    );
    assert_eq!(
        written(|out| write::field(out, b"X", b"")),
        Ok("X: \r\n".to_owned())
    );
}

#[test]
fn values_that_could_end_a_line_are_rejected() {
    for bad in [
        "\r",
        "\n",
        "\r\nX: y",
        "\0",
        "\x01",
        "\x0b",
        "\x7f",
        "a\r\n\r\n",
    ] {
        let bad = bad.as_bytes();
        assert!(written(|out| write::request_line(out, bad, b"/")).is_err());
        assert!(written(|out| write::request_line(out, b"GET", bad)).is_err());
        assert!(written(|out| write::field(out, bad, b"v")).is_err());
        assert!(written(|out| write::field(out, b"X", bad)).is_err());
        assert!(written(|out| write::last_chunk(out, [(&b"X"[..], bad)])).is_err());
        let after_good = [(&b"X"[..], &b"v"[..]), (bad, b"v")];
        assert!(written(|out| write::last_chunk(out, after_good)).is_err());
    }
    for method in ["", "G T", "G:T", "G\u{e9}T"] {
        assert!(written(|out| write::request_line(out, method.as_bytes(), b"/")).is_err());
    }
    for target in ["", " ", "/a b", "/a\tb", "/a#b"] {
        assert!(written(|out| write::request_line(out, b"GET", target.as_bytes())).is_err());
    }
    for name in ["", "X Y", "X:", " X", "X\u{e9}"] {
        assert!(written(|out| write::field(out, name.as_bytes(), b"v")).is_err());
    }
}

#[test]
fn a_written_request_is_read_as_meant() {
    let mut out = Vec::new();
    write::request_line(&mut out, b"POST", b"/a?b").expect("a good line");
    write::field(&mut out, b"Host", b"a.example:81").expect("a good field");
    write::field(&mut out, b"Content-Length", b"3").expect("a good field");
    write::end_of_head(&mut out);
    let mut head = RequestHead::default();
    assert_eq!(parse_request(&out, &mut head, &Limits::default()), Ok(true));
    assert_eq!((head.method, head.bytes), (Method::Post, out.len()));
    assert_eq!(head.target_span.of(&out), b"/a?b");
    assert_eq!(head.headers.first(&out, "host"), Some(&b"a.example:81"[..]));
}

#[test]
fn chunk_sizes() {
    let line = |len: usize| {
        let size = ChunkSize::of(NonZeroUsize::new(len).expect("not zero"));
        String::from_utf8(size.as_bytes().to_vec()).expect("ASCII")
    };
    for len in [
        1,
        9,
        10,
        15,
        16,
        255,
        256,
        65_536,
        usize::MAX - 1,
        usize::MAX,
    ] {
        assert_eq!(line(len), format!("{len:x}\r\n"));
    }
}

#[test]
fn a_written_chunked_body_is_read_as_meant() {
    let chunks: [&[u8]; 3] = [b"hello ", &[b'x'; 300], b"\r\n0\r\n\r\n"];
    let trailers = [(&b"X-A"[..], &b"1"[..]), (b"X-B", b"")];
    let mut out = Vec::new();
    for chunk in chunks {
        let len = NonZeroUsize::new(chunk.len()).expect("not empty");
        out.extend_from_slice(ChunkSize::of(len).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(write::CHUNK_END);
    }
    write::last_chunk(&mut out, trailers).expect("good trailers");

    let (mut body, mut found) = (Vec::new(), Trailers::default());
    let decoded = Chunked::default()
        .decode_with_trailers(&out, |data| body.extend_from_slice(data), &mut found)
        .expect("a good body");
    assert!(decoded.done && decoded.consumed == out.len());
    assert_eq!(body, chunks.concat());
    assert!(found.fields().eq(trailers));
}

#[test]
fn a_body_may_end_without_trailers() {
    assert_eq!(
        written(|out| write::last_chunk(out, [])),
        Ok("0\r\n\r\n".to_owned())
    );
}
