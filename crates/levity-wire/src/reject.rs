//! Why a peer's bytes were refused.

use std::{error, fmt};

/// A refusal: the status to answer with, and one sentence for the log and the error page.
///
/// It is always the peer's fault. After one from [`http1`](crate::http1) the position of the next
/// message is unknown, so the connection must be closed (RFC 9112, 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// HTTP status code, 4xx or 5xx.
    pub status: u16,
    /// A short human sentence without a full stop, for example `conflicting Content-Length`.
    pub reason: &'static str,
}

impl Reject {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// 400, the answer to everything that is not understood well enough to name a better status.
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }

    /// 502, the answer to whatever an upstream does wrong: nothing that its client could mend.
    pub const fn bad_gateway(reason: &'static str) -> Self {
        Self::new(502, reason)
    }

    /// The same refusal when it was an upstream that sent the bytes: whatever is wrong with them,
    /// its client's answer is 502.
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
