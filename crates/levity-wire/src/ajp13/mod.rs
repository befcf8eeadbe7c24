//! AJP13: the packets between a web server, which is us, and a servlet container such as Tomcat.
//!
//! A connection carries one request at a time: [`write_head`], then body packets as [`Upload`]
//! allows them, while [`Reader`] reads what the container says. Every packet has a length of its
//! own, so a response needs neither Content-Length nor chunks to have an end. There are no interim
//! responses and no trailers.
//!
//! A container believes all that its peer says: the address of the client, whether the client came
//! over TLS, the attributes of the request. Hence no byte that a client sent ever becomes the name
//! of an attribute; who can choose those names reads any file of the application (CVE-2020-1938).
//!
//! Source: "AJP Protocol Reference v1.3" of Apache Tomcat Connectors, and where it is silent, what
//! Tomcat does.

mod request;
mod response;

pub use request::{BODY_BYTES_MAX, Head, PING, Upload, write_head};
pub use response::{Decoded, Headers, Message, Reader, SendHeaders};

/// Bytes in a packet with its header, in either direction. A read buffer of this size is always
/// large enough for [`Reader`]. Containers have the same bound unless somebody raises it
/// (`packetSize` in Tomcat).
pub const PACKET_BYTES_MAX: usize = 8 * 1024;

/// Bytes in front of each packet: two of magic number, two of length.
const PACKET_HEADER_BYTES: usize = 4;
