//! Requests over HTTP/2, with backends and clients in memory.

mod endings;
mod exchanges;
mod peer;
mod sharing;
mod slowness;

use std::future::poll_fn;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use h2::{Reason, server};
use levity_net::AsyncTransport;
use tokio::time;

use self::peer::{Client, HEADERS, PING, Raw, Served, WIRE_BYTES, post, receive_all};
use super::wire::STREAMS_MAX;
use crate::rig::{Backend, Rig, settle, with_proxy};

const H2: &str = "protocol = \"h2\"\n";

const GET: &str = "GET /app HTTP/1.1\r\nHost: a.test\r\n\r\n";

const GET_AND_CLOSE: &str = "GET /app HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

const POST: &str =
    "POST /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";

/// A response that has begun may be silent.
const PATIENT: &str = "idle_timeout = \"1h\"\n";

/// Longer than any other time-out of an upstream.
const LONG_SECONDS: u64 = 70;

/// Runs `test` with a worker whose upstream speaks HTTP/2; `keys` are further keys of it.
#[track_caller]
fn with_h2(keys: &str, test: impl AsyncFnOnce(&Rig, &Backend)) {
    with_proxy(&format!("{H2}{keys}"), test);
}

fn trailers(value: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(value));
    trailers
}

/// Clients that wait for their responses.
async fn ask(rig: &Rig, count: usize) -> Vec<crate::rig::Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = rig.client(4096);
        client.send(GET_AND_CLOSE).await;
        clients.push(client);
    }
    clients
}

async fn expect_all(clients: Vec<crate::rig::Client>, status: &str) {
    for mut client in clients {
        let response = client.rest().await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{response}"
        );
        client.close().await;
    }
}

fn with_streams(count: u32) -> server::Builder {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(count);
    builder
}

/// The failures that count against the only backend, since its last response.
fn failures(rig: &Rig) -> u64 {
    let backends = rig.worker.service().upstreams[0].backends();
    let outage = backends[0].end_outage(std::time::Instant::now());
    outage.map_or(0, |(_, failures)| failures)
}
