//! One connection to a backend.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_config::upstream::Protocol;
use levity_net::Transport;
use levity_telemetry::stall::Watch;
use tokio::time;

use super::backend::Backend;
use super::codec::{Codec, Event};
use super::failure::Failure;

/// Bytes that an idle connection keeps of the memory that its requests were written to.
const OUTBOX_KEPT_MAX: usize = 4 * 1024;

/// Bytes that are read at once of the answer to a ping.
const PONG_BYTES_MAX: usize = 16;

/// A connection, and what is spoken on it.
pub struct Connection {
    /// The backend's end.
    pub transport: Transport,
    /// The protocol.
    pub codec: Codec,
    /// When its last answer ended.
    pub idle_since: Instant,
    /// What the next request is written to: empty, kept for its memory.
    pub outbox: Vec<u8>,
}

impl Connection {
    /// Connects to `backend`.
    ///
    /// # Errors
    /// Those of connect(2); `TimedOut` after `patience`.
    pub async fn open(
        backend: &Backend,
        protocol: Protocol,
        patience: Duration,
    ) -> io::Result<Self> {
        let transport = time::timeout(patience, levity_net::connect(&backend.address)).await;
        Ok(Self {
            transport: transport.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??,
            codec: Codec::new(protocol),
            idle_since: Instant::now(),
            outbox: Vec::new(),
        })
    }

    /// Keeps the memory that a request was written to for the next, unless it is much.
    pub fn keep_outbox(&mut self, mut outbox: Vec<u8>) {
        if outbox.capacity() <= OUTBOX_KEPT_MAX {
            outbox.clear();
            self.outbox = outbox;
        }
    }

    /// One read into `scratch`, and what it tells. Counts the bytes that came, also those that are no part
    /// of an answer; none is the end of the connection.
    pub fn poll_events(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut [u8],
        event: &mut dyn FnMut(Event<'_>),
    ) -> Poll<(usize, Result<(), Failure>)> {
        let count = match ready!(self.transport.poll_read(context, scratch)) {
            Ok(count) => count,
            Err(error) => return Poll::Ready((0, Err(Failure::of_connection(&error)))),
        };
        let outcome = match count {
            0 => self.codec.closed(event),
            _ => self.codec.decode(&scratch[..count], event),
        };
        let outcome = outcome.map_err(|reject| match count {
            0 => Failure::of_backend(502, "http_response_incomplete", reject.reason),
            _ => Failure::of_answer(reject),
        });
        Poll::Ready((count, outcome))
    }

    /// Whether it can be used after it was idle, at most for `age_max`.
    pub fn is_fresh(&mut self, now: Instant, age_max: Duration) -> bool {
        now.saturating_duration_since(self.idle_since) < age_max && self.is_quiet()
    }

    /// Whether the backend still listens on it after it was idle, where the protocol can ask. Waits for the
    /// answer, at most for `patience`.
    pub async fn is_alive(&mut self, patience: Duration) -> bool {
        let quiet = Watch::poll_began().saturating_duration_since(self.idle_since);
        let Some(ping) = self.codec.ping(quiet) else {
            return true;
        };
        let answered = Box::pin(time::timeout(patience, self.ask(ping))).await;
        answered.is_ok_and(|alive| alive.is_ok())
    }

    async fn ask(&mut self, ping: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        let mut bytes = [0; PONG_BYTES_MAX];
        poll_fn(|context| {
            while sent < ping.len() {
                let rest = &ping[sent..];
                sent += ready!(self.transport.poll_write(context, rest))?;
            }
            loop {
                let count = ready!(self.transport.poll_read(context, &mut bytes))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                let pong = self.codec.pong(&bytes[..count]);
                if pong.map_err(io::Error::other)? {
                    return Poll::Ready(Ok(()));
                }
            }
        })
        .await
    }

    /// Whether nothing has happened on it while it was idle: neither was it closed, nor is there
    /// anything to read. Costs no system call unless there was an event.
    fn is_quiet(&mut self) -> bool {
        let read = self.transport.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
