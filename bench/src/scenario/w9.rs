//! W9: the disk freezes repeatedly while hot files are requested at a fixed rate and a hundred clients wait for cold
//! files. Hot requests must not notice.

use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::COLD_SETS;
use crate::walk::Walk;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const HOT_PATH: &str = "/hot/4096.bin";
const HOT_BYTES: u64 = 4096;
const HOT_CONNECTIONS: usize = 32;
const COLD_CLIENTS: usize = 100;
/// The time that the disk works between freezes.
const THAWED: Duration = Duration::from_millis(500);
/// The bar of the design. Load and disk share a CPU, so a disk that continues may delay the load generator itself. Delays
/// that also occur while another process reads are not the fault of the server.
const SLOWEST_US_MAX: f64 = 10_000.0;

/// The number of freezes, and their duration.
struct Freezes {
    count: u32,
    each: Duration,
}

impl Freezes {
    fn of(run: &Run) -> Self {
        if run.quick {
            return Self {
                count: 2,
                each: Duration::from_secs(1),
            };
        }
        Self {
            count: 10,
            each: Duration::from_secs(2),
        }
    }

    fn total(&self) -> Duration {
        (THAWED + self.each) * self.count + THAWED
    }

    fn happen(&self, rig: &Rig) -> Result<()> {
        for _ in 0..self.count {
            std::thread::sleep(THAWED);
            let frozen = rig.freeze_disk()?;
            std::thread::sleep(self.each);
            drop(frozen);
        }
        Ok(())
    }
}

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Report,
    /// While the walker waits for the frozen disk instead of the server.
    beside_walker: Report,
    frozen: Report,
    cold: Report,
    /// Time that the event loop was blocked; Levity only.
    stalled_seconds: Option<f64>,
    /// Time that other threads had its CPU, which is not the fault of the server; Levity only.
    preempted_seconds: Option<f64>,
}

/// Runs the workload.
///
/// # Errors
/// The cold files are on a disk that cannot be frozen; the rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let measured = interleaved(rows, run.passes, |row, _| measure(rig, row, run))?;
    let mut table = Table::new(&[
        "server",
        "p99 alone",
        "p99.9 frozen",
        "slowest alone",
        "slowest beside a walker",
        "slowest frozen",
        "unanswered",
        "cold requests",
        "cold errors",
        "loop stalled ms",
        "loop preempted ms",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(&measured) {
        table.push(cells(row, measured));
    }
    Ok(Outcome {
        name: "w9".into(),
        caption: caption(run),
        table,
        picture: Some(picture::svg(
            "Slowest request for a 4 KB file in memory, in microseconds (log scale)",
            [
                "while another process waits for the disk that stands still",
                "while clients of the same server do",
            ],
            &measured.iter().map(pair).collect::<Vec<_>>(),
        )),
        passes: to_json(&measured)?,
    })
}

fn measure(rig: &Rig, row: &Row, run: &Run) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    if row.is_filled() {
        server.fill_cache_of_open_files(rig, &COLD_SETS[0])?;
    }
    let hot = |seconds| {
        let mut load = Load::new(server.address, HOT_PATH, HOT_CONNECTIONS, seconds);
        load.rate = Some(run.rate);
        load.body_bytes = Some(HOT_BYTES);
        load
    };
    let alone = hot(run.seconds).measure(rig.load_cpu())?;
    let freezes = Freezes::of(run);
    let seconds = freezes.total().as_secs_f64();
    let cool_down = || {
        rig.drop_caches()?;
        Load::new(server.address, HOT_PATH, 1, 0.01)
            .measure(rig.load_cpu())
            .map(drop)
    };
    cool_down()?;
    let mut walk = Walk::new(&rig.docroot, &cold_list(rig)?);
    walk.seconds = seconds;
    let walker = walk.start(rig.load_cpu())?;
    let mut beside_walker = hot(seconds).start(rig.load_cpu())?;
    freezes.happen(rig)?;
    let beside_walker = beside_walker.report()?;
    walker.report()?;
    let mut cold = Load::new(server.address, "", COLD_CLIENTS, seconds);
    cold.list = Some(cold_list(rig)?);
    cool_down()?;
    let before = server.metrics()?;
    let mut cold = cold.start(rig.load_cpu())?;
    let mut hot = hot(seconds).start(rig.load_cpu())?;
    freezes.happen(rig)?;
    let (frozen, cold_report) = (hot.report()?, cold.report()?);
    cold.drained()?;
    let growth = server.metrics()?.zip(before).map(|(after, before)| {
        [
            "levity_loop_stall_seconds_sum",
            "levity_loop_preempted_seconds_sum",
        ]
        .map(|name| after.growth_since(&before, name, ""))
    });
    Ok(Pass {
        alone,
        beside_walker,
        frozen,
        cold: cold_report,
        stalled_seconds: growth.map(|[stalled, _]| stalled),
        preempted_seconds: growth.map(|[_, preempted]| preempted),
    })
}

fn cold_list(rig: &Rig) -> Result<PathBuf> {
    rig.list(&COLD_SETS[0], 1, COLD_SETS[0].files)
}

fn caption(run: &Run) -> String {
    let freezes = Freezes::of(run);
    format!(
        "A 4 KB file from memory in an open loop at {} requests/s on {HOT_CONNECTIONS} connections, while {COLD_CLIENTS} \
         clients fetch cold files and the disk stands still {} times for {} s, with {} s between. Latency counts from the \
         intended start. Beside a walker: the same while 64 threads of another process read the cold files instead. Bars: no hot \
         request over 10 ms, or over the slowest beside the walker if that took longer; Levity's loop sleeps less than 1 ms in all where it should not \
         (by its own measure, sleeps of less than 1 ms not counted). Preempted: other threads had its CPU, which slows a request \
         down but is not waiting for a disk. One worker each; median of {} interleaved passes (lowest to highest).",
        run.rate,
        freezes.count,
        freezes.each.as_secs_f64(),
        THAWED.as_secs_f64(),
        run.passes
    )
}

fn cells(row: &Row, measured: &Measured<Pass>) -> Vec<String> {
    let slowest = measured.spread(|pass| pass.frozen.latency.max_us);
    let beside = measured.spread(|pass| pass.beside_walker.latency.max_us);
    let stalled = measured.spread(|pass| pass.stalled_seconds.unwrap_or(f64::NAN));
    // One sleep that is counted at all takes a millisecond.
    let has_stalled = row.is_levity() && is_above(stalled.high, 0.0);
    let bars = [
        (
            is_above(slowest.median, SLOWEST_US_MAX.max(beside.median)),
            "10 ms",
        ),
        (has_stalled, "stall"),
    ];
    let ms = |seconds: f64| number(seconds * 1000.0);
    vec![
        measured.server.clone(),
        measured
            .spread(|pass| pass.alone.latency.p99_us)
            .show(time_us),
        measured
            .spread(|pass| pass.frozen.latency.p999_us)
            .show(time_us),
        measured
            .spread(|pass| pass.alone.latency.max_us)
            .show(time_us),
        beside.show(time_us),
        slowest.show(time_us),
        measured
            .spread(|pass| pass.frozen.unfinished as f64)
            .show(number),
        measured
            .spread(|pass| pass.cold.requests as f64)
            .show(number),
        measured.spread(|pass| pass.cold.errors as f64).show(number),
        stalled.show(ms),
        measured
            .spread(|pass| pass.preempted_seconds.unwrap_or(f64::NAN))
            .show(ms),
        verdict(
            &bars,
            measured
                .total(|pass| pass.alone.errors + pass.beside_walker.errors + pass.frozen.errors),
        ),
    ]
}

fn pair(row: &Measured<Pass>) -> Pair {
    Pair {
        name: row.server.clone(),
        limit: row.spread(|pass| pass.beside_walker.latency.max_us).median,
        measured: row.spread(|pass| pass.frozen.latency.max_us).median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_outlasts_the_freezes() {
        let freezes = Freezes {
            count: 10,
            each: Duration::from_secs(2),
        };
        assert_eq!(freezes.total(), Duration::from_millis(25_500));
    }
}
