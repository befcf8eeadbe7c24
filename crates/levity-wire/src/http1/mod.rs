//! HTTP/1.0 and HTTP/1.1 messages, parsed strictly (RFC 9112).
//!
//! Where RFC 9112 allows a recipient to be lenient (bare LF, folded lines, space before a colon, a
//! repeated Content-Length), this parser rejects the message: each of these can make two successive
//! parsers disagree about the end of a message. The same rules apply to requests of clients and
//! responses of upstreams, and the writer produces only messages that these rules accept.

mod chunked;
mod framing;
mod head;
mod header;
mod hop;
mod host;
mod keep_alive;
mod line;
mod request;
mod response;
mod status;
mod trailer;
pub mod write;

pub use crate::Reject;
pub use chunked::{Chunked, Decoded};
pub use head::{
    Framing, HeaderSpan, Headers, Method, RequestHead, ResponseFraming, ResponseHead, Span, Target,
    Version,
};
pub use hop::{EndToEnd, is_hop_by_hop, is_one_of};
pub use host::{default_port, host_name, name_and_port, split_url};
pub use keep_alive::keep_alive_timeout;
pub use request::parse_request;
pub use response::{RequestInfo, parse_response};
pub use status::reason;
pub use trailer::{Trailers, is_forbidden_in_trailers};

pub(crate) use header::header_line;
pub(crate) use host::{is_same as is_same_host, split as split_host};
pub(crate) use line::{has_control, is_control, is_token, list, trim};

/// Limits on the size of a start line and header section. Each is inclusive: a value equal to the
/// limit is accepted. The statuses are those of a request; a response that exceeds a limit is 502.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes in the request line or status line without its CRLF; more is 414. Default 8 KiB.
    pub line_bytes_max: usize,
    /// Bytes in one header line without its CRLF; more is 431. Default 8 KiB.
    pub header_bytes_max: usize,
    /// Bytes in the start line and header section, from the first byte to the end of the blank
    /// line; more is 431. Default 16 KiB. A read buffer of this size is always large enough: a full
    /// buffer never yields "more bytes needed".
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
