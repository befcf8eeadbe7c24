//! Durable streams: logs of bytes that are not trimmed, with offsets, an end, producers, lifetimes and forks. The semantics of
//! the protocol of [`levity_wire::durable_streams`], without HTTP.
//!
//! All streams of a set have one owner, because a fork and its source change together. Event loops ask it through a
//! [`Client`]. A read that waits is kept by the owner until there is more.

mod client;
mod content;
mod producers;
mod protocol;
mod state;
mod streams;

#[cfg(test)]
mod tests;

pub use client::{Client, run};
pub use content::Piece;
pub use protocol::{
    Answer, Append, AppendError, Appended, Command, ContentType, Create, CreateError, Created,
    ForkOf, Full, Info, Messages, Missing, Read, ReadError, ReadResult, RemoveError, Reply,
};
pub use streams::Streams;
