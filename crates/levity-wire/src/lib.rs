//! Levity's codecs and small grammars: bytes in, values out.
//!
//! Nothing here does I/O, reads a clock or blocks, and nothing allocates in proportion to what a
//! peer claims: every length that a peer chooses has a bound with a name. One reading of each
//! grammar serves clients and upstreams alike, because a request is smuggled where two readings of
//! the same bytes differ.

#![forbid(unsafe_code)]

pub mod ajp13;
pub mod cgi;
pub mod condition;
pub mod date;
pub mod decimal;
pub mod encoding;
pub mod fastcgi;
pub mod forwarded;
pub mod http1;
pub mod mime;
pub mod path;
pub mod proxy_protocol;
pub mod range;
pub mod scgi;
pub mod sendfile_header;

mod reject;

pub use reject::Reject;
