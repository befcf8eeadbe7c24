//! The body of a request that arrives in frames.

use std::collections::VecDeque;
use std::task::Poll;

use levity_wire::http1::{Framing, Reject, Trailers};

use super::credit::Credit;
use crate::http::request_body::{BODY_TOO_LARGE, PART_BYTES_MAX};
use crate::message::request::RequestError;

/// A body. It holds the bytes that have arrived and that nobody has read: at most the window of the stream.
pub struct Incoming {
    /// Bytes that nobody has read. A window may be many times as large as the part that is taken of it: the rest must not be moved.
    unread: VecDeque<u8>,
    /// The whole body has arrived.
    has_ended: bool,
    /// The request has no body.
    is_tunnel: bool,
    /// The stream was reset before the end of the body.
    is_cut_off: bool,
    /// The bytes of Content-Length that nobody has read; `None` without it.
    remaining: Option<u64>,
    /// Bytes that were read.
    bytes: u64,
    bytes_max: u64,
    trailers: Option<Box<Trailers>>,
    /// `None` until the client is known, and once all was read.
    pub credit: Option<Credit>,
}

impl Incoming {
    /// The body of a request with this framing. Bytes after a request without a body are for a tunnel.
    pub fn new(framing: Framing, has_ended: bool) -> Self {
        Self {
            unread: VecDeque::new(),
            has_ended,
            is_tunnel: framing == Framing::None,
            is_cut_off: false,
            remaining: match framing {
                Framing::None => Some(0),
                Framing::Length(bytes) => Some(bytes),
                Framing::Chunked => None,
            },
            bytes: 0,
            bytes_max: u64::MAX,
            trailers: None,
            credit: None,
        }
    }

    /// Takes bytes of the client.
    pub fn arrived(&mut self, bytes: &[u8], ends: bool) {
        self.unread.extend(bytes);
        self.has_ended |= ends;
    }

    /// The bytes that are unread or to come, at most. Those that are here keep their place in the window, even once all are.
    pub fn outstanding(&self) -> usize {
        let left = self.remaining.filter(|_| !self.is_tunnel);
        match self.has_ended {
            true => self.unread.len(),
            false => left.map_or(usize::MAX, |left| left as usize),
        }
    }

    /// The credit for this body, in bytes. It is given back when the whole body was read.
    pub fn credit_bytes(&mut self) -> usize {
        if self.is_complete() {
            self.credit = None;
        }
        self.credit.as_ref().map_or(0, Credit::amount)
    }

    /// Takes the trailers, which end the body.
    pub fn ended_with(&mut self, trailers: Trailers) {
        self.trailers = Some(Box::new(trailers));
        self.has_ended = true;
    }

    /// The stream was reset.
    pub fn reset(&mut self) {
        self.is_cut_off = !self.has_ended;
    }

    /// Whether the stream was reset within the body.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off && !self.is_tunnel
    }

    /// Limits the body to `bytes_max`.
    ///
    /// # Errors
    /// 413 when Content-Length exceeds the limit.
    pub fn limit(&mut self, bytes_max: u64) -> Result<(), Reject> {
        self.bytes_max = bytes_max;
        match self.remaining {
            Some(remaining) if self.bytes + remaining > bytes_max => Err(BODY_TOO_LARGE),
            _ => Ok(()),
        }
    }

    /// Bytes that nobody has read; `None` when the length is unknown, or trailers may follow.
    pub fn remaining(&self) -> Option<u64> {
        match self.is_tunnel || self.is_complete() {
            true => Some(0),
            false => self.remaining.filter(|&remaining| remaining > 0),
        }
    }

    /// Whether the whole body was read.
    pub fn is_complete(&self) -> bool {
        self.has_ended && self.unread.is_empty()
    }

    /// Whether the client may send more of a body.
    pub fn is_open(&self) -> bool {
        !self.has_ended && !self.is_cut_off && !self.is_tunnel
    }

    /// Whether the whole body has arrived.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The number of bytes that have arrived and that nobody has read.
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The trailers; empty until the whole body was read.
    pub fn trailers(&self) -> Trailers {
        let trailers = self.trailers.as_deref().filter(|_| self.is_complete());
        trailers.cloned().unwrap_or_default()
    }

    /// Moves what has arrived to `out`, [`PART_BYTES_MAX`] at most; pending if nothing has. Returns the number of bytes, and an
    /// error if the body is too long.
    pub fn poll_body(&mut self, out: &mut Vec<u8>) -> Poll<(usize, Result<(), RequestError>)> {
        let bytes = self.unread.len().min(PART_BYTES_MAX);
        if bytes == 0 {
            return match (self.has_ended, self.is_cut_off) {
                (true, _) => Poll::Ready((0, Ok(()))),
                (false, true) => Poll::Ready((0, Err(RequestError::Gone))),
                (false, false) => Poll::Pending,
            };
        }
        match out.is_empty() && bytes == self.unread.len() {
            true => *out = std::mem::take(&mut self.unread).into(),
            false => self.take(bytes, |part| out.extend_from_slice(part)),
        }
        self.count(bytes);
        let taken = match self.bytes > self.bytes_max {
            true => Err(BODY_TOO_LARGE.into()),
            false => Ok(()),
        };
        Poll::Ready((bytes, taken))
    }

    /// Fills `buffer` with what has arrived; pending if nothing has. Returns the number of bytes: 0 at the end.
    pub fn poll_read(&mut self, buffer: &mut [u8]) -> Poll<usize> {
        let bytes = self.unread.len().min(buffer.len());
        if bytes == 0 {
            return match self.has_ended || self.is_cut_off {
                true => Poll::Ready(0),
                false => Poll::Pending,
            };
        }
        let mut at = 0;
        self.take(bytes, |part| {
            buffer[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        self.count(bytes);
        Poll::Ready(bytes)
    }

    /// Passes the first `bytes` of what is unread to `copy`, in up to two parts.
    fn take(&mut self, bytes: usize, mut copy: impl FnMut(&[u8])) {
        let (first, second) = self.unread.as_slices();
        let cut = bytes.min(first.len());
        copy(&first[..cut]);
        copy(&second[..bytes - cut]);
        self.unread.drain(..bytes);
        if self.unread.is_empty() && self.unread.capacity() > PART_BYTES_MAX {
            // The room may be that of a whole window, which no budget counts while nothing is in it.
            self.unread = VecDeque::new();
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let remaining = self.remaining;
        self.remaining = remaining.map(|remaining| remaining.saturating_sub(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_taken_in_pieces() {
        let all: Vec<u8> = (0..PART_BYTES_MAX + 1).map(|at| at as u8).collect();
        for (bytes, pieces) in [
            (PART_BYTES_MAX, vec![PART_BYTES_MAX]),
            (PART_BYTES_MAX + 1, vec![PART_BYTES_MAX, 1]),
        ] {
            let mut body = Incoming::new(Framing::Chunked, false);
            body.arrived(&all[..bytes], true);
            let mut out = Vec::new();
            for piece in pieces {
                assert!(!body.is_complete());
                let polled = body.poll_body(&mut out);
                assert!(matches!(polled, Poll::Ready((taken, Ok(()))) if taken == piece));
            }
            assert!(body.is_complete());
            assert_eq!(out, all[..bytes]);
            assert!(body.unread.capacity() <= PART_BYTES_MAX);
        }
    }
}
