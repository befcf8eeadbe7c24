use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use levity_brotli::{Encoder, Operation, Settings};

use super::*;

fn encoded(coding: Coding, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(&mut out, Compression::default());
            encoder.write_all(content).expect("memory");
            encoder.finish().expect("memory");
        }
        Coding::Brotli => {
            let ended = br().append(content, Operation::Finish, &mut out);
            ended.expect("memory");
        }
        Coding::Zstd => out = zstd::encode_all(content, 3).expect("memory"),
        Coding::Dcz | Coding::Dcb => unreachable!("not one of all"),
    }
    out
}

fn br() -> Encoder {
    let settings = Settings {
        level: 5,
        window_log: 22,
        block_log: None,
        length: None,
    };
    Encoder::new(settings).expect("memory")
}

/// Bytes that are small when encoded, but not by much.
fn content(bytes: usize) -> Vec<u8> {
    let numbers = (0u32..).map(|number| number.wrapping_mul(2_654_435_761) >> 20);
    let words = numbers.flat_map(|number| format!("{number} ").into_bytes());
    words.take(bytes).collect()
}

fn decoded<'p>(
    coding: Coding,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Result<Vec<u8>, String> {
    let mut decoder = Decoder::new(coding);
    let mut out = Vec::new();
    let all = pieces.into_iter().try_for_each(|piece| {
        decoder.push(piece, |bytes| {
            assert!(bytes.len() <= STEP_BYTES);
            out.extend_from_slice(bytes);
            Ok(())
        })
    });
    let ended = all.and_then(|()| decoder.finish());
    ended.map(|()| out).map_err(|FilterError(reason)| reason)
}

#[test]
fn content_is_decoded_however_it_is_cut() {
    for coding in Coding::ALL {
        for bytes in [0, 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES] {
            let content = content(bytes);
            let encoded = encoded(coding, &content);
            assert!(decoded(coding, [&encoded[..]]).expect("whole") == content);
            assert!(decoded(coding, encoded.chunks(1)).expect("bytes") == content);
            assert!(decoded(coding, encoded.chunks(997)).expect("pieces") == content);
        }
        assert_eq!(decoded(coding, []), Ok(Vec::new()));
        assert_eq!(decoded(coding, [&b""[..]]), Ok(Vec::new()));
    }
}

#[test]
fn an_incomplete_body_is_an_error() {
    for coding in Coding::ALL {
        let encoded = encoded(coding, &content(1000));
        for end in 1..encoded.len() {
            let error = decoded(coding, [&encoded[..end]]).expect_err("cut");
            assert!(error.contains("ends too early"), "{end}: {error}");
        }
    }
}

#[test]
fn what_is_not_of_the_coding_is_an_error() {
    for coding in Coding::ALL {
        let error = decoded(coding, [&b"<html> of no coding at all </html>"[..]]);
        let error = error.expect_err("text");
        assert!(error.contains(coding.name()), "{error}");
        let whole = encoded(coding, &content(1000));
        let followed = [&whole[..], b"more"].concat();
        decoded(coding, [&followed[..]]).expect_err("text behind it");
        decoded(coding, followed.chunks(1)).expect_err("text behind it");
    }
    // The checksum.
    let mut broken = encoded(Coding::Gzip, &content(1000));
    let at = broken.len() - 8;
    broken[at] ^= 1;
    decoded(Coding::Gzip, [&broken[..]]).expect_err("another checksum");
}

#[test]
fn a_body_may_have_several_members_or_frames() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let content = content(STEP_BYTES);
        let twice = encoded(coding, &content).repeat(2);
        for pieces in [twice.len(), twice.len() / 2, 1] {
            let decoded = decoded(coding, twice.chunks(pieces)).expect("two members");
            assert!(decoded == content.repeat(2));
        }
        decoded(coding, [&twice[..twice.len() - 1]]).expect_err("cut");
    }
}

/// A stream that waits for its next event can be read up to it.
#[test]
fn what_is_flushed_is_decoded_at_once() {
    for coding in Coding::ALL {
        let mut written = Vec::new();
        let first = match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(&mut written, Compression::default());
                encoder.write_all(b"data: 1\n\n").expect("memory");
                encoder.flush().expect("memory");
                encoder.get_ref().len()
            }
            Coding::Brotli => {
                let flushed = br().append(b"data: 1\n\n", Operation::Flush, &mut written);
                flushed.expect("memory");
                written.len()
            }
            Coding::Dcz | Coding::Dcb => unreachable!("not one of all"),
            Coding::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(&mut written, 3);
                let mut encoder = encoder.expect("memory");
                encoder.write_all(b"data: 1\n\n").expect("memory");
                encoder.flush().expect("memory");
                encoder.get_ref().len()
            }
        };
        let mut out = Vec::new();
        let mut decoder = Decoder::new(coding);
        let sink = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        decoder.push(&written[..first], sink).expect("an event");
        assert_eq!(out, b"data: 1\n\n", "{coding:?}");
        decoder.finish().expect_err("it goes on");
    }
}

#[test]
fn bombs_are_refused() {
    let free = usize::try_from(FREE_BYTES).expect("a size");
    for coding in [Coding::Brotli, Coding::Zstd] {
        let fits = encoded(coding, &vec![0; free]);
        assert!(fits.len() * 1000 < free);
        assert_eq!(decoded(coding, [&fits[..]]).map(|out| out.len()), Ok(free));
        let exceeds = encoded(coding, &vec![0; free + 1]);
        let error = decoded(coding, [&exceeds[..]]).expect_err("a bomb");
        assert!(error.contains("more than 1000 times"), "{error}");
    }
    // Within the ratio a body may be of any size.
    let many = encoded(Coding::Gzip, &content(2 * free));
    let out = decoded(Coding::Gzip, many.chunks(1000)).expect("no bomb");
    assert_eq!(out.len(), 2 * free);
}

/// 16 MiB, where the coding of HTTP ends at 8 MiB.
#[test]
fn a_window_of_zstd_is_bounded() {
    for (bits, is_allowed) in [(23, true), (24, false)] {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory");
        encoder.window_log(bits).expect("a window");
        encoder.write_all(&content(1000)).expect("memory");
        let encoded = encoder.finish().expect("memory");
        let decoded = decoded(Coding::Zstd, [&encoded[..]]);
        assert_eq!(decoded.is_ok(), is_allowed, "{decoded:?}");
    }
}
