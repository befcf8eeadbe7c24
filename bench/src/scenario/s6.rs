//! S6: what does it cost a proxy to forward a small response to a client over HTTP/2, in CPU time?

use super::proxied::{Cost, PLACES, Pair, WARM_UP_SECONDS};
use super::{Measured, Run, interleaved, lowest_of_peers, to_json};
use crate::failure::Result;
use crate::peer::Row;
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict, verdict_of_peer};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

const BODY_BYTES: u64 = 1024;
/// The peers that speak HTTP/2 to clients that begin with it.
const PEERS: [&str; 2] = [NGINX, "haproxy"];
/// The peer of the bar of the design: the CPU time per request, divided by that of nginx.
const NGINX: &str = "nginx";
const RATIO_MAX: f64 = 1.0;

/// A shape of the load: connections, and requests at a time on each of them.
const SHAPES: [(usize, usize); 2] = [(64, 1), (8, 8)];

/// A row in a pass, with one shape.
#[derive(Serialize)]
pub struct Pass {
    connections: usize,
    streams: usize,
    #[serde(flatten)]
    cost: Cost,
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let rows = rows
        .iter()
        .filter(|row| row.is_levity() || PEERS.contains(&row.name.as_str()));
    let rows: Vec<_> = rows.map(Row::requested_over_http2).collect();
    let mut table = Table::new(&[
        "proxy",
        "connections",
        "streams",
        "CPU us/request",
        "of best peer",
        "of nginx",
        "req/s",
        "p99",
        "bar",
    ]);
    let mut all = Vec::new();
    for shape in SHAPES {
        let measured = interleaved(&rows, run.passes, |row, _| {
            measure(rig, row, shape, run.seconds)
        })?;
        let best = lowest_of_peers(&rows, &measured, |pass| pass.cost.proxy_us_per_request());
        let nginx = measured.iter().find(|row| row.server == NGINX);
        for (row, own) in rows.iter().zip(&measured) {
            table.push(cells(row.is_levity(), own, (best, nginx)));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "s6".into(),
        caption: format!(
            "Answers of {BODY_BYTES} bytes of an HTTP/1.1 application over a Unix socket, for clients over HTTP/2 without TLS in a \
             closed loop. {PLACES} CPU time is that of the proxy's control group, kernel work included. Bar: that of \
             nginx. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(
    rig: &Rig,
    row: &Row,
    (connections, streams): (usize, usize),
    seconds: f64,
) -> Result<Pass> {
    let pair = Pair::simple(rig, row)?;
    let load = |seconds| {
        let mut load = pair.load(&format!("/?bytes={BODY_BYTES}"), connections, seconds);
        load.streams = Some(streams);
        load.body_bytes = Some(BODY_BYTES);
        load
    };
    load(WARM_UP_SECONDS).measure(rig.load_cpu())?;
    Ok(Pass {
        connections,
        streams,
        cost: pair.measure(rig, &load(seconds))?,
    })
}

fn cells(
    is_levity: bool,
    measured: &Measured<Pass>,
    (best, nginx): (Option<f64>, Option<&Measured<Pass>>),
) -> Vec<String> {
    let us = |pass: &Pass| pass.cost.proxy_us_per_request();
    let cpu = measured.spread(us);
    let of_best = best.map(|best| cpu.median / best);
    let of_nginx = nginx.map(|nginx| measured.spread_of_ratio(nginx, us));
    let errors = measured.total(|pass| pass.cost.report.errors);
    let first = &measured.passes[0];
    vec![
        measured.server.clone(),
        first.connections.to_string(),
        first.streams.to_string(),
        cpu.show(number),
        of_best.map_or("-".into(), number),
        of_nginx.map_or("-".into(), |ratio| ratio.show(number)),
        measured
            .spread(|pass| pass.cost.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        match of_nginx {
            Some(ratio) if is_levity => {
                verdict(&[(is_above(ratio.median, RATIO_MAX), "CPU")], errors)
            }
            _ => verdict_of_peer(errors),
        },
    ]
}
