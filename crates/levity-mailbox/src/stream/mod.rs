//! Durable streams: boxes that keep all, with offsets, an end, producers, lifetimes and forks. The semantics of the protocol of
//! [`levity_wire::durable_streams`], without HTTP.
//!
//! An append is a message of the box, and what it makes of the state of the stream is decided by the store, together with the
//! append. A fork has a box of its own, with numbers beyond those that it inherits, and reads those before in the boxes of its
//! sources.
//!
//! What is appended and the close are messages, so receivers learn of them. A copy at an event loop
//! has what comes, but not what was there: a reader that is behind it reads from the store
//! (`tail.rs`). All streams of a set have one owner, because a fork and its source change together.
//! A source that is removed stays for as long as others inherit from it.

mod protocol;
mod reading;
mod streams;
mod tail;
mod writing;

#[cfg(test)]
mod tests;

pub use self::protocol::{
    Append, Appended, Create, Created, Info, Messages, ReadResult, StreamError,
};
pub use self::streams::Streams;
pub use self::tail::Tail;
pub use crate::stream_state::{
    ContentType, ForkOf, MadeWith, Refused, Source, StreamState, Update,
};
