//! Mailboxes: named, bounded logs of messages that outlive the connections of those who send and receive.
//!
//! A box has one [`Owner`], which numbers its messages and drives the [`Store`] that keeps them. Event loops have
//! [copies](Copies) of the boxes that their own receivers read. Loops and owners exchange [commands](Command) and
//! [events](BoxEvent) through queues; no lock is taken. Knows no HTTP.
//!
//! - A store (`store.rs`, with one suite for all of them) never waits in a method: what takes time
//!   is a future, so the owner serves other boxes while one waits for a server. Messages of a box
//!   are reported in the order of their numbers, whatever ends first.
//! - An id is `EPOCH-SEQUENCE`. A box that was removed and made anew has a larger epoch, so a
//!   cursor of its earlier life is recognised, and `lost` says from which number on nothing is
//!   missing. Numbers begin with 1: the id before the first message differs from that of every
//!   message.
//! - Wake-ups are 64 at a time, and boxes take turns, so that a message to many receivers stops
//!   nobody else. An only receiver is woken at once.
//! - Times are those of one clock (`clock.rs`) for all threads, an atomic number beside the
//!   monotonic clock, which the owners let follow the wall clock slowly: a jump of the wall clock
//!   drops no message. Tokens and epochs have the wall clock.
//! - Memory of messages is one budget of the process, given back when the last reference is
//!   dropped, also on the way. What is read again from a store leaves a quarter to publishers.
//! - Maps by names are many small tables (`by_name.rs`): a large one would stop the loop while it
//!   grows.
//! - Connections to a Redis server are of the process and not of each event loop: names are
//!   resolved by the thread of the store, and a reconnection stops no loop.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod budget;
mod by_name;
mod clock;
mod copies;
pub mod disk;
mod encoding;
mod kept;
mod locked;
mod log;
mod making;
pub mod memory;
mod message;
mod name;
mod owner;
mod protocol;
#[cfg(feature = "redis")]
pub mod redis;
mod settings;
mod shared;
mod store;
pub mod stream;
mod stream_state;

pub use budget::{Budget, Reservation};
pub use clock::steady_time;
pub use copies::{Copies, Feed};
pub use kept::{Entry, FORMS, LongForm, Next};
pub use making::{Encoded, Making, Place};
pub use message::{Draft, Message};
pub use name::Name;
pub use owner::{Owner, OwnerFigures, Reports, run};
pub use protocol::{BoxEvent, Command, Delivery, EventKind, Info, Progress, Published};
pub use settings::{Mode, Settings};
pub use shared::SharedStore;
pub use store::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Opened, Opening, Reading,
    Removing, Store, StoreError, Summary, Summing, new_epoch,
};

pub use levity_wire::mailbox::{Cursor, MessageId};
