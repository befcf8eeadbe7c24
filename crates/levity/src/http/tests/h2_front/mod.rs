//! HTTP/2 with prior knowledge (RFC 9113, 3.3): each stream is a task with one exchange.

mod header;
mod request;
mod stream;
mod transport;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Instant;

use ::http::Request;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use levity_net::{Peer, Timer, Transport};
use levity_telemetry::access_log::End;
use levity_wire::http1::Reject;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task;

use self::stream::Stream;
pub use self::transport::Io;
use crate::exchange;
use crate::failed_lookups::FailedLookups;
use crate::http::error::error;
use crate::http::request::Arrival;
use crate::http::send;
use crate::worker::Worker;

/// The maximum of unsent bytes that a stream holds in memory.
pub const SEND_BYTES_MAX: usize = 32 * 1024;

/// The state that the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    peer: Peer,
    failed_lookups: Cell<FailedLookups>,
    deadline: Deadline,
    streams: Cell<usize>,
}

/// A timer that is registered while its connection or stream is open.
struct Deadline {
    worker: Rc<Worker>,
    timer: Rc<Timer>,
    number: usize,
}

impl Deadline {
    fn new(worker: Rc<Worker>) -> Self {
        let timer = Rc::new(Timer::default());
        let number = worker.timers.insert(timer.clone());
        Self {
            worker,
            timer,
            number,
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.worker.timers.remove(self.number);
        self.worker.work_ended.notify_one();
    }
}

impl Shared {
    /// Adds `by` to the number of streams. Without streams the connection is idle.
    fn streams_changed(&self, by: isize) {
        let streams = self.streams.get().saturating_add_signed(by);
        self.streams.set(streams);
        if streams > 0 {
            return self.deadline.timer.clear();
        }
        let idle_timeout = self.worker.service().config.limits.idle_timeout;
        let now = Instant::now();
        self.deadline.timer.set_idle(
            now,
            match self.worker.is_draining() {
                true => now,
                false => now + idle_timeout,
            },
        );
    }
}

/// Serves the connection until either side ends it.
pub async fn serve(
    worker: Rc<Worker>,
    transport: Transport,
    peer: Peer,
    slot: OwnedSemaphorePermit,
) {
    worker.stats.accepted.add(1);
    let shared = Rc::new(Shared {
        deadline: Deadline::new(worker.clone()),
        worker,
        peer,
        failed_lookups: Cell::default(),
        streams: Cell::new(0),
    });
    shared.streams_changed(0);
    let mut builder = Builder::new();
    builder.max_send_buffer_size(SEND_BYTES_MAX);
    builder.enable_connect_protocol();
    let end = match builder.handshake(Io(transport)).await {
        Ok(connection) => requests(&shared, connection).await,
        Err(_) => End::ClientAbort,
    };
    shared.worker.stats.connection_ended(end);
    drop(slot);
}

async fn requests(shared: &Rc<Shared>, mut connection: Connection<Io, Bytes>) -> End {
    let mut is_ending = false;
    loop {
        let accepted = poll_fn(|context| {
            if !is_ending && shared.deadline.timer.poll_expired(context) {
                is_ending = true;
                connection.graceful_shutdown();
            }
            connection.poll_accept(context)
        });
        match accepted.await {
            Some(Ok((request, respond))) => {
                shared.streams_changed(1);
                task::spawn_local(answer(shared.clone(), request, respond));
            }
            Some(Err(_)) => return End::ClientAbort,
            None => return End::Complete,
        }
    }
}

/// Answers one request. Dropping the stream before its response has ended resets it (`CANCEL`).
async fn answer(shared: Rc<Shared>, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let arrived = Instant::now();
    let (parts, body) = request.into_parts();
    let limits = &shared.worker.service().wire_limits;
    let parsed = request::of(&parts, !body.is_end_stream(), limits);
    let head = parsed.as_ref().ok().map(|request| &request.head);
    let stream = Rc::new(Stream::new(shared.clone(), body, respond, head));
    match parsed {
        Ok(mut request) => {
            let arrival = Arrival {
                first_byte: arrived,
                waited: None,
            };
            Box::pin(exchange::exchange(&stream, &mut request, arrival)).await;
        }
        Err(reject) => refuse(&stream, arrived, &reject).await,
    }
    shared.streams_changed(-1);
}

async fn refuse(stream: &Stream, arrived: Instant, reject: &Reject) {
    let response = error(reject.status, reject.reason);
    let sent = send::refuse(stream, response).await;
    exchange::record_refused(stream, arrived, &sent);
}
