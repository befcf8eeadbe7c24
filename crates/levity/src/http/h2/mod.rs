//! HTTP/2: a connection carries many exchanges at a time, each on a stream.

pub mod conn;
mod credit;
mod head;
mod incoming;
pub mod stream;
pub mod streams;
mod turns;
