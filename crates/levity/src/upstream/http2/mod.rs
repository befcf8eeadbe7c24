//! HTTP/2 (RFC 9113) towards backends: connections of a worker, each shared by the requests of that
//! worker, by the crate `h2`.
//!
//! A task drives each connection (`link.rs`); it ends the connection when nobody owns it, or when a
//! ping after a silent request is not answered. It is made by a task of its own, too: the request
//! that began it may be given up, and others that wait for it get it all the same. `Sessions`
//! decides whether a request takes a stream, opens a connection, or waits. After each poll of a
//! connection its driver compares whether it is open and how many streams it may have, and wakes
//! the requests that wait for a stream; the pool's queue follows with the sweep. Only a connection
//! that was idle when a request got its stream may end without a failure of the backend. While a
//! slow client is told of an interim response, those that follow are taken from a shared
//! connection, which is read for the other requests anyway, so that their maximum holds.

mod deadline;
mod failure;
mod head;
mod incoming;
mod link;
mod outgoing;
pub mod probe;
mod session;
pub mod sessions;
pub mod stream;
#[cfg(test)]
mod tests;
mod wire;
