//! The server side of HTTP: requests, responses, bodies, and their transfer in each protocol version.
//!
//! Handlers use [`request`](crate::message::request), [`request_body`] and [`response`]. Only the folder of a version uses the connection.

pub mod arriving;
pub mod error;
pub mod file_version;
pub mod filter;
pub mod gathered;
pub mod h1;
pub mod h2;
pub mod held;
pub mod request_body;
pub mod response;
pub mod send;
#[cfg(test)]
mod tests;
