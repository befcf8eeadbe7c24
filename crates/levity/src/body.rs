//! A request's body, as it comes in.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use levity_wire::http1::{Chunked, Framing, Reject, RequestHead, Trailers};

use crate::conn::Conn;
use crate::request::NoRequest;

/// What a client has still to send of a request's body. Its bytes are where the connection is; this
/// knows where they end.
pub struct Incoming {
    left: Left,
    /// Received so far, without what frames them.
    bytes: u64,
    bytes_max: u64,
    trailers: Trailers,
}

enum Left {
    Nothing,
    Length(u64),
    Chunks(Box<Chunked>),
}

impl Incoming {
    /// The body that `head` announces, at most `bytes_max` of it.
    ///
    /// # Errors
    /// 413 when it says of itself that it is larger.
    pub fn new(head: &RequestHead, bytes_max: u64) -> Result<Self, Reject> {
        let left = match head.framing {
            Framing::None | Framing::Length(0) => Left::Nothing,
            Framing::Length(bytes) if bytes > bytes_max => return Err(TOO_LARGE),
            Framing::Length(bytes) => Left::Length(bytes),
            Framing::Chunked => Left::Chunks(Box::default()),
        };
        Ok(Self {
            left,
            bytes: 0,
            bytes_max,
            trailers: Trailers::default(),
        })
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Whether none of it has been taken off the connection.
    pub fn is_untouched(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self.left {
            Left::Nothing => Some(0),
            Left::Length(bytes) => Some(bytes),
            Left::Chunks(_) => None,
        }
    }

    /// The fields that came behind it.
    pub fn trailers(&self) -> &Trailers {
        &self.trailers
    }

    /// Adds what has arrived to `out`: ready when that is at least a byte, or when the body is complete.
    /// The caller minds the time.
    pub fn poll_receive(
        &mut self,
        conn: &mut Conn,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), NoRequest>> {
        let before = out.len();
        while !self.is_complete() && out.len() == before {
            if !conn.inbox.is_empty() {
                self.take_inbox(conn, out)?;
                continue;
            }
            let worker = conn.worker.clone();
            let mut scratch = worker.bulk.borrow_mut();
            let count = match ready!(conn.poll_arrival(context, &mut scratch)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(NoRequest::Gone)),
                Ok(count) => count,
            };
            let taken = self.take(&scratch[..count], out)?;
            conn.inbox = scratch[taken..count].to_vec();
        }
        Poll::Ready(Ok(()))
    }

    /// Adds what has arrived already to `out`.
    pub fn take_inbox(&mut self, conn: &mut Conn, out: &mut Vec<u8>) -> Result<(), Reject> {
        let inbox = mem::take(&mut conn.inbox);
        let taken = self.take(&inbox, out)?;
        conn.inbox = inbox[taken..].to_vec();
        Ok(())
    }

    /// Takes what belongs to the body from the start of `input`; tells how much that is.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Reject> {
        let before = out.len();
        let taken = match &mut self.left {
            Left::Nothing => 0,
            Left::Length(left) => {
                let taken = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
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

    /// Waits for more of it, at most `limits.body_timeout`, and adds that to `out`.
    pub async fn receive(&mut self, conn: &mut Conn, out: &mut Vec<u8>) -> Result<(), NoRequest> {
        let body_timeout = conn.worker.service().config.limits.body_timeout;
        conn.timer.set(Instant::now() + body_timeout);
        poll_fn(|context| match self.poll_receive(conn, context, out) {
            Poll::Pending if conn.timer.poll_expired(context) => {
                Poll::Ready(Err(NoRequest::Timeout))
            }
            received => received,
        })
        .await
    }

    /// Reads all of it and drops it.
    pub async fn discard(mut self, conn: &mut Conn) -> Result<(), NoRequest> {
        let mut dropped = Vec::new();
        while !self.is_complete() {
            self.receive(conn, &mut dropped).await?;
            conn.give_way(dropped.len()).await;
            dropped.clear();
        }
        Ok(())
    }
}

const TOO_LARGE: Reject = Reject {
    status: 413,
    reason: "the request's body is larger than `body_bytes` allows",
};
