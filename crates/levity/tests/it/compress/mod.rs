//! Compression of responses on their way.

mod apache;
mod backends;
mod bounds;
pub mod clients;
mod conditions;
mod files;
mod property;

use std::fs;
use std::path::Path;

use crate::support::scripted::Scripted;
use crate::support::{Answer, Client, Launch, assert_same, decoded};

pub const KEYS: &str = "compress = true";

/// What a browser sends.
const BROWSER: &str = "gzip, deflate, br, zstd";

/// Text of `len` bytes that compresses to a part of its size, and differs from that of any other `seed`.
fn text(seed: usize, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 64);
    let mut number = seed;
    while text.len() < len {
        number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345) & 0x7fff_ffff;
        text.extend(format!("The loop {number:x} never waits for a disk.\n").bytes());
    }
    text.truncate(len);
    text
}

#[track_caller]
pub fn accepting(client: &mut Client, path: &str, codings: &str) -> Answer {
    client.get_with(path, &[("Accept-Encoding", codings)])
}

/// Expects `content` in `coding`, and shorter.
#[track_caller]
fn assert_compressed(answer: &Answer, coding: &str, content: &[u8]) {
    assert_coded(answer, coding, content);
    assert!(answer.body.len() < content.len(), "{answer:?}");
}

/// Expects `content` in `coding`.
#[track_caller]
pub fn assert_coded(answer: &Answer, coding: &str, content: &[u8]) {
    assert_eq!(
        answer.header("content-encoding"),
        Some(coding),
        "{answer:?}"
    );
    assert!(
        answer.field("vary").ends_with("Accept-Encoding"),
        "{answer:?}"
    );
    assert_eq!(answer.header("accept-ranges"), None);
    assert_same(&decoded(coding, &answer.body), content);
}

/// Expects `content` as it is, which could have been compressed.
#[track_caller]
pub fn assert_identity(answer: &Answer, content: &[u8]) {
    assert_eq!(answer.header("content-encoding"), None, "{answer:?}");
    assert!(
        answer.field("vary").ends_with("Accept-Encoding"),
        "{answer:?}"
    );
    assert_same(&answer.body, content);
}

/// Expects `content` as it is for every client.
#[track_caller]
fn assert_untouched(answer: &Answer, content: &[u8]) {
    assert_eq!(answer.header("vary"), None, "{answer:?}");
    assert_same(&answer.body, content);
}

/// The ETag of the content with `etag`, in `coding`.
fn coded_etag(etag: &str, coding: &str) -> String {
    let text = etag.trim_start_matches("W/").trim_matches('"');
    format!("W/\"{text}~{coding}\"")
}

/// A server of one worker in front of a backend, with these further tables and keys of the site.
fn in_front_of(backend: &Scripted, tables: &str, keys: &str) -> Launch {
    let to = backend.address();
    Launch::run(&format!(
        "{tables}\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\nto = [\"{to}\"]\n\
         [[site]]\nproxy = \"app\"\n{KEYS}\n{keys}\n"
    ))
    .workers(1)
}

/// A backend that answers each request with these header lines and this body.
fn answering(lines: &'static str, body: Vec<u8>) -> Scripted {
    Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{lines}\r\n\r\n");
            let sent: &[u8] = match &*request.method {
                "HEAD" => &[],
                _ => &body,
            };
            conn.send([head.as_bytes(), sent].concat());
        }
    })
}

/// Bodies of the fuzzer, and as many that are made here.
#[test]
fn bodies_may_be_cut_and_flushed_anywhere() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/body_filter");
    let files = fs::read_dir(corpus).expect("the corpus");
    let kept = files.map(|file| fs::read(file.expect("a file").path()).expect("it is readable"));
    let mut seed = 1_u64;
    let mut byte = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    // Few values, so that texts are found.
    let made = (0..100).map(|_| {
        let bytes = (0..500).map(|at| {
            if at % 7 < 2 {
                byte()
            } else {
                b'a' + byte() % 4
            }
        });
        bytes.collect()
    });
    for bytes in kept.chain(made.collect::<Vec<Vec<u8>>>()) {
        property::body_filter(&bytes);
    }
}
