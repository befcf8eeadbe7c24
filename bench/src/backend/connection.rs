//! One connection of a proxy, which carries one request at a time.

use super::answer::Bytes;
use super::{Protocol, Request, fastcgi, http};
use crate::failure::{Context, Failure, Result};
use rustix::event::epoll::EventFlags;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// The size of a read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// The maximum size of a request: no proxy under test sends a larger one.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A connection of a proxy.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    /// Distinguishes it from earlier connections with the same index.
    pub(super) serial: u64,
    received: Vec<u8>,
    answer: Option<(Bytes, usize)>,
    closes: bool,
    waits_to_send: bool,
}

/// The result of sending.
pub(super) struct Progress {
    /// The connection has to wait for these events instead.
    pub(super) wants: Option<EventFlags>,
    /// The last response on the connection has been sent.
    pub(super) closes: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, serial: u64) -> Self {
        Self {
            stream,
            serial,
            received: Vec::new(),
            answer: None,
            closes: false,
            waits_to_send: false,
        }
    }

    pub(super) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn answer(&mut self, bytes: Bytes) {
        self.answer = Some((bytes, 0));
    }

    /// Reads once, and returns the request if it is complete.
    ///
    /// # Errors
    /// The peer has closed the connection or violates the protocol.
    pub(super) fn receive(&mut self, protocol: Protocol) -> Result<Option<Request>> {
        let mut piece = [0; READ_BYTES];
        let read = match self.stream.read(&mut piece) {
            Ok(0) => return Err(Failure::new("closed")),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context(|| "receive".into()),
        };
        self.received.extend_from_slice(&piece[..read]);
        let request = match protocol {
            Protocol::Http => http::request(&self.received)?,
            Protocol::Fastcgi => fastcgi::request(&self.received)?,
        };
        if let Some(request) = &request {
            self.received.drain(..request.bytes);
            self.closes = request.closes;
        } else if self.received.len() > REQUEST_BYTES_MAX {
            return Err(Failure::new("request too long"));
        }
        Ok(request)
    }

    /// Sends as much of the response as the socket accepts.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub(super) fn send(&mut self) -> Result<Progress> {
        let is_sent = self.push()?;
        if is_sent {
            self.answer = None;
        }
        let wants = (is_sent == self.waits_to_send).then_some(match is_sent {
            true => EventFlags::IN,
            false => EventFlags::OUT,
        });
        self.waits_to_send = !is_sent;
        Ok(Progress {
            wants,
            closes: is_sent && self.closes,
        })
    }

    fn push(&mut self) -> Result<bool> {
        let Some((bytes, sent)) = &mut self.answer else {
            return Ok(true);
        };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..]) {
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context(|| "send".into()),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_response_waits_for_a_full_socket() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(near, 1);
        connection.answer(Rc::from(vec![b'x'; 1 << 20]));
        let progress = connection.send().unwrap();
        assert!(progress.wants == Some(EventFlags::OUT) && connection.has_answer());
        let mut got = 0;
        let mut piece = vec![0; 1 << 20];
        while got < 1 << 20 {
            got += far.read(&mut piece).unwrap();
            let progress = connection.send().unwrap();
            let wants = (!connection.has_answer()).then_some(EventFlags::IN);
            assert!(got == 1 << 20 || progress.wants == wants);
        }
        assert!(!connection.has_answer());
    }
}
