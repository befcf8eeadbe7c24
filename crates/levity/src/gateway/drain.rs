//! Draining: reading the rest of a discarded response, so that its connection can be reused.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use levity_config::upstream::Protocol;
use tokio::time;

use super::stderr::Stderr;
use crate::loop_core::LoopCore;
use crate::upstream::codec::Event;
use crate::upstream::pool::{Endpoint, Lease};

/// The time limit for HTTP. It is short: a framework that delegates its body announces the size of the file and sends
/// nothing, so the rest has nearly arrived or never arrives.
const HTTP_DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// The time limit for protocols that mark the end of a response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of bytes that are read.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// A connection whose response is read and dropped. It holds nothing of the client, which may have
/// disconnected.
pub(super) struct Drain {
    core: Rc<LoopCore>,
    endpoint: Endpoint,
    lease: Lease,
    stderr: Stderr,
    bytes: usize,
}

impl Drain {
    /// A drain of the connection of `lease`, on which the whole request has been sent.
    pub(super) fn new(
        core: Rc<LoopCore>,
        endpoint: Endpoint,
        lease: Lease,
        stderr: Stderr,
    ) -> Self {
        Self {
            core,
            endpoint,
            lease,
            stderr,
            bytes: 0,
        }
    }

    /// Reads to the end of the response and keeps the connection; closes it if that fails or takes too long.
    pub(super) async fn run(mut self) {
        let timeout = match self.endpoint.upstream().settings.protocol {
            Protocol::Http => HTTP_DRAIN_TIMEOUT,
            _ => DRAIN_TIMEOUT,
        };
        let is_complete = time::timeout(timeout, poll_fn(|context| self.poll(context))).await;
        if is_complete.unwrap_or(false) && self.lease.connection().is_reusable() {
            self.lease.keep();
        }
    }

    /// Ready at the end; returns whether the response is complete.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut is_complete = false;
        while !is_complete {
            let (stderr, upstream) = (&mut self.stderr, self.endpoint.upstream());
            let mut event = |event: Event<'_>| match event {
                Event::End(_) => is_complete = true,
                Event::Stderr(text) => stderr.log(upstream, text),
                Event::Interim(_) | Event::Head(_) | Event::Data(_) | Event::Declined(_) => {}
            };
            let mut scratch = self.core.backend_bytes.borrow_mut();
            let connection = self.lease.connection();
            let (count, outcome) =
                ready!(connection.poll_events(context, &mut scratch, &mut event));
            self.lease.member().cells.received_bytes.add(count as u64);
            self.bytes += count;
            if outcome.is_err() || self.bytes > DRAIN_BYTES_MAX {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Backend, Client, End, Rig, settle, with_proxy};

    const HEAD: &str = "HEAD /app HTTP/1.1\r\nHost: a\r\n\r\n";
    const GET: &str = "GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    const FASTCGI: &str = "protocol = \"fastcgi\"\nkeep_alive = 1\n";

    /// FastCGI records (FastCGI 1.0, 3.3): the header of a response, and the end of its request.
    const STDOUT: &str = "\x01\x06\0\x01\0\x0f\0\0Status: 200\r\n\r\n";
    const END: &str = "\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

    /// A client with the response to HEAD, and the backend, which has not ended its response.
    async fn drained(rig: &Rig, app: &Backend) -> (Client, End) {
        let mut client = rig.client(4096);
        client.send(HEAD).await;
        let mut backend = app.accept(1 << 16).await;
        settle().await;
        time::pause();
        backend.send(STDOUT).await;
        assert!(client.arrived().await.starts_with("HTTP/1.1 200 "));
        (client, backend)
    }

    #[test]
    fn the_connection_of_a_drained_response_is_reused() {
        with_proxy(FASTCGI, async |rig, app| {
            let (mut client, mut backend) = drained(rig, app).await;
            backend.send(END).await;
            settle().await;
            client.send(GET).await;
            settle().await;
            assert_eq!(app.waiting(), 0);
            backend.send(format!("{STDOUT}{END}")).await;
            assert!(client.rest().await.starts_with("HTTP/1.1 200 "));
            client.close().await;
        });
    }

    #[test]
    fn a_drain_holds_nothing_of_a_client_that_disconnects() {
        with_proxy(FASTCGI, async |rig, app| {
            let (client, _backend) = drained(rig, app).await;
            client.close().await;
            rig.assert_no_client();
            time::advance(DRAIN_TIMEOUT * 2).await;
            settle().await;
        });
    }
}
