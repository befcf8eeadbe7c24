//! Content codings, for tests that send or receive compressed bodies.

use std::io::{self, Read, Write};

use brotli_decompressor::Decompressor;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use levity_brotli::{Encoder, Operation, Settings};

/// The codings, in the order of the server.
pub const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// `content` in `coding`.
#[track_caller]
pub fn encoded(coding: &str, content: &[u8]) -> Vec<u8> {
    match coding {
        "zstd" => zstd::encode_all(content, 3).expect("memory"),
        "br" => {
            let settings = Settings {
                level: 5,
                window_log: 22,
                block_log: None,
                length: None,
            };
            let (encoder, mut out) = (Encoder::new(settings), Vec::new());
            let ended = encoder
                .expect("memory")
                .append(content, Operation::Finish, &mut out);
            ended.expect("memory");
            out
        }
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).expect("memory");
            encoder.finish().expect("memory")
        }
        _ => panic!("no encoder for {coding:?}"),
    }
}

/// The content of `bytes`, which must be complete.
#[track_caller]
pub fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let (content, end) = read(coding, bytes);
    end.expect("a complete stream");
    content
}

/// The content that a client can decode of `bytes`, the start of a stream.
#[track_caller]
pub fn decoded_so_far(coding: &str, bytes: &[u8]) -> Vec<u8> {
    read(coding, bytes).0
}

/// The content, and an error if `bytes` do not end it.
#[track_caller]
fn read(coding: &str, bytes: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let mut content = Vec::new();
    let end = match coding {
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::new(bytes).expect("memory");
            decoder.read_to_end(&mut content)
        }
        "br" => {
            let mut decoder = Decompressor::new(bytes, bytes.len());
            decoder.read_to_end(&mut content)
        }
        "gzip" => GzDecoder::new(bytes).read_to_end(&mut content),
        _ => panic!("no decoder for {coding:?}"),
    };
    (content, end)
}
