//! The error of the parsers: status and reason of a rejected input.

use std::{error, fmt};

/// A rejected input: the status of the error response, and one sentence for the log and the error
/// page.
///
/// It is always the peer's fault. After a rejection by [`http1`](crate::http1) the position of the
/// next message is unknown, so the connection must be closed (RFC 9112, 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// HTTP status code, 4xx or 5xx.
    pub status: u16,
    /// A short sentence without a full stop, for example `conflicting Content-Length`.
    pub reason: &'static str,
}

impl Reject {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// 400, the status for malformed input without a more specific status.
    pub const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }

    /// 502, the status for every error of an upstream: the client cannot correct it.
    pub const fn bad_gateway(reason: &'static str) -> Self {
        Self::new(502, reason)
    }

    /// The same rejection of bytes from an upstream: always 502.
    #[must_use]
    pub const fn by_upstream(self) -> Self {
        Self::bad_gateway(self.reason)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.status)
    }
}

impl error::Error for Reject {}
