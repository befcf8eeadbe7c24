//! HTTP/2: a connection carries many exchanges at a time, each on a stream.
//!
//! Every connection begins as one of HTTP/1 (`serve/`). A handshake that has chosen `h2`, or a
//! first line that is the preface of HTTP/2, makes it one of HTTP/2, with all that was read so far.
//! The codec is `http2/` of `levity-wire`.
//!
//! - A stream (`stream/`) is the `ClientStream` and `ResponseSink` of its exchange, which knows
//!   nothing of frames. It appends at most 64 KiB at a time, written where they are if nothing
//!   waits before them, and waits when 64 KiB wait for the socket. While the client takes bodies of
//!   others its time-out does not run; replies to PING and headers do not count. All streams share
//!   the turn of the connection: one that yielded for itself would leave the next turn to a less
//!   urgent one. `streams.rs` has the open ones, above connection and stream.
//! - Whose turn it is (`turns.rs`): the most urgent (RFC 9218), of equal ones those that the client
//!   wants one after the other by their number, then the others in turn. Where the client's window
//!   for all streams is the bottleneck, all are woken in that order, and the first may fill it. A
//!   stream that could send nothing keeps its place. A stream whose priority the client changes
//!   gets its new place at once.
//! - Windows: 256 KiB for a request body, and for all bodies of a connection the 64 KiB of the
//!   protocol, to which each body that is large or that nobody reads adds 256 KiB, or what is
//!   unread of it once it has arrived, up to 4 MiB in all (`credit.rs`). That *credit* is memory of
//!   `Resource::Bodies`; a body goes on without it when there is none, and gives it back before it
//!   waits for memory. A body that uses up its window within a second, and is read as fast, gets
//!   twice the window, up to 4 MiB more for all bodies of a connection: a client can send one
//!   window per round trip. This growth leaves the 4 MiB of before to the other bodies. It begins
//!   only while at most a quarter of the memory is used, and ends above half, as long as the body
//!   flows: what is read then is not granted again.
//! - While the window of the connection is used up, `body_timeout` does not run. Bytes count until
//!   somebody has taken them, and 64 KiB are taken at a time, so that 15 bodies that nobody reads
//!   do not hold up another. The window of the connection is opened again when as much was taken as
//!   is left of it: what others do not read may leave less than half. Credit that has been granted
//!   cannot be taken back: what is consumed later is not granted again, and what is unread beyond
//!   the window that is left by then counts as memory again (`conn/excess.rs`); a body for which
//!   there is none is reset. So frames that are no body are read at any time.
//! - Refusals do not wait for the body of their request, since a stream can end alone
//!   (`ClientStream::may_leave_body`). The rest of the body is dropped for two seconds without an
//!   exchange (`stream/linger.rs`), and only then the stream is reset.
//! - Idle streams are small: what a request body needs is behind a pointer, here and in the codec.
//!   Assertions of sizes beside the types keep them in their class of the allocator.

pub mod conn;
mod credit;
mod head;
mod incoming;
pub mod stream;
pub mod streams;
mod turns;
