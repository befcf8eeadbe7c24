//! Receipts: an application learns what became of a file that was sent in its place.
//!
//! With `X-Sendfile-Receipt: /path` beside its wish it asks for a POST to that path, on the same
//! upstream, when the transfer is over: for locks, quotas, counters of downloads. It is tried once.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_wire::http1::Limits;
use tokio::{task, time};

use crate::access_log::End;
use crate::client::Client;
use crate::diagnostics;
use crate::request::Request;
use crate::route::Proxy;
use crate::send::Sent;
use crate::upstream::ask::{Ask, Length};
use crate::upstream::codec::Event;
use crate::upstream::pool::Wanted;
use crate::upstream::sticky::Tie;
use crate::worker::Worker;

/// A receipt that is due when its response has been sent.
pub struct Receipt {
    proxy: Arc<Proxy>,
    path: Vec<u8>,
    status: u16,
    since: Instant,
}

impl Receipt {
    /// For a response with `status` that is about to be sent.
    pub fn new(proxy: Arc<Proxy>, path: &[u8], status: u16) -> Self {
        Self {
            proxy,
            path: path.to_vec(),
            status,
            since: Instant::now(),
        }
    }

    /// Posts it, beside everything else.
    pub fn post(self, worker: Rc<Worker>, sent: &Sent) {
        let end = match sent.end {
            End::Complete => "complete",
            End::ClientAbort | End::Timeout | End::Error => "aborted",
        };
        let ms = sent.ended.saturating_duration_since(self.since).as_millis();
        let body = format!(
            "{{\"result\":\"{end}\",\"status\":{},\"bytes\":{},\"duration_ms\":{ms}}}\n",
            self.status, sent.bytes
        );
        task::spawn_local(async move {
            let settings = &self.proxy.upstream.settings;
            let patience = settings.connect_timeout + settings.first_byte_timeout;
            if let Err(reason) = self.deliver(&worker, body.as_bytes(), patience).await {
                let (name, path) = (&settings.name, self.path.escape_ascii());
                diagnostics::say(format_args!(
                    "upstream {name}: the receipt for {path} was not taken: {reason}: {}",
                    body.trim_end()
                ));
            }
        });
    }

    async fn deliver(
        &self,
        worker: &Rc<Worker>,
        body: &[u8],
        patience: Duration,
    ) -> Result<(), String> {
        let asked = time::timeout(patience, self.ask(worker, body));
        match asked.await {
            Ok(Ok(200..=299)) => Ok(()),
            Ok(Ok(status)) => Err(format!("status {status}")),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Sends the request and tells the status of its answer.
    async fn ask(&self, worker: &Rc<Worker>, body: &[u8]) -> Result<u16, String> {
        let head = [
            b"POST ",
            self.path.as_slice(),
            b" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: levity\r\n",
            b"Content-Type: application/json\r\n\r\n",
        ]
        .concat();
        let request = Request::parsed(&head, &Limits::default()).map_err(|no| no.to_string())?;
        let client = Client {
            ip: None,
            peer: None,
            port: None,
            scheme: "http",
            by_trusted: false,
        };
        let length = Length::Known(body.len() as u64);
        let ask = Ask::new(&request, &self.proxy, &client, length).map_err(|no| no.to_string())?;
        let wanted = Wanted {
            tried: Vec::new(),
            tie: Tie::Free,
            key: 0,
        };
        let pool = worker.pools.of(&self.proxy.upstream);
        let lease = pool.place(&wanted).await;
        let mut lease = lease.map_err(|none| format!("{none:?}"))?;
        lease.open().await.map_err(|error| error.to_string())?;

        let mut out = Vec::new();
        let codec = &mut lease.connection().codec;
        codec.begin(&ask, &mut out).map_err(|no| no.to_string())?;
        codec.body(body, &mut out);
        codec.end_of_body(&Default::default(), &mut out);
        let (mut sent, mut status, mut ended) = (0, None, false);
        poll_fn(|context| {
            while sent < out.len() {
                let rest = IoSlice::new(&out[sent..]);
                sent += std::task::ready!(lease.connection().stream.poll_write(context, &[rest]))?;
            }
            std::task::Poll::Ready(std::io::Result::Ok(()))
        })
        .await
        .map_err(|error| error.to_string())?;
        while !ended {
            poll_fn(|context| {
                let connection = lease.connection();
                let mut scratch = worker.bulk.borrow_mut();
                let count = std::task::ready!(connection.stream.poll_read(context, &mut scratch))
                    .map_err(|error| error.to_string())?;
                let mut event = |event: Event<'_>| match event {
                    Event::Head(head) => status = Some(head.status),
                    Event::End(_) => ended = true,
                    _ => {}
                };
                let read = match count {
                    0 => connection.codec.closed(&mut event),
                    _ => connection.codec.decode(&scratch[..count], &mut event),
                };
                std::task::Poll::Ready(read.map_err(|no| no.to_string()))
            })
            .await?;
        }
        if lease.connection().codec.is_reusable() {
            lease.keep();
        }
        status.ok_or_else(|| "no status".to_owned())
    }
}
