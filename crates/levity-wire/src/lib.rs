//! Codecs and small parsers: bytes in, values out.
//!
//! Nothing here does I/O, reads a clock or blocks. Nothing allocates in proportion to a length that
//! a peer claims: every such length has a named limit. Clients and upstreams share one parser for
//! each grammar, because request smuggling needs two parsers that read the same bytes differently.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

pub mod accept;
pub mod ajp13;
pub mod archive;
pub mod basic_auth;
pub mod byteranges;
pub mod calendar;
pub mod cgi;
pub mod coded_etag;
pub mod condition;
pub mod content_range;
pub mod date;
pub mod decimal;
pub mod dictionary;
pub mod digest;
pub mod durable_streams;
pub mod encoding;
pub mod fastcgi;
pub mod forwarded;
pub mod grip;
pub mod htpasswd;
pub mod http1;
pub mod http2;
pub mod jwt;
pub mod mailbox;
pub mod mailbox_header;
pub mod mime;
pub mod path;
pub mod proxy_protocol;
pub mod range;
pub mod scgi;
pub mod sendfile_header;
pub mod sse;
pub mod tls_names;
pub mod websocket;

mod parameters;
mod reject;

pub use reject::Reject;
