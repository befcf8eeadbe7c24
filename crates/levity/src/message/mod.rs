//! HTTP messages as values: requests, header fields, and the client that a request came from.

pub mod client;
pub mod client_prefix;
pub mod fields;
pub mod origin;
pub mod request;
