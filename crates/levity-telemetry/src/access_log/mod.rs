//! The access log: one line per finished request, which never makes a loop wait.
//!
//! Each worker formats into a block of its own ([`Log`]) and hands full blocks over a bounded queue
//! to one thread per file ([`Writer`]), which alone touches it. When the queue is full, lines are
//! dropped and counted.

mod combined;
mod custom;
mod escape;
mod json;
mod line;
mod number;
mod output;
mod record;
mod stamp;
mod writer;

pub use line::Format;
#[cfg(test)]
pub(crate) use record::samples;
pub use record::{End, Headers, LimitedBy, NoHeaders, Record, Source, Tls};
pub use writer::{Log, Target, Writer, shutdown};
