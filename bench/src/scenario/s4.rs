//! S4: how much memory do an idle connection and an idle stream of HTTP/2 cost?

use super::{Measured, Run, interleaved, to_json};
use crate::failure::{Context, Result};
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use serde::Serialize;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 1000;
const PATH: &str = "/hot/4096.bin";
/// Event streams of a mailbox, which nobody writes to.
const STREAM_CONNECTIONS: usize = 100;
const STREAMS: usize = 100;
/// Those over HTTP/1.1, each on a connection. So many because the difference of two of these figures is a few hundred bytes, and what the
/// allocator keeps in reserve must not show in it. With the limits of the rig about 6700 get an answer.
const HTTP1_CONNECTIONS: usize = 5000;
const BOX: &str = "/box/b0";
/// Connections that come and go before, because the first ones cause one-time allocations.
const EARLIER_CONNECTIONS: usize = 64;
/// The time for them, and for all connections and streams to get their answer, in seconds.
const EARLIER_SECONDS: f64 = 0.3;
const CONNECT_SECONDS_MAX: f64 = 60.0;
const STREAM_SECONDS: f64 = 3.0;
const REQUESTS_PER_SECOND: u32 = 10_000;
const SETTLE_TIME_MAX: Duration = Duration::from_secs(3);
const SETTLE_INTERVAL: Duration = Duration::from_millis(200);
/// The bars of the design, in bytes.
const CONNECTION_BYTES_MAX: f64 = 4096.0;
const STREAM_BYTES_MAX: f64 = 512.0;

/// A row in its single pass. Sizes are proportional set sizes in bytes.
#[derive(Serialize)]
struct Pass {
    connection: Held,
    /// Levity only.
    streams: Option<Streams>,
}

/// The memory of a server before and with so many connections or streams.
#[derive(Serialize)]
struct Held {
    count: usize,
    before: u64,
    with: u64,
}

impl Held {
    fn bytes_each(&self) -> f64 {
        self.with.saturating_sub(self.before) as f64 / self.count as f64
    }
}

/// Event streams of a mailbox.
#[derive(Serialize)]
struct Streams {
    over_http2: Held,
    /// Each on a connection.
    over_http1: Held,
    idle_http1: Held,
}

impl Pass {
    /// What an event stream costs beyond its share of the connection.
    fn event_stream_bytes(&self) -> Option<f64> {
        let streams = self.streams.as_ref()?;
        let share = self.connection.bytes_each() / STREAMS as f64;
        Some(streams.over_http2.bytes_each() - share)
    }

    /// The part of that which HTTP/2 needs: the other part is what it costs over HTTP/1.1 beyond an idle connection.
    fn stream_bytes(&self) -> Option<f64> {
        let streams = self.streams.as_ref()?;
        let response = streams.over_http1.bytes_each() - streams.idle_http1.bytes_each();
        Some(self.event_stream_bytes()? - response)
    }
}

/// Runs the workload, in a single pass: memory does not vary between passes.
///
/// # Errors
/// A server refuses connections.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let bare = Row::bare_http2(rig)?;
    let rows: Vec<Row> = rows.iter().cloned().chain([bare]).collect();
    let measured = interleaved(&rows, run.passes.min(1), |row, _| measure(rig, row))?;
    let mut table = Table::new(&[
        "server",
        "bytes per connection",
        "bytes per event stream",
        "of the stream",
        "bar",
    ]);
    for (row, own) in rows.iter().zip(&measured) {
        table.push(cells(row, own));
    }
    Ok(Outcome {
        name: "s4".into(),
        caption: format!(
            "Memory (proportional set size of all processes) that {CONNECTIONS} idle connections over HTTP/2 without TLS cost, \
             each after one request, less that before. Event stream: {STREAMS} of a mailbox without messages on each of \
             {STREAM_CONNECTIONS} connections, less what the connections cost; of the stream: less what one costs over HTTP/1.1 \
             beyond an idle connection, which is the mailbox's and the log's. hyper is a bare server without files. Bars: \
             {CONNECTION_BYTES_MAX} bytes per connection and {STREAM_BYTES_MAX} per stream. One worker each; one pass."
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row) -> Result<Pass> {
    let streams = row.is_levity().then(|| streams(rig, row)).transpose()?;
    Ok(Pass {
        connection: idle(rig, row, CONNECTIONS)?,
        streams,
    })
}

fn streams(rig: &Rig, row: &Row) -> Result<Streams> {
    let http1 = row.requested_over_http1();
    let connections = (HTTP1_CONNECTIONS, None);
    Ok(Streams {
        over_http2: event_streams(rig, row, (STREAM_CONNECTIONS, Some(STREAMS)))?,
        over_http1: event_streams(rig, &http1, connections)?,
        idle_http1: idle(rig, &http1, HTTP1_CONNECTIONS)?,
    })
}

/// Idle connections after one request.
fn idle(rig: &Rig, row: &Row, connections: usize) -> Result<Held> {
    let server = Server::start(rig, row)?;
    server
        .load(PATH, EARLIER_CONNECTIONS, EARLIER_SECONDS)
        .measure(rig.load_cpu())?;
    let load = server.load(PATH, connections, CONNECT_SECONDS_MAX);
    held(rig, &server, load, |report| report.requests)
}

/// Event streams on so many connections, over HTTP/2 so many on each.
fn event_streams(
    rig: &Rig,
    row: &Row,
    (connections, streams): (usize, Option<usize>),
) -> Result<Held> {
    let server = Server::start(rig, row)?;
    let load = |connections, seconds| {
        let mut load = server.load(BOX, connections, seconds);
        load.streams = streams;
        load.accept = Some("text/event-stream".into());
        load
    };
    let unfinished = |report: &Report| report.unfinished;
    // The first streams cause one-time allocations too.
    let earlier = STREAMS / streams.unwrap_or(1);
    held(rig, &server, load(earlier, EARLIER_SECONDS), unfinished)?;
    held(rig, &server, load(connections, STREAM_SECONDS), unfinished)
}

/// The memory of the server before `load`, and while its connections are held.
fn held(
    rig: &Rig,
    server: &Server,
    mut load: Load,
    answered: impl Fn(&Report) -> u64,
) -> Result<Held> {
    let before = settled(server)?;
    let count = load.connections * load.streams.unwrap_or(1);
    load.rate = Some(REQUESTS_PER_SECOND);
    let held = load.hold(rig.load_cpu(), answered);
    let _held = held.context(|| server.row.name.clone())?;
    Ok(Held {
        count,
        before,
        with: server.proportional_bytes()?,
    })
}

/// The memory of the server once it changes no more, because connections from before have ended.
fn settled(server: &Server) -> Result<u64> {
    let end = Instant::now() + SETTLE_TIME_MAX;
    let mut last = server.proportional_bytes()?;
    while Instant::now() < end {
        std::thread::sleep(SETTLE_INTERVAL);
        let bytes = server.proportional_bytes()?;
        if bytes == last {
            break;
        }
        last = bytes;
    }
    Ok(last)
}

fn cells(row: &Row, own: &Measured<Pass>) -> Vec<String> {
    let connection = own.spread(|pass| pass.connection.bytes_each()).median;
    let figure = |of: fn(&Pass) -> Option<f64>| own.passes.iter().find_map(of);
    let stream = figure(Pass::stream_bytes);
    let bars = [
        (is_above(connection, CONNECTION_BYTES_MAX), "connection"),
        (
            stream.is_none_or(|stream| stream <= 0.0 || is_above(stream, STREAM_BYTES_MAX)),
            "stream",
        ),
    ];
    vec![
        own.server.clone(),
        number(connection),
        figure(Pass::event_stream_bytes).map_or("-".into(), number),
        stream.map_or("-".into(), number),
        match row.is_levity() {
            true => verdict(&bars, 0),
            false => "-".into(),
        },
    ]
}
