//! The mailboxes of the process: their owners, and the sets that the configuration describes.
//!
//! A box is a bounded log of messages. One *owner* numbers them and drives the store; event loops
//! have *copies* of the boxes that their own receivers read, and ask the owner by messages. No lock
//! is taken, and a receiver reads local memory only.
//!
//! ```text
//!    publisher -> its loop --Command--> owner of the name --Event--> each loop with receivers
//!                                         |                              |
//!                                       store                          its copy -> receivers
//! ```
//!
//! In memory there is an owner on each loop, chosen by a hash of the name. Any other store has one
//! owner, on the thread `mailbox-store`, which may block. Changes reach the loop that runs the
//! owner by a call, and other loops by a queue. The streams of `resume` have owners, copies and a
//! budget of their own, always in memory. What owners, copies and stores guarantee is the
//! documentation of `levity-mailbox`.

pub mod figures;
pub mod local;
pub mod set;
pub mod start;

pub use levity_mailbox::Copies;
