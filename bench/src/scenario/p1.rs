//! P1: the cost of a small proxied response in CPU time and system calls.

use super::proxied::{CLIENTS, Cost, PLACES, Pair, WARM_UP_SECONDS, measure_directly, verdict};
use super::{Measured, Run, interleaved, lowest_of_peers, to_json};
use crate::failure::Result;
use crate::peer::Row;
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::{Rig, trace};
use serde::Serialize;

const BODY_BYTES: [usize; 2] = [1024, 4096];
/// Measured under strace, which slows a proxy down but does not change its system calls.
const TRACED_SECONDS: f64 = 1.0;

/// A row in a pass, with one length.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    #[serde(flatten)]
    cost: Cost,
    /// Measured in the first pass only.
    calls_per_request: Option<f64>,
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "proxy",
        "body bytes",
        "CPU us/request",
        "of best peer",
        "req/s",
        "p99",
        "calls/request",
        "application us/request",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in BODY_BYTES {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, bytes, pass, run.seconds)
        })?;
        let best = lowest_of_peers(rows, &measured, |pass| pass.cost.proxy_us_per_request());
        for (row, measured) in rows.iter().zip(&measured) {
            table.push(cells(row.is_levity(), measured, best));
        }
        let directly = directly(rig, bytes, run)?;
        table.push(cells(false, &directly, None));
        all.extend(measured);
        all.push(directly);
    }
    Ok(Outcome {
        name: "p1".into(),
        caption: format!(
            "Answers of an HTTP/1.1 application over a Unix socket, {CLIENTS} keep-alive clients in a closed loop, up to \
             {CLIENTS} connections to the application, kept by all but lighttpd, which makes a new one for each request. {PLACES} CPU time is that of \
             the proxy's control group, kernel work included. Bar: that of the best peer. System calls as counted by strace in a run of their own. \
             No proxy: the load on the application's socket, one after the other on one CPU. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, bytes: usize, pass: u64, seconds: f64) -> Result<Pass> {
    let pair = Pair::simple(rig, row)?;
    let load = |seconds| {
        let mut load = pair.load(&path(bytes), CLIENTS, seconds);
        load.body_bytes = Some(bytes as u64);
        load
    };
    load(WARM_UP_SECONDS).measure(rig.load_cpu())?;
    let cost = pair.measure(rig, &load(seconds))?;
    let traced = || load(TRACED_SECONDS).measure(rig.load_cpu());
    let calls_per_request = (pass == 1)
        .then(|| trace::calls_per_request(rig, &pair.proxy.group, traced))
        .transpose()?;
    Ok(Pass {
        bytes,
        cost,
        calls_per_request,
    })
}

fn directly(rig: &Rig, bytes: usize, run: &Run) -> Result<Measured<Pass>> {
    let passes = (0..run.passes).map(|_| {
        Ok(Pass {
            bytes,
            cost: measure_directly(rig, &path(bytes), bytes, run.seconds)?,
            calls_per_request: None,
        })
    });
    Ok(Measured {
        server: "no proxy".into(),
        passes: passes.collect::<Result<_>>()?,
    })
}

fn path(bytes: usize) -> String {
    format!("/?bytes={bytes}")
}

fn cells(is_levity: bool, measured: &Measured<Pass>, best: Option<f64>) -> Vec<String> {
    let cpu = measured.spread(|pass| pass.cost.proxy_us_per_request());
    let ratio = best.map(|best| cpu.median / best);
    let calls = measured
        .passes
        .iter()
        .find_map(|pass| pass.calls_per_request);
    vec![
        measured.server.clone(),
        measured.passes[0].bytes.to_string(),
        cpu.show(number),
        ratio.map_or("-".into(), number),
        measured
            .spread(|pass| pass.cost.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        calls.map_or("-".into(), number),
        measured
            .spread(|pass| pass.cost.backend_us_per_request())
            .show(number),
        verdict(
            is_levity,
            ratio,
            measured.total(|pass| pass.cost.report.errors),
        ),
    ]
}
