//! The server side of HTTP: requests, responses, bodies, and how each version of the protocol carries them.
//!
//! Handlers see [`request`], [`request_body`] and [`response`]. Only the folder of a version knows the connection.

pub mod client;
pub mod completion;
pub mod error;
pub mod fields;
pub mod file_version;
pub mod filter;
pub mod h1;
pub mod request;
pub mod request_body;
pub mod response;
pub mod send;
#[cfg(test)]
mod tests;
