//! HTTP/1.0 and HTTP/1.1 messages, read strictly (RFC 9112).
//!
//! Where RFC 9112 lets a recipient be lenient (bare LF, folded lines, space before a colon, a
//! repeated Content-Length), this reader refuses: each of these is a place where two readers in a
//! row can disagree about where a message ends. Requests of clients and responses of upstreams are
//! read by the same rules, and what is written is what these rules accept.

mod chunked;
mod framing;
mod head;
mod header;
mod hop;
mod host;
mod line;
mod request;
mod response;
mod trailer;
pub mod write;

pub use crate::Reject;
pub use chunked::{Chunked, Decoded};
pub use head::{
    Framing, HeaderSpan, Headers, Method, RequestHead, ResponseFraming, ResponseHead, Span, Target,
    Version,
};
pub use hop::{EndToEnd, is_hop_by_hop};
pub use host::host_name;
pub use request::parse_request;
pub use response::{Asked, parse_response};
pub use trailer::{Trailers, is_forbidden_in_trailers};

pub(crate) use framing::decimal;
pub(crate) use header::header_line;
pub(crate) use host::split as split_host;
pub(crate) use line::{is_control, is_token, list, trim};

/// Bounds on a head. Each is inclusive: a value of exactly the bound is accepted. The statuses are
/// those of a request; a response that exceeds a bound is 502.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes in the request line or status line without its CRLF; more is 414. Default 8 KiB.
    pub line_bytes_max: usize,
    /// Bytes in one header line without its CRLF; more is 431. Default 8 KiB.
    pub header_bytes_max: usize,
    /// Bytes in the whole head, from the first byte to the end of the blank line; more is 431.
    /// Default 16 KiB. A read buffer of this size is always large enough: a full buffer never
    /// yields "more bytes needed".
    pub head_bytes_max: usize,
    /// Header lines; more is 431. Default 100.
    pub headers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes_max: 8 * 1024,
            header_bytes_max: 8 * 1024,
            head_bytes_max: 16 * 1024,
            headers_max: 100,
        }
    }
}
