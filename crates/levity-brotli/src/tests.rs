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
