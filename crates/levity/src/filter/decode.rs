//! Decodes content codings (RFC 9110, 8.4.1), for filters that have to read what a backend sent compressed.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use levity_wire::encoding::Coding;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

use crate::http::filter::FilterError;

/// The codings that can be decoded: those without a dictionary.
pub const CODINGS: [Coding; 3] = Coding::ALL;

/// Bytes that are decoded at once.
const STEP_BYTES: usize = 16 * 1024;

/// Decoded bytes up to which the ratio of a body is not limited.
const FREE_BYTES: u64 = 1024 * 1024;

/// The maximum number of decoded bytes per encoded byte, beyond [`FREE_BYTES`]. gzip reaches 1032 at most; the other
/// codings can pack gigabytes into a kilobyte.
const RATIO_MAX: u64 = 1000;

/// The largest window of zstd as a content coding, 8 MiB (RFC 9659), as a power of two.
const ZSTD_WINDOW_BITS_MAX: u8 = 23;

/// The largest window of br, 16 MiB (RFC 7932, 9.1), as a power of two.
const BROTLI_WINDOW_BITS_MAX: u8 = 24;

/// The largest window of gzip, 32 KiB (RFC 1951), as a power of two.
const GZIP_WINDOW_BITS: u8 = 15;

/// Decodes a body piece by piece. It keeps at most the window of its coding: 32 KiB (gzip), 8 MiB (zstd) or 16 MiB
/// (br), as far as the content fills it.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// Encoded bytes so far.
    encoded: u64,
    /// Decoded bytes so far.
    decoded: u64,
    /// The encoded bytes may end here.
    may_end: bool,
}

enum State {
    Gzip(Decompress),
    Brotli(Box<BrotliDecoder>),
    Zstd(ZstdDecoder<'static>),
}

type BrotliDecoder = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// The progress of one step.
struct Step {
    read: usize,
    written: usize,
    may_end: bool,
}

/// The largest window of `coding` in bytes: what a decoder keeps of the content at most.
pub fn window_bytes_max(coding: Coding) -> usize {
    let bits = match coding {
        Coding::Gzip => GZIP_WINDOW_BITS,
        Coding::Brotli | Coding::Dcb => BROTLI_WINDOW_BITS_MAX,
        Coding::Zstd | Coding::Dcz => ZSTD_WINDOW_BITS_MAX,
    };
    1 << bits
}

impl Decoder {
    /// A decoder at the start of a body.
    pub fn new(coding: Coding) -> Self {
        let state = match coding {
            Coding::Gzip => State::Gzip(Decompress::new_gzip(GZIP_WINDOW_BITS)),
            // `Coding::ALL` has no coding with a dictionary: its content cannot be decoded without.
            Coding::Brotli | Coding::Dcb => State::Brotli(Box::new(brotli())),
            Coding::Zstd | Coding::Dcz => {
                let mut decoder = ZstdDecoder::new().expect("there is memory");
                let set =
                    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS_MAX.into()));
                set.expect("zstd has larger windows");
                State::Zstd(decoder)
            }
        };
        Self {
            state,
            encoded: 0,
            decoded: 0,
            // A body of no bytes has no content, whatever its coding.
            may_end: true,
        }
    }

    /// Decodes `input`, and passes the content to `sink`, at most `STEP_BYTES` at a time. All that can be decoded
    /// of `input` is passed on.
    ///
    /// # Errors
    /// When `input` is not of the coding, when the body grows too much, or those of `sink`.
    pub fn push(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        let mut rest = input;
        let mut is_full = false;
        let mut output = [0; STEP_BYTES];
        self.encoded += rest.len() as u64;
        while !rest.is_empty() || (is_full && !self.may_end) {
            let step = self.state.step(rest, &mut output, self.may_end)?;
            if step.read == 0 && step.written == 0 && !rest.is_empty() {
                return Err(self.state.error("it continues after its end"));
            }
            rest = &rest[step.read..];
            is_full = step.written == output.len();
            self.may_end = step.may_end;
            self.decoded += step.written as u64;
            if self.decoded > FREE_BYTES && self.decoded > self.encoded.saturating_mul(RATIO_MAX) {
                let reason = format!("it decodes to more than {RATIO_MAX} times its size");
                return Err(self.state.error(&reason));
            }
            sink(&output[..step.written])?;
        }
        Ok(())
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn finish(&self) -> Result<(), FilterError> {
        match self.may_end {
            true => Ok(()),
            false => Err(self.state.error("it ends too early")),
        }
    }
}

impl State {
    /// Decodes from `input` to `output` until one of them is used up. `is_at_start` says that a member of gzip or a
    /// frame of zstd begins here.
    fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_at_start: bool,
    ) -> Result<Step, FilterError> {
        let step = match self {
            Self::Gzip(inflate) => {
                // A body may have several members (RFC 1952, 2.2), and the decoder stops after each.
                if is_at_start && inflate.total_in() > 0 {
                    *inflate = Decompress::new_gzip(GZIP_WINDOW_BITS);
                }
                gzip_step(inflate, input, output).map_err(|error| error.to_string())
            }
            Self::Brotli(decoder) => brotli_step(decoder, input, output),
            Self::Zstd(decoder) => match decoder.run_on_buffers(input, output) {
                Ok(status) => Ok(Step {
                    read: status.bytes_read,
                    written: status.bytes_written,
                    may_end: status.remaining == 0,
                }),
                Err(error) => Err(error.to_string()),
            },
        };
        step.map_err(|reason| self.error(&reason))
    }

    fn coding(&self) -> Coding {
        match self {
            Self::Gzip(_) => Coding::Gzip,
            Self::Brotli(_) => Coding::Brotli,
            Self::Zstd(_) => Coding::Zstd,
        }
    }

    fn error(&self, reason: &str) -> FilterError {
        let name = self.coding().name();
        FilterError(format!("the body cannot be decoded from {name}: {reason}"))
    }
}

fn gzip_step(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<Step, flate2::DecompressError> {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None)?;
    let read = inflate.total_in() - before.0;
    let written = inflate.total_out() - before.1;
    Ok(Step {
        read: usize::try_from(read).expect("at most the input"),
        written: usize::try_from(written).expect("at most the output"),
        may_end: status == Status::StreamEnd,
    })
}

fn brotli() -> BrotliDecoder {
    let alloc = StandardAlloc::default;
    // Other decoders take windows of RFC 9841 too, which are no part of the content coding.
    BrotliState::new_strict(alloc(), alloc(), alloc())
}

fn brotli_step(
    decoder: &mut BrotliDecoder,
    input: &[u8],
    output: &mut [u8],
) -> Result<Step, String> {
    let (mut unread, mut read) = (input.len(), 0);
    let (mut free, mut written) = (output.len(), 0);
    let result = BrotliDecompressStream(
        &mut unread,
        &mut read,
        input,
        &mut free,
        &mut written,
        output,
        &mut 0,
        decoder,
    );
    match result {
        BrotliResult::ResultFailure => Err(format!("{:?}", decoder.error_code)),
        result => Ok(Step {
            read,
            written,
            may_end: matches!(result, BrotliResult::ResultSuccess),
        }),
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.coding().name())
    }
}

#[cfg(test)]
mod tests;
