//! A property of the filters of bodies: a body that is compressed, and one in which text is replaced, each cut and flushed
//! anywhere. Both the fuzzer and the tests call it.

use levity::filter::compress::{Encoder, Settings};
use levity::filter::decode::Decoder;
use levity::filter::substitute::Substitute;
use levity_wire::encoding::Coding;

/// Found texts that begin like others, contain others, and continue others.
const PAIRS: [(&str, &str); 5] = [
    ("a", "aa"),
    ("ab", ""),
    ("abc", "x"),
    ("bcd", "abcd"),
    ("\0\0", "\0"),
];

/// The lowest, the usual and a high level of each coding; the highest takes too long for many runs.
const LEVELS: [(Coding, [u8; 3]); 3] = [
    (Coding::Zstd, [1, 3, 9]),
    (Coding::Brotli, [0, 4, 9]),
    (Coding::Gzip, [1, 4, 9]),
];

/// How often a long piece repeats its bytes: several of them are more than a block of an encoder.
const REPEATS: usize = 200;

/// The maximum number of bytes that are read of the input. All content is then below 1 MiB, from which on the decoder
/// refuses what repeats itself too much.
const INPUT_BYTES_MAX: usize = 4096;

struct Piece {
    bytes: Vec<u8>,
    is_flushed: bool,
}

fn pieces(mut bytes: &[u8], repeats: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while let Some((&cut, rest)) = bytes.split_first() {
        let (piece, after) = rest.split_at(rest.len().min(usize::from(cut >> 1)));
        pieces.push(Piece {
            bytes: piece.repeat(repeats),
            is_flushed: cut & 1 == 1,
        });
        bytes = after;
    }
    pieces
}

fn compresses(pieces: &[Piece], settings: Settings) {
    let mut encoder = Encoder::new(settings).expect("valid settings");
    let mut decoder = Decoder::new(settings.coding);
    let (mut content, mut decoded) = (Vec::new(), Vec::new());
    let mut decode = |out: &[u8], decoded: &mut Vec<u8>| {
        let pushed = decoder.push(out, |bytes| {
            decoded.extend_from_slice(bytes);
            Ok(())
        });
        pushed.expect("the coding");
        decoder.finish().is_ok()
    };
    for piece in pieces {
        let mut out = Vec::new();
        encoder.push(&piece.bytes, &mut out).expect("no defect");
        content.extend_from_slice(&piece.bytes);
        if piece.is_flushed {
            encoder.flush(&mut out).expect("no defect");
        }
        decode(&out, &mut decoded);
        assert!(content.starts_with(&decoded), "{settings:?}");
        assert!(!piece.is_flushed || decoded == content, "{settings:?}");
    }
    let mut out = Vec::new();
    encoder.finish(&[], &mut out).expect("no defect");
    assert!(decode(&out, &mut decoded), "{settings:?} is incomplete");
    assert!(decoded == content, "{settings:?}");
}

/// Compares at each place: the longest text there is replaced.
fn replaced(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&first, after)) = rest.split_first() {
        let here = PAIRS
            .iter()
            .filter(|(found, _)| rest.starts_with(found.as_bytes()));
        match here.max_by_key(|(found, _)| found.len()) {
            Some((found, put)) => {
                out.extend_from_slice(put.as_bytes());
                rest = &rest[found.len()..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

fn replaces(pieces: &[Piece]) {
    let pairs = PAIRS.map(|(found, put)| (found.to_owned(), put.to_owned()));
    let mut body = Substitute::new(&pairs, &[]).content(None);
    let (mut content, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        body.push(&piece.bytes, &mut out).expect("a short piece");
        content.extend_from_slice(&piece.bytes);
        if piece.is_flushed {
            body.flush(&mut out).expect("a flush");
        }
    }
    body.finish(&[], &mut out).expect("the end");
    assert!(out == replaced(&content));
}

/// The first byte selects the coding, the level, and whether the pieces are long. A byte before each piece has its length,
/// and whether a flush follows.
pub fn body_filter(bytes: &[u8]) {
    let Some((&selected, rest)) = bytes.split_first() else {
        return;
    };
    let selected = usize::from(selected);
    let repeats = if selected < 216 { 1 } else { REPEATS };
    let pieces = pieces(&rest[..rest.len().min(INPUT_BYTES_MAX)], repeats);
    let (coding, levels) = LEVELS[selected % 3];
    let length: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let settings = Settings {
        coding,
        level: levels[selected / 3 % 3],
        length: (selected / 9 % 2 == 1).then_some(length as u64),
        ample: selected / 18 % 2 == 1,
    };
    compresses(&pieces, settings);
    replaces(&pieces);
}
