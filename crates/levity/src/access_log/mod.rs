//! One line per finished request, written without ever making a loop thread wait.
//!
//! Each worker formats into a block of its own ([`Log`]) and hands full blocks over a bounded queue
//! to one thread ([`Writer`]), which alone touches the file. When the queue is full, lines are
//! dropped and counted.

mod line;
mod output;
mod writer;

pub use line::{End, Format, Record, Source, Timing, Visited};
pub(crate) use output::write_all;
pub use writer::{Log, Target, Writer};
