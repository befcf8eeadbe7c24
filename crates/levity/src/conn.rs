//! One client's connection.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levity_net::{Peer, Timer, Transport, Turn};
use levity_telemetry::stall::Watch;
use levity_telemetry::trace::Trace;
use tokio::sync::OwnedSemaphorePermit;

use crate::failed_lookups::FailedLookups;
use crate::worker::Worker;

/// How long a refused client may go on sending before the connection is closed under it. Closing
/// at once would reset the connection and destroy the answer on its way, which many clients read only
/// when they have sent all of a body.
const LINGER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long it may pause meanwhile.
const LINGER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A connection. Everything that it needs only while a request is in hand is borrowed from the
/// worker, so that an idle one stays small.
pub struct Conn {
    /// The loop that it lives on.
    pub worker: Rc<Worker>,
    /// The client's connection.
    pub transport: Transport,
    /// Who is at the other end.
    pub peer: Peer,
    /// Whether it begins with a head of the PROXY protocol.
    pub has_proxy_header: bool,
    /// Bytes that arrived and are not parsed yet; no allocation while idle.
    pub inbox: Vec<u8>,
    /// The client sends no more. It may still take answers, or be gone.
    pub input_ended: bool,
    /// Lookups on this connection that found nothing; limited by `absent_trips`.
    pub failed_lookups: FailedLookups,
    /// Bounds every wait for the client.
    pub timer: Rc<Timer>,
    /// When the last response ended, or else when the connection was accepted.
    since: Instant,
    /// No request has been taken from it.
    is_new: bool,
    /// When the first byte of the request in hand came.
    head_since: Option<Instant>,
    turn: Turn,
    /// Unique among the connections that are open on the loop.
    pub number: usize,
    /// Its slot among the connections that the worker may have.
    _slot: OwnedSemaphorePermit,
}

impl Conn {
    /// Takes a connection in.
    pub fn new(
        worker: Rc<Worker>,
        transport: Transport,
        peer: Peer,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let timer = Rc::new(Timer::default());
        let number = worker.timers.insert(timer.clone());
        worker.stats.accepted.add(1);
        Self {
            worker,
            transport,
            peer,
            has_proxy_header: false,
            inbox: Vec::new(),
            input_ended: false,
            failed_lookups: FailedLookups::default(),
            timer,
            since: Instant::now(),
            is_new: true,
            head_since: None,
            turn: Turn::default(),
            number,
            _slot: slot,
        }
    }

    /// Its number among all open connections of the process.
    pub fn stream_number(&self) -> u64 {
        (self.worker.stats.worker() as u64) << 32 | self.number as u64
    }

    /// Reads what has arrived; `TimedOut` when that is nothing and the deadline has passed.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_arrival(context, buffer) {
            Poll::Pending if self.timer.poll_expired(context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read => read,
        }
    }

    /// Reads what has arrived, for a caller who minds the time.
    pub fn poll_arrival(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = self.transport.poll_read(context, buffer);
        if read.is_pending() {
            self.turn.restart();
        }
        read
    }

    /// Whether a wait for an application has lasted too long for a client that has ended its side. It begins
    /// with the first call since the timer was cleared.
    pub fn poll_half_closed(&self, context: &mut Context<'_>) -> bool {
        if !self.timer.is_set() {
            let half_closed_timeout = self.worker.service().config.limits.half_closed_timeout;
            self.timer.set(Watch::poll_began() + half_closed_timeout);
        }
        self.timer.poll_expired(context)
    }

    /// When the last response ended, or else when the connection was accepted.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// A response has ended at `now`.
    pub fn response_ended(&mut self, now: Instant) {
        self.since = now;
    }

    /// Notes that bytes of the next request are here. The poll that found them began with them, unless
    /// it has answered another request before.
    pub fn head_arrives(&mut self) {
        let since = self.since;
        self.head_since
            .get_or_insert_with(|| Watch::poll_began().max(since));
    }

    /// When the first byte of the request in hand came; now, when there is none.
    pub fn take_arrival(&mut self) -> Instant {
        self.head_since.take().unwrap_or_else(Instant::now)
    }

    /// The trace of the request that has just been parsed.
    pub fn take_trace(&mut self) -> Trace {
        let arrived = self.take_arrival();
        let is_new = mem::take(&mut self.is_new);
        Trace::new(arrived, is_new.then(|| arrived - self.since))
    }

    /// Counts bytes moved for this client, and gives way to the others in time.
    pub async fn give_way(&mut self, bytes: usize) {
        self.turn.spend(bytes).await;
    }

    /// Keeps the start of a head until the rest arrives, which must be soon.
    pub fn wait_for_more(&mut self, inbox: Vec<u8>) {
        self.inbox = inbox;
        let header_timeout = self.worker.service().config.limits.header_timeout;
        self.timer.set(Instant::now() + header_timeout);
    }

    /// Ends our side, then reads what the client still sends, within bounds.
    pub async fn linger(&mut self) {
        self.transport.end_output();
        let worker = self.worker.clone();
        let time_max = match worker.is_draining() {
            true => LINGER_PAUSE_MAX,
            false => LINGER_TIME_MAX,
        };
        let end = Watch::poll_began() + time_max;
        loop {
            let now = Watch::poll_began();
            self.timer.set(end.min(now + LINGER_PAUSE_MAX));
            let read = poll_fn(|context| self.poll_read(context, &mut worker.inbound.borrow_mut()));
            match read.await {
                Ok(count) if count > 0 && now < end => self.give_way(count).await,
                _ => return,
            }
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.worker.timers.remove(self.number);
        self.worker.connection_gone.notify_one();
    }
}
