//! Encoders of the content codings. They compute: never run them on a loop.

use std::cell::RefCell;
use std::fmt;
use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};
use levity_brotli::Operation;
use levity_wire::encoding::Coding;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{
    CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, compress_bound, get_error_name,
};

/// The binary logarithm of the largest window of Brotli that is used, in bytes.
const BROTLI_WINDOW_LOG_MAX: u8 = 22;

/// The smallest window that a stream of Brotli can have, as binary logarithm (RFC 7932, 9.1).
const BROTLI_WINDOW_LOG_MIN: u8 = 10;

/// What a window of Brotli lacks of a power of two, in bytes (RFC 7932, 9.1).
const BROTLI_WINDOW_GAP: u64 = 16;

/// The binary logarithm of the blocks of Brotli in a stream, in bytes. A whole block is compressed at once: with the
/// default of the highest levels, 256 KiB, that takes a thread for 0.3 s.
const BROTLI_BLOCK_LOG: u8 = 16;

/// The tables of zstd for streams, as binary logarithms. Those of the library are made for large files: level 19 takes
/// 90 MiB.
struct ZstdTables {
    window: u32,
    hash: u32,
    chain: u32,
}

impl ZstdTables {
    fn of(level: u8) -> Self {
        let (window, hash, chain) = match level {
            ..=2 => (15, 13, 13),
            3 => (17, 15, 15),
            _ => (17, 17, 17),
        };
        Self {
            window,
            hash,
            chain,
        }
    }
}

/// Starts a dictionary of zstd's own format (RFC 8878, 5).
const ZSTD_DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// The binary logarithm of the window of gzip, in bytes.
const GZIP_WINDOW_LOG: u8 = 15;

/// The size of the pieces in which an encoder appends its output, in bytes.
const OUTPUT_BYTES: usize = 16 * 1024;

/// How an encoder compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The coding.
    pub coding: Coding,
    /// The level, in the range of the coding.
    pub level: u8,
    /// The length of the content in bytes; `None` if it is unknown.
    pub length: Option<u64>,
    /// Whether memory is ample: windows and tables then suit the length, and the ratio is better. zstd uses windows of
    /// 8 MiB at most also then, the limit for content codings (RFC 9659).
    pub ample: bool,
}

impl Settings {
    /// The memory of the encoder in bytes, measured, and rounded up.
    pub fn memory_bytes(&self) -> usize {
        let kib = match (self.coding, self.level) {
            (Coding::Gzip, _) => 416,
            (Coding::Zstd | Coding::Dcz, _) if self.ample => 92 * 1024,
            (Coding::Brotli | Coding::Dcb, _) if self.ample => 96 * 1024,
            (Coding::Zstd | Coding::Dcz, ..=2) => 320,
            (Coding::Zstd | Coding::Dcz, 3) => 1216,
            (Coding::Zstd | Coding::Dcz, _) => 2816,
            (Coding::Brotli | Coding::Dcb, 0) => 320,
            (Coding::Brotli | Coding::Dcb, 1) => 832,
            (Coding::Brotli | Coding::Dcb, ..=4) => 3072,
            (Coding::Brotli | Coding::Dcb, ..=8) => 2304,
            (Coding::Brotli | Coding::Dcb, 9) => 3072,
            (Coding::Brotli | Coding::Dcb, 10) => 8 * 1024,
            (Coding::Brotli | Coding::Dcb, _) => 20 * 1024,
        };
        kib * 1024
    }

    /// The processor time per byte of content in nanoseconds, estimated.
    pub fn ns_per_byte(&self) -> u32 {
        match (self.coding, self.level) {
            (Coding::Gzip, ..=2) => 6,
            (Coding::Gzip, ..=4) => 12,
            (Coding::Gzip, ..=6) => 18,
            (Coding::Gzip, _) => 32,
            (Coding::Zstd | Coding::Dcz, ..=2) => 3,
            (Coding::Zstd | Coding::Dcz, ..=4) => 5,
            (Coding::Zstd | Coding::Dcz, ..=9) => 20,
            (Coding::Zstd | Coding::Dcz, ..=15) => 80,
            (Coding::Zstd | Coding::Dcz, _) => 300,
            (Coding::Brotli | Coding::Dcb, ..=1) => 4,
            (Coding::Brotli | Coding::Dcb, ..=4) => 12,
            (Coding::Brotli | Coding::Dcb, ..=6) => 28,
            (Coding::Brotli | Coding::Dcb, ..=9) => 50,
            (Coding::Brotli | Coding::Dcb, _) => 1400,
        }
    }
}

/// An encoder with its state.
#[derive(Debug)]
pub struct Encoder {
    settings: Settings,
    state: State,
}

enum State {
    /// RFC 8878.
    Zstd(CCtx<'static>),
    /// RFC 7932.
    Brotli(levity_brotli::Encoder),
    /// RFC 1952.
    Gzip(Compress),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd(_) => "Zstd",
            Self::Brotli(_) => "Brotli",
            Self::Gzip(_) => "Gzip",
        })
    }
}

/// The maximum number of finished encoders that a thread keeps, one per coding that can use it again: to allocate one
/// takes a quarter of the time in which zstd compresses 37 KB.
const FINISHED_MAX: usize = 2;

/// The maximum of memory in bytes of an encoder that is kept.
const FINISHED_BYTES_MAX: usize = 3 * 1024 * 1024;

thread_local! {
    /// Encoders that have finished in this thread, the last one last.
    static FINISHED: RefCell<Vec<Encoder>> = const { RefCell::new(Vec::new()) };
}

impl Encoder {
    /// An encoder at the start of the content. Allocates its memory, unless the thread has one with these settings.
    ///
    /// # Errors
    /// When the library refuses the settings.
    pub fn new(settings: Settings) -> io::Result<Self> {
        match Self::finished(settings) {
            Some(encoder) => encoder.announcing(settings),
            None => Self::with_dictionary(settings, Vec::new()),
        }
    }

    /// The same, for content that may refer to `dictionary`, which is empty for a coding without one. To prepare it
    /// takes about 15 ns per byte at the levels of idle work.
    ///
    /// # Errors
    /// As for `new`; also for a dictionary of zstd's own format, which would not be taken as content.
    pub fn with_dictionary(settings: Settings, dictionary: Vec<u8>) -> io::Result<Self> {
        let state = match settings.coding {
            Coding::Zstd | Coding::Dcz => State::Zstd(zstd(settings, &dictionary)?),
            Coding::Brotli | Coding::Dcb => State::Brotli(brotli(settings, dictionary)?),
            Coding::Gzip => {
                let level = Compression::new(u32::from(settings.level));
                State::Gzip(Compress::new_gzip(level, GZIP_WINDOW_LOG))
            }
        };
        Ok(Self { settings, state })
    }

    /// A finished encoder of this thread with the same settings, but for the length.
    fn finished(settings: Settings) -> Option<Self> {
        FINISHED.with_borrow_mut(|finished| {
            let is_same = |encoder: &Self| {
                let length = settings.length;
                Settings {
                    length,
                    ..encoder.settings
                } == settings
            };
            let at = finished.iter().rposition(is_same)?;
            Some(finished.remove(at))
        })
    }

    /// The encoder for content of the length of `settings`.
    fn announcing(mut self, settings: Settings) -> io::Result<Self> {
        self.settings = settings;
        if let State::Zstd(context) = &mut self.state {
            let length = settings.length;
            context.set_pledged_src_size(length).map_err(error)?;
        }
        Ok(self)
    }

    /// Keeps the encoder for the next content, if it is not too large and the library can use it again.
    fn keep(mut self) {
        let settings = self.settings;
        if settings.ample || settings.memory_bytes() > FINISHED_BYTES_MAX || !self.reset() {
            return;
        }
        FINISHED.with_borrow_mut(|finished| {
            if finished.len() >= FINISHED_MAX {
                finished.remove(0);
            }
            finished.push(self);
        });
    }

    /// Returns to the start of the content. Returns false if the library cannot.
    fn reset(&mut self) -> bool {
        match &mut self.state {
            State::Zstd(context) => context.reset(ResetDirective::SessionOnly).is_ok(),
            State::Brotli(_) => false,
            State::Gzip(compress) => {
                compress.reset();
                true
            }
        }
    }

    /// Consumes `input`, and appends what is ready to `out`.
    ///
    /// # Errors
    /// When the library fails, which is a defect.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.state {
            State::Zstd(context) => {
                let input = &mut InBuffer::around(input);
                while input.pos() < input.src.len() {
                    compress(context, out, input, ZSTD_EndDirective::ZSTD_e_continue)?;
                }
                Ok(())
            }
            State::Brotli(encoder) => encoder.append(input, Operation::Process, out),
            State::Gzip(compress) => deflate(compress, input, out, FlushCompress::None),
        }
    }

    /// Appends all that a decoder needs to decode the content so far.
    ///
    /// # Errors
    /// As for `push`.
    pub fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.state {
            State::Zstd(context) => drain(context, &[], out, ZSTD_EndDirective::ZSTD_e_flush),
            State::Brotli(encoder) => encoder.append(&[], Operation::Flush, out),
            State::Gzip(compress) => deflate(compress, &[], out, FlushCompress::Sync),
        }
    }

    /// Consumes `input`, the last of the content, and appends the end.
    ///
    /// # Errors
    /// As for `push`.
    pub fn finish(mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.state {
            State::Zstd(context) => {
                // With room for all of it, the library does not copy the input.
                out.reserve(compress_bound(input.len()));
                drain(context, input, out, ZSTD_EndDirective::ZSTD_e_end)?;
            }
            State::Brotli(encoder) => encoder.append(input, Operation::Finish, out)?,
            State::Gzip(compress) => deflate(compress, input, out, FlushCompress::Finish)?,
        }
        self.keep();
        Ok(())
    }
}

fn brotli(settings: Settings, dictionary: Vec<u8>) -> io::Result<levity_brotli::Encoder> {
    let br = levity_brotli::Settings {
        level: settings.level,
        window_log: brotli_window_log(settings),
        block_log: (!settings.ample).then_some(BROTLI_BLOCK_LOG),
        // From 1 MiB on it selects large tables.
        length: settings.length.filter(|_| settings.ample),
    };
    match dictionary.is_empty() {
        true => levity_brotli::Encoder::new(br),
        false => levity_brotli::Encoder::with_dictionary(br, dictionary),
    }
}

fn brotli_window_log(settings: Settings) -> u8 {
    match settings.length {
        // Tables have the size of the window, and to clear large ones takes longer than to compress a small content.
        Some(length) if settings.ample => {
            let window = length.saturating_add(BROTLI_WINDOW_GAP);
            let log = (u64::BITS - (window - 1).leading_zeros()) as u8;
            log.clamp(BROTLI_WINDOW_LOG_MIN, BROTLI_WINDOW_LOG_MAX)
        }
        None if settings.ample => BROTLI_WINDOW_LOG_MAX,
        // A client may keep a stream open for hours. With larger windows than 64 KiB, levels 5 to 9 use other tables:
        // level 9 takes 55 MiB, to compress JSON by 2 % more.
        _ => match settings.level {
            0..=4 => 17,
            5..=9 => 16,
            _ => 18,
        },
    }
}

/// Consumes `input`, and repeats `flush` until the library has nothing left to append.
fn deflate(
    compress: &mut Compress,
    mut input: &[u8],
    out: &mut Vec<u8>,
    flush: FlushCompress,
) -> io::Result<()> {
    loop {
        out.reserve(OUTPUT_BYTES);
        let before = compress.total_in();
        let status = compress.compress_vec(input, out, flush);
        let status = status.map_err(io::Error::other)?;
        let consumed = compress.total_in() - before;
        input = &input[usize::try_from(consumed).expect("no more than the input")..];
        let has_room = out.len() < out.capacity();
        let is_done = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            // A library that has left room has appended all.
            _ => input.is_empty() && has_room,
        };
        if is_done {
            return Ok(());
        }
    }
}

fn zstd(settings: Settings, dictionary: &[u8]) -> io::Result<CCtx<'static>> {
    let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    let level = i32::from(settings.level);
    let mut set = |parameter| context.set_parameter(parameter).map_err(error);
    set(CParameter::CompressionLevel(level))?;
    if !settings.ample {
        let tables = ZstdTables::of(settings.level);
        set(CParameter::WindowLog(tables.window))?;
        set(CParameter::HashLog(tables.hash))?;
        set(CParameter::ChainLog(tables.chain))?;
    }
    if settings.coding == Coding::Dcz {
        // A decoder with another dictionary has to notice.
        set(CParameter::ChecksumFlag(true))?;
        // The library would interpret it.
        if dictionary.starts_with(&ZSTD_DICTIONARY_MAGIC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        context.load_dictionary(dictionary).map_err(error)?;
    }
    // A frame that announces its length is shorter, and a small content gets small tables.
    let length = settings.length;
    context.set_pledged_src_size(length).map_err(error)?;
    Ok(context)
}

/// Consumes `input`, and repeats `directive` until the library has nothing left to append.
fn drain(
    context: &mut CCtx<'static>,
    input: &[u8],
    out: &mut Vec<u8>,
    directive: ZSTD_EndDirective,
) -> io::Result<()> {
    let input = &mut InBuffer::around(input);
    while compress(context, out, input, directive)? > 0 {}
    Ok(())
}

/// Returns a hint of how many bytes are left to append.
fn compress(
    context: &mut CCtx<'static>,
    out: &mut Vec<u8>,
    input: &mut InBuffer<'_>,
    directive: ZSTD_EndDirective,
) -> io::Result<usize> {
    out.reserve(OUTPUT_BYTES);
    let written = out.len();
    let mut out = OutBuffer::around_pos(out, written);
    let left = context.compress_stream2(&mut out, input, directive);
    left.map_err(error)
}

fn error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

#[cfg(test)]
mod tests {
    use levity_config::levels;

    use super::*;
    use crate::filter::decode::Decoder;

    /// A pseudorandom number below `max`.
    fn below(seed: &mut u64, max: usize) -> usize {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed % max as u64) as usize
    }

    fn text(bytes: usize) -> Vec<u8> {
        let words = [
            "the ",
            "loop ",
            "never ",
            "waits ",
            "for a disk.\n",
            "\u{e4}",
        ];
        let mut seed = 7;
        let mut text = Vec::new();
        while text.len() < bytes {
            text.extend_from_slice(words[below(&mut seed, words.len())].as_bytes());
        }
        text.truncate(bytes);
        text
    }

    /// Decodes what a client has received so far.
    fn decoded_so_far(coding: Coding, bytes: &[u8]) -> (Decoder, Vec<u8>) {
        let (mut decoder, mut content) = (Decoder::new(coding), Vec::new());
        let sink = |decoded: &[u8]| {
            content.extend_from_slice(decoded);
            Ok(())
        };
        decoder.push(bytes, sink).expect("a stream of the coding");
        (decoder, content)
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let (decoder, content) = decoded_so_far(coding, bytes);
        decoder.finish().expect("a complete stream");
        content
    }

    fn every_level() -> impl Iterator<Item = (Coding, u8)> {
        Coding::ALL.into_iter().flat_map(|coding| {
            let (lowest, highest) = levels(coding);
            (lowest..=highest).map(move |level| (coding, level))
        })
    }

    /// What the library says it uses.
    fn used_bytes(encoder: &Encoder) -> usize {
        match &encoder.state {
            State::Zstd(context) => context.sizeof(),
            State::Brotli(encoder) => encoder.memory_bytes_max(),
            State::Gzip(_) => 0,
        }
    }

    #[test]
    fn every_level_decodes_to_the_same_bytes() {
        let text = text(100_000);
        for (coding, level) in every_level() {
            let length = Some(text.len() as u64);
            for (length, ample) in [(None, false), (length, false), (None, true), (length, true)] {
                let settings = Settings {
                    coding,
                    level,
                    length,
                    ample,
                };
                let mut encoder = Encoder::new(settings).expect("valid settings");
                let mut out = Vec::new();
                encoder.push(&text, &mut out).expect("no defect");
                encoder.finish(&[], &mut out).expect("no defect");
                assert!(decoded(coding, &out) == text, "{settings:?}");
                assert!(out.len() < text.len() / 2, "{settings:?}");
            }
        }
    }

    /// The library of br takes the length as a hint; that of zstd refuses another one.
    #[test]
    fn a_body_of_another_length_than_announced_is_no_panic() {
        let text = text(100_000);
        for (coding, level) in every_level() {
            for length in [0, 1, 99_999, 100_001, 1 << 20, u64::MAX - 2] {
                for ample in [false, true] {
                    let settings = Settings {
                        coding,
                        level,
                        length: Some(length),
                        ample,
                    };
                    let mut encoder = Encoder::new(settings).expect("valid settings");
                    let mut out = Vec::new();
                    let pushed = encoder.push(&text, &mut out);
                    let outcome = pushed.and_then(|()| encoder.finish(&[], &mut out));
                    assert_eq!(outcome.is_err(), coding == Coding::Zstd, "{settings:?}");
                    if outcome.is_ok() {
                        assert!(decoded(coding, &out) == text, "{settings:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn any_cuts_and_flushes_decode_to_the_same_bytes() {
        let mut seed = 1;
        for coding in Coding::ALL {
            for _ in 0..100 {
                let text = text(below(&mut seed, 5000));
                let settings = Settings {
                    coding,
                    level: 1,
                    length: None,
                    ample: false,
                };
                let mut encoder = Encoder::new(settings).expect("valid settings");
                let mut out = Vec::new();
                let mut rest = &text[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(1 + below(&mut seed, rest.len()));
                    encoder.push(piece, &mut out).expect("no defect");
                    if below(&mut seed, 2) == 0 {
                        encoder.flush(&mut out).expect("no defect");
                    }
                    rest = after;
                }
                encoder.finish(&[], &mut out).expect("no defect");
                assert!(decoded(coding, &out) == text, "{coding:?}");
            }
        }
    }

    #[test]
    fn a_finished_encoder_is_used_again() {
        FINISHED.take();
        for round in 0..3 {
            for coding in Coding::ALL {
                let content = text(10_000 * (round + 1));
                let settings = Settings {
                    coding,
                    level: 4,
                    length: (round != 1).then_some(content.len() as u64),
                    ample: false,
                };
                let mut out = Vec::new();
                let encoder = Encoder::new(settings).expect("valid settings");
                encoder.finish(&content, &mut out).expect("no defect");
                assert!(decoded(coding, &out) == content, "{coding:?} {round}");
            }
            assert_eq!(FINISHED.with_borrow(Vec::len), FINISHED_MAX);
        }
        FINISHED.take();
        let large = Settings {
            coding: Coding::Zstd,
            level: 3,
            length: None,
            ample: true,
        };
        let encoder = Encoder::new(large).expect("valid settings");
        encoder.finish(b"text", &mut Vec::new()).expect("no defect");
        assert_eq!(FINISHED.with_borrow(Vec::len), 0);
    }

    #[test]
    fn a_flush_makes_everything_decodable() {
        for coding in Coding::ALL {
            let settings = Settings {
                coding,
                level: levels(coding).1,
                length: None,
                ample: false,
            };
            let mut encoder = Encoder::new(settings).expect("valid settings");
            let (mut out, mut events) = (Vec::new(), String::new());
            for number in 0..20 {
                let event = format!("data: event {number}\n\n");
                encoder.push(event.as_bytes(), &mut out).expect("no defect");
                encoder.flush(&mut out).expect("no defect");
                events.push_str(&event);
                let (_, so_far) = decoded_so_far(coding, &out);
                assert!(so_far == events.as_bytes(), "{coding:?} {number}");
            }
        }
    }

    /// The library of gzip cannot tell its memory. What zstd keeps of a long content is what it allocates for an unknown
    /// length.
    #[test]
    fn memory_is_within_its_bound() {
        // Few letters have the most matches that an encoder may keep, many the most literals.
        let mut seed = 3;
        let mut noise = |letters| {
            let letters = (0..400_000).map(|_| below(&mut seed, letters) as u8);
            letters.collect::<Vec<_>>()
        };
        let small = [noise(2), noise(4), noise(256)];
        let large = text(5 << 20);
        for (coding, level) in every_level().filter(|(coding, _)| *coding != Coding::Gzip) {
            let ample = (&large, Some(large.len() as u64), true);
            let cases = small.iter().map(|content| (content, None, false));
            for (content, length, ample) in cases.chain([ample]) {
                let settings = Settings {
                    coding,
                    level,
                    length,
                    ample,
                };
                let (bytes, bound) = (bytes_used_for(content, settings), settings.memory_bytes());
                assert!(bytes <= bound, "{settings:?} has {bytes} of {bound} bytes");
            }
        }
    }

    /// The memory that an encoder takes for `content` which arrives in pieces.
    fn bytes_used_for(content: &[u8], settings: Settings) -> usize {
        let mut encoder = Encoder::new(settings).expect("valid settings");
        let after = |piece: &[u8]| {
            encoder.push(piece, &mut Vec::new()).expect("no defect");
            used_bytes(&encoder)
        };
        content.chunks(1 << 16).map(after).max().expect("content")
    }

    /// RFC 9659: a decoder may refuse windows over 8 MiB. RFC 8878, 3.1.1.1: without a single segment, the byte after
    /// the descriptor has the window.
    #[test]
    fn ample_windows_of_zstd_are_those_that_clients_accept() {
        let settings = Settings {
            coding: Coding::Zstd,
            level: levels(Coding::Zstd).1,
            length: None,
            ample: true,
        };
        let (mut encoder, mut out) = (Encoder::new(settings).expect("valid settings"), Vec::new());
        encoder.push(b"text", &mut out).expect("no defect");
        encoder.finish(&[], &mut out).expect("no defect");
        assert_eq!(out[4] & 0x20, 0, "a single segment");
        assert_eq!(1_u64 << (10 + (out[5] >> 3)), 8 << 20);
        assert_eq!(out[5] & 7, 0);
    }

    #[test]
    fn ample_windows_of_brotli_hold_the_content() {
        let log = |length, ample| {
            brotli_window_log(Settings {
                coding: Coding::Brotli,
                level: 5,
                length,
                ample,
            })
        };
        assert_eq!(log(Some(0), true), 10);
        assert_eq!(log(Some(1024 - 16), true), 10);
        assert_eq!(log(Some(1024 - 15), true), 11);
        assert_eq!(log(Some((1 << 22) - 16), true), 22);
        assert_eq!(log(Some(u64::MAX), true), 22);
        assert_eq!((log(None, true), log(Some(1), false)), (22, 16));
    }
}
