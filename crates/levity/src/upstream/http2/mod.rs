//! HTTP/2 (RFC 9113) towards backends: connections of a worker, each shared by the requests of that worker.

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
