//! The client's end of an exchange that has no client: of a request of the server's own.

use std::future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use levity_config::Limits;
use levity_net::{Peer, Timer, Turn};
use levity_wire::Reject;
use levity_wire::http1::Trailers;

use super::arriving::Registration;
use super::gathered::Gathered;
use super::request_body::{ClientStream, RequestBody};
use crate::loop_core::LoopCore;
use crate::message::fields::Fields;
use crate::message::request::RequestError;
use crate::shares::claim::Claims;

/// The body of a request without a client: there is none. Nobody leaves while the answer is waited for.
pub fn body(core: Rc<LoopCore>, limits: &Limits) -> RequestBody {
    let timer = Rc::new(Timer::default());
    let registration = Registration::new(core, timer.clone());
    let no_client = NoClient {
        peer: Peer::new(None),
        timer,
        turn: Turn::default(),
        registration,
    };
    RequestBody::new(Rc::new(no_client), limits, None)
}

struct NoClient {
    peer: Peer,
    timer: Rc<Timer>,
    turn: Turn,
    registration: Registration,
}

impl ClientStream for NoClient {
    fn version(&self) -> &'static str {
        "HTTP/1.1"
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn number(&self) -> u64 {
        self.registration.number_in_process()
    }

    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn limit_body(&self, _: u64) -> Result<(), Reject> {
        Ok(())
    }

    fn body_remaining(&self) -> Option<u64> {
        Some(0)
    }

    fn is_body_unread(&self) -> bool {
        true
    }

    fn trailers(&self) -> Trailers {
        Trailers::default()
    }

    fn poll_body(&self, _: &mut Context<'_>, _: &mut Vec<u8>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn take_buffered(&self, _: &Claims, _: &mut Gathered) -> Result<(), Reject> {
        Ok(())
    }

    fn watch(&self, _: &mut Context<'_>) -> Result<(), RequestError> {
        Ok(())
    }

    fn input_ended(&self) -> bool {
        false
    }

    fn may_leave_body(&self) -> bool {
        true
    }

    fn expects_continue(&self) -> bool {
        false
    }

    fn inform<'a>(&'a self, _: u16, _: &'a Fields) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(future::ready(()))
    }

    fn poll_read(&self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_write(&self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn end_output(&self) {}
}
