//! The Durable Streams protocol, version 1.0 (<https://github.com/durable-streams/durable-streams>, `PROTOCOL.md`): what is
//! written in headers, queries and bodies. Sections are those of that document.

mod body;
mod cursor;
mod headers;
mod json;
mod offset;
mod query;
mod time;

pub use body::{Control, DataEvent, Form, push_body, push_control};
pub use cursor::cursor;
pub use headers::{Fork, Headers, ID_BYTES_MAX, Lifetime, Producer, essence};
pub use json::{NotJson, end_of_message, messages};
pub use offset::{NoOffset, Offset, Start};
pub use query::{Live, Query};
pub use time::{format_time, parse_time};
