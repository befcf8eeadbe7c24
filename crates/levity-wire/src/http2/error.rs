//! Errors of streams and connections (RFC 9113, 5.4 and 7).

use std::{error, fmt};

/// The code in RST_STREAM and GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// The other side does not follow the protocol.
    Protocol = 0x1,
    /// Something is wrong here.
    Internal = 0x2,
    /// More bytes than there was room for.
    FlowControl = 0x3,
    /// A frame for a stream that has ended.
    StreamClosed = 0x5,
    /// A frame of a wrong size.
    FrameSize = 0x6,
    /// The request was not processed, and may be repeated.
    RefusedStream = 0x7,
    /// The stream is not needed any more.
    Cancel = 0x8,
    /// A header section that cannot be decoded.
    Compression = 0x9,
    /// The other side uses too many resources.
    EnhanceYourCalm = 0xb,
}

/// Why a connection ends: a fault of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The code for the client.
    pub code: ErrorCode,
    /// A few words for the log and the client, without a full stop.
    pub reason: &'static str,
}

impl Failure {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, reason)
    }

    pub(super) const fn compression(reason: &'static str) -> Self {
        Self::new(ErrorCode::Compression, reason)
    }

    pub(super) const fn size(reason: &'static str) -> Self {
        Self::new(ErrorCode::FrameSize, reason)
    }

    pub(super) const fn flow(reason: &'static str) -> Self {
        Self::new(ErrorCode::FlowControl, reason)
    }

    pub(super) const fn too_much(reason: &'static str) -> Self {
        Self::new(ErrorCode::EnhanceYourCalm, reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason)
    }
}

impl error::Error for Failure {}
