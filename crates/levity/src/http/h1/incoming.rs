//! The framing of a request body: finds its end and decodes chunks.

use levity_wire::http1::{Chunked, Framing, Reject, Trailers};

use crate::http::request_body::BODY_TOO_LARGE;

/// The decoder of a request body. It does no I/O: the connection passes received bytes to it.
pub(super) struct Incoming {
    remaining: Remaining,
    /// Bytes decoded so far.
    bytes: u64,
    bytes_max: u64,
    trailers: Trailers,
    is_cut_off: bool,
}

enum Remaining {
    Nothing,
    Length(u64),
    Chunks(Box<Chunked>),
    /// The body was refused. Its end is not known, so nothing else can be read from the connection.
    Refused(Reject),
}

impl Default for Incoming {
    fn default() -> Self {
        Self::new(Framing::None)
    }
}

impl Incoming {
    /// A body with `framing` and no limit.
    pub(super) fn new(framing: Framing) -> Self {
        let remaining = match framing {
            Framing::None | Framing::Length(0) => Remaining::Nothing,
            Framing::Length(bytes) => Remaining::Length(bytes),
            Framing::Chunked => Remaining::Chunks(Box::default()),
        };
        Self {
            remaining,
            bytes: 0,
            bytes_max: u64::MAX,
            trailers: Trailers::default(),
            is_cut_off: false,
        }
    }

    /// Limits the body to `bytes_max`.
    ///
    /// # Errors
    /// 413 when Content-Length exceeds the limit.
    pub(super) fn limit(&mut self, bytes_max: u64) -> Result<(), Reject> {
        self.bytes_max = bytes_max;
        match self.remaining {
            Remaining::Length(bytes) if self.bytes + bytes > bytes_max => Err(BODY_TOO_LARGE),
            _ => Ok(()),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.remaining, Remaining::Nothing)
    }

    /// Whether no byte has been decoded.
    pub(super) fn is_unread(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes decoded so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The client has left before the end.
    pub(super) fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Whether the client has left before the end.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Bytes not decoded yet; `None` when the body is chunked, and after an error.
    pub(super) fn remaining(&self) -> Option<u64> {
        match self.remaining {
            Remaining::Nothing => Some(0),
            Remaining::Length(bytes) => Some(bytes),
            Remaining::Chunks(_) | Remaining::Refused(_) => None,
        }
    }

    /// The trailers; empty until the body is complete.
    pub(super) fn trailers(&self) -> &Trailers {
        &self.trailers
    }

    /// Decodes the part of `input` that belongs to the body and appends the content to `out`. Returns the number of
    /// bytes consumed.
    ///
    /// # Errors
    /// 400 for malformed chunks, 413 when the body exceeds its limit; the same at each further call.
    pub(super) fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        let taken = self.decode(input, out);
        if let Err(reject) = taken {
            self.remaining = Remaining::Refused(reject);
        }
        taken
    }

    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        let before = out.len();
        let consumed = match &mut self.remaining {
            Remaining::Nothing => 0,
            Remaining::Refused(reject) => return Err(*reject),
            Remaining::Length(length) => {
                let consumed_max = usize::try_from(*length).unwrap_or(usize::MAX);
                let consumed = input.len().min(consumed_max);
                out.extend_from_slice(&input[..consumed]);
                *length -= consumed as u64;
                if *length == 0 {
                    self.remaining = Remaining::Nothing;
                }
                consumed
            }
            Remaining::Chunks(chunked) => {
                let data = |data: &[u8]| out.extend_from_slice(data);
                let decoded = chunked.decode_with_trailers(input, data, &mut self.trailers)?;
                if decoded.done {
                    self.remaining = Remaining::Nothing;
                }
                decoded.consumed
            }
        };
        self.bytes += (out.len() - before) as u64;
        match self.bytes > self.bytes_max {
            true => Err(BODY_TOO_LARGE),
            false => Ok(consumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_body_has_no_end() {
        let too_long = "8\r\n12345678\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
        for first in [too_long, "zz\r\n"] {
            let mut body = Incoming::new(Framing::Chunked);
            body.limit(4).expect("no length is announced");
            let mut out = Vec::new();
            for input in [first, "0\r\n\r\n"] {
                assert!(body.take(input.as_bytes(), &mut out).is_err());
                assert!(!body.is_complete());
                assert_eq!(body.remaining(), None);
            }
        }
    }
}
