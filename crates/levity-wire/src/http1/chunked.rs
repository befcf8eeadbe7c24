//! Decoder of the chunked transfer coding (RFC 9112, 7.1); the encoder is in `write.rs`.

use super::line::{is_control, is_token_byte};
use super::{Reject, Trailers};

/// Hexadecimal digits in a chunk size: 64 bits, so that no size can overflow.
const SIZE_DIGITS_MAX: u32 = 16;

/// Bytes of chunk extensions in a whole body, each with its CR. They are parsed and ignored.
/// Without a limit, a body of one-byte chunks could make the server read many times its size.
const EXTENSION_BYTES_MAX: u32 = 4 * 1024;

const BAD_SIZE: Reject = Reject::bad("bad chunk size");
const BAD_EXTENSION: Reject = Reject::bad("bad chunk extension");

/// Bytes of trailer lines in a body, each with its CR.
const TRAILER_BYTES_MAX: u32 = 8 * 1024;

/// Decoder of one chunked body. Create a new one for the next body; do not use it after an error.
///
/// Extensions and trailers are checked; [`decode_with_trailers`](Self::decode_with_trailers)
/// returns the trailers.
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    state: State,
    /// White space may follow a size.
    allows_padding: bool,
    /// Data bytes left in the current chunk.
    left: u64,
    size_digits: u32,
    extension_bytes: u32,
    trailer_bytes: u32,
}

/// The result of one call of [`Chunked::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that belong to the body: all of them unless `done`.
    pub consumed: usize,
    /// The body is complete; the rest of the input is the next message.
    pub done: bool,
}

/// The part of the body that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Size,
    /// In white space after the size.
    SizePadding,
    Extension(Extension),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// The part of a chunk extension (RFC 9112, 7.1.1) that the next byte belongs to. White space is
/// allowed around names and values, but not after the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Token,
    Quoted,
    /// After a backslash.
    QuotedPair,
    QuotedEnd,
    AfterValue,
}

impl Extension {
    fn step(self, byte: u8) -> Result<State, Reject> {
        let next = match (self, byte) {
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, _) if !is_control(byte) => Self::Quoted,
            (Self::Name | Self::Token | Self::QuotedEnd, b'\r') => return Ok(State::SizeLf),
            (Self::BeforeName | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::BeforeValue | Self::Token, _) if is_token_byte(byte) => Self::Token,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::BeforeName | Self::BeforeValue, b' ' | b'\t') => self,
            (Self::Name | Self::AfterName, b' ' | b'\t') => Self::AfterName,
            (Self::Token | Self::QuotedEnd | Self::AfterValue, b' ' | b'\t') => Self::AfterValue,
            (Self::Quoted | Self::QuotedPair | Self::BeforeName | Self::BeforeValue, _) => {
                return Err(BAD_EXTENSION);
            }
            (_, b';') => Self::BeforeName,
            _ => return Err(BAD_EXTENSION),
        };
        Ok(State::Extension(next))
    }
}

impl State {
    /// Whether the last byte belongs to a trailer line, including its CR but not its LF.
    fn is_in_trailer(self) -> bool {
        matches!(
            self,
            Self::TrailerName | Self::TrailerValue | Self::TrailerLf
        )
    }
}

impl Chunked {
    /// A decoder of a response: white space may follow a size, which some servers pad to a fixed width. RFC 9112, 7.1.1
    /// allows it before an extension only. Of a client it could hide a request from one of two parsers, whereas a
    /// response is written anew for its client.
    #[must_use]
    pub fn of_response() -> Self {
        Self {
            allows_padding: true,
            ..Self::default()
        }
    }

    /// Decodes the input, which may be split anywhere, and passes each piece of data to `data`
    /// without copying it.
    ///
    /// # Errors
    /// 400 for any deviation from the grammar (bare LF, white space or a sign at the size, more
    /// than 16 digits, an extension without a name), 431 when extensions or trailers exceed their
    /// limits. Data passed on before the error belongs to an incomplete body.
    pub fn decode(&mut self, input: &[u8], data: impl FnMut(&[u8])) -> Result<Decoded, Reject> {
        self.read(input, data, |_| {})
    }

    /// As [`decode`](Self::decode), and adds the trailers to `trailers`: at most 8 KiB.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_with_trailers(
        &mut self,
        input: &[u8],
        data: impl FnMut(&[u8]),
        trailers: &mut Trailers,
    ) -> Result<Decoded, Reject> {
        self.read(input, data, |byte| trailers.push(byte))
    }

    fn read(
        &mut self,
        input: &[u8],
        mut data: impl FnMut(&[u8]),
        mut trailer: impl FnMut(u8),
    ) -> Result<Decoded, Reject> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let len = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(input.len() - at);
                data(&input[at..at + len]);
                at += len;
                self.data_read(len);
            } else {
                self.state = self.step(input[at])?;
                if self.state.is_in_trailer() {
                    trailer(input[at]);
                }
                at += 1;
            }
        }
        Ok(Decoded {
            consumed: at,
            done: self.state == State::Done,
        })
    }

    fn data_read(&mut self, len: usize) {
        self.left -= len as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
    }

    /// The state after one byte outside the data.
    fn step(&mut self, byte: u8) -> Result<State, Reject> {
        match (self.state, byte) {
            (State::Size, _) => self.size(byte),
            (State::SizePadding, _) => self.after_size(byte),
            (State::Extension(part), _) => self.extension(part, byte),
            (State::SizeLf, b'\n') => Ok(self.chunk_start()),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size),
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                self.trailer(byte)
            }
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::DataCr | State::DataLf, _) => Err(Reject::bad("chunk longer than its size")),
            _ => Err(Reject::bad("bare CR in a chunked body")),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, Reject> {
        match (char::from(byte).to_digit(16), byte) {
            (Some(_), _) if self.size_digits == SIZE_DIGITS_MAX => {
                Err(Reject::bad("chunk size too large"))
            }
            (Some(digit), _) => {
                self.left = self.left << 4 | u64::from(digit);
                self.size_digits += 1;
                Ok(State::Size)
            }
            (None, _) if self.size_digits > 0 => self.after_size(byte),
            _ => Err(BAD_SIZE),
        }
    }

    fn after_size(&mut self, byte: u8) -> Result<State, Reject> {
        match byte {
            b'\r' => Ok(State::SizeLf),
            b';' => Ok(State::Extension(Extension::BeforeName)),
            // As with an extension, one-byte chunks could make the server read many times their size.
            b' ' | b'\t' if self.allows_padding => {
                self.count_ignored()?;
                Ok(State::SizePadding)
            }
            _ => Err(BAD_SIZE),
        }
    }

    fn extension(&mut self, part: Extension, byte: u8) -> Result<State, Reject> {
        self.count_ignored()?;
        part.step(byte)
    }

    /// Counts a byte that has no meaning.
    fn count_ignored(&mut self) -> Result<(), Reject> {
        self.extension_bytes += 1;
        match self.extension_bytes {
            ..=EXTENSION_BYTES_MAX => Ok(()),
            _ => Err(Reject::new(431, "chunk extensions too long")),
        }
    }

    fn chunk_start(&mut self) -> State {
        self.size_digits = 0;
        if self.left > 0 {
            State::Data
        } else {
            State::TrailerStart
        }
    }

    fn trailer(&mut self, byte: u8) -> Result<State, Reject> {
        self.trailer_bytes += 1;
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            _ if self.trailer_bytes > TRAILER_BYTES_MAX => {
                Err(Reject::new(431, "trailers too long"))
            }
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if !is_control(byte) => Ok(State::TrailerValue),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                Ok(State::TrailerName)
            }
            _ => Err(Reject::bad("bad trailer line")),
        }
    }
}
