//! Serves the requests of a connection over HTTP/2.
//!
//! An exchange that need not wait ends in the poll that parses its request. The responses of all such exchanges leave in one write. An
//! exchange that has to wait is kept, and polled when it is woken.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use levity_telemetry::access_log::End;
use levity_telemetry::stall;
use levity_telemetry::stats::Http2Failure;
use levity_telemetry::step::Step;
use levity_wire::http1::{self, Reject};
use levity_wire::http2::{ErrorCode, Event, Failure, StreamId};
use tokio::task;

use super::ended;
use crate::exchange;
use crate::http::error::error;
use crate::http::h1;
use crate::http::h2::conn::Conn;
use crate::http::h2::stream::Stream;
use crate::http::h2::streams::{Begun, Streams};
use crate::http::request_body::ends_upload;
use crate::http::send::parked::Parked;
use crate::http::send::{self, Sent};
use crate::loop_core::LoopCore;
use crate::message::request::Request;
use crate::worker::Worker;

/// The maximum number of header sections, and of frames that wake all streams, that are read in a poll.
const SECTIONS_PER_POLL_MAX: usize = 32;

/// A response that has ended, or outlives its exchange.
struct Answered {
    stream: Rc<Stream>,
    /// The response is complete, and one at which clients end an upload.
    ends_upload: bool,
    ended: Instant,
    parked: Option<Box<Parked>>,
}

/// What outlives an exchange. A closure as the future would need one more allocation per response.
struct Outliving {
    stream: Rc<Stream>,
    rest: Rest,
}

enum Rest {
    /// The rest of the response.
    Response(Box<Parked>),
    /// The rest of the request, of which nobody has a use.
    RequestBody,
}

impl Future for Outliving {
    type Output = Rc<Stream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stream, rest } = &mut *self;
        match rest {
            Rest::Response(parked) => parked.poll(&**stream, context).map(drop),
            Rest::RequestBody => stream.poll_linger(context),
        }
        .map(|()| stream.clone())
    }
}

/// Which futures of a connection may be polled, so that its poll does not take long and each gets its turn.
///
/// Those that are left when the time is up have precedence from the next poll on: until all of them were polled, no
/// other is. In which order they are woken does not matter then.
#[derive(Default)]
struct Turns {
    /// The futures with precedence.
    left: Cell<usize>,
    /// Futures without it are given it if they are left in this poll.
    is_first_poll: Cell<bool>,
    /// A future was polled in this poll: the others may be left.
    has_polled: Cell<bool>,
    /// All are polled, however long it takes.
    polls_all: Cell<bool>,
}

impl Turns {
    fn begin_poll(&self) {
        self.is_first_poll.set(self.left.get() == 0);
        self.has_polled.set(false);
    }
}

/// A future that is polled when it is its turn.
struct InTurn<F> {
    future: F,
    turns: Rc<Turns>,
    has_precedence: bool,
}

impl<F> InTurn<F> {
    fn new(future: F, turns: &Rc<Turns>) -> Self {
        Self {
            future,
            turns: turns.clone(),
            has_precedence: false,
        }
    }

    fn set_precedence(&mut self, has: bool) {
        let left = &self.turns.left;
        match (self.has_precedence, has) {
            (false, true) => left.set(left.get() + 1),
            (true, false) => left.set(left.get() - 1),
            _ => {}
        }
        self.has_precedence = has;
    }

    fn is_in_turn(&self) -> bool {
        let turns = &self.turns;
        let may_be_next = self.has_precedence || turns.left.get() == 0;
        let is_late = || turns.has_polled.get() && stall::should_yield(Instant::now());
        turns.polls_all.get() || may_be_next && !is_late()
    }
}

impl<F> Drop for InTurn<F> {
    fn drop(&mut self) {
        self.set_precedence(false);
    }
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.is_in_turn() {
            if self.turns.is_first_poll.get() {
                self.set_precedence(true);
            }
            // It is woken after this poll.
            let _ = pin!(task::yield_now()).poll(context);
            return Poll::Pending;
        }
        self.set_precedence(false);
        self.turns.has_polled.set(true);
        Pin::new(&mut self.future).poll(context)
    }
}

/// A connection with its exchanges.
struct Serving<'w, F, B> {
    worker: &'w Worker,
    conn: Rc<Conn>,
    streams: Streams,
    /// Makes the future of an exchange.
    begin: B,
    running: FuturesUnordered<InTurn<F>>,
    outliving: FuturesUnordered<InTurn<Outliving>>,
    turns: Rc<Turns>,
    /// What counts to [`SECTIONS_PER_POLL_MAX`] in this poll.
    sections: usize,
    /// What was read in this poll has taken too long.
    is_late: bool,
}

/// Serves a connection whose client has begun with HTTP/2.
pub(super) async fn over_http2(worker: &Rc<Worker>, conn: Rc<h1::conn::Conn>) {
    let conn = Rc::into_inner(conn).expect("no request shares it");
    let (transport, first, arriving) = conn.detach();
    let conn = Conn::new(arriving, transport, first);
    let end = serve(worker, conn.clone()).await;
    ended(conn.core(), conn.peer(), conn.handshake_error(), end);
}

/// Serves the connection of `worker` until either side ends it.
async fn serve(worker: &Rc<Worker>, conn: Rc<Conn>) -> End {
    let core = &worker.core;
    let mut serving = Serving {
        streams: Streams::new(conn.clone()),
        conn,
        worker,
        begin: |begun| core.exchange_memory.pin(|| answer(worker, begun)),
        running: FuturesUnordered::new(),
        outliving: FuturesUnordered::new(),
        turns: Rc::default(),
        sections: 0,
        is_late: false,
    };
    let end = poll_fn(|context| serving.poll(context)).await;
    serving.streams.lose();
    poll_fn(|context| serving.poll_rest(context)).await;
    if end != End::ClientAbort {
        serving.conn.begin_finish();
        poll_fn(|context| serving.conn.poll_finish(context)).await;
        serving.conn.begin_linger();
        poll_fn(|context| {
            let mut buffer = core.frames_in.borrow_mut();
            serving.conn.poll_linger(context, &mut buffer)
        })
        .await;
    }
    end
}

impl<F, B> Serving<'_, F, B>
where
    F: Future<Output = Answered> + Unpin,
    B: Fn(Begun) -> F,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        self.conn.begin_poll(context);
        (self.sections, self.is_late) = (0, false);
        self.turns.begin_poll();
        let end = self.poll_until_idle(context);
        self.conn.end_poll();
        Step::Idle.enter();
        end
    }

    fn poll_until_idle(&mut self, context: &mut Context<'_>) -> Poll<End> {
        loop {
            // Before the exchanges are polled: they could always use up the room for replies.
            let could_read = self.conn.may_read();
            let input = match could_read {
                true => self.poll_input(context),
                false => Poll::Pending,
            };
            let mut has_progress = self.poll_exchanges(context);
            self.streams.rest();
            let is_over = self.conn.poll_timeout(context);
            if is_over {
                self.conn.end_shutdown();
            }
            if let Poll::Ready(Err(_)) = self.conn.poll_flush(context) {
                return Poll::Ready(End::ClientAbort);
            }
            has_progress |= !could_read && self.conn.may_read();
            match input {
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                _ if is_over || self.conn.is_done() => return Poll::Ready(End::Complete),
                _ if self.has_read_enough() || self.conn.has_had_turn() => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending if !has_progress => return Poll::Pending,
                _ => {}
            }
        }
    }

    /// Polls what was woken. Returns whether something has ended.
    fn poll_exchanges(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_ended_some = false;
        loop {
            // Before: the window that the client has used up may be opened again at once.
            self.streams.follow_window();
            while let Poll::Ready(Some(answered)) = self.running.poll_next_unpin(context) {
                self.answered(answered);
                has_ended_some = true;
            }
            while let Poll::Ready(Some(stream)) = self.outliving.poll_next_unpin(context) {
                self.streams.end(stream, Instant::now());
                has_ended_some = true;
            }
            if !self.streams.follow_window() {
                return has_ended_some;
            }
        }
    }

    /// Reads from the client and handles its frames. Returns how the connection ends, if it does.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        // The exchanges may have taken the time.
        self.is_late |= stall::should_yield(Instant::now());
        if self.is_late {
            return Poll::Pending;
        }
        let core = self.conn.core().clone();
        let mut buffer = core.frames_in.borrow_mut();
        let mut input = match ready!(self.conn.poll_read(context, &mut buffer)) {
            Ok(0) if self.running.is_empty() && self.outliving.is_empty() => {
                return Poll::Ready(Some(End::Complete));
            }
            Ok(0) | Err(_) => return Poll::Ready(Some(End::ClientAbort)),
            Ok(count) => &buffer[..count],
        };
        let mut has_ended = false;
        while !self.has_read_enough() {
            Step::Parse.enter();
            let event = self.conn.next(&mut input);
            // These have a header section, or wake all streams that wait. Other events take no time.
            if let Ok(Some(
                Event::Request { .. }
                | Event::Malformed { .. }
                | Event::Trailers { .. }
                | Event::Reset { .. }
                | Event::Window { stream: None },
            )) = event
            {
                self.sections += 1;
            }
            match event {
                Ok(Some(event @ Event::Request { stream, .. })) => {
                    // The client may just have ended a stream, and this one replaces it: its exchange ends when it is polled.
                    if self.streams.is_full() && std::mem::take(&mut has_ended) {
                        self.turns.polls_all.set(true);
                        self.poll_exchanges(context);
                        self.turns.polls_all.set(false);
                    }
                    if self.streams.is_full() {
                        if let Err(failure) = self.conn.refuse(stream) {
                            return Poll::Ready(Some(failed(&core, &failure)));
                        }
                    } else {
                        self.request(&core, &event);
                    }
                }
                Ok(Some(Event::Malformed { stream })) => self.malformed(stream),
                Ok(Some(event)) => {
                    has_ended |= matches!(
                        event,
                        Event::Reset { .. }
                            | Event::Trailers { .. }
                            | Event::Data { ends: true, .. }
                    );
                    self.streams.deliver(&event);
                }
                Ok(None) => return Poll::Ready(None),
                Err(failure) => return Poll::Ready(Some(failed(&core, &failure))),
            }
        }
        self.conn.put_back(input);
        Poll::Ready(None)
    }

    /// Whether this poll is to read no more from the client.
    fn has_read_enough(&self) -> bool {
        self.sections >= SECTIONS_PER_POLL_MAX || self.is_late
    }

    /// Begins the exchange of a request, and ends it if it need not wait.
    fn request(&mut self, core: &LoopCore, event: &Event<'_>) {
        self.streams.follow_window();
        let parsed = self.conn.with_head(|head| parse(core, head));
        let begun = self.streams.begin(event, parsed);
        let mut exchange = (self.begin)(begun);
        // There is no task to wake yet: an exchange that waits is polled again.
        let now = match Pin::new(&mut exchange).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answered) => {
                let ended = answered.ended;
                self.answered(answered);
                ended
            }
            Poll::Pending => {
                self.running.push(InTurn::new(exchange, &self.turns));
                Instant::now()
            }
        };
        self.is_late |= stall::should_yield(now);
    }

    /// Counts and logs a malformed request like one of HTTP/1, which would get a response.
    fn malformed(&self, stream: StreamId) {
        let stream = self.streams.without_exchange(stream);
        exchange::record_refused(
            &self.worker.service(),
            &stream,
            stall::poll_start(),
            &Sent::reset(400),
        );
    }

    fn answered(&mut self, answered: Answered) {
        let stream = answered.stream;
        let rest = match answered.parked {
            Some(parked) => Rest::Response(parked),
            None if answered.ends_upload && stream.has_open_body() => {
                stream.begin_linger();
                Rest::RequestBody
            }
            None => return self.streams.end(stream, answered.ended),
        };
        let outliving = Outliving { stream, rest };
        self.outliving.push(InTurn::new(outliving, &self.turns));
    }

    /// Polls the remaining exchanges after the end of the connection.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.turns.begin_poll();
        self.poll_exchanges(context);
        match self.running.is_empty() && self.outliving.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// Counts a fault of the client, which ends the connection.
fn failed(core: &LoopCore, failure: &Failure) -> End {
    core.stats.http2_failed(counted(failure.code));
    End::Error
}

/// The metric of a connection that ends with `code`.
fn counted(code: ErrorCode) -> Http2Failure {
    match code {
        ErrorCode::FlowControl => Http2Failure::FlowControlError,
        ErrorCode::StreamClosed => Http2Failure::StreamClosed,
        ErrorCode::FrameSize => Http2Failure::FrameSizeError,
        ErrorCode::Compression => Http2Failure::CompressionError,
        ErrorCode::EnhanceYourCalm => Http2Failure::EnhanceYourCalm,
        ErrorCode::Protocol
        | ErrorCode::NoError
        | ErrorCode::Internal
        | ErrorCode::RefusedStream
        | ErrorCode::Cancel => Http2Failure::ProtocolError,
    }
}

/// Parses a header section.
fn parse(core: &LoopCore, head: &[u8]) -> Result<Box<Request>, Reject> {
    let mut request = core.take_request();
    if !http1::parse_request(head, &mut request.head, &core.config().wire_limits)? {
        let reason = "the header section is cut off";
        return Err(Reject {
            status: 400,
            reason,
        });
    }
    request.set_bytes(head);
    Ok(request)
}

async fn answer(worker: &Rc<Worker>, begun: Begun) -> Answered {
    let Begun {
        stream,
        request,
        arrival,
    } = begun;
    match request {
        Ok(mut request) => {
            let mut exchanged = exchange::exchange(worker, &stream, &mut request, arrival).await;
            worker.core.return_request(request);
            Answered {
                ends_upload: exchanged.end == End::Complete && ends_upload(exchanged.status),
                ended: exchanged.ended,
                parked: exchanged.parked.take(),
                stream,
            }
        }
        // Boxed: a rare path.
        Err(reject) => {
            Box::pin(async move {
                let response = error(reject.status, reject.reason);
                let sent = send::refuse(&*stream, response).await;
                exchange::record_refused(&worker.service(), &*stream, arrival.first_byte, &sent);
                Answered {
                    stream,
                    ends_upload: sent.end == End::Complete,
                    ended: sent.ended,
                    parked: None,
                }
            })
            .await
        }
    }
}

#[cfg(test)]
mod tests;
