//! One connection of a scripted backend, whatever is spoken over it.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::{Request, Shared};
use crate::support::socket::Socket;
use crate::support::wire::Wire;

/// A connection that was accepted. It closes when the function returns; the kernel makes a reset of
/// that, too, where bytes of the peer are left unread.
pub struct Conn {
    number: usize,
    pub(super) wire: Wire,
    shared: Arc<Shared>,
}

impl Conn {
    pub(super) fn new(number: usize, socket: Socket, shared: Arc<Shared>) -> Self {
        let wire = Wire::new(socket);
        Self {
            number,
            wire,
            shared,
        }
    }

    /// Its number, counted from 0: a function that serves the second one otherwise asks for it.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Sends; says whether the peer was there to take it.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends every byte by itself.
    pub fn send_slowly(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        bytes.as_ref().iter().all(|&byte| self.send([byte]))
    }

    /// Does nothing until the test says `release`.
    pub fn stall(&self) {
        self.shared.stall();
    }

    /// Sends no more, but reads.
    pub fn finish(&self) {
        // Fails when the peer has closed.
        let _ = self.wire.socket.shutdown(Shutdown::Write);
    }

    /// The next `len` bytes, whatever they are: what is spoken behind an upgrade.
    #[track_caller]
    pub fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        self.wire.take(len).expect("more bytes")
    }

    /// Whatever comes until the peer closes; a peer that is merely silent fails the test.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while !self.has_ended() {}
        std::mem::take(&mut self.wire.ahead)
    }

    /// The next byte, if the peer sends one before it closes.
    #[track_caller]
    pub fn read_byte(&mut self) -> Option<u8> {
        self.has_more().then(|| self.wire.ahead.remove(0))
    }

    /// Makes a reset of the end of a TCP connection.
    pub fn reset(&self) {
        self.wire.socket.reset_when_closed().expect("SO_LINGER");
    }

    /// Waits for bytes: false at the end of the connection.
    #[track_caller]
    pub(super) fn has_more(&mut self) -> bool {
        !self.wire.ahead.is_empty() || !self.has_ended()
    }

    /// Reads once; true when the peer has closed.
    #[track_caller]
    fn has_ended(&mut self) -> bool {
        match self.wire.read_more() {
            Ok(()) => false,
            Err(end) => match end.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => true,
                _ => panic!("the peer is silent: {end}"),
            },
        }
    }

    /// Keeps a request for assertions; what reads a whole request has done it.
    pub fn keep(&self, mut request: Request) -> Request {
        request.connection = self.number;
        self.shared.keep(request.clone());
        request
    }
}
