//! W2: the cost of a megabyte of a large file in memory, in CPU time.

use super::cost::Cost;
use super::{Measured, Run, best_peer, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{HOT_STREAM_BYTES, read_hot};
use serde::Serialize;

const CONNECTIONS: [usize; 3] = [1, 8, 64];
/// The bars of the design, both relative to the peer with the lowest CPU time.
const CPU_RATIO_MAX: f64 = 1.0;
const THROUGHPUT_RATIO_MIN: f64 = 1.0;

/// A row in a pass, with one file size and one number of connections.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    connections: usize,
    cost: Cost,
}

impl Pass {
    /// Incomplete responses count: a run may be too short for one of 100 MB.
    fn bytes_per_second(&self) -> f64 {
        self.cost.report.wire_bytes_per_second()
    }
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
        "CPU us/MB",
        "of best peer",
        "user us/MB",
        "load us/MB",
        "MB/s",
        "of that peer",
        "p99",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in HOT_STREAM_BYTES {
        for &connections in run.connections_or(&CONNECTIONS) {
            let measured = interleaved(rows, run.passes, |row, _| {
                measure(rig, row, [bytes, connections], run.seconds)
            })?;
            let best = best_peer(rows, &measured, us_per_megabyte);
            for (row, own) in rows.iter().zip(&measured) {
                table.push(cells(row, own, [bytes, connections], best));
            }
            all.extend(measured);
        }
    }
    Ok(Outcome {
        name: "w2".into(),
        caption: format!(
            "A large file in the page cache, keep-alive connections in a closed loop, one worker. CPU time is that of the \
             server's control group, helper threads and kernel work included. The best peer is that with the lowest \
             CPU time per MB. Bars, relative to it: CPU time at most {CPU_RATIO_MAX}, MB/s at least \
             {THROUGHPUT_RATIO_MIN}. The clients let \
             the kernel discard the bodies, since copying them would bound the MB/s. On a loopback connection the CPU that handles an \
             acknowledgement also sends what it has made room for, so that a server that fills its send buffer leaves \
             part of its work to the load generator: compare the CPU time of the load too. p99 includes the waiting time so far of responses that were incomplete at the \
             end. Median of {} interleaved passes of {} s (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, [bytes, connections]: [usize; 2], seconds: f64) -> Result<Pass> {
    read_hot(&rig.docroot, bytes)?;
    let server = Server::start(rig, row)?;
    let path = format!("/hot/{bytes}.bin");
    let mut load = Load::new(server.address, &path, connections, seconds);
    load.body_bytes = Some(bytes as u64);
    load.discard = true;
    Ok(Pass {
        bytes,
        connections,
        cost: Cost::measure(rig, &server, load)?,
    })
}

fn us_per_megabyte(pass: &Pass) -> f64 {
    pass.cost.us_per_megabyte()
}

fn cells(
    row: &Row,
    own: &Measured<Pass>,
    steps: [usize; 2],
    best: Option<&Measured<Pass>>,
) -> Vec<String> {
    let cpu = best.map(|best| own.spread_of_ratio(best, us_per_megabyte));
    let throughput = best.map(|best| own.spread_of_ratio(best, Pass::bytes_per_second));
    let mut cells = vec![own.server.clone()];
    cells.extend(steps.map(|step| step.to_string()));
    cells.extend([
        own.spread(us_per_megabyte).show(number),
        cpu.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(|pass| pass.cost.user_us_per_megabyte())
            .show(number),
        own.spread(|pass| pass.cost.load_us_per_megabyte())
            .show(number),
        own.spread(|pass| pass.bytes_per_second() / 1e6)
            .show(number),
        throughput.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        match cpu.zip(throughput) {
            Some((cpu, throughput)) if row.is_levity() => {
                let errors = own.total(|pass| pass.cost.report.errors);
                bars(cpu.median, throughput.median, errors)
            }
            _ => "-".into(),
        },
    ]);
    cells
}

fn bars(cpu: f64, throughput: f64, errors: u64) -> String {
    let bars = [
        (is_above(cpu, CPU_RATIO_MAX), "CPU time"),
        (is_below(throughput, THROUGHPUT_RATIO_MIN), "throughput"),
    ];
    verdict(&bars, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_but_slow_is_not_enough() {
        assert_eq!(bars(1.0, 1.0, 0), "pass");
        assert_eq!(bars(0.8, 0.9, 0), "missed: throughput");
        assert_eq!(bars(1.1, 1.2, 0), "missed: CPU time");
    }
}
