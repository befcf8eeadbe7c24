//! T5: how much memory does an idle connection with TLS cost?

use super::{Measured, interleaved, to_json};
use crate::failure::{Context, Result};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use crate::rig::certificates;
use serde::Serialize;

const CONNECTIONS: usize = 1000;
const PATH: &str = "/hot/4096.bin";
/// Connections that come and go before, because the first ones cause one-time allocations.
const EARLIER_CONNECTIONS: usize = 64;
/// The time for them, and for all connections to get their answer, in seconds.
const EARLIER_SECONDS: f64 = 0.3;
const CONNECT_SECONDS_MAX: f64 = 60.0;
/// Handshakes per second. All at once would measure what the allocators keep of as many unfinished handshakes.
const HANDSHAKES_PER_SECOND: u32 = 500;
/// The bars of the design: beyond the bare server, and relative to nginx.
const BYTES_MORE_THAN_BARE_MAX: f64 = 3.0 * 1024.0;
const NGINX: &str = "nginx";

/// A row in its single pass.
#[derive(Serialize)]
struct Pass {
    connections: usize,
    /// Proportional set size before, in bytes.
    bytes_before: u64,
    /// The same with all connections.
    bytes: u64,
}

impl Pass {
    fn bytes_per_connection(&self) -> f64 {
        self.bytes.saturating_sub(self.bytes_before) as f64 / self.connections as f64
    }
}

/// Runs the workload, in a single pass: memory does not vary between passes.
///
/// # Errors
/// A server refuses connections.
pub fn run(rig: &Rig, rows: &[Row]) -> Result<Outcome> {
    let bare = Row::bare_tls(&rig.own_program()?).over_tls(&certificates::folder(rig));
    let rows: Vec<Row> = rows.iter().cloned().chain([bare]).collect();
    let measured = interleaved(&rows, 1, |row, _| measure(rig, row))?;
    let mut table = Table::new(&[
        "server",
        "before KiB",
        "with connections KiB",
        "bytes per connection",
        "more than bare rustls",
        "bar",
    ]);
    for (row, own) in rows.iter().zip(&measured) {
        table.push(cells(row, own, &measured));
    }
    Ok(Outcome {
        name: "t5".into(),
        caption: format!(
            "Memory (proportional set size of all processes) that {CONNECTIONS} idle connections with TLS 1.3 cost, each after \
             its handshake and one request, {HANDSHAKES_PER_SECOND} per second, less that before. Before are {EARLIER_CONNECTIONS} connections that end. rustls is a \
             bare server: one thread, a socket and a session for each connection, the allocator of the C library. Bars: at most \
             {} KiB more than that, and no more than nginx. One worker each; one pass.",
            BYTES_MORE_THAN_BARE_MAX / 1024.0
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
    let bytes_before = server.proportional_bytes()?;
    let mut load = server.load(PATH, CONNECTIONS, CONNECT_SECONDS_MAX);
    load.rate = Some(HANDSHAKES_PER_SECOND);
    let held = load.hold(rig.load_cpu(), |report| report.requests);
    let _held = held.context(|| row.name.clone())?;
    Ok(Pass {
        connections: CONNECTIONS,
        bytes_before,
        bytes: server.proportional_bytes()?,
    })
}

fn cells(row: &Row, own: &Measured<Pass>, all: &[Measured<Pass>]) -> Vec<String> {
    let of = |name: &str| {
        let row = all.iter().find(|row| row.server == name);
        row.map(|row| row.spread(Pass::bytes_per_connection).median)
    };
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let bytes = own.spread(Pass::bytes_per_connection).median;
    let more = of(Row::BARE).map(|bare| bytes - bare);
    let is_too_much = more.is_none_or(|more| is_above(more, BYTES_MORE_THAN_BARE_MAX));
    let is_more_than_nginx = of(NGINX).is_some_and(|nginx| is_above(bytes, nginx));
    vec![
        own.server.clone(),
        own.spread(|pass| kib(pass.bytes_before)).show(number),
        own.spread(|pass| kib(pass.bytes)).show(number),
        number(bytes),
        more.map_or("-".into(), number),
        if row.is_levity() {
            verdict(&[(is_too_much, "rustls"), (is_more_than_nginx, "nginx")], 0)
        } else {
            "-".into()
        },
    ]
}
