//! The end of a connection (RFC 9113, 6.8): for no fault of the client, or for an error.

use super::Connection;
use crate::http2::frame::{self, kind};
use crate::http2::streams::StreamId;
use crate::http2::{ErrorCode, Failure};

/// The content of the PING after the first GOAWAY. Its reply shows that the client has read that.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The largest number of a stream.
const STREAM_ID_MAX: StreamId = StreamId::MAX >> 1;

/// The phase of a shutdown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    No,
    /// The client was told, and may still begin requests before it knows.
    Announced,
    /// Requests after the last one are ignored.
    Final,
}

impl Connection {
    /// Announces the end of the connection. Requests that are on their way are still answered (RFC 9113, 6.8).
    pub fn shut_down(&mut self) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            self.go_away(STREAM_ID_MAX, ErrorCode::NoError, "");
            frame::write(&mut self.out, kind::PING, 0, 0, &SHUTDOWN_PING);
        }
    }

    /// Tells the client which request was the last one. Later ones are ignored.
    pub fn end_shutdown(&mut self) {
        if self.shutdown != Shutdown::Final {
            self.shutdown = Shutdown::Final;
            self.go_away(self.last_stream, ErrorCode::NoError, "");
        }
    }

    /// Whether the client knows that the connection ends, and has got all responses.
    pub fn is_done(&self) -> bool {
        self.shutdown == Shutdown::Final && self.streams.len() == 0
    }

    pub(super) fn fail(&mut self, failure: &Failure) {
        self.shutdown = Shutdown::Final;
        self.go_away(self.last_stream, failure.code, failure.reason);
    }

    fn go_away(&mut self, last: StreamId, code: ErrorCode, reason: &str) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&(code as u32).to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
        frame::write(&mut self.out, kind::GOAWAY, 0, 0, &payload);
    }
}
