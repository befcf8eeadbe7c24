//! P2: large proxied responses, with a length and chunked.

use super::proxied::{CLIENTS, Cost, PLACES, Pair, WARM_UP_SECONDS, measure_directly, verdict};
use super::{Measured, Run, interleaved, lowest_of_peers, to_json};
use crate::failure::Result;
use crate::peer::Row;
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

const BODIES: [Body; 4] = [
    Body::new(100_000, false),
    Body::new(100_000, true),
    Body::new(1_000_000, false),
    Body::new(1_000_000, true),
];

/// The response of the application.
#[derive(Clone, Copy, Serialize)]
struct Body {
    bytes: usize,
    is_chunked: bool,
}

impl Body {
    const fn new(bytes: usize, is_chunked: bool) -> Self {
        Self { bytes, is_chunked }
    }

    fn path(self) -> String {
        let framing = if self.is_chunked { "&chunked" } else { "" };
        format!("/?bytes={}{framing}", self.bytes)
    }
}

/// A row in a pass, with one body.
#[derive(Serialize)]
pub struct Pass {
    #[serde(flatten)]
    body: Body,
    #[serde(flatten)]
    cost: Cost,
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "proxy",
        "body bytes",
        "framing",
        "CPU ms/MB",
        "of best peer",
        "MB/s",
        "p99",
        "application ms/MB",
        "bar",
    ]);
    let mut all = Vec::new();
    for body in BODIES {
        let measured = interleaved(rows, run.passes, |row, _| {
            measure(rig, row, body, run.seconds)
        })?;
        let best = lowest_of_peers(rows, &measured, |pass| pass.cost.proxy_ms_per_megabyte());
        for (row, measured) in rows.iter().zip(&measured) {
            table.push(cells(row.is_levity(), measured, best));
        }
        let directly = directly(rig, body, run)?;
        table.push(cells(false, &directly, None));
        all.extend(measured);
        all.push(directly);
    }
    Ok(Outcome {
        name: "p2".into(),
        caption: format!(
            "Long answers of an HTTP/1.1 application over a Unix socket, with a Content-Length and in chunks of 16 KiB; {CLIENTS} keep-alive \
             clients in a closed loop. {PLACES} CPU time is that of the proxy's control group, kernel work included. Bar: that of the best peer. \
             No proxy: the load on the application's socket. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, body: Body, seconds: f64) -> Result<Pass> {
    let pair = Pair::simple(rig, row)?;
    let mut load = pair.load(&body.path(), CLIENTS, WARM_UP_SECONDS);
    load.body_bytes = Some(body.bytes as u64);
    load.measure(rig.load_cpu())?;
    load.seconds = seconds;
    let cost = pair.measure(rig, &load)?;
    Ok(Pass { body, cost })
}

fn directly(rig: &Rig, body: Body, run: &Run) -> Result<Measured<Pass>> {
    let passes = (0..run.passes).map(|_| {
        let cost = measure_directly(rig, &body.path(), body.bytes, run.seconds)?;
        Ok(Pass { body, cost })
    });
    Ok(Measured {
        server: "no proxy".into(),
        passes: passes.collect::<Result<_>>()?,
    })
}

fn cells(is_levity: bool, measured: &Measured<Pass>, best: Option<f64>) -> Vec<String> {
    let cpu = measured.spread(|pass| pass.cost.proxy_ms_per_megabyte());
    let ratio = best.map(|best| cpu.median / best);
    let body = measured.passes[0].body;
    let framing = if body.is_chunked { "chunks" } else { "length" };
    vec![
        measured.server.clone(),
        body.bytes.to_string(),
        framing.into(),
        cpu.show(number),
        ratio.map_or("-".into(), number),
        measured
            .spread(|pass| pass.cost.report.bytes_per_second() / 1e6)
            .show(number),
        measured
            .spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        measured
            .spread(|pass| pass.cost.backend_ms_per_megabyte())
            .show(number),
        verdict(
            is_levity,
            ratio,
            measured.total(|pass| pass.cost.report.errors),
        ),
    ]
}
