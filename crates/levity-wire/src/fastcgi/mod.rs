//! FastCGI 1.0 between a web server and an application in the responder role.
//!
//! A connection carries one request at a time, always with id 1: hardly any application accepts a
//! second one meanwhile. Management records, whose id is 0, are not used.
//!
//! A request consists of [`write_head`], the records that [`stdin`] makes of its body, and
//! [`STDIN_END`]. [`ResponseDecoder`] decodes the records of the response, which contain a CGI response
//! ([`parse_response`](crate::cgi::parse_response)). Section numbers refer to the specification of
//! 29 April 1996.

mod request;
mod response;

pub use crate::http1::Decoded;
pub use request::{STDIN_END, StdinRecord, stdin, write_head};
pub use response::{Event, ProtocolStatus, ResponseDecoder};

const VERSION: u8 = 1;
const REQUEST_ID: u16 = 1;
const HEADER_BYTES: usize = 8;

/// Maximum content of a sent record. The length has 16 bits; the largest multiple of 8 needs no
/// padding. php-fpm closes the connection if variables and padding exceed 65 535 bytes.
const CONTENT_BYTES_MAX: usize = 65_528;

/// The types of records (section 8).
mod kind {
    pub(super) const BEGIN_REQUEST: u8 = 1;
    pub(super) const END_REQUEST: u8 = 3;
    pub(super) const PARAMS: u8 = 4;
    pub(super) const STDIN: u8 = 5;
    pub(super) const STDOUT: u8 = 6;
    pub(super) const STDERR: u8 = 7;
}
