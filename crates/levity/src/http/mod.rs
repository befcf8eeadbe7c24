//! The server side of HTTP: responses, bodies, and their transfer in each protocol version.
//!
//! Handlers use [`request`](crate::message::request), [`request_body`] and [`response`]. Only the
//! folder of a version uses the connection.
//!
//! What is in memory of request bodies counts to the client's share of `limits.bodies_memory`: only
//! [`RequestBody`](request_body::RequestBody) adds to a [`Gathered`](gathered::Gathered), and does
//! not read without room; beside it a connection has an inbox (HTTP/1, 64 KiB) or the usual window
//! and one read (HTTP/2, 128 KiB). Their files count to `limits.spool_bytes`.

pub mod arriving;
pub mod error;
pub mod file_version;
pub mod filter;
pub mod gathered;
pub mod h1;
#[cfg(feature = "http2")]
pub mod h2;
pub mod held;
pub mod no_client;
pub mod request_body;
pub mod response;
pub mod send;
#[cfg(test)]
mod tests;
