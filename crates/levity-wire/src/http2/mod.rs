//! The server's side of HTTP/2 (RFC 9113): takes bytes of the client, returns events, and writes frames for the client.
//!
//! A [`Connection`] has no socket and no clock. Its owner passes what was read to [`Connection::next`], writes what is in
//! [`Connection::out`], and calls [`Connection::consumed`] for bytes of a request body. A request is a header section of HTTP/1:
//! [`http1`](crate::http1) decides what it means.
//!
//! The output is one buffer, to which each answer is appended. `connection/` has a file for each
//! concern: `input` cuts bytes into frames, `header_section`, `data`, `control` and `priorities`
//! handle them, `windows` has all flow control, `stream_states` and `shutdown` end streams and the
//! connection, and `response` writes. The header sections of responses use no table of the client,
//! so that each can be written without a look at those before it, and the header lines of a file
//! are encoded once and kept.
//!
//! Floods are what `budget.rs` is for: each frame of a client costs, whatever its type and its
//! stream; requests, responses, content and time earn. Small messages earn as much as large ones
//! unless the client's own window made them small. Sections without an end and fields that a byte
//! stands for are bounded by size. Random frames are compared with the crate `h2`
//! (`tests/http2_oracle`); each difference that is allowed has its section of the RFC there.

mod budget;
mod connection;
mod error;
mod frame;
mod head;
mod hpack;
mod priority;
mod receive_window;
mod settings;
mod streams;

pub use connection::{Connection, Event};
pub use error::{ErrorCode, Failure};
pub use frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
pub use hpack::FieldBlock;
pub use priority::Priority;
pub use settings::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX, USUAL_WINDOW_BYTES};
pub use streams::StreamId;

/// The first bytes of a client that has prior knowledge, or has chosen HTTP/2 in its handshake (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The maximum size of a window in bytes (RFC 9113, 6.9.1).
const WINDOW_BYTES_MAX: i64 = (1 << 31) - 1;
