//! A stream as the source of a request body.

use std::future::{self, Future};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use levity_net::{Peer, Timer, Turn};
use levity_telemetry::stall;
use levity_wire::http1::{Reject, Trailers};

use super::super::credit::Credit;
use super::super::head;
use super::Stream;
use crate::http::gathered::Gathered;
use crate::http::request_body::{ClientStream, PART_BYTES_MAX};
use crate::message::fields::Fields;
use crate::message::request::RequestError;
use crate::shares::claim::Claims;

impl Stream {
    /// Lets the client send as many bytes more, except for those of its credit once it needs none any more.
    fn consumed(&self, bytes: usize) {
        if bytes > 0 {
            self.with_credit(|body| body.credit.iter_mut().for_each(Credit::resume));
            self.conn.consumed(self.id, bytes);
        }
    }
}

impl ClientStream for Stream {
    fn version(&self) -> &'static str {
        "HTTP/2.0"
    }

    fn peer(&self) -> &Peer {
        self.conn.peer()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.conn.local_address()
    }

    fn number(&self) -> u64 {
        self.registration.number_in_process()
    }

    fn connection(&self) -> u64 {
        self.conn.number()
    }

    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn limit_body(&self, bytes_max: u64) -> Result<(), Reject> {
        self.with_body(|body| body.limit(bytes_max))
    }

    fn body_remaining(&self) -> Option<u64> {
        self.with_body(|body| body.remaining())
    }

    fn is_body_unread(&self) -> bool {
        self.with_body(|body| body.bytes() == 0)
    }

    fn trailers(&self) -> Trailers {
        self.with_body(|body| body.trailers())
    }

    fn has_body(&self) -> bool {
        self.incoming.borrow().is_some()
    }

    fn count_body(&self, claims: &Rc<Claims>) {
        if let Some(body) = self.incoming.borrow_mut().as_deref_mut() {
            body.credit = Some(Credit::new(claims.clone(), stall::poll_start()));
            self.conn.count_excess_as(claims);
        }
    }

    fn yield_credit(&self) {
        self.with_credit(|body| body.credit.iter_mut().for_each(Credit::pause));
    }

    fn may_send_body(&self) -> bool {
        self.conn.may_receive()
    }

    fn poll_body(
        &self,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), RequestError>> {
        let polled = self.with_body(|body| body.poll_body(out));
        if polled.is_pending() {
            self.reader.set(context);
            self.turn.restart();
        }
        let (bytes, taken) = ready!(polled);
        self.consumed(bytes);
        Poll::Ready(taken)
    }

    fn take_buffered(&self, claims: &Claims, out: &mut Gathered) -> Result<(), Reject> {
        let polled = self.with_body(|body| match body.unread() {
            bytes @ ..=PART_BYTES_MAX
                if body.has_ended() && out.try_room(claims, bytes).is_ok() =>
            {
                out.add(|out| body.poll_body(out))
            }
            _ => Poll::Pending,
        });
        let Poll::Ready((bytes, taken)) = polled else {
            return Ok(());
        };
        self.consumed(bytes);
        match taken {
            Err(RequestError::Refused(reject)) => Err(reject),
            _ => Ok(()),
        }
    }

    fn watch(&self, context: &mut Context<'_>) -> Result<(), RequestError> {
        if self.is_gone.get() {
            return Err(RequestError::Gone);
        }
        self.reader.set(context);
        Ok(())
    }

    /// The end of a request does not close the connection.
    fn input_ended(&self) -> bool {
        false
    }

    fn may_leave_body(&self) -> bool {
        true
    }

    fn expects_continue(&self) -> bool {
        let has_begun = || self.with_body(|body| body.bytes() > 0 || body.unread() > 0);
        self.expects_continue.get() && !has_begun()
    }

    fn inform<'a>(
        &'a self,
        status: u16,
        fields: &'a Fields,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        let is_due = match status {
            100 => self.expects_continue() && self.expects_continue.replace(false),
            _ => true,
        };
        // A client that does not read gets none, because their number has no limit.
        if is_due && self.conn.may_read() {
            let block = head::interim(status, fields);
            self.conn
                .with_wire(|wire| wire.send_fields(self.id, block.as_bytes(), false));
        }
        Box::pin(future::ready(()))
    }

    fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let polled = self.with_body(|body| body.poll_read(buffer));
        if polled.is_pending() {
            self.reader.set(context);
        }
        let bytes = ready!(polled);
        self.consumed(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.watch(context) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_data(context, bytes, false)
    }

    fn end_output(&self) {
        self.conn
            .with_wire(|wire| wire.send_data(self.id, &[], true));
    }
}
