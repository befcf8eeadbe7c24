//! Bodies with a coding.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::filter::compress::{Encoder, Settings};

#[test]
fn coded_content_is_decoded_in_bounded_pieces() {
    let text = vec![b' '; 17 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).expect("memory");
    let coded = encoder.finish().expect("memory");
    let texts = Arc::new(Texts::new(&owned(&[("a", "b")])));
    let claims = Claims::alone(1 << 20);
    let memory = || claims.nothing(Resource::Decoders, Portion::Whole);
    let coded_body = || SubstituteBody {
        decoding: Some(Decoding::new(Coding::Gzip, memory())),
        replacer: Replacer::new(texts.clone()),
    };
    let mut out = Vec::new();
    let at_once = coded_body().push(&coded, &mut out);
    at_once.expect_err("more than 2 MiB");
    assert!(out.len() < PIECE_BYTES_MAX + 100_000);
    let mut body = coded_body();
    let mut bytes = 0;
    for piece in coded.chunks(CODED_JOB_BYTES) {
        let mut out = Vec::new();
        body.push(piece, &mut out).expect("a bounded piece");
        bytes += out.len();
    }
    body.finish(&[], &mut Vec::new()).expect("a complete body");
    assert_eq!(bytes, text.len());
}

/// A body takes what its decoder may keep, and gives it back.
#[test]
fn decoders_share_their_memory() {
    const WINDOW: usize = 32 * 1024;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![b' '; 2 * WINDOW]).expect("memory");
    let coded = encoder.finish().expect("memory");
    let claims = Claims::alone(2 * WINDOW);
    let used = || claims.used(Resource::Decoders);
    let filter = Substitute::new(&owned(&[("a", "b")]), &[]);
    let decode_with = |portion| {
        let memory = claims.nothing(Resource::Decoders, portion);
        let mut body = filter.content(Some((Coding::Gzip, memory)));
        let result = body.push(&coded, &mut Vec::new());
        result.map(|()| body)
    };
    let decode = || decode_with(Portion::Whole);
    let stream = || decode_with(Portion::Half);
    let (first, second) = (decode().expect("memory"), decode().expect("memory"));
    assert_eq!(used(), 2 * WINDOW);
    let refused = decode().expect_err("no memory");
    assert!(
        refused.0.contains("limits.compression_memory"),
        "{refused:?}"
    );
    drop(first);
    stream().expect_err("more than a half");
    let third = decode().expect("memory");
    drop((second, third));
    assert_eq!(used(), 0);
    // A client may take long to receive what is decoded.
    let mut last = stream().expect("memory");
    last.finish(&[], &mut Vec::new()).expect("a complete body");
    assert_eq!(used(), 0);
}

/// A job is given all that it may need, and leaves what the decoder keeps.
#[test]
fn what_a_job_does_not_need_is_given_back() {
    const COPIES: usize = 1000;
    for (coding, window) in [(Coding::Gzip, 32 << 10), (Coding::Brotli, 16 << 20)] {
        let content = b"some text ".repeat(COPIES);
        let coded = Encoder::new(Settings {
            coding,
            level: 1,
            length: None,
            ample: false,
        });
        let (mut coded, mut input) = (coded.expect("valid settings"), Vec::new());
        coded.push(&content, &mut input).expect("no defect");
        coded.flush(&mut input).expect("no defect");
        for memory in [16 << 10, 64 << 20] {
            let claims = Claims::alone(memory);
            let held = claims.nothing(Resource::Decoders, Portion::Whole);
            let filter = Substitute::new(&owned(&[("a", "b")]), &[]);
            let mut body = filter.content(Some((coding, held)));
            let needed = |body: &mut Box<dyn BodyFilter>| {
                let (held, more) = body.needs().expect("memory");
                held.try_grow(more).expect("there is as much");
                more
            };
            let most = (2 << 20).min(memory / 16);
            assert_eq!(needed(&mut body), most.min(window));
            body.push(&input, &mut Vec::new()).expect("memory");
            assert_eq!(claims.used(Resource::Decoders), content.len());
            assert_eq!(needed(&mut body), most.min(window - content.len()));
        }
    }
}
