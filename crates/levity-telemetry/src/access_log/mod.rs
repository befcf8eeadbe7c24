//! The access log: one line per finished request, which never makes a loop wait.
//!
//! Each worker formats into a block of its own ([`Log`]) and hands full blocks over a bounded queue
//! to one thread ([`Writer`]), which alone touches the file. When the queue is full, lines are
//! dropped and counted.

mod combined;
mod escape;
mod json;
mod line;
mod number;
mod output;
mod record;
mod writer;

pub use line::Format;
#[cfg(test)]
pub(crate) use record::samples;
pub use record::{End, LimitedBy, Record, Source};
pub use writer::{Log, Target, Writer};
