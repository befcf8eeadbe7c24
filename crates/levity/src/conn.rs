//! One client's connection: its requests, one after the other.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use crate::access_log::End;
use crate::exchange::{self, After};
use crate::parse::{self, NoRequest};
use crate::respond::{self, Response};
use crate::send;
use crate::stall::Step;
use crate::stream::Stream;
use crate::timer::Timer;
use crate::worker::Worker;

/// How long a refused client may go on sending before the connection is closed under it. Closing
/// at once would reset the connection and destroy the answer on its way.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// How many bytes of a refused client are read and dropped at most.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// A connection. Everything that it needs only while a request is in hand is borrowed from the
/// worker, so that an idle one stays small.
pub struct Conn {
    /// The loop that it lives on.
    pub worker: Rc<Worker>,
    /// The socket.
    pub stream: Stream,
    /// The client's address; none on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Bytes that arrived and are not parsed yet; no allocation while idle.
    pub inbox: Vec<u8>,
    /// Bounds every wait for the client.
    pub timer: Rc<Timer>,
    /// Unique among the connections that are open on the loop.
    pub number: usize,
    /// Its place among the connections that the worker may have.
    _place: OwnedSemaphorePermit,
}

impl Conn {
    /// Takes a connection in.
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        peer: Option<IpAddr>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let timer = Rc::new(Timer::default());
        let number = worker.timers.insert(timer.clone());
        worker.stats.connection_opened();
        Self {
            worker,
            stream,
            peer,
            inbox: Vec::new(),
            timer,
            number,
            _place: place,
        }
    }

    /// Reads what has arrived; `TimedOut` when that is nothing and the deadline has passed.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.stream.poll_read(context, buffer) {
            Poll::Pending if self.timer.poll_expired(context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read => read,
        }
    }

    /// Keeps the start of a head until the rest arrives, which must be soon.
    pub fn wait_for_more(&mut self, inbox: Vec<u8>) {
        self.inbox = inbox;
        let header_timeout = self.worker.service().config.limits.header_timeout;
        self.timer.set(Instant::now() + header_timeout);
    }

    /// A new connection has as long for its first byte as for the head; on a worker that drains, only
    /// what has arrived already counts.
    fn wait_for_first(&self) {
        let header_timeout = self.worker.service().config.limits.header_timeout;
        let now = Instant::now();
        let draining = self.worker.is_draining();
        self.timer
            .set_idle(if draining { now } else { now + header_timeout });
    }

    /// Answers requests until one side has had enough.
    pub async fn serve(mut self) {
        self.wait_for_first();
        let end = loop {
            let mut request = match parse::next_request(&mut self).await {
                Ok(request) => request,
                Err(none) => break self.without_request(none).await,
            };
            // Boxed: the future of an exchange is far larger than an idle connection.
            let after = Box::pin(exchange::exchange(&mut self, &mut request)).await;
            self.worker.give_request(request);
            if let After::Close(end) = after {
                break end;
            }
            Step::Idle.enter();
        };
        self.worker.stats.connection_ended(end);
    }

    /// Says why there will be no answer to a request, where there is someone to hear it.
    async fn without_request(&mut self, none: NoRequest) -> End {
        match none {
            NoRequest::Finished => End::Complete,
            NoRequest::Gone => End::ClientAbort,
            NoRequest::Timeout => {
                self.refuse(respond::error(408, "the request took too long"))
                    .await;
                End::Timeout
            }
            NoRequest::Refused(reject) => {
                self.refuse(respond::error(reject.status, reject.reason))
                    .await;
                self.linger().await;
                End::Error
            }
        }
    }

    async fn refuse(&mut self, response: Response) {
        let since = Instant::now();
        let sent = Box::pin(send::refuse(self, response)).await;
        exchange::record_refused(self, since, &sent);
    }

    /// Ends our side, then reads what the client still sends, within bounds.
    pub async fn linger(&mut self) {
        self.stream.finish();
        self.timer.set(Instant::now() + LINGER_TIMEOUT);
        let worker = self.worker.clone();
        let mut bytes = 0;
        std::future::poll_fn(|context| {
            loop {
                let mut scratch = worker.inbound.borrow_mut();
                match std::task::ready!(self.poll_read(context, &mut scratch)) {
                    Ok(count) if count > 0 && bytes < LINGER_BYTES_MAX => bytes += count,
                    _ => return Poll::Ready(()),
                }
            }
        })
        .await;
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.worker.timers.remove(self.number);
        self.worker.connection_gone.notify_one();
    }
}
