//! One end of a connection over TLS, after its handshake.
//!
//! Bytes are encrypted when they are written, and reported as written when the socket has taken what was made of them. So the
//! time-outs and counts of whoever writes are those of the client, and nothing is left in a buffer when a connection closes.
//!
//! With early data (RFC 8446, 2.3) the stream begins before the handshake is complete: reads bring that data first, then finish the
//! handshake, and writes are sent at once.

use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::task::{Context, Poll, Waker, ready};

use rustls::Connection;
use rustls::server::ReadEarlyData;

use crate::transport::{Encrypted, Transport};

/// The maximum number of bytes that are encrypted before the socket takes them: four records.
const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of reads from the transport before others have their turn. A read may bring 180 records of one
/// byte, each of which takes as long to decrypt as a large one.
const FILLS_MAX: u8 = 16;

/// One end of a connection over TLS.
pub struct TlsStream {
    below: Transport,
    session: Connection,
    /// Bytes that are encrypted, and not yet reported as written.
    unreported: usize,
    /// How often it has read from the transport since it last waited.
    fills: u8,
    /// Early data may be left to read.
    has_early_data: bool,
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Open,
    /// The closing alert waits for room in the socket.
    Closing,
    /// Nothing more is said.
    Closed,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TlsStream({:?})", self.below)
    }
}

/// The transport beneath, as a session reads and writes it.
pub(super) struct Below<'t, 'c, 'w>(pub(super) &'t mut Transport, pub(super) &'c mut Context<'w>);

impl Read for Below<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        or_would_block(self.0.poll_read(self.1, buffer))
    }
}

impl Write for Below<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(match slices {
            [only] => self.0.poll_write(self.1, only),
            several => self.0.poll_write_vectored(self.1, several),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn or_would_block(polled: Poll<io::Result<usize>>) -> io::Result<usize> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn or_pending<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

/// Reads what has arrived, without a wait.
struct Arrived<'t>(&'t mut Transport);

impl Read for Arrived<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

/// The early data of a client; `None` if it was not accepted.
pub(super) fn early_data(session: &mut Connection) -> Option<ReadEarlyData<'_>> {
    match session {
        Connection::Server(server) => server.early_data(),
        Connection::Client(_) => None,
    }
}

/// Writes what `session` has to say. Ready when `below` has taken all of it.
pub(super) fn poll_flush(
    below: &mut Transport,
    session: &mut Connection,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while session.wants_write() {
        if ready!(or_pending(session.write_tls(&mut Below(below, context))))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
    }
    Poll::Ready(Ok(()))
}

/// Gives `session` what has come; zero bytes mean that nothing follows.
pub(super) fn poll_fill(
    below: &mut Transport,
    session: &mut Connection,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    or_pending(session.read_tls(&mut Below(below, context)))
}

impl TlsStream {
    /// One over a session whose handshake is complete, or has early data.
    pub(super) fn new(below: Transport, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let has_early_data = early_data(&mut session).is_some();
        Self {
            below,
            session,
            unreported: 0,
            fills: 0,
            has_early_data,
            output: Output::Open,
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Connection {
        &self.session
    }

    /// Reads early data, of which zero bytes may be left.
    fn read_early_data(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = early_data(&mut self.session).map_or(Ok(0), |mut early| early.read(buffer))?;
        self.has_early_data = count > 0 || buffer.is_empty() || self.session.is_handshaking();
        Ok(count)
    }

    fn append_early_data(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let before = buffer.len();
        buffer.resize(buffer.capacity(), 0);
        let read = self.read_early_data(&mut buffer[before..]);
        buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        read
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(poll_flush(&mut self.below, &mut self.session, context))?;
        if self.output == Output::Closing {
            self.output = Output::Closed;
            self.below.end_output();
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the session has got something, if only the end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What the session has to say, such as new keys, must not wait for the next response.
        if let Poll::Ready(Err(error)) = self.poll_flush(context) {
            return Poll::Ready(Err(error));
        }
        if self.fills == FILLS_MAX {
            self.fills = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.fills += 1;
        let filled = poll_fill(&mut self.below, &mut self.session, context);
        if filled.is_pending() {
            self.fills = 0;
        }
        ready!(filled)?;
        Poll::Ready(self.process(context))
    }

    fn process(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Err(error) = self.session.process_new_packets() else {
            return Ok(());
        };
        // The alert that says why. If the socket has no room, the peer does without.
        let _ = self.poll_flush(context);
        self.output = Output::Closed;
        Err(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl Encrypted for TlsStream {
    fn below(&self) -> &Transport {
        &self.below
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.has_early_data
                && let count = self.read_early_data(buffer)?
                && count > 0
            {
                return Poll::Ready(Ok(count));
            }
            if let Poll::Ready(read) = or_pending(self.session.reader().read(buffer)) {
                return Poll::Ready(read);
            }
            ready!(self.poll_receive(context))?;
        }
    }

    fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        loop {
            if self.has_early_data
                && let count = self.append_early_data(buffer)?
                && count > 0
            {
                return Poll::Ready(Ok(count));
            }
            let mut reader = self.session.reader();
            let taken = reader.fill_buf().map(|decrypted| {
                let count = decrypted.len().min(room);
                buffer.extend_from_slice(&decrypted[..count]);
                count
            });
            if let Poll::Ready(taken) = or_pending(taken) {
                reader.consume(*taken.as_ref().unwrap_or(&0));
                return Poll::Ready(taken);
            }
            ready!(self.poll_receive(context))?;
        }
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if self.has_early_data
                && let count = self.read_early_data(buffer)?
                && count > 0
            {
                return Ok(count);
            }
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.session.read_tls(&mut Arrived(&mut self.below))?;
            self.process(&mut context)?;
        }
    }

    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.output != Output::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        loop {
            if self.unreported == 0 {
                self.unreported = self.session.writer().write_vectored(slices)?;
                // With TLS 1.2 the keys are used up after 2^24 records, and what follows is dropped.
                if self.unreported > 0 && !self.session.wants_write() {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
            }
            ready!(self.poll_flush(context))?;
            // None fit while the session had to say as much itself.
            if self.unreported > 0 || len == 0 {
                // Fewer may be offered than before.
                let reported = self.unreported.min(len);
                self.unreported -= reported;
                return Poll::Ready(Ok(reported));
            }
        }
    }

    fn is_writing(&self) -> bool {
        self.unreported > 0
    }

    fn has_chosen_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(levity_tls::ALPN_HTTP2)
    }

    fn is_early(&self) -> bool {
        self.has_early_data && self.session.is_handshaking()
    }

    fn handshake_error(&mut self) -> Option<String> {
        // A session that has failed says the same again.
        let error = self
            .is_early()
            .then(|| self.session.process_new_packets())?;
        error.err().as_ref().map(levity_tls::reason)
    }

    /// What the socket has no room for is written by later reads.
    fn end_output(&mut self) {
        match self.output {
            Output::Open => {
                self.session.send_close_notify();
                self.output = Output::Closing;
            }
            Output::Closing => {}
            Output::Closed => return self.below.end_output(),
        }
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }

    fn reset_on_close(&mut self) {
        self.output = Output::Closed;
        self.below.reset_on_close();
    }
}

impl Drop for TlsStream {
    /// Says that nothing more comes, unless the last thing that was said is incomplete.
    fn drop(&mut self) {
        if self.output == Output::Open && self.unreported == 0 {
            self.end_output();
        }
    }
}
