//! G2: what do rate limits cost a request for a small file in memory, with a million clients in their table?
//!
//! Each request comes from another client, so it finds the state of its client in memory and not in a cache of the processor.

use super::cost::Cost;
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::metrics::Metrics;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use serde::Serialize;

const CONNECTIONS: usize = 64;
const BYTES: u64 = 4096;
const CLIENTS: usize = 1_000_000;
/// Longer than it takes to ask for all clients.
const FILL_SECONDS_MAX: f64 = 600.0;
/// Each request is remembered for 200 s, longer than a pass takes.
const LIMIT: &str = "limit = [{ requests = \"18/h\", after = 1000 }]";
/// Pairs of measurements per pass.
const PAIRS: usize = 4;
/// The bar of the design.
const RATIO_MAX: f64 = 1.03;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    plain: Vec<Cost>,
    limited: Vec<Cost>,
    /// Clients that the table has forgotten.
    evictions: f64,
}

impl Pass {
    fn us_per_request(costs: &[Cost]) -> f64 {
        let each = costs.iter().map(Cost::us_per_request);
        each.sum::<f64>() / costs.len() as f64
    }

    fn ratio(&self) -> f64 {
        Self::us_per_request(&self.limited) / Self::us_per_request(&self.plain)
    }

    fn errors(&self) -> u64 {
        let costs = self.plain.iter().chain(&self.limited);
        costs.map(|cost| cost.report.errors).sum()
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let own: Vec<Row> = rows.iter().filter(|row| row.is_levity()).cloned().collect();
    let measured = interleaved(&own, run.passes, |row, pass| {
        measure(rig, row, pass, run.seconds)
    })?;
    let mut table = Table::new(&[
        "server",
        "CPU us/request",
        "with limits",
        "ratio",
        "forgotten",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    Ok(Outcome {
        name: "g2".into(),
        caption: format!(
            "A file of {BYTES} bytes in memory, {CONNECTIONS} keep-alive connections in a closed loop, one worker. Each request is \
             of the next of {CLIENTS} clients, which a trusted proxy names. With limits: one of requests per client, whose table \
             has all of these clients. Bar: {RATIO_MAX} of the CPU time without limits. Median of {} interleaved passes, each with \
             {PAIRS} pairs of {} s (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, pass: u64, seconds: f64) -> Result<Pass> {
    let plain = Server::start(rig, &row.behind_proxy(""))?;
    let limited = Server::start(rig, &row.behind_proxy(LIMIT).beside("limited"))?;
    fill(rig, &limited)?;
    let mut found = Pass {
        plain: Vec::new(),
        limited: Vec::new(),
        evictions: 0.0,
    };
    for pair in 0..PAIRS {
        // Each pair begins with the other server.
        for is_limited in [pair as u64 % 2 == pass % 2, pair as u64 % 2 != pass % 2] {
            let server = if is_limited { &limited } else { &plain };
            let mut load = load(server, seconds);
            load.repeat = true;
            let cost = Cost::measure(rig, server, load)?;
            match is_limited {
                true => found.limited.push(cost),
                false => found.plain.push(cost),
            }
        }
    }
    let metrics = limited.metrics()?.unwrap_or_default();
    let evictions = "levity_limit_evictions_total";
    found.evictions = metrics.growth_since(&Metrics::default(), evictions, "");
    Ok(found)
}

/// Has each client make a request.
fn fill(rig: &Rig, server: &Server) -> Result<()> {
    load(server, FILL_SECONDS_MAX)
        .measure(rig.load_cpu())
        .map(drop)
}

fn load(server: &Server, seconds: f64) -> Load {
    let path = format!("/hot/{BYTES}.bin");
    let mut load = Load::new(server.address, &path, CONNECTIONS, seconds);
    load.body_bytes = Some(BYTES);
    load.clients = Some(CLIENTS);
    load
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let ratio = row.spread(Pass::ratio);
    vec![
        row.server.clone(),
        row.spread(|pass| Pass::us_per_request(&pass.plain))
            .show(number),
        row.spread(|pass| Pass::us_per_request(&pass.limited))
            .show(number),
        ratio.show(number),
        row.spread(|pass| pass.evictions).show(number),
        verdict(
            &[(is_above(ratio.median, RATIO_MAX), "CPU time")],
            row.total(Pass::errors),
        ),
    ]
}
