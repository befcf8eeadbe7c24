//! Chunked bodies, rule by rule.

use levity_wire::http1::{Chunked, Decoded, Reject};

fn decode(text: &str) -> (String, Result<Decoded, Reject>) {
    let mut body = Vec::new();
    let decoded = Chunked::default().decode(text.as_bytes(), |data| body.extend_from_slice(data));
    (String::from_utf8(body).expect("tests are UTF-8"), decoded)
}

#[test]
fn complete_bodies() {
    let cases = [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("0000000000000001\r\nx\r\n0\r\n\r\n", "x"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        ("1;a=b;c=\"d;e\"\r\nx\r\n0;f\r\n\r\n", "x"),
        ("1; a \t= b ;\tc= \"\" ;d\r\nx\r\n0\r\n\r\n", "x"),
        ("1;a=\"\\\"\\\\\t;=\"\r\nx\r\n0\r\n\r\n", "x"),
        ("0\r\nETag: \"a\"\r\nX:\r\n\r\n", ""),
    ];
    for (text, body) in cases {
        let done = Decoded {
            consumed: text.len(),
            done: true,
        };
        assert_eq!(decode(text), (body.to_owned(), Ok(done)), "{text:?}");
        let followed = format!("{text}GET / HTTP/1.1\r\n");
        assert_eq!(decode(&followed), (body.to_owned(), Ok(done)), "{text:?}");
        for cut in 0..text.len() {
            let more = Decoded {
                consumed: cut,
                done: false,
            };
            assert_eq!(decode(&text[..cut]).1, Ok(more), "{text:?} cut at {cut}");
        }
    }
}

/// Servers pad sizes to a fixed width. Only what one backend says to this server is read so.
#[test]
fn sizes_of_a_response_may_be_padded() {
    for text in [
        "5  \r\nhello\r\n0       \r\n\r\n",
        "5\t \r\nhello\r\n0\r\n\r\n",
        "5 ;a=b\r\nhello\r\n0 ;c\r\n\r\n",
    ] {
        let refused = Reject::bad("bad chunk size");
        assert_eq!(decode(text).1, Err(refused), "{text:?}");
        for cut in 0..=text.len() {
            let (mut decoder, mut body) = (Chunked::of_response(), Vec::new());
            let (start, end) = text.as_bytes().split_at(cut);
            let first = decoder.decode(start, |data| body.extend_from_slice(data));
            let last = decoder.decode(end, |data| body.extend_from_slice(data));
            assert!(
                first.is_ok() && last.is_ok_and(|last| last.done),
                "{text:?}"
            );
            assert_eq!(body, b"hello");
        }
    }
    let refused = |text: &str| {
        let decoded = Chunked::of_response().decode(text.as_bytes(), |_| {});
        decoded.expect_err("refused").reason
    };
    for text in [" 5\r\n", "5 5\r\n", "5 \n", " \r\n", "5 a\r\n"] {
        assert_eq!(refused(text), "bad chunk size", "{text:?}");
    }
    let endless = format!("1{}\r\n", " ".repeat(5000));
    assert_eq!(refused(&endless), "chunk extensions too long");
}

#[test]
fn a_quoted_extension_may_be_in_any_encoding() {
    let decoded = decode("0;a=\"\u{e9}\\\u{e9}\"\r\n\r\n").1;
    assert_eq!(decoded.map(|decoded| decoded.done), Ok(true));
}

#[test]
fn after_the_end_nothing_is_consumed() {
    let mut body = Chunked::default();
    assert_eq!(
        body.decode(b"0\r\n\r\n", |_| {}),
        Ok(Decoded {
            consumed: 5,
            done: true
        })
    );
    assert_eq!(
        body.decode(b"0\r\n\r\n", |_| {}),
        Ok(Decoded {
            consumed: 0,
            done: true
        })
    );
}

#[test]
fn malformed_bodies() {
    let cases = [
        ("\r\n", "bad chunk size"),
        (";\r\n", "bad chunk size"),
        (" 1\r\n", "bad chunk size"),
        ("1 \r\n", "bad chunk size"),
        ("1 ;a\r\n", "bad chunk size"),
        ("+1\r\n", "bad chunk size"),
        ("-1\r\n", "bad chunk size"),
        ("0x1\r\n", "bad chunk size"),
        ("1_0\r\n", "bad chunk size"),
        ("g\r\n", "bad chunk size"),
        ("1\nx", "bad chunk size"),
        ("\n1\r\n", "bad chunk size"),
        ("00000000000000001\r\n", "chunk size too large"),
        ("fffffffffffffffff\r\n", "chunk size too large"),
        ("1\rx", "bare CR in a chunked body"),
        ("1;\r\n", "bad chunk extension"),
        ("1; \r\n", "bad chunk extension"),
        ("1;;a\r\n", "bad chunk extension"),
        ("1;a;\r\n", "bad chunk extension"),
        ("1;=b\r\n", "bad chunk extension"),
        ("1;a=\r\n", "bad chunk extension"),
        ("1;a=;b\r\n", "bad chunk extension"),
        ("1;a==b\r\n", "bad chunk extension"),
        ("1;a=b=c\r\n", "bad chunk extension"),
        ("1;a b\r\n", "bad chunk extension"),
        ("1;a \r\n", "bad chunk extension"),
        ("1;a=b \r\n", "bad chunk extension"),
        ("1;a=b c\r\n", "bad chunk extension"),
        ("1;a/b\r\n", "bad chunk extension"),
        ("1;\u{e9}\r\n", "bad chunk extension"),
        ("1;\"a\"\r\n", "bad chunk extension"),
        ("1;a=\"b\r\n", "bad chunk extension"),
        ("1;a=\"b\\\r\n", "bad chunk extension"),
        ("1;a=\"b\"c\r\n", "bad chunk extension"),
        ("1;a=\"b\"\"c\"\r\n", "bad chunk extension"),
        ("1;a=\"b\" =c\r\n", "bad chunk extension"),
        ("1;a\nx", "bad chunk extension"),
        ("1;a\0\r\n", "bad chunk extension"),
        ("1;a\rb\r\n", "bare CR in a chunked body"),
        ("1\r\nxx\r\n", "chunk longer than its size"),
        ("1\r\nx\n0\r\n\r\n", "chunk longer than its size"),
        ("1\r\nx\r0\r\n\r\n", "chunk longer than its size"),
        ("1\r\nx0\r\n\r\n", "chunk longer than its size"),
        ("1\r\nx\r\n\r\n", "bad chunk size"),
        ("0\r\n\n", "bad trailer line"),
        ("0\r\n\r\r", "bare CR in a chunked body"),
        ("0\r\nGET / HTTP/1.1\r\n", "bad trailer line"),
        ("0\r\nX\r\n", "bad trailer line"),
        ("0\r\n: a\r\n", "bad trailer line"),
        ("0\r\nX : a\r\n", "bad trailer line"),
        ("0\r\n X: a\r\n", "bad trailer line"),
        ("0\r\nX: a\r\n b\r\n", "bad trailer line"),
        ("0\r\nX: a\n\r\n", "bad trailer line"),
        ("0\r\nX: \0\r\n", "bad trailer line"),
        ("0\r\nX: a\rb\r\n", "bare CR in a chunked body"),
    ];
    for (text, reason) in cases {
        let reject = decode(text).1.expect_err(text);
        assert_eq!((reject.status, reject.reason), (400, reason), "{text:?}");
    }
}

#[test]
fn the_largest_size_is_all_of_64_bits() {
    let text = "ffffffffffffffff\r\nx";
    let more = Decoded {
        consumed: text.len(),
        done: false,
    };
    assert_eq!(decode(text), ("x".to_owned(), Ok(more)));
}

#[track_caller]
fn too_large(text: &str, reason: &str) {
    let reject = decode(text).1.expect_err("more than its bound");
    assert_eq!((reject.status, reject.reason), (431, reason));
}

#[test]
fn extensions_are_bounded_over_the_whole_body() {
    // With the CR, each extension here counts 1024 bytes.
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(1023));
    assert_eq!(
        decode(&(chunk.repeat(4) + "0\r\n\r\n"))
            .1
            .map(|decoded| decoded.done),
        Ok(true)
    );
    too_large(&(chunk.repeat(4) + "0;e"), "chunk extensions too long");
    too_large(
        &("1;".to_owned() + &"e".repeat(4097)),
        "chunk extensions too long",
    );
    too_large(&"1;a\r\nx\r\n".repeat(2049), "chunk extensions too long");
}

#[test]
fn trailers_are_bounded() {
    // Each line counts 1024 bytes, its CR included and its LF not.
    let trailer = format!("X:{}\r\n", "t".repeat(1021));
    let text = "0\r\n".to_owned() + &trailer.repeat(8);
    assert_eq!(
        decode(&(text.clone() + "\r\n"))
            .1
            .map(|decoded| decoded.done),
        Ok(true)
    );
    too_large(&(text + "Y"), "trailers too long");
    too_large(
        &("0\r\nX:".to_owned() + &"t".repeat(8191)),
        "trailers too long",
    );
}
