//! Why a request failed at its upstream, and whose fault that is.

use std::fmt;
use std::io;
use std::time::Duration;

use levity_wire::Reject;
use rustix::io::Errno;

use super::backend::Backend;
use super::tls;
use crate::http::request_body::NO_ROOM;
use crate::message::request::{ABSENT, Request, RequestError};
use levity_telemetry::access_log::End;
use levity_telemetry::trace::Side;

/// Why there is no slot for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// The queue is full.
    QueueFull,
    /// No slot became free within `queue_timeout`.
    QueueTimeout,
    /// Every backend has been tried.
    Exhausted,
    /// No backend has an address: names do not resolve.
    NoAddress,
}

/// A failed request: it got no response, or only a part.
#[derive(Debug)]
pub struct Failure {
    /// The status for the client, if nothing has been sent yet.
    pub status: u16,
    /// Who caused the failure.
    pub side: Side,
    /// The error type of `Proxy-Status` (RFC 9209, 2.3).
    pub kind: &'static str,
    /// For the log.
    pub reason: String,
    /// The backend cannot have acted on the request.
    pub is_untouched: bool,
    /// Only a stream or a connection that many requests share has failed. It does not count against the backend, which
    /// may take the request on another connection.
    pub spares_backend: bool,
    /// The connection had been idle, and ended before a byte of the response, which is normal.
    pub was_stale: bool,
    /// How the response ends for the access log, if its header has been sent.
    pub end: End,
    /// A byte of the response has arrived.
    pub response_begun: bool,
    /// Another attempt follows, so the client does not see this failure.
    pub retried: bool,
}

impl Failure {
    /// A failure of the backend.
    pub fn of_backend(status: u16, kind: &'static str, reason: impl fmt::Display) -> Self {
        Self {
            status,
            side: Side::Backend,
            kind,
            reason: reason.to_string(),
            end: End::Error,
            is_untouched: false,
            spares_backend: false,
            was_stale: false,
            response_begun: false,
            retried: false,
        }
    }

    /// Whether the request may be sent to another backend: no backend has acted on it or it is idempotent, and no byte of
    /// a response has arrived.
    pub fn may_retry(&self, request: &Request) -> bool {
        // A slow backend may still be processing it, and the next would be slow too.
        let may_repeat = request.is_idempotent() && self.status != 504;
        self.side == Side::Backend && !self.response_begun && (self.is_untouched || may_repeat)
    }

    /// Whether names of backends may lead elsewhere by now: none has begun to process the request, or none has an
    /// address.
    pub fn may_have_moved(&self) -> bool {
        self.side == Side::Backend && (self.is_untouched || self.kind == "dns_error")
    }

    /// Whether the backend may be about to start: no connection could be made, or it ended before anything of the
    /// request was sent. What a handshake of TLS or HTTP/2 refuses it would refuse again, and a time-out has taken long
    /// enough.
    pub fn is_unreached(&self) -> bool {
        let unreached = [
            "connection_refused",
            "connection_terminated",
            "destination_ip_unroutable",
            "destination_unavailable",
            "http_response_incomplete",
        ];
        let is_so = self.is_untouched && !self.spares_backend && self.side == Side::Backend;
        is_so && self.status == 502 && unreached.contains(&self.kind)
    }

    /// Whether the connection ended before a byte of the response.
    pub fn is_end_of_connection(&self) -> bool {
        let ended = ["connection_terminated", "http_response_incomplete"];
        !self.response_begun && ended.contains(&self.kind)
    }

    /// A connection could not be made.
    pub fn of_connect(error: &io::Error) -> Self {
        let (status, kind) = match error.kind() {
            io::ErrorKind::TimedOut => (504, "connection_timeout"),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                (502, "connection_refused")
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (502, "destination_ip_unroutable")
            }
            io::ErrorKind::InvalidData => {
                (502, tls::error_type(error).unwrap_or("tls_protocol_error"))
            }
            io::ErrorKind::Unsupported => (502, "http_protocol_error"),
            _ => (502, "destination_unavailable"),
        };
        // Our resources are exhausted, not the backend's.
        let is_own = matches!(
            Errno::from_io_error(error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
        );
        let (status, side) = match is_own {
            true => (503, Side::Own),
            false => (status, Side::Backend),
        };
        let hint = match kind {
            "connection_timeout" => " (connect_timeout)",
            _ => "",
        };
        Self {
            side,
            is_untouched: true,
            ..Self::of_backend(status, kind, format_args!("cannot connect: {error}{hint}"))
        }
    }

    /// A connection failed.
    pub fn of_connection(error: &io::Error) -> Self {
        let kind = tls::error_type(error).unwrap_or("connection_terminated");
        Self::of_backend(502, kind, error)
    }

    /// The backend made no progress in either direction.
    pub fn of_silence(reason: &str) -> Self {
        Self::of_backend(504, "http_response_timeout", reason)
    }

    /// The backend sent no valid response.
    pub fn of_invalid_response(reject: Reject) -> Self {
        Self::of_backend(502, "http_protocol_error", reject.reason)
    }

    /// The backend refused the request.
    pub fn of_refusal(reason: &str) -> Self {
        Self {
            is_untouched: true,
            ..Self::of_backend(503, "destination_unavailable", reason)
        }
    }

    /// The backend has refused a stream, before it has acted on its request (RFC 9113, 8.7).
    pub fn of_refused_stream(reason: &str) -> Self {
        Self {
            spares_backend: true,
            ..Self::of_refusal(reason)
        }
    }

    /// The client disconnected, was too slow, sent an invalid body, or one for which there was no room.
    pub fn of_client(none: RequestError) -> Self {
        let (status, end, reason) = match none {
            RequestError::Shortage => {
                let failure = Self::of_backend(503, "proxy_internal_error", NO_ROOM);
                return Self {
                    side: Side::Own,
                    ..failure
                };
            }
            RequestError::Refused(reject) => (reject.status, End::Error, reject.reason),
            RequestError::Timeout => (408, End::Timeout, "the request's body took too long"),
            RequestError::Gone | RequestError::Finished => (
                400,
                End::ClientAbort,
                "the client disconnected before the response",
            ),
        };
        Self {
            side: Side::Client,
            end,
            ..Self::of_backend(status, "http_request_error", reason)
        }
    }

    /// The client disconnected while it waited for the response, which nobody reads.
    pub fn of_absent_client() -> Self {
        Self {
            status: ABSENT,
            ..Self::of_client(RequestError::Gone)
        }
    }

    /// The client has ended its side, and the backend was silent for `timeout`: the client may be gone.
    pub fn of_half_closed(timeout: Duration) -> Self {
        Self::of_ended_side(
            "the client has ended its side, and the backend is silent (half_closed_timeout)",
            timeout,
        )
    }

    /// The client has ended its side while its request was queued.
    pub fn of_half_closed_in_queue(timeout: Duration) -> Self {
        Self::of_ended_side(
            "the client has ended its side while its request was in the queue",
            timeout,
        )
    }

    /// 408, because the request is valid and only its connection is closed after a time-out (RFC 9110,
    /// 15.5.9). Without a `timeout` the client counts as gone.
    fn of_ended_side(reason: &str, timeout: Duration) -> Self {
        Self {
            status: match timeout.is_zero() {
                true => ABSENT,
                false => 408,
            },
            reason: reason.to_owned(),
            ..Self::of_client(RequestError::Gone)
        }
    }

    /// The request body could not be spooled.
    pub fn of_spool(reason: impl fmt::Display) -> Self {
        Self {
            side: Side::Own,
            ..Self::of_backend(
                503,
                "proxy_internal_error",
                format_args!("cannot spool the request's body (disk.spool): {reason}"),
            )
        }
    }

    /// There was no slot.
    pub fn of_slot(none: NoSlot) -> Self {
        const LIMIT: &str = "connection_limit_reached";
        let (side, kind, reason) = match none {
            NoSlot::QueueFull => (
                Side::Own,
                LIMIT,
                "the queue for a connection is full (queue)",
            ),
            NoSlot::QueueTimeout => (
                Side::Own,
                LIMIT,
                "no connection became free in time (queue_timeout)",
            ),
            NoSlot::Exhausted => (Side::Own, LIMIT, "every backend has been tried"),
            // 503 in place of the 502 that RFC 9209 recommends: the failure is temporary.
            NoSlot::NoAddress => (
                Side::Backend,
                "dns_error",
                "no backend has an address: host names do not resolve",
            ),
        };
        Self {
            side,
            ..Self::of_backend(503, kind, reason)
        }
    }

    /// The result for the client, as the end of a [line](Self::line).
    pub fn outcome(&self) -> String {
        match self.retried {
            true => "; tried again".to_owned(),
            false => format!(" ({})", self.status),
        }
    }

    /// The log line.
    pub fn line(&self, upstream: &str, backend: Option<&Backend>, outcome: &str) -> String {
        let reason = &self.reason;
        match backend {
            Some(backend) => {
                format!(
                    "upstream {upstream}, backend {}: {reason}{outcome}",
                    backend.name
                )
            }
            None => format!("upstream {upstream}: {reason}{outcome}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levity_telemetry::stats::upstream::OUTCOMES;

    #[test]
    fn every_kind_has_a_counter() {
        let connect = [
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::InvalidData,
            io::ErrorKind::Other,
        ];
        let connect = connect.map(|kind| Failure::of_connect(&kind.into()));
        let reject = Reject {
            status: 400,
            reason: "odd",
        };
        let others = [
            Failure::of_connection(&io::ErrorKind::ConnectionReset.into()),
            Failure::of_invalid_response(reject),
            Failure::of_refusal("overloaded"),
            Failure::of_client(RequestError::Gone),
            Failure::of_absent_client(),
            Failure::of_spool(io::Error::from(io::ErrorKind::StorageFull)),
            Failure::of_slot(NoSlot::QueueFull),
            Failure::of_slot(NoSlot::NoAddress),
        ];
        for failure in connect.iter().chain(&others) {
            assert!(OUTCOMES.contains(&failure.kind), "{}", failure.kind);
        }
    }
}
