//! W1: the cost of a request for a small file in memory, in CPU time and system calls.

use super::cost::Cost;
use super::{Measured, Run, interleaved, lowest_of_peers, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::tree::HOT_BYTES;
use crate::rig::{Rig, trace};
use serde::Serialize;

const CONNECTIONS: [usize; 3] = [1, 64, 512];
/// System calls are counted with this number of connections, in the first pass only.
const TRACED_CONNECTIONS: usize = 64;
/// Measured under strace, which slows a server down but does not change its system calls.
const TRACED_SECONDS: f64 = 1.0;
/// The bar of the design: CPU time per request, divided by that of the best peer.
const CPU_RATIO_MAX: f64 = 0.91;

/// A row in a pass, with one file size and one number of connections.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    connections: usize,
    cost: Cost,
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
        "connections",
        "CPU us/request",
        "of best peer",
        "user us",
        "system us",
        "req/s",
        "p99",
        "calls/request",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in HOT_BYTES {
        for &connections in run.connections_or(&CONNECTIONS) {
            let measured = interleaved(rows, run.passes, |row, pass| {
                let bench = Bench {
                    rig,
                    bytes,
                    connections,
                    seconds: run.seconds,
                };
                bench.measure(row, pass)
            })?;
            let best = lowest_of_peers(rows, &measured, |pass| pass.cost.us_per_request());
            for (row, measured) in rows.iter().zip(&measured) {
                table.push(cells(row, measured, [bytes, connections], best));
            }
            all.extend(measured);
        }
    }
    Ok(Outcome {
        name: "w1".into(),
        caption: format!(
            "A file in memory, keep-alive connections in a closed loop, one worker. CPU time is that of the server's \
             control group, all threads and kernel work included; the kernel samples its division into user and \
             system time at each timer tick. Bar: {CPU_RATIO_MAX} of the best peer. System calls as counted by strace \
             in a run of their own with {TRACED_CONNECTIONS} connections. Median of {} interleaved passes of {} s \
             (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

struct Bench<'a> {
    rig: &'a Rig,
    bytes: usize,
    connections: usize,
    seconds: f64,
}

impl Bench<'_> {
    fn measure(&self, row: &Row, pass: u64) -> Result<Pass> {
        let server = Server::start(self.rig, row)?;
        let cost = Cost::measure(self.rig, &server, self.load(&server, self.seconds))?;
        let is_traced = pass == 1 && self.connections == TRACED_CONNECTIONS;
        Ok(Pass {
            bytes: self.bytes,
            connections: self.connections,
            cost,
            calls_per_request: is_traced.then(|| self.calls(&server)).transpose()?,
        })
    }

    fn load(&self, server: &Server, seconds: f64) -> Load {
        let path = format!("/hot/{}.bin", self.bytes);
        let mut load = Load::new(server.address, &path, self.connections, seconds);
        load.body_bytes = Some(self.bytes as u64);
        load
    }

    fn calls(&self, server: &Server) -> Result<f64> {
        let load = self.load(server, TRACED_SECONDS);
        trace::calls_per_request(self.rig, &server.group, || {
            load.measure(self.rig.load_cpu())
        })
    }
}

fn cells(
    row: &Row,
    measured: &Measured<Pass>,
    steps: [usize; 2],
    best: Option<f64>,
) -> Vec<String> {
    let cpu = measured.spread(|pass| pass.cost.us_per_request());
    let user = measured.spread(|pass| pass.cost.user_us_per_request());
    let system =
        measured.spread(|pass| pass.cost.us_per_request() - pass.cost.user_us_per_request());
    let ratio = best.map(|best| cpu.median / best);
    let calls = measured
        .passes
        .iter()
        .find_map(|pass| pass.calls_per_request);
    let mut cells = vec![measured.server.clone()];
    cells.extend(steps.map(|step| step.to_string()));
    cells.extend([
        cpu.show(number),
        ratio.map_or("-".into(), number),
        user.show(number),
        system.show(number),
        measured
            .spread(|pass| pass.cost.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        calls.map_or("-".into(), number),
        verdict(
            row.is_levity(),
            ratio,
            measured.total(|pass| pass.cost.report.errors),
        ),
    ]);
    cells
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
