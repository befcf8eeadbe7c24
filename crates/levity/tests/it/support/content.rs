//! Bytes that tell where they come from.

use std::io::Write;
use std::process::{Command, Stdio};

/// Prime, so that bytes from a wrong offset, chunk or page never look right.
const PERIOD_BYTES: usize = 1_000_003;

/// `len` bytes that differ from those of any other `seed`, at every offset within a megabyte.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let period: Vec<u8> = (0..len.min(PERIOD_BYTES)).map(|_| next()).collect();
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let more = period.len().min(len - bytes.len());
        bytes.extend_from_slice(&period[..more]);
    }
    bytes
}

/// The SHA-256 of `bytes` in hexadecimal, from coreutils: applications say this of an upload.
pub fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum of coreutils");
    let mut to = child.stdin.take().expect("stdin");
    to.write_all(bytes).expect("write");
    drop(to);
    let output = child.wait_with_output().expect("sha256sum");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    said.split(' ').next().expect("a sum").to_owned()
}

/// Compares without printing megabytes.
#[track_caller]
pub fn assert_same(got: &[u8], expected: &[u8]) {
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert!(differs.is_none(), "byte {} differs", differs.unwrap_or(0));
    assert_eq!(got.len(), expected.len(), "the length differs");
}
