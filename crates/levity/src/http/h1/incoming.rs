//! Where the body of a request ends.

use levity_wire::http1::{Chunked, Framing, Reject, Trailers};

/// What a client has still to send of a request's body. Its bytes are where the connection is; this
/// knows where they end.
pub(super) struct Incoming {
    left: Left,
    /// Received so far, without chunk framing.
    bytes: u64,
    bytes_max: u64,
    trailers: Trailers,
}

enum Left {
    Nothing,
    Length(u64),
    Chunks(Box<Chunked>),
}

impl Default for Incoming {
    fn default() -> Self {
        Self::new(Framing::None)
    }
}

impl Incoming {
    /// A body that is framed so, of any length.
    pub(super) fn new(framing: Framing) -> Self {
        let left = match framing {
            Framing::None | Framing::Length(0) => Left::Nothing,
            Framing::Length(bytes) => Left::Length(bytes),
            Framing::Chunked => Left::Chunks(Box::default()),
        };
        Self {
            left,
            bytes: 0,
            bytes_max: u64::MAX,
            trailers: Trailers::default(),
        }
    }

    /// From now on refuses more than `bytes_max`.
    ///
    /// # Errors
    /// 413 when the body is known to be larger.
    pub(super) fn limit(&mut self, bytes_max: u64) -> Result<(), Reject> {
        self.bytes_max = bytes_max;
        match self.left {
            Left::Length(bytes) if self.bytes + bytes > bytes_max => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Whether none of it has been taken off the connection.
    pub(super) fn is_untouched(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes to come; `None` when only its end tells.
    pub(super) fn left(&self) -> Option<u64> {
        match self.left {
            Left::Nothing => Some(0),
            Left::Length(bytes) => Some(bytes),
            Left::Chunks(_) => None,
        }
    }

    /// The fields that came behind it.
    pub(super) fn trailers(&self) -> &Trailers {
        &self.trailers
    }

    /// Takes what belongs to the body from the start of `input`; tells how much that is.
    pub(super) fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        let before = out.len();
        let taken = match &mut self.left {
            Left::Nothing => 0,
            Left::Length(left) => {
                let left_max = usize::try_from(*left).unwrap_or(usize::MAX);
                let taken = input.len().min(left_max);
                out.extend_from_slice(&input[..taken]);
                *left -= taken as u64;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
                taken
            }
            Left::Chunks(chunked) => {
                let data = |data: &[u8]| out.extend_from_slice(data);
                let decoded = chunked.decode_with_trailers(input, data, &mut self.trailers)?;
                if decoded.done {
                    self.left = Left::Nothing;
                }
                decoded.consumed
            }
        };
        self.bytes += (out.len() - before) as u64;
        match self.bytes > self.bytes_max {
            true => Err(TOO_LARGE),
            false => Ok(taken),
        }
    }
}

const TOO_LARGE: Reject = Reject {
    status: 413,
    reason: "the request's body is larger than `body_bytes` allows",
};
