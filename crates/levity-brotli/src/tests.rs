use std::io::Read;

use brotli_decompressor::{Allocator, Decompressor, SliceWrapperMut, StandardAlloc};

use super::*;

/// The size of the decoder's input buffer in bytes.
const BUFFER_BYTES: usize = 4096;

fn text(lines: usize) -> Vec<u8> {
    let line = |number| format!("{number}: the loop never waits for a disk\n").into_bytes();
    (0..lines).flat_map(line).collect()
}

fn settings(level: u8) -> Settings {
    Settings {
        level,
        window_log: 18,
        block_log: Some(16),
        length: None,
    }
}

fn decoded(encoded: &[u8], dictionary: &[u8]) -> Vec<u8> {
    let mut decoder = Decompressor::new(encoded, BUFFER_BYTES);
    if !dictionary.is_empty() {
        let mut alloc = StandardAlloc::default();
        let mut cell = <StandardAlloc as Allocator<u8>>::alloc_cell(&mut alloc, dictionary.len());
        cell.slice_mut().copy_from_slice(dictionary);
        assert!(decoder.attach_dictionary(cell));
    }
    let mut content = Vec::new();
    decoder.read_to_end(&mut content).expect("a whole stream");
    content
}

/// Text of `letters` in an order without a pattern, which compresses badly.
fn noise(letters: u64, bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (state >> 33) % letters
    };
    (0..bytes).map(|_| b'a' + next() as u8).collect()
}

/// A call may leave the last block with the library, which has to be asked for it.
#[test]
fn the_end_comes_with_the_last_piece_however_the_content_is_cut() {
    for level in 0..=11 {
        let bytes_max = if level < 10 { 300_000 } else { 80_000 };
        for letters in [2, 16] {
            for bytes in [1, 16_384, 30_000, 65_536, 66_000, 140_000, 200_000, 300_000] {
                if bytes > bytes_max {
                    continue;
                }
                let content = noise(letters, bytes);
                for piece_bytes in [16_000, 50_000, 65_536, bytes] {
                    let (mut encoder, mut out) =
                        (Encoder::new(settings(level)).expect("memory"), Vec::new());
                    let mut pieces = content.chunks(piece_bytes).peekable();
                    while let Some(piece) = pieces.next() {
                        let operation = match pieces.peek() {
                            Some(_) => Operation::Process,
                            None => Operation::Finish,
                        };
                        encoder
                            .append(piece, operation, &mut out)
                            .expect("no defect");
                    }
                    let case = format!("{level} {letters} {bytes} {piece_bytes}");
                    assert!(decoded(&out, &[]) == content, "{case}");
                }
            }
        }
    }
}

#[test]
fn every_level_decodes_to_the_same_bytes() {
    let text = text(5000);
    for level in 0..=11 {
        let mut encoder = Encoder::new(settings(level)).expect("memory");
        let mut out = Vec::new();
        let (first, rest) = text.split_at(70_000);
        encoder
            .append(first, Operation::Process, &mut out)
            .expect("no defect");
        encoder
            .append(rest, Operation::Finish, &mut out)
            .expect("no defect");
        assert!(decoded(&out, &[]) == text, "{level}");
        assert!(out.len() < text.len() / 4, "{level}: {}", out.len());
    }
}

#[test]
fn a_dictionary_saves_what_it_has() {
    let dictionary = text(5000);
    let mut content = text(5000);
    content.extend_from_slice(b"and one line more\n");
    for level in [5, 9, 11] {
        let mut out = Vec::new();
        let encoder = Encoder::with_dictionary(settings(level), dictionary.clone());
        let mut encoder = encoder.expect("memory");
        encoder
            .append(&content, Operation::Finish, &mut out)
            .expect("no defect");
        assert!(decoded(&out, &dictionary) == content, "{level}");
        assert!(out.len() < 500, "{level}: {}", out.len());
    }
}

#[test]
fn nothing_follows_the_end() {
    let (mut encoder, mut out) = (Encoder::new(settings(5)).expect("memory"), Vec::new());
    encoder
        .append(b"all", Operation::Finish, &mut out)
        .expect("no defect");
    let more = encoder.append(b"more", Operation::Process, &mut out);
    more.expect_err("it has ended");
    assert_eq!(decoded(&out, &[]), b"all");
}

/// Also when another thread ends it, as in a pool.
#[test]
fn all_memory_is_counted_and_released() {
    let encoder = Encoder::with_dictionary(settings(9), text(1000));
    let mut encoder = encoder.expect("memory");
    encoder
        .append(&text(5000), Operation::Flush, &mut Vec::new())
        .expect("no defect");
    let max = encoder.memory_bytes_max();
    assert!(max > 1 << 18, "{max}");
    let used = Arc::clone(&encoder.used);
    std::thread::spawn(move || drop(encoder))
        .join()
        .expect("no panic");
    assert_eq!((used.now(), used.max()), (0, max));
}
