//! S1: what do a request for a small file in memory and a megabyte of a large one cost over HTTP/2, in CPU time?

use super::{Measured, Run, best_peer, interleaved, to_json};
use crate::failure::Result;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict, verdict_of_peer};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use crate::rig::h2load::{H2Report, H2load};
use crate::rig::tree::read_hot;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Longer than it takes to connect all clients, in seconds: h2load takes whole ones.
const WARM_UP: u64 = 1;

/// A file and how it is requested.
struct Shape {
    bytes: usize,
    connections: usize,
    /// On each connection at a time.
    streams: usize,
    /// The bar of the design: CPU time divided by that of the best peer.
    ratio_max: f64,
}

const SHAPES: [Shape; 4] = [
    Shape {
        bytes: 4096,
        connections: 64,
        streams: 1,
        ratio_max: 1.0,
    },
    Shape {
        bytes: 4096,
        connections: 8,
        streams: 32,
        ratio_max: 1.3,
    },
    Shape {
        bytes: 100_000,
        connections: 8,
        streams: 8,
        ratio_max: 1.0,
    },
    Shape {
        bytes: 1_000_000,
        connections: 8,
        streams: 8,
        ratio_max: 1.0,
    },
];

/// A row in a pass, with one shape.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    streams: usize,
    report: H2Report,
    /// CPU seconds of the server per second.
    processors: f64,
}

impl Pass {
    fn us_per_request(&self) -> f64 {
        self.processors * 1e6 / self.report.requests_per_second
    }

    fn us_per_megabyte(&self) -> f64 {
        self.us_per_request() * 1e6 / self.bytes as f64
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails, or h2load is missing.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let bare = Row::bare_http2(rig)?;
    let rows: Vec<Row> = rows.iter().cloned().chain([bare]).collect();
    let mut table = Table::new(&[
        "bytes",
        "connections",
        "streams",
        "server",
        "CPU us/request",
        "CPU us/MB",
        "of best peer",
        "req/s",
        "CPUs",
        "bar",
    ]);
    let mut all = Vec::new();
    for shape in &SHAPES {
        let measured = interleaved(&rows, run.passes, |row, _| measure(rig, row, run, shape))?;
        // The bare server has no files, so it is no peer.
        let peers = rows.len() - 1;
        let best = best_peer(&rows[..peers], &measured[..peers], Pass::us_per_request);
        for (row, own) in rows.iter().zip(&measured) {
            table.push(cells(row, own, shape, best));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "s1".into(),
        caption: caption(run),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, run: &Run, shape: &Shape) -> Result<Pass> {
    let bytes = shape.bytes;
    read_hot(&rig.docroot, bytes)?;
    let server = Server::start(rig, row)?;
    let url = format!("http://{}/hot/{bytes}.bin", server.address);
    let seconds = (run.seconds.round() as u64).max(1);
    let shape = (shape.connections, shape.streams);
    let load = H2load::start(rig.load_cpu(), &url, shape, (WARM_UP, seconds))?;
    // The part in the middle of the measurement, whose start and end are not known here.
    std::thread::sleep(Duration::from_secs(WARM_UP) + Duration::from_millis(300));
    let (started, before) = (Instant::now(), server.group.cpu_usage()?);
    std::thread::sleep(Duration::from_secs(seconds) - Duration::from_millis(600));
    let used = server.group.cpu_usage()?.since(&before);
    let processors = used.total.as_secs_f64() / started.elapsed().as_secs_f64();
    Ok(Pass {
        bytes,
        streams: shape.1,
        report: load.report()?,
        processors,
    })
}

fn caption(run: &Run) -> String {
    format!(
        "Files in memory over HTTP/2 without TLS, requested by h2load in a closed loop, one worker. CPU time is that of the \
         server's control group, all threads and kernel work included. hyper is a bare server without files. Bars: the CPU time of the best peer, 1.3 of it with 32 \
         streams. Median of {} interleaved passes of {} s (lowest to highest).",
        run.passes, run.seconds
    )
}

fn cells(
    row: &Row,
    own: &Measured<Pass>,
    shape: &Shape,
    best: Option<&Measured<Pass>>,
) -> Vec<String> {
    let ratio = best.map(|best| own.spread_of_ratio(best, Pass::us_per_request));
    let errors = own.total(|pass| pass.report.errors);
    vec![
        shape.bytes.to_string(),
        shape.connections.to_string(),
        shape.streams.to_string(),
        own.server.clone(),
        own.spread(Pass::us_per_request).show(number),
        own.spread(Pass::us_per_megabyte).show(number),
        ratio.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(|pass| pass.report.requests_per_second)
            .show(number),
        own.spread(|pass| pass.processors).show(number),
        match ratio {
            Some(ratio) if row.is_levity() => {
                verdict(&[(is_above(ratio.median, shape.ratio_max), "CPU")], errors)
            }
            _ => verdict_of_peer(errors),
        },
    ]
}
