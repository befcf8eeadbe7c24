//! A response that says what to do with mailboxes: its content is a message, or it holds the client.
//!
//! The content is read before anything else happens, so that the backend is free.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use levity_net::TURN_BYTES_MAX;
use levity_telemetry::diagnostics;
use levity_telemetry::trace::Trace;

use super::backend::Backend;
use super::codec::head::Head;
use super::response::UpstreamResponse;
use crate::http::error::error;
use crate::http::response::{BodyStream as _, Piece, PieceLimits, Response};

/// A response of a backend whose headers are about mailboxes.
pub struct ForMailboxes {
    /// The header.
    pub head: Head,
    from: Box<UpstreamResponse>,
    backend: Arc<Backend>,
}

impl ForMailboxes {
    /// The response that begins with `head`.
    pub fn new(head: Head, from: Box<UpstreamResponse>, backend: Arc<Backend>) -> Self {
        Self {
            head,
            from,
            backend,
        }
    }

    /// The length that is announced, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.from.length(self.head.length)
    }

    /// Reads the content, at most `bytes_max`.
    ///
    /// # Errors
    /// The response to the client, after a line in the log.
    pub async fn content(
        &mut self,
        bytes_max: usize,
        trace: &mut Trace,
    ) -> Result<Vec<u8>, Response> {
        if let Some(coding) = self.head.fields.value("content-encoding") {
            let reason = format_args!(
                "content for mailboxes has no Content-Encoding, such as {}",
                coding.escape_ascii()
            );
            return Err(self.refuse(502, reason));
        }
        let is_long = |length: u64| length > bytes_max as u64;
        if self.length().is_some_and(is_long) {
            return Err(self.refuse_long(bytes_max));
        }
        let limits = PieceLimits {
            bytes_max: TURN_BYTES_MAX,
            may_splice: false,
        };
        let mut content = Vec::new();
        loop {
            let piece = poll_fn(|context| self.from.poll_piece(context, limits)).await;
            let is_complete = match piece {
                Ok(Piece::Data { bytes, is_last }) => {
                    content.extend_from_slice(&bytes);
                    is_last
                }
                Ok(Piece::End(_)) => true,
                Ok(Piece::Spliced(_)) => unreachable!("it may not be spliced"),
                Err(failure) => {
                    failure.report(true, trace);
                    return Err(failure.response());
                }
            };
            if content.len() > bytes_max {
                return Err(self.refuse_long(bytes_max));
            }
            if is_complete {
                return Ok(content);
            }
        }
    }

    fn refuse_long(&self, bytes_max: usize) -> Response {
        let reason = format_args!("the content exceeds `message_bytes`, {bytes_max} bytes");
        self.refuse(502, reason)
    }

    /// The client has to send no more of its request before the response.
    pub fn reads_request(&self) -> bool {
        self.from.reads_request()
    }

    /// Logs the reason, and returns an error response; the client sees only the status.
    pub fn refuse(&self, status: u16, reason: impl fmt::Display) -> Response {
        self.log(status, reason);
        let mut response = error(status, "");
        response.close = !self.reads_request();
        response
    }

    /// Logs why the response has not the effect that it asks for.
    pub fn log(&self, status: u16, reason: impl fmt::Display) {
        diagnostics::log(format_args!(
            "upstream {}, backend {}: mailboxes: {reason} ({status})",
            self.from.endpoint().upstream().settings.name,
            self.backend.name,
        ));
    }
}
