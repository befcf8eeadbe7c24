//! The body of a request, on its way to a backend.

use std::task::{Context, Poll, ready};

use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::ask::Length;
use crate::body::Incoming;
use crate::conn::Conn;
use crate::parse::NoRequest;

/// Bytes that are handed over at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

const TOO_LARGE_FOR_MEMORY: Reject = Reject {
    status: 413,
    reason: "the request's body is larger than limits.body_memory",
};

/// A request's body, and how much of it has been handed over.
pub struct Upload {
    /// What is in memory, from its start.
    kept: Vec<u8>,
    handed_over: usize,
    /// The rest.
    incoming: Incoming,
    /// All of it is in `kept`, so that it can be sent once more.
    is_whole: bool,
}

impl Upload {
    /// Of what the client sends. What has arrived with the head is taken at once if that is all.
    pub fn new(mut incoming: Incoming, conn: &mut Conn) -> Result<Self, NoRequest> {
        let mut kept = Vec::new();
        let in_hand = incoming
            .left()
            .is_some_and(|bytes| bytes <= conn.inbox.len() as u64);
        if in_hand && !incoming.is_complete() {
            incoming.take_inbox(conn, &mut kept)?;
        }
        Ok(Self {
            kept,
            handed_over: 0,
            is_whole: incoming.is_complete(),
            incoming,
        })
    }

    /// Of the whole body.
    pub fn length(&self) -> Length {
        match (self.incoming.left(), self.kept.len() as u64) {
            (Some(0), 0) => Length::None,
            (Some(left), kept) => Length::Known(left + kept),
            (None, _) => Length::Unknown,
        }
    }

    /// Whether all of it has been handed over.
    pub fn is_done(&self) -> bool {
        self.incoming.is_complete() && self.handed_over == self.kept.len()
    }

    /// Whether the client has sent all of it.
    pub fn is_received(&self) -> bool {
        self.incoming.is_complete()
    }

    /// Whether the client waits for us, or can be asked to.
    pub fn is_untouched(&self) -> bool {
        self.incoming.is_untouched()
    }

    /// Starts again from its beginning; false when that is gone.
    pub fn rewind(&mut self) -> bool {
        self.handed_over = 0;
        self.is_whole || self.incoming.is_untouched()
    }

    /// Receives all of it, so that it can be told how long it is and sent more than once. Waits for the
    /// client, at most `limits.body_timeout` for each part.
    ///
    /// # Errors
    /// 413 for what exceeds `memory_max` bytes, as soon as that is known.
    pub async fn buffer(&mut self, conn: &mut Conn, memory_max: usize) -> Result<(), NoRequest> {
        while !self.incoming.is_complete() {
            let to_come = self.incoming.left().unwrap_or(0);
            if self.kept.len() as u64 + to_come > memory_max as u64 {
                return Err(TOO_LARGE_FOR_MEMORY.into());
            }
            let before = self.kept.len();
            self.incoming.receive(conn, &mut self.kept).await?;
            conn.give_way(self.kept.len() - before).await;
        }
        conn.timer.clear();
        if self.kept.len() > memory_max {
            return Err(TOO_LARGE_FOR_MEMORY.into());
        }
        self.is_whole = true;
        Ok(())
    }

    /// What came behind it.
    pub fn trailers(&self) -> &Trailers {
        self.incoming.trailers()
    }

    /// Adds the next bytes to `out`, at most `room` of them: none only when there are no more.
    pub fn poll_next(
        &mut self,
        conn: &mut Conn,
        context: &mut Context<'_>,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), NoRequest>> {
        if self.handed_over == self.kept.len() && !self.incoming.is_complete() {
            self.kept.clear();
            self.handed_over = 0;
            ready!(self.incoming.poll_receive(conn, context, &mut self.kept))?;
        }
        let rest = &self.kept[self.handed_over..];
        let piece = &rest[..rest.len().min(room).min(PIECE_BYTES_MAX)];
        out.extend_from_slice(piece);
        self.handed_over += piece.len();
        Poll::Ready(Ok(()))
    }
}
