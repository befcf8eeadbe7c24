//! Random frames of a client, for the codec of this crate and for the crate `h2`: after each frame both have to have made the same
//! of the connection, its streams and its requests.
//!
//! `HTTP2_SEEDS=7..8 cargo test -p levity-wire --test http2_oracle` runs one seed, and a larger range more than by default.

mod frames;
mod ours;
mod rules;
#[allow(dead_code, reason = "the other tests of HTTP/2 use the rest")]
#[path = "../http2/support.rs"]
mod support;
mod theirs;
mod verdict;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic;

use levity_wire::http2::PREFACE;

use crate::frames::Frames;
use crate::ours::Ours;
use crate::rules::{Difference, rule};
use crate::support::{ACK, CONTINUATION, END_HEADERS, HEADERS, SETTINGS, frame};
use crate::theirs::Theirs;

/// Frames after which both have to agree, at least, for each sequence on average: otherwise nothing is compared.
const FRAMES_AGREED_MIN: usize = 10;

/// The seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("HTTP2_SEEDS") else {
        return 0..8000;
    };
    let (start, end) = text.split_once("..").expect("HTTP2_SEEDS=0..8000");
    start.parse().expect("a number")..end.parse().expect("a number")
}

/// Runs a sequence. Returns after how many frames both agreed, and the rule that allows the difference after them, if there was one.
fn run(seed: u64) -> (usize, Option<&'static str>) {
    let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat();
    let start = [PREFACE, &settings].concat();
    let (mut ours, mut theirs) = (Ours::new(), Theirs::new(&start));
    ours.receive(&start);
    let frames = Frames::of(seed);
    let mut is_in_section = false;
    let mut before = ours.verdict.clone();
    for (number, bytes) in frames.iter().enumerate() {
        // However a frame is cut, the same becomes of it.
        let cut = (seed as usize + number) % (bytes.len() + 1);
        let (first, rest) = bytes.split_at(cut);
        for part in [first, rest] {
            ours.receive(part);
            theirs.receive(part);
        }
        // Theirs looks at the fields of a section before its end.
        is_in_section = continues(bytes, is_in_section);
        if is_in_section && ours.verdict.ended.is_none() {
            continue;
        }
        if ours.verdict == theirs.verdict {
            if ours.verdict.ended.is_some() {
                return (number + 1, None);
            }
            before = ours.verdict.clone();
            continue;
        }
        let difference = Difference {
            frames: &frames[..=number],
            before: &before,
            ours: &ours.verdict,
            theirs: &theirs.verdict,
        };
        match rule(&difference) {
            Some(rule) => return (number, Some(rule)),
            None => panic!("{difference}"),
        }
    }
    (frames.len(), None)
}

/// Whether a header section goes on after a frame.
fn continues(frame: &[u8], before: bool) -> bool {
    match frame[3] {
        HEADERS | CONTINUATION => frame[4] & END_HEADERS == 0,
        _ => before,
    }
}

#[test]
fn random_frames() {
    let (mut agreed, mut allowed) = (0, BTreeMap::<_, usize>::new());
    for seed in seeds() {
        let result = panic::catch_unwind(|| run(seed));
        let (frames, rule) = result.unwrap_or_else(|_| panic!("HTTP2_SEEDS={seed}..{}", seed + 1));
        agreed += frames;
        if let Some(rule) = rule {
            *allowed.entry(rule).or_default() += 1;
        }
    }
    println!("{agreed} frames, and differences that are allowed: {allowed:#?}");
    let sequences = seeds().count();
    assert!(sequences < 100 || agreed / sequences >= FRAMES_AGREED_MIN);
}
