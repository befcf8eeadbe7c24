//! Chunked bodies and their trailers.

use levity_wire::http1::{Chunked, Reject, Trailers, is_forbidden_in_trailers, write};

use super::cuts;

/// A chunked body gives the same data, the same end and the same rejection however the input is
/// split.
pub fn chunked(bytes: &[u8]) {
    let (data, end) = chunked_in_pieces([bytes]);
    assert!(data.len() <= bytes.len());
    assert_eq!(chunked_in_pieces(bytes.chunks(1)), (data.clone(), end));
    for cut in cuts(bytes.len()) {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(
            chunked_in_pieces([start, rest]),
            (data.clone(), end),
            "cut at {cut}"
        );
    }
    assert_eq!(chunked_in_pieces([&to_chunks(bytes)[..]]).0, bytes);
    trailers_survive(bytes);
}

/// Trailers are the same however the input is split, none of them is forbidden, and they can be
/// written.
fn trailers_survive(bytes: &[u8]) {
    let fields = trailers_in_pieces([bytes]);
    assert_eq!(trailers_in_pieces(bytes.chunks(1)), fields);
    let borrowed = fields.iter().map(|(name, value)| (&name[..], &value[..]));
    assert!(
        borrowed
            .clone()
            .all(|(name, _)| !is_forbidden_in_trailers(name))
    );
    let mut end = Vec::new();
    write::last_chunk(&mut end, borrowed).expect("what was read can be written");
    // A space after each colon may make them longer than the limit.
    if chunked_in_pieces([&end[..]]).1 == Ok(Some(end.len())) {
        assert_eq!(trailers_in_pieces([&end[..]]), fields);
    }
}

fn trailers_in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut decoder, mut trailers) = (Chunked::default(), Trailers::default());
    for piece in pieces {
        let decoded = decoder.decode_with_trailers(piece, |_| {}, &mut trailers);
        if decoded.is_ok_and(|decoded| decoded.done) || decoded.is_err() {
            break;
        }
    }
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    trailers.fields().map(owned).collect()
}

/// The data, and the bytes consumed up to the end, if it was found.
fn chunked_in_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Result<Option<usize>, Reject>) {
    let mut decoder = Chunked::default();
    let (mut data, mut consumed) = (Vec::new(), 0);
    for piece in pieces {
        match decoder.decode(piece, |bytes| data.extend_from_slice(bytes)) {
            Err(reject) => return (data, Err(reject)),
            Ok(decoded) => {
                consumed += decoded.consumed;
                if decoded.done {
                    assert!(decoded.consumed <= piece.len());
                    return (data, Ok(Some(consumed)));
                }
                assert_eq!(decoded.consumed, piece.len());
            }
        }
    }
    (data, Ok(None))
}

fn to_chunks(data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in data.chunks(13) {
        body.extend(format!("{:x}\r\n", chunk.len()).bytes());
        body.extend(chunk);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    body
}
