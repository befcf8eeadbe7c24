//! Tunnels: after a change of protocol (101), bytes are copied in both directions until both sides have ended.

use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use levity_net::{TURN_BYTES_MAX, Transport};

use super::reported::Reported;
use crate::http::request_body::{ClientStream, RequestBody};
use crate::http::response::{Upgrade, UpgradeError};
use crate::loop_core::LoopCore;
use crate::upstream::failure::Failure;
use crate::upstream::pool::Lease;

/// The connections to a client and to a backend, joined.
pub struct Tunnel {
    core: Rc<LoopCore>,
    client: RequestBody,
    lease: Lease,
    idle_timeout: Duration,
    /// The time-out once one side has ended. It is shorter, because the other side may never end.
    end_timeout: Duration,
    /// From the backend to the client.
    down: Flow,
    /// From the client to the backend.
    up: Flow,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

/// One side of a tunnel.
trait Side {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn end_output(&mut self);
}

impl Side for Transport {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Transport::poll_read(self, context, buffer)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Transport::poll_write(self, context, bytes)
    }

    fn end_output(&mut self) {
        Transport::end_output(self);
    }
}

impl Side for &dyn ClientStream {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ClientStream::poll_read(*self, context, buffer)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ClientStream::poll_write(*self, context, bytes)
    }

    fn end_output(&mut self) {
        ClientStream::end_output(*self);
    }
}

/// One direction of a tunnel.
#[derive(Default)]
struct Flow {
    /// Bytes that the destination has not accepted yet.
    bytes: Vec<u8>,
    /// The part of `bytes` that has been written.
    sent: usize,
    /// The source has ended.
    ended: bool,
    /// The output of the destination has been shut down.
    finished: bool,
}

impl Flow {
    /// Copies bytes and adds their number to `moved`. Ready once the source has ended and all bytes are written.
    fn poll(
        &mut self,
        from: &mut dyn Side,
        to: &mut dyn Side,
        scratch: &mut [u8],
        context: &mut Context<'_>,
        moved: &mut u64,
    ) -> Poll<Result<(), Broken>> {
        let before = *moved;
        loop {
            if *moved - before >= TURN_BYTES_MAX as u64 {
                // Gives other tasks a turn.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            while self.sent < self.bytes.len() {
                let rest = &self.bytes[self.sent..];
                let count = ready!(to.poll_write(context, rest)).map_err(Broken::Destination)?;
                self.sent += count;
                *moved += count as u64;
            }
            // An idle tunnel keeps no memory.
            self.bytes = Vec::new();
            self.sent = 0;
            if self.ended {
                if !mem::replace(&mut self.finished, true) {
                    to.end_output();
                }
                return Poll::Ready(Ok(()));
            }
            let count = ready!(from.poll_read(context, scratch)).map_err(Broken::Source)?;
            self.ended = count == 0;
            let sent = match to.poll_write(context, &scratch[..count]) {
                _ if count == 0 => 0,
                Poll::Ready(sent) => sent.map_err(Broken::Destination)?,
                Poll::Pending => 0,
            };
            *moved += sent as u64;
            self.bytes = scratch[sent..count].to_vec();
        }
    }
}

/// The side of a [`Flow`] that failed.
enum Broken {
    Source(io::Error),
    Destination(io::Error),
}

impl Tunnel {
    /// Makes a tunnel. `down` are the bytes that followed the header of the backend's response.
    pub fn new(
        core: Rc<LoopCore>,
        client: RequestBody,
        lease: Lease,
        down: Vec<u8>,
        settings: &levity_config::Upstream,
    ) -> Self {
        Self {
            core,
            client,
            lease,
            idle_timeout: settings.tunnel_timeout,
            end_timeout: settings.idle_timeout.min(settings.tunnel_timeout),
            down: Flow {
                bytes: down,
                ..Flow::default()
            },
            up: Flow::default(),
        }
    }

    /// Whether one side has ended.
    fn has_ended(&self) -> bool {
        self.up.ended || self.down.ended
    }

    fn poll_both(
        &mut self,
        context: &mut Context<'_>,
        up: &mut u64,
        down: &mut u64,
    ) -> Poll<Result<(), UpgradeError>> {
        let mut scratch = self.core.bulk.borrow_mut();
        let endpoint = self.lease.endpoint();
        let of_backend = |error: io::Error| {
            let failure = Failure::of_connection(&error);
            UpgradeError::Source(Reported::new(failure, endpoint.clone()))
        };
        let backend = self.lease.connection().transport();
        let client = &mut &**self.client.stream();
        let up = self.up.poll(client, backend, &mut scratch, context, up);
        let up = up.map_err(|broken| match broken {
            Broken::Source(_) => UpgradeError::Gone,
            Broken::Destination(error) => of_backend(error),
        })?;
        let down = self.down.poll(backend, client, &mut scratch, context, down);
        let down = down.map_err(|broken| match broken {
            Broken::Source(error) => of_backend(error),
            Broken::Destination(_) => UpgradeError::Gone,
        })?;
        if up.is_ready() && down.is_ready() {
            return Poll::Ready(Ok(()));
        }
        // The backend may have more to say, or not read what is left: nobody waits for it.
        match (client.poll_reset(context), self.down.finished) {
            (Poll::Ready(()), true) => Poll::Ready(Ok(())),
            (Poll::Ready(()), false) => Poll::Ready(Err(UpgradeError::Gone)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

impl Upgrade for Tunnel {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        sent: &mut u64,
    ) -> Poll<Result<(), UpgradeError>> {
        let (before, had_ended, mut up) = (*sent, self.has_ended(), 0);
        let polled = self.poll_both(context, &mut up, sent);
        if let Poll::Ready(outcome) = polled {
            return Poll::Ready(outcome);
        }
        let moved = up > 0 || *sent > before || self.has_ended() != had_ended;
        let cells = &self.lease.member().cells;
        cells.sent_bytes.add(up);
        cells.received_bytes.add(*sent - before);
        let timer = self.client.timer();
        if moved || !timer.is_set() {
            let timeout = match self.has_ended() {
                true => self.end_timeout,
                false => self.idle_timeout,
            };
            timer.set(Instant::now() + timeout);
        }
        match timer.poll_expired(context) {
            true => Poll::Ready(Err(UpgradeError::Timeout)),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests;
