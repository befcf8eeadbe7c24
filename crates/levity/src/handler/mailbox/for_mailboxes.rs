//! A response that says what to do with mailboxes: its content is a message, or it holds the client.
//!
//! The content is read before anything else happens, so that the backend is free.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;

use levity_config::Etag;
use levity_net::TURN_BYTES_MAX;
use levity_telemetry::diagnostics;
use levity_telemetry::trace::Trace;

use crate::gateway::Fetched;
use crate::gateway::response::UpstreamResponse;
use crate::handler::sendfile::Delegated;
use crate::http::error::error;
use crate::http::response::{BodyStream as _, Piece, PieceLimits, Response};
use crate::message::origin::Origin;
use crate::upstream::backend::Backend;
use crate::upstream::codec::head::Head;
use crate::upstream::proxy::Proxy;

/// A response of a backend whose headers are about mailboxes.
pub struct ForMailboxes {
    /// The header.
    pub head: Head,
    /// `None` once a file is sent in its place.
    from: Option<Box<UpstreamResponse>>,
    proxy: Arc<Proxy>,
    backend: Arc<Backend>,
}

impl ForMailboxes {
    /// The response that was fetched by way of `proxy`.
    pub fn new(fetched: Fetched, proxy: Arc<Proxy>) -> Self {
        Self {
            head: fetched.head,
            from: Some(fetched.rest),
            proxy,
            backend: fetched.backend,
        }
    }

    /// The length that is announced, in bytes.
    pub fn length(&self) -> Option<u64> {
        let from = self.from.as_ref();
        from.map_or(Some(0), |from| from.length(self.head.length))
    }

    /// The delegation, if the content is in a file. The content of the response itself is dropped then.
    pub fn delegated(&mut self, etag: Etag) -> Option<Delegated> {
        if !self.head.delegates() {
            return None;
        }
        let head = Head {
            status: self.head.status,
            delegations: mem::take(&mut self.head.delegations),
            ..Head::default()
        };
        // For receipts, which a message has not.
        let origin = Origin {
            scheme: "http",
            host: Vec::new(),
        };
        let fetched = Fetched {
            head,
            rest: self.from.take()?,
            backend: self.backend.clone(),
        };
        Some(Delegated::of(fetched, self.proxy.clone(), origin, etag))
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
        let Some(from) = &mut self.from else {
            return Ok(content);
        };
        loop {
            let piece = poll_fn(|context| from.poll_piece(context, limits)).await;
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

    /// Refuses content that exceeds `bytes_max`.
    pub fn refuse_long(&self, bytes_max: usize) -> Response {
        let reason = format_args!("the content exceeds `message_bytes`, {bytes_max} bytes");
        self.refuse(502, reason)
    }

    /// Sends no more of the request to the backend. Returns whether all of it has been received.
    pub fn end_request(&mut self) -> bool {
        self.from.as_mut().is_none_or(|from| {
            from.stop_upload();
            from.reads_request()
        })
    }

    /// Logs the reason, and returns an error response; the client sees only the status.
    pub fn refuse(&self, status: u16, reason: impl fmt::Display) -> Response {
        self.log(status, reason);
        error(status, "")
    }

    /// Logs why the response has not the effect that it asks for.
    pub fn log(&self, status: u16, reason: impl fmt::Display) {
        diagnostics::log(format_args!(
            "upstream {}, backend {}: mailboxes: {reason} ({status})",
            self.proxy.upstream.settings.name, self.backend.name,
        ));
    }
}
