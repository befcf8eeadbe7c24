//! What a connection or stream of each HTTP version has to offer, so that a response can be sent to it.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use levity_net::Turn;
use levity_wire::http1::Trailers;

use crate::files::cache::EntryRef;
use crate::files::missing_lookups::FailedLookups;
use crate::http::request_body::ClientStream;
use crate::loop_core::LoopCore;
use crate::message::fields::Fields;

/// A [`ClientStream`] to which a response can be written, in the framing of its HTTP version.
pub trait ResponseSink: ClientStream {
    /// An encoded header section.
    type Header;

    /// The client's socket.
    type Socket<'s>: ClientSocket<Self::Header>
    where
        Self: 's;

    /// The core of the loop that serves the stream.
    fn core(&self) -> &Rc<LoopCore>;

    /// The lookups of the connection that found nothing.
    fn failed_lookups(&self) -> &Cell<FailedLookups>;

    /// Bytes of the request body read so far, without its framing.
    fn body_received(&self) -> u64;

    /// Whether the end of the client's input was read within the request body.
    fn is_body_cut_off(&self) -> bool;

    /// Encodes a header section. Sends nothing, so that an error may still replace the response.
    fn header(&self, head: &Head<'_>) -> Self::Header;

    /// The framing of a body; `is_open_ended` is whether its length is unknown.
    fn framing(&self, is_open_ended: bool) -> Framing;

    /// Sends the rest of `header`, then as much of `data` as the client takes now, in the framing of the version. Sets
    /// `header` to `None` once all of it is sent. `data` is at least one byte of the body, or empty to send the header
    /// alone; `is_last` is whether it ends the body without trailers. The caller repeats the call with the rest of
    /// `data` until it [is complete](Progress::is_complete).
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Self::Header>,
        data: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<Progress>>;

    /// After an upgrade: writes bytes to the client. While it waits, a time-out that is set may be extended as by
    /// [`poll_send`](Self::poll_send); [`ClientStream::poll_write`] leaves it alone.
    fn poll_send_upgraded(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ClientStream::poll_write(self, context, bytes)
    }

    /// Whether bytes are on their way that no call has reported yet: the next one begins with them.
    fn is_writing(&self) -> bool;

    /// The maximum number of bytes of the body that the client takes at present. It may take none before it has the
    /// header.
    fn window(&self) -> usize {
        usize::MAX
    }

    /// The turn that the response uses up; `None` if [`poll_write_ready`](Self::poll_write_ready) waits for the next one.
    fn own_turn(&self) -> Option<&Turn> {
        Some(self.turn())
    }

    /// Ready when a write is likely to accept bytes.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends the rest of `header`, then ends the body with `trailers`, as far as the version can send them. The caller
    /// repeats the call until it [is complete](Progress::is_complete).
    fn poll_end(
        &self,
        context: &mut Context<'_>,
        header: &mut Option<Self::Header>,
        trailers: &Trailers,
    ) -> Poll<io::Result<Progress>>;

    /// The client's socket, if `sendfile` and `splice` may transfer bytes to it: nothing is to be put around or between
    /// them. The same for the whole stream.
    fn socket(&self) -> Option<Self::Socket<'_>>;

    /// Makes the end of the stream a reset, by which the client detects an incomplete response.
    fn reset(&self);
}

/// A socket to which the kernel transfers bytes that the server never has in its memory.
pub trait ClientSocket<Header> {
    /// Whether it is a TCP socket. `splice` never waits for one. Before Linux 6.5 it waited for the reader of a Unix
    /// socket, who may wait for a disk meanwhile.
    fn is_tcp(&self) -> bool;

    /// Runs a system call that transfers bytes to it.
    ///
    /// # Errors
    /// As for `call`; `WouldBlock` when the send buffer is full.
    fn try_move<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;

    /// Sends the rest of `header` with `MSG_MORE`, so that bytes of the body share its packet.
    ///
    /// # Errors
    /// As for `send`; `WouldBlock` when the send buffer is full.
    fn try_send_header(&self, header: &mut Option<Header>) -> io::Result<Progress>;
}

/// The socket of streams that have none.
impl<Header> ClientSocket<Header> for Infallible {
    fn is_tcp(&self) -> bool {
        match *self {}
    }

    fn try_move<T>(&self, _: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match *self {}
    }

    fn try_send_header(&self, _: &mut Option<Header>) -> io::Result<Progress> {
        match *self {}
    }
}

/// How a client learns where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The header announces the length.
    ByLength,
    /// The frames of the version. The connection continues after a truncated body.
    ByFrames,
    /// Chunks (RFC 9112, 7.1).
    ByChunks,
    /// The end of the connection ends the body.
    ByClosing,
}

/// The result of one call that sends bytes.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes of header, body and framing.
    pub bytes: usize,
    /// Bytes of the body, without framing.
    pub body_bytes: usize,
    /// Everything that the caller passed has been sent.
    pub is_complete: bool,
}

/// The content of a header section, for the encoder of a version.
#[derive(Debug, Clone, Copy)]
pub struct Head<'r> {
    /// The status code.
    pub status: u16,
    /// The reason phrase; empty for the standard one.
    pub reason: &'r [u8],
    /// A file whose header lines come before `fields`.
    pub base: Option<&'r EntryRef>,
    /// Header lines.
    pub fields: &'r Fields,
    /// `fields` contain a Date.
    pub has_date: bool,
    /// No Server is to be added: `fields` contain one, or it was removed.
    pub has_server: bool,
    /// The value of Server-Timing, if enabled.
    pub server_timing: Option<&'r str>,
    /// The value of Content-Length; `None` when the length is unknown or the status forbids the header.
    pub length: Option<u64>,
    /// Trailers may follow the last byte, although the length is known.
    pub may_have_trailers: bool,
    /// The framing of the body.
    pub framing: Framing,
    /// The body follows: false for HEAD.
    pub has_body: bool,
    /// The protocol of the connection or stream after this header.
    pub upgrade: Option<&'r [u8]>,
    /// The connection closes after the response.
    pub close: bool,
}
