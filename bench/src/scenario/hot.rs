//! Hot: throughput of files in memory. The choice of a disk engine must not slow them down, so each engine is compared
//! with the `sendfile` engine, which only sends from the page cache.

use super::{Measured, Run, baseline, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

/// Sizes of files that Levity sends from its own memory, at the limit of that, and from the page cache.
const BYTES: [usize; 3] = [4096, 65_536, 1 << 20];
const CONNECTIONS: usize = 64;
const WARM_UP_SECONDS: f64 = 0.3;
/// The bar of the design.
const RATIO_MIN: f64 = 0.95;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    report: Report,
    cpu_us_per_request: f64,
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "file bytes",
        "of levity sendfile",
        "req/s",
        "MB/s",
        "CPU us/request",
        "p99",
        "bar",
    ]);
    let (mut all, mut pairs) = (Vec::new(), Vec::new());
    for bytes in BYTES {
        let measured = interleaved(rows, run.passes, |row, _| measure(rig, row, bytes, run))?;
        for (row, own) in rows.iter().zip(&measured) {
            table.push(cells(row, own, bytes, &measured));
            pairs.extend(pair(own, bytes, &measured));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "hot".into(),
        caption: format!(
            "Files in memory, {CONNECTIONS} keep-alive connections in a closed loop, one worker. Bar, for Levity's engines: \
             {RATIO_MIN} of the requests/s of its own sendfile engine in the same pass. Median of {} interleaved passes of \
             {} s (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&all)?,
        picture: Some(picture::svg(
            "Requests per second for files in memory (log scale)",
            ["levity sendfile", "this server"],
            &pairs,
        )),
    })
}

fn measure(rig: &Rig, row: &Row, bytes: usize, run: &Run) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let load = |seconds| {
        let path = format!("/hot/{bytes}.bin");
        let mut load = Load::new(server.address, &path, CONNECTIONS, seconds);
        load.body_bytes = Some(bytes as u64);
        load.measure(rig.load_cpu())
    };
    load(WARM_UP_SECONDS)?;
    let before = server.group.cpu_time()?;
    let report = load(run.seconds)?;
    let cpu = server.group.cpu_time()? - before;
    Ok(Pass {
        bytes,
        cpu_us_per_request: cpu.as_secs_f64() * 1e6 / report.requests as f64,
        report,
    })
}

fn rate(pass: &Pass) -> f64 {
    pass.report.requests_per_second()
}

fn cells(row: &Row, own: &Measured<Pass>, bytes: usize, all: &[Measured<Pass>]) -> Vec<String> {
    let ratio = baseline(all).map(|to| own.spread_of_ratio(to, rate));
    let errors = own.total(|pass| pass.report.errors);
    vec![
        own.server.clone(),
        bytes.to_string(),
        ratio.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(rate).show(number),
        own.spread(|pass| pass.report.bytes_per_second() / 1e6)
            .show(number),
        own.spread(|pass| pass.cpu_us_per_request).show(number),
        own.spread(|pass| pass.report.latency.p99_us).show(time_us),
        match ratio {
            Some(ratio) if row.is_levity() => {
                verdict(&[(is_below(ratio.median, RATIO_MIN), "throughput")], errors)
            }
            _ => "-".into(),
        },
    ]
}

fn pair(own: &Measured<Pass>, bytes: usize, all: &[Measured<Pass>]) -> Option<Pair> {
    Some(Pair {
        name: format!("{}, {} KiB", own.server, bytes / 1024),
        limit: baseline(all)?.spread(rate).median,
        measured: own.spread(rate).median,
    })
}
