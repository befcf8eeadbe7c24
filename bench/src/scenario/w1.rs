//! W1: the cost of a request for a small file in memory, in CPU time and system calls.

use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::tree::HOT_BYTES;
use crate::rig::{Rig, trace};
use serde::Serialize;

const CONNECTIONS: usize = 64;
const WARM_UP_SECONDS: f64 = 0.3;
/// Measured under strace, which slows a server down but does not change its system calls.
const TRACED_SECONDS: f64 = 1.0;
/// The bar of the design: CPU time per request, divided by that of the best peer.
const CPU_RATIO_MAX: f64 = 0.91;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    report: Report,
    cpu_us_per_request: f64,
    /// Measured in the first pass only.
    calls_per_request: Option<f64>,
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "file bytes",
        "CPU us/request",
        "of best peer",
        "req/s",
        "p99",
        "calls/request",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in HOT_BYTES {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, bytes, pass, run.seconds)
        })?;
        let best = best_peer(rows, &measured);
        for (row, measured) in rows.iter().zip(&measured) {
            table.push(cells(row, measured, bytes, best));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w1".into(),
        caption: format!(
            "A file in memory, {CONNECTIONS} keep-alive connections in a closed loop, one worker. CPU time is that of the \
             server's control group, all threads and kernel work included. Bar: {CPU_RATIO_MAX} of the best peer. System \
             calls as counted by strace in a run of their own. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, bytes: usize, pass: u64, seconds: f64) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let load = |seconds| {
        let mut load = Load::new(
            server.address,
            &format!("/hot/{bytes}.bin"),
            CONNECTIONS,
            seconds,
        );
        load.body_bytes = Some(bytes as u64);
        load.measure(rig.load_cpu())
    };
    load(WARM_UP_SECONDS)?;
    let before = server.group.cpu_time()?;
    let report = load(seconds)?;
    let cpu = server.group.cpu_time()? - before;
    let cpu_us_per_request = cpu.as_secs_f64() * 1e6 / report.requests as f64;
    let calls_per_request = (pass == 1)
        .then(|| trace::calls_per_request(rig, &server.group, || load(TRACED_SECONDS)))
        .transpose()?;
    Ok(Pass {
        bytes,
        report,
        cpu_us_per_request,
        calls_per_request,
    })
}

/// The lowest median CPU time of a peer, in microseconds; None without peers.
fn best_peer(rows: &[Row], measured: &[Measured<Pass>]) -> Option<f64> {
    let peers = rows
        .iter()
        .zip(measured)
        .filter(|(row, _)| !row.is_levity());
    peers
        .map(|(_, row)| row.spread(|pass| pass.cpu_us_per_request).median)
        .min_by(f64::total_cmp)
}

fn cells(row: &Row, measured: &Measured<Pass>, bytes: usize, best: Option<f64>) -> Vec<String> {
    let cpu = measured.spread(|pass| pass.cpu_us_per_request);
    let ratio = best.map(|best| cpu.median / best);
    let calls = measured
        .passes
        .iter()
        .find_map(|pass| pass.calls_per_request);
    let errors: u64 = measured.passes.iter().map(|pass| pass.report.errors).sum();
    vec![
        measured.server.clone(),
        bytes.to_string(),
        cpu.show(number),
        ratio.map_or("-".into(), number),
        measured
            .spread(|pass| pass.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.report.latency.p99_us)
            .show(time_us),
        calls.map_or("-".into(), number),
        verdict(row.is_levity(), ratio, errors),
    ]
}

fn verdict(is_levity: bool, ratio: Option<f64>, errors: u64) -> String {
    match ratio {
        _ if errors > 0 => format!("{errors} errors"),
        Some(ratio) if is_levity && ratio <= CPU_RATIO_MAX => "pass".into(),
        Some(_) if is_levity => "missed".into(),
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levity_has_a_bar() {
        assert_eq!(verdict(true, Some(0.9), 0), "pass");
        assert_eq!(verdict(true, Some(0.92), 0), "missed");
        assert_eq!(verdict(false, Some(1.0), 0), "-");
        assert_eq!(verdict(true, Some(0.5), 3), "3 errors");
    }
}
