//! S4: how much memory do an idle connection and an idle stream of HTTP/2 cost?

use super::{Measured, Run, interleaved, to_json};
use crate::failure::{Failure, Result};
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use serde::Serialize;

const CONNECTIONS: usize = 1000;
const PATH: &str = "/hot/4096.bin";
/// Event streams of a mailbox, which nobody writes to.
const STREAM_CONNECTIONS: usize = 100;
const STREAMS: usize = 100;
const BOX: &str = "/box/b0";
/// Connections that come and go before, because the first ones cause one-time allocations.
const EARLIER_CONNECTIONS: usize = 64;
/// The time for them, and for all connections and streams to get their answer, in seconds.
const EARLIER_SECONDS: f64 = 0.3;
const CONNECT_SECONDS_MAX: f64 = 60.0;
const STREAM_SECONDS: f64 = 3.0;
const REQUESTS_PER_SECOND: u32 = 10_000;
/// The bars of the design, in bytes.
const CONNECTION_BYTES_MAX: f64 = 4096.0;
const STREAM_BYTES_MAX: f64 = 512.0;

/// A row in its single pass. Sizes are proportional set sizes in bytes.
#[derive(Serialize)]
struct Pass {
    before: u64,
    with_connections: u64,
    /// Before and with streams, on connections that had one request; Levity only.
    streams: Option<[u64; 2]>,
}

impl Pass {
    fn connection_bytes(&self) -> f64 {
        self.with_connections.saturating_sub(self.before) as f64 / CONNECTIONS as f64
    }

    /// What a stream costs beyond its share of the connection.
    fn stream_bytes(&self) -> Option<f64> {
        let [before, with] = self.streams?;
        let connections = self.connection_bytes() * STREAM_CONNECTIONS as f64;
        let streams = (STREAM_CONNECTIONS * STREAMS) as f64;
        Some((with.saturating_sub(before) as f64 - connections) / streams)
    }
}

/// Runs the workload, in a single pass: memory does not vary between passes.
///
/// # Errors
/// A server refuses connections.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let bare = Row::bare_http2(&rig.own_program()?);
    let rows: Vec<Row> = rows.iter().cloned().chain([bare]).collect();
    let measured = interleaved(&rows, run.passes.min(1), |row, _| measure(rig, row))?;
    let mut table = Table::new(&["server", "bytes per connection", "bytes per stream", "bar"]);
    for (row, own) in rows.iter().zip(&measured) {
        table.push(cells(row, own));
    }
    Ok(Outcome {
        name: "s4".into(),
        caption: format!(
            "Memory (proportional set size of all processes) that {CONNECTIONS} idle connections over HTTP/2 without TLS cost, \
             each after one request, less that before. Streams: {STREAMS} event streams of a mailbox without messages on each of \
             {STREAM_CONNECTIONS} connections, less what the connections cost. hyper is a bare server without files. Bars: \
             {CONNECTION_BYTES_MAX} bytes per connection and {STREAM_BYTES_MAX} per stream. One worker each; one pass."
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    server
        .load(PATH, EARLIER_CONNECTIONS, EARLIER_SECONDS)
        .measure(rig.load_cpu())?;
    let before = server.proportional_bytes()?;
    let load = server.load(PATH, CONNECTIONS, CONNECT_SECONDS_MAX);
    let answered = |report: &Report| report.requests;
    let with_connections = held(rig, &server, load, CONNECTIONS, answered)?;
    drop(server);
    let streams = row.is_levity().then(|| streams(rig, row)).transpose()?;
    Ok(Pass {
        before,
        with_connections,
        streams,
    })
}

/// The memory before and with event streams.
fn streams(rig: &Rig, row: &Row) -> Result<[u64; 2]> {
    let server = Server::start(rig, row)?;
    let load = |connections, seconds| {
        let mut load = server.load(BOX, connections, seconds);
        load.streams = Some(STREAMS);
        load.accept = Some("text/event-stream".into());
        load
    };
    // The first streams cause one-time allocations too.
    let unfinished = |report: &Report| report.unfinished;
    held(rig, &server, load(1, EARLIER_SECONDS), STREAMS, unfinished)?;
    let before = server.proportional_bytes()?;
    let all = STREAM_CONNECTIONS * STREAMS;
    let load = load(STREAM_CONNECTIONS, STREAM_SECONDS);
    let with = held(rig, &server, load, all, unfinished)?;
    Ok([before, with])
}

/// The memory of the server while `load` is held, of which `count` is as expected.
fn held(
    rig: &Rig,
    server: &Server,
    mut load: Load,
    expected: usize,
    count: impl Fn(&Report) -> u64,
) -> Result<u64> {
    load.hold = true;
    load.rate = Some(REQUESTS_PER_SECOND);
    let mut held = load.start(rig.load_cpu())?;
    let report = held.report()?;
    if count(&report) == expected as u64 && report.errors == 0 {
        return server.proportional_bytes();
    }
    let name = &server.row.name;
    let why = report.first_error.clone();
    let why = why.unwrap_or_else(|| "no answer".into());
    let message = format!("{name}: {} of {expected}: {why}", count(&report));
    Err(Failure::new(message))
}

fn cells(row: &Row, own: &Measured<Pass>) -> Vec<String> {
    let connection = own.spread(Pass::connection_bytes).median;
    let stream = own.passes.iter().find_map(Pass::stream_bytes);
    let bars = [
        (is_above(connection, CONNECTION_BYTES_MAX), "connection"),
        (
            stream.is_none_or(|stream| is_above(stream, STREAM_BYTES_MAX)),
            "stream",
        ),
    ];
    vec![
        own.server.clone(),
        number(connection),
        stream.map_or("-".into(), number),
        match row.is_levity() {
            true => verdict(&bars, 0),
            false => "-".into(),
        },
    ]
}
