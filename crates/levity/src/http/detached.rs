//! The client's end of an exchange whose client may leave: the server asks an application for somebody who may come back.

use std::cell::{Cell, RefCell};
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use levity_net::{Peer, Timer, Turn};
use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::fields::Fields;
use super::gathered::Gathered;
use super::request::RequestError;
use super::request_body::ClientStream;
use crate::failed_lookups::FailedLookups;
use crate::shares::claim::Claims;

/// A client that never leaves, and whose whole body is here.
pub struct Detached {
    peer: Peer,
    number: u64,
    version: &'static str,
    timer: Rc<Timer>,
    turn: Turn,
    failed_lookups: Cell<FailedLookups>,
    body: RefCell<Gathered>,
    body_bytes: u64,
}

impl Detached {
    /// In place of `client`, with the body that it has sent. `timer` is one that the event loop sweeps.
    pub fn new(client: &dyn ClientStream, body: Gathered, timer: Rc<Timer>) -> Self {
        Self {
            peer: client.peer().clone(),
            number: client.number(),
            version: client.version(),
            timer,
            turn: Turn::default(),
            failed_lookups: Cell::default(),
            body_bytes: body.len() as u64,
            body: RefCell::new(body),
        }
    }
}

impl ClientStream for Detached {
    fn version(&self) -> &'static str {
        self.version
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn failed_lookups(&self) -> &Cell<FailedLookups> {
        &self.failed_lookups
    }

    fn limit_body(&self, _: u64) -> Result<(), Reject> {
        Ok(())
    }

    fn body_remaining(&self) -> Option<u64> {
        Some(self.body.borrow().len() as u64)
    }

    fn body_received(&self) -> u64 {
        self.body_bytes - self.body.borrow().len() as u64
    }

    fn is_body_cut_off(&self) -> bool {
        false
    }

    fn is_body_unread(&self) -> bool {
        self.body_received() == 0
    }

    fn trailers(&self) -> Trailers {
        Trailers::default()
    }

    fn poll_body(&self, _: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<(), RequestError>> {
        let (mut body, _held) = self.body.take().into_parts();
        out.append(&mut body);
        Poll::Ready(Ok(()))
    }

    fn take_buffered(&self, _: &Claims, out: &mut Gathered) -> Result<(), Reject> {
        *out = self.body.take();
        Ok(())
    }

    fn watch(&self, _: &mut Context<'_>) -> Result<(), RequestError> {
        Ok(())
    }

    fn input_ended(&self) -> bool {
        false
    }

    fn may_leave_body(&self) -> bool {
        false
    }

    fn expects_continue(&self) -> bool {
        false
    }

    fn inform<'a>(&'a self, _: u16, _: &'a Fields) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(ready(()))
    }

    fn poll_read(&self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_write(&self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn end_output(&self) {}
}
