//! Mailboxes: named, bounded logs of messages that outlive the connections of those who send and receive.
//!
//! A box has one [`Owner`], which numbers its messages and drives the [`Store`] that keeps them. Event loops have
//! [copies](Copies) of the boxes that their own receivers read. Loops and owners exchange [commands](Command) and
//! [events](Event) through queues; no lock is taken. Knows no HTTP.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod budget;
mod by_name;
mod clock;
mod copies;
#[cfg(feature = "disk")]
pub mod disk;
mod encoding;
mod kept;
#[cfg_attr(not(feature = "disk"), allow(dead_code))]
mod locked;
mod log;
mod making;
pub mod memory;
mod message;
mod name;
mod owner;
mod protocol;
pub mod redis;
mod settings;
#[cfg_attr(not(feature = "disk"), allow(dead_code))]
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
pub use protocol::{Command, Delivery, Event, EventKind, Info, Progress, Published};
pub use settings::{Mode, Settings};
pub use shared::SharedStore;
pub use store::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Opened, Opening, Reading,
    Removing, Store, StoreError, Summary, Summing, new_epoch,
};

pub use levity_wire::mailbox::{Cursor, MessageId};
