//! Idle connections: user memory of a server per connection after one request.

use super::{Measured, interleaved, to_json};
use crate::failure::{Context, Result};
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number};
use crate::rig::Rig;
use serde::Serialize;

const CONNECTIONS: usize = 10_000;
/// The bar of the design.
const BYTES_PER_CONNECTION_MAX: f64 = 2048.0;

#[derive(Serialize)]
struct Pass {
    connections: usize,
    anonymous_bytes_before: u64,
    anonymous_bytes_held: u64,
}

impl Pass {
    fn bytes_per_connection(&self) -> f64 {
        self.anonymous_bytes_held
            .saturating_sub(self.anonymous_bytes_before) as f64
            / self.connections as f64
    }
}

/// Runs the workload, in a single pass: memory does not vary between passes.
///
/// # Errors
/// A server refuses connections.
pub fn run(rig: &Rig, rows: &[Row]) -> Result<Outcome> {
    let measured = interleaved(rows, 1, |row, _| measure(rig, row))?;
    Ok(Outcome {
        name: "idle".into(),
        caption: format!(
            "User memory (anonymous, resident) that {CONNECTIONS} idle keep-alive connections cost, each after one \
             request for a 4 KB file. Bar: {BYTES_PER_CONNECTION_MAX} bytes per connection."
        ),
        table: table(&measured),
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    // The first request causes one-time allocations, which are not a cost of a connection.
    Load::new(server.address, "/hot/4096.bin", 4, 0.1).measure(rig.load_cpu())?;
    let anonymous_bytes_before = server.anonymous_bytes()?;
    let load = Load::new(server.address, "/hot/4096.bin", CONNECTIONS, 60.0);
    let held = load.hold(rig.load_cpu(), |report| report.requests);
    let _held = held.context(|| row.name.clone())?;
    let anonymous_bytes_held = server.anonymous_bytes()?;
    Ok(Pass {
        connections: CONNECTIONS,
        anonymous_bytes_before,
        anonymous_bytes_held,
    })
}

fn table(measured: &[Measured<Pass>]) -> Table {
    let mut table = Table::new(&[
        "server",
        "before KiB",
        "with connections KiB",
        "bytes per connection",
        "bar",
    ]);
    for row in measured {
        let bytes = row.spread(Pass::bytes_per_connection);
        table.push(vec![
            row.server.clone(),
            row.spread(|pass| pass.anonymous_bytes_before as f64 / 1024.0)
                .show(number),
            row.spread(|pass| pass.anonymous_bytes_held as f64 / 1024.0)
                .show(number),
            bytes.show(number),
            if bytes.median <= BYTES_PER_CONNECTION_MAX {
                "pass".into()
            } else {
                "missed".into()
            },
        ]);
    }
    table
}
