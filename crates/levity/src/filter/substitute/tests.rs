#[cfg(feature = "compress")]
mod coded;

use super::*;

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(found, put): &(&str, &str)| (found.to_owned(), put.to_owned());
    pairs.iter().map(owned).collect()
}

fn body(pairs: &[(String, String)]) -> SubstituteBody {
    SubstituteBody {
        decoding: None,
        replacer: Replacer::new(Arc::new(Texts::new(pairs))),
    }
}

/// The result for `pieces` that arrive one by one, each followed by a flush.
fn replaced<'p>(pairs: &[(String, String)], pieces: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut body = body(pairs);
    let mut out = Vec::new();
    for piece in pieces {
        body.push(piece, &mut out).expect("a short piece");
        body.flush(&mut out).expect("a flush");
    }
    body.finish(&[], &mut out).expect("the end");
    out
}

/// What must have been sent of `text` before more of it arrives, by comparing at each place; all of it if `is_all`.
fn expected(pairs: &[(String, String)], text: &[u8], is_all: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let continues = |(found, _): &(String, String)| {
            found.len() > rest.len() && found.as_bytes().starts_with(rest)
        };
        if !is_all && pairs.iter().any(continues) {
            return out;
        }
        let matches = pairs
            .iter()
            .filter(|(found, _)| rest.starts_with(found.as_bytes()));
        match matches.max_by_key(|(found, _)| found.len()) {
            Some((found, put)) => {
                out.extend(put.as_bytes());
                rest = &rest[found.len()..];
            }
            None => {
                out.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    out
}

/// Compares with [`expected`] after each byte, and at the end for every cut into two pieces.
#[track_caller]
fn check(pairs: &[(String, String)], text: &[u8]) {
    let mut body = body(pairs);
    let mut out = Vec::new();
    for end in 0..text.len() {
        body.push(&text[end..=end], &mut out).expect("a byte");
        body.flush(&mut out).expect("a flush");
        assert_eq!(
            out.escape_ascii().to_string(),
            expected(pairs, &text[..=end], false)
                .escape_ascii()
                .to_string(),
            "{pairs:?} in {}",
            text[..=end].escape_ascii()
        );
    }
    body.finish(&[], &mut out).expect("the end");
    let whole = expected(pairs, text, true);
    assert_eq!(out, whole, "{pairs:?} in {}", text.escape_ascii());
    for cut in 0..=text.len() {
        let (before, after) = text.split_at(cut);
        let out = replaced(pairs, [before, after].into_iter());
        assert_eq!(out, whole, "{pairs:?}: {}", before.escape_ascii());
    }
}

#[test]
fn every_occurrence_is_replaced_wherever_the_text_is_cut() {
    let page = b"<a href=\"http://a.internal/\">http://a.internal/x</a> http://b.internal http:/";
    for pairs in [
        &[("http://a.internal/", "/")][..],
        &[
            ("http://a.internal", "https://example.org"),
            ("</a>", "</a><hr>"),
        ],
        &[("http://", ""), ("http://b.", "b?"), ("l/", "L")],
        &[("a", "aa"), ("e", "ee"), ("<", "&lt;"), (">", "&gt;")],
        &[("none", "of it")],
    ] {
        check(&owned(pairs), page);
    }
}

#[test]
fn the_longest_text_at_the_leftmost_place_wins() {
    for (pairs, text, result) in [
        (
            &[("a", "1"), ("ab", "2"), ("abc", "3")][..],
            "abcabaa",
            "3211",
        ),
        (&[("abcd", "1"), ("bc", "2")], "abcdabcx", "1a2x"),
        (&[("ab", "1"), ("bc", "2")], "abcbc", "1c2"),
        (&[("aa", "1")], "aaaaa", "11a"),
        // Not searched again, neither inside nor across the end.
        (&[("a", "b"), ("b", "a")], "ab", "ba"),
        (&[("aa", "a")], "aaaa", "aa"),
        (&[("x", "ab"), ("bc", "!")], "xc", "abc"),
        // A start that goes on behind a match begins within it.
        (&[("px", "1"), ("xab", "2"), ("ab", "3")], "pxab", "13"),
        (&[("px", "1"), ("xabc", "2"), ("ab", "3")], "pxab", "13"),
    ] {
        let pairs = owned(pairs);
        let out = replaced(&pairs, [text.as_bytes()].into_iter());
        assert_eq!(String::from_utf8(out).unwrap(), result, "{pairs:?} {text}");
        check(&pairs, text.as_bytes());
    }
}

/// Numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn text(&mut self, letters: usize, length: usize) -> String {
        let letter = |_| char::from(b'a' + u8::try_from(self.below(letters)).expect("a letter"));
        (0..length).map(letter).collect()
    }

    fn pairs(&mut self, letters: usize) -> Vec<(String, String)> {
        let mut pairs = Vec::<(String, String)>::new();
        for _ in 0..=self.below(6) {
            let length = 1 + self.below(5);
            let found = self.text(letters, length);
            let length = self.below(4);
            if pairs.iter().all(|(known, _)| *known != found) {
                pairs.push((found, self.text(letters, length).to_uppercase()));
            }
        }
        pairs
    }
}

#[test]
fn random_texts_and_cuts() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..2000 {
        let letters = 1 + round % 5;
        let pairs = numbers.pairs(letters);
        let length = numbers.below(30);
        check(&pairs, numbers.text(letters, length).as_bytes());
    }
    // Long enough for the prefilter, and in more than two pieces.
    for round in 0..200 {
        let letters = 2 + round % 20;
        let pairs = numbers.pairs(letters);
        let text = numbers.text(letters, 3000);
        let mut pieces = Vec::new();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(numbers.below(300)));
            pieces.push(piece);
            rest = after;
        }
        let out = replaced(&pairs, pieces.into_iter());
        assert!(out == expected(&pairs, text.as_bytes(), true), "{pairs:?}");
    }
}

#[test]
fn no_more_than_the_longest_text_is_held_back() {
    let long = format!("{}b", "a".repeat(1000));
    let pairs = owned(&[("a", "x"), (&long, "y")]);
    let text = vec![b'a'; 1_000_000];
    let mut body = body(&pairs);
    let mut out = Vec::new();
    for piece in text.chunks(1000) {
        body.push(piece, &mut out).expect("a short piece");
        assert!(body.replacer.held.len() < long.len());
    }
    body.push(b"b", &mut out).expect("a byte");
    body.finish(&[], &mut out).expect("the end");
    let expected = format!("{}y", "x".repeat(text.len() - 1000));
    assert!(out == expected.as_bytes());
}

#[test]
fn a_piece_does_not_become_too_large() {
    let put = "x".repeat(16 * 1024);
    let pairs = owned(&[("a", &put)]);
    let (mut fits, mut exceeds) = (body(&pairs), body(&pairs));
    let most = PIECE_BYTES_MAX / put.len();
    // The limit is that of one piece, whatever there is already.
    let mut out = vec![0];
    for _ in 0..2 {
        fits.push(&vec![b'a'; most], &mut out).expect("2 MiB");
    }
    assert_eq!(out.len(), 1 + 2 * PIECE_BYTES_MAX);
    let error = exceeds.push(&vec![b'a'; most + 1], &mut Vec::new());
    let FilterError(reason) = error.expect_err("more than 2 MiB");
    assert!(reason.contains("2097152 bytes"), "{reason}");
}

/// Bytes that are held back have many replacements at once.
#[test]
fn what_is_released_at_once_does_not_become_too_large() {
    let long = format!("{}b", "a".repeat(1000));
    let pairs = owned(&[("a", &"x".repeat(16 * 1024)), (&long, "")]);
    let held = "a".repeat(1000);
    for end in [Some("c"), None] {
        let mut body = body(&pairs);
        let mut out = Vec::new();
        body.push(held.as_bytes(), &mut out).expect("held back");
        let released = match end {
            Some(end) => body.push(end.as_bytes(), &mut out),
            None => body.finish(&[], &mut out),
        };
        released.expect_err("more than 2 MiB");
        assert!(out.len() < PIECE_BYTES_MAX + 100_000);
    }
}

/// The header of a response of `status` with `fields`, and whether its body is filtered.
fn filtered(types: &[&str], status: u16, request: &str, fields: &str) -> (bool, String) {
    let types = types
        .iter()
        .map(|types| types.parse().expect("media types"));
    let types: Vec<_> = types.collect();
    let filter = Substitute::new(&owned(&[("a", "b")]), &types);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{request}\r\n");
    let request = Request::parsed(request.as_bytes(), &Default::default()).expect("a request");
    let mut kept = Fields::default();
    for line in fields.lines() {
        let (name, value) = line.split_once(": ").expect("a field");
        kept.add(name, value.as_bytes());
    }
    let mut has_server = false;
    filter.header(&request, head(status, &mut kept, &mut has_server));
    let is_filtered = status != 304
        && filter
            .body(
                &request,
                head(status, &mut kept, &mut has_server),
                &Claims::alone(0),
            )
            .is_some();
    let lines = String::from_utf8(kept.as_bytes().to_vec()).expect("UTF-8");
    (is_filtered, lines.replace("\r\n", "\n"))
}

fn head<'r>(status: u16, fields: &'r mut Fields, has_server: &'r mut bool) -> FilteredHead<'r> {
    FilteredHead {
        status,
        length: None,
        fields,
        has_server,
        path: b"/",
        is_of_application: false,
    }
}

#[test]
fn types_are_selected() {
    let of =
        |types: &[&str], given: &str| filtered(types, 200, "", &format!("Content-Type: {given}")).0;
    for (types, given, selected) in [
        (&["text/html"][..], "text/html", true),
        (&["text/html"], "TEXT/HTML ; charset=utf-8", true),
        (&["text/html"], "text/htmlx", false),
        (&["text/html"], "text/css", false),
        (&["text/css", "text/*"], "text/plain", true),
        (&["text/*"], "textual/plain", false),
        (&["text/*"], "text", false),
        (&["*/*"], "image/png", true),
        (&[], "text/html", false),
    ] {
        assert_eq!(of(types, given), selected, "{types:?} {given}");
    }
    assert!(!filtered(&["*/*"], 200, "", "X-A: 1").0);
}

#[cfg(feature = "compress")]
#[test]
fn headers_about_the_original_bytes_go() {
    let (is_filtered, fields) = filtered(
        &["text/html"],
        200,
        "",
        "Content-Type: text/html\nETag: \"1\"\nLast-Modified: x\nAccept-Ranges: bytes\nVary: Accept-Encoding\n\
         Content-Encoding: X-GZIP\nContent-MD5: 1\nDigest: 1\nRepr-Digest: 1\nContent-Digest: 1\nX-A: 1",
    );
    assert!(is_filtered);
    let expected = "Content-Type: text/html\nETag: W/\"1\"\nVary: Accept-Encoding\nX-A: 1\n";
    assert_eq!(fields, expected);
    let weak = "Content-Type: text/html\nETag: W/\"1\"\n";
    assert_eq!(
        filtered(&["text/html"], 404, "", weak),
        (true, weak.to_owned())
    );
}

#[cfg(feature = "compress")]
#[test]
fn content_that_must_or_can_only_stay_is_left_alone() {
    for line in [
        "Cache-Control: public, No-Transform",
        "Cache-Control: public\nCache-Control: no-transform",
        "Content-Encoding: deflate",
        "Content-Encoding: gzip, br",
        "Content-Encoding: gzip\nContent-Encoding: gzip",
    ] {
        let given = format!("Content-Type: text/html\nETag: \"1\"\n{line}\n");
        assert_eq!(filtered(&["text/html"], 200, "", &given), (false, given));
    }
    for line in [
        "Cache-Control: no-transformation",
        "Content-Encoding: identity",
        "Content-Encoding: identity, gzip",
        "Content-Encoding: ",
    ] {
        let given = format!("Content-Type: text/html\n{line}");
        assert!(filtered(&["text/html"], 200, "", &given).0, "{line}");
    }
}

#[test]
fn a_304_repeats_the_etag_that_the_client_knows() {
    let original = "ETag: \"1\"\nLast-Modified: x\n";
    for (request, expected) in [
        ("If-None-Match: W/\"1\"\r\n", "ETag: W/\"1\"\n"),
        ("If-None-Match: \"0\", W/\"1\"\r\n", "ETag: W/\"1\"\n"),
        ("If-None-Match: \"1\"\r\n", original),
        ("If-None-Match: W/\"2\"\r\n", original),
        ("If-Modified-Since: x\r\n", original),
    ] {
        assert_eq!(filtered(&["text/html"], 304, request, original).1, expected);
    }
}
