//! AJP13: the packets between a web server and a servlet container such as Tomcat. This is the web
//! server's side.
//!
//! A connection carries one request at a time: [`write_head`], then body packets as [`Upload`]
//! allows them, while [`Reader`] parses the packets of the container. Every packet has a length, so
//! a response needs neither Content-Length nor chunked coding to have an end. There are no interim
//! responses and no trailers.
//!
//! A container trusts its peer completely: the address of the client, whether the client used TLS,
//! the attributes of the request. Hence no byte from a client may become the name of an attribute:
//! a client that can choose those names can read any file of the application (CVE-2020-1938).
//!
//! Source: "AJP Protocol Reference v1.3" of Apache Tomcat Connectors and, for points that it leaves
//! open, the behaviour of Tomcat.

mod request;
mod response;

pub use request::{BODY_BYTES_MAX, Head, PING, Upload, write_head};
pub use response::{Decoded, Headers, Message, Reader, SendHeaders};

/// Maximum size of a packet with its header, in either direction. A read buffer of this size is
/// always large enough for [`Reader`]. Containers have the same limit by default (`packetSize` in
/// Tomcat).
pub const PACKET_BYTES_MAX: usize = 8 * 1024;

/// Bytes in front of each packet: two of magic number, two of length.
const PACKET_HEADER_BYTES: usize = 4;
