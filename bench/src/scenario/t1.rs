//! T1 and T2: what do a request for a small file in memory and a megabyte of a large one cost over TLS, in CPU time?

use super::cost::Cost;
use super::{Measured, Run, best_peer, interleaved, to_json};
use crate::failure::Result;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict, verdict_of_peer};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::read_hot;
use serde::Serialize;

/// The bar of the design: CPU time divided by that of the best peer.
const CPU_RATIO_MAX: f64 = 1.0;

/// A file, and the unit of its cost.
pub struct Workload {
    name: &'static str,
    bytes: usize,
    connections: usize,
    /// The heading of the CPU time.
    cost: &'static str,
    us: fn(&Cost) -> f64,
    user_us: fn(&Cost) -> f64,
}

/// T1: by the request.
pub const SMALL: Workload = Workload {
    name: "t1",
    bytes: 4096,
    connections: 64,
    cost: "CPU us/request",
    us: Cost::us_per_request,
    user_us: Cost::user_us_per_request,
};

/// T2: by the megabyte.
pub const LARGE: Workload = Workload {
    name: "t2",
    bytes: 1_000_000,
    connections: 8,
    cost: "CPU us/MB",
    us: Cost::us_per_megabyte,
    user_us: Cost::user_us_per_megabyte,
};

/// A row in a pass, with one number of connections.
#[derive(Serialize)]
pub struct Pass {
    connections: usize,
    cost: Cost,
}

/// Runs one of them.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run, workload: &Workload) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "connections",
        workload.cost,
        "of best peer",
        "of it user us",
        "req/s",
        "MB/s",
        "p99",
        "CPUs: server",
        "load",
        "bar",
    ]);
    let mut all = Vec::new();
    for &connections in run.connections_or(&[workload.connections]) {
        let measured = interleaved(rows, run.passes, |row, _| {
            measure(rig, row, run, (workload, connections))
        })?;
        let best = best_peer(rows, &measured, |pass| (workload.us)(&pass.cost));
        for (row, own) in rows.iter().zip(&measured) {
            table.push(cells(row, own, (workload, connections), best));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: workload.name.into(),
        caption: caption(run, workload),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(
    rig: &Rig,
    row: &Row,
    run: &Run,
    (workload, connections): (&Workload, usize),
) -> Result<Pass> {
    let bytes = workload.bytes;
    read_hot(&rig.docroot, bytes)?;
    let server = Server::start(rig, row)?;
    let mut load = server.load(&format!("/hot/{bytes}.bin"), connections, run.seconds);
    load.body_bytes = Some(bytes as u64);
    Ok(Pass {
        connections,
        cost: Cost::measure(rig, &server, load)?,
    })
}

fn caption(run: &Run, workload: &Workload) -> String {
    format!(
        "A file of {} bytes in memory over TLS 1.3 (AES-128-GCM, which all servers get offered alone) and HTTP/1.1, \
         keep-alive connections in a closed loop, one worker. CPU time is that of the server's control group, all threads \
         and kernel work included, without handshakes. Bar: at most {CPU_RATIO_MAX} of the peer with the lowest CPU time. \
         CPUs: CPU seconds per second, of which the load cannot have more than one; it decrypts everything. Median of {} \
         interleaved passes of {} s (lowest to highest).",
        workload.bytes, run.passes, run.seconds
    )
}

fn cells(
    row: &Row,
    own: &Measured<Pass>,
    (workload, connections): (&Workload, usize),
    best: Option<&Measured<Pass>>,
) -> Vec<String> {
    let us = |pass: &Pass| (workload.us)(&pass.cost);
    let ratio = best.map(|best| own.spread_of_ratio(best, us));
    let report =
        |figure: fn(&crate::load::Report) -> f64| own.spread(move |pass| figure(&pass.cost.report));
    vec![
        own.server.clone(),
        connections.to_string(),
        own.spread(us).show(number),
        ratio.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(|pass| (workload.user_us)(&pass.cost))
            .show(number),
        report(|report| report.requests_per_second()).show(number),
        report(|report| report.wire_bytes_per_second() / 1e6).show(number),
        report(|report| report.latency.p99_us).show(time_us),
        own.spread(|pass| pass.cost.processors).show(number),
        report(|report| report.processors()).show(number),
        match ratio {
            Some(ratio) if row.is_levity() => verdict(
                &[(is_above(ratio.median, CPU_RATIO_MAX), "CPU")],
                own.total(|pass| pass.cost.report.errors),
            ),
            _ => verdict_of_peer(own.total(|pass| pass.cost.report.errors)),
        },
    ]
}
