//! HTTP/1: a connection carries one exchange at a time.

mod chunked;
pub mod conn;
mod head;
mod inbox;
mod incoming;
pub mod parse;
pub mod proxy_header;
