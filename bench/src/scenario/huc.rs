//! HUC, hot under cold: how fast is a small file in memory while other requests wait for the disk?
//!
//! Each hot measurement is made three times: alone; while another process reads the slow disk at the rate of the server,
//! which costs CPU time and memory bandwidth but blocks no event loop; and while the server itself sends cold files to a
//! hundred clients. For a server whose event loop never waits for the disk the last two are the same.

use super::hot_and_cold::{CLOSED_CONNECTIONS, COLD_CLIENTS, Loads, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::kept::{self, Kept, Panel};
use crate::report::spread::Spread;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::device::Activity;
use crate::rig::tree::COLD_SETS;
use crate::walk::Walk;
use serde::Serialize;

/// Seconds of cold load before the hot measurement.
const WARM_UP: f64 = 0.5;

/// The bars of the design: share of the throughput kept, and latency in microseconds.
const KEPT_MIN: f64 = 0.9;
const P99_FACTOR_MAX: f64 = 2.0;
const P99_US_ALWAYS_FINE: f64 = 1000.0;
const STALL_SECONDS_MAX: f64 = 0.005;

/// What the table has more than that of t6.
const NGINX_BEST: &str = " nginx-best has a pool for the cold location only and a cache of open files; of nginx-best-filled that \
    cache held every cold file before, which only a set that fits into it allows.";

/// The measurement of the hot file in one of the three situations.
#[derive(Serialize)]
struct Hot {
    /// Closed loop on four connections.
    closed: Report,
    /// Open loop at the fixed rate.
    open: Report,
}

/// The cold files that the server sent meanwhile, and the activity of the device.
#[derive(Serialize)]
struct Cold {
    report: Report,
    device: Activity,
}

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Hot,
    beside_reader: Hot,
    under_cold: Hot,
    /// During the closed and the open loop.
    cold: [Cold; 2],
    /// The longest stall of the event loop, as the upper edge of its histogram bucket; Levity only.
    loop_stall_seconds: Option<f64>,
}

/// Runs the workload. The panel is its part of the picture for both disks.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<(Outcome, Panel)> {
    let measured = measure(rig, rows, run, None)?;
    let panel = panel(rig, &measured);
    let outcome = Outcome {
        name: "huc".into(),
        caption: caption(run) + NGINX_BEST,
        table: table(rows, &measured),
        picture: Some(kept::svg(std::slice::from_ref(&panel))),
        passes: to_json(&measured)?,
    };
    Ok((outcome, panel))
}

/// Measures all rows in all passes. `cold_rate` is in files per second; None for as many as the server sends.
///
/// # Errors
/// The rig or a server fails.
pub fn measure(
    rig: &Rig,
    rows: &[Row],
    run: &Run,
    cold_rate: Option<u32>,
) -> Result<Vec<Measured<Pass>>> {
    interleaved(rows, run.passes, |row, pass| {
        let loads = Loads {
            rig,
            run,
            pass,
            set: COLD_SETS[0],
            cold_rate,
        };
        Bench { loads }.measure(row)
    })
}

struct Bench<'a> {
    loads: Loads<'a>,
}

impl Bench<'_> {
    fn measure(&self, row: &Row) -> Result<Pass> {
        let server = Server::start(self.loads.rig, row)?;
        if row.is_filled() {
            server.fill_cache_of_open_files(self.loads.rig, &self.loads.set)?;
        }
        let before = server.metrics()?;
        let alone = Hot {
            closed: self.alone(&server, Loop::Closed)?,
            open: self.alone(&server, Loop::Open)?,
        };
        let (closed, cold_closed) = self.under_cold(&server, Loop::Closed)?;
        let (open, cold_open) = self.under_cold(&server, Loop::Open)?;
        let after = server.metrics()?;
        let beside_reader = Hot {
            closed: self.beside_reader(&server, Loop::Closed, &cold_closed)?,
            open: self.beside_reader(&server, Loop::Open, &cold_open)?,
        };
        let stall = after
            .zip(before)
            .and_then(|(after, before)| after.highest_since(&before, "levity_loop_stall_seconds"));
        Ok(Pass {
            alone,
            beside_reader,
            under_cold: Hot { closed, open },
            cold: [cold_closed, cold_open],
            loop_stall_seconds: stall,
        })
    }

    fn hot(&self, server: &Server, kind: Loop) -> Load {
        let mut load = self.loads.hot(server, kind);
        load.warm_up = WARM_UP;
        load
    }

    fn alone(&self, server: &Server, kind: Loop) -> Result<Report> {
        self.hot(server, kind).measure(self.loads.rig.load_cpu())
    }

    fn under_cold(&self, server: &Server, kind: Loop) -> Result<(Report, Cold)> {
        let rig = self.loads.rig;
        let mut cold = self.loads.cold(server, kind)?;
        cold.seconds += WARM_UP;
        self.loads.cool_down(server)?;
        let before = rig.device.sample()?;
        let mut cold = cold.start(rig.load_cpu())?;
        let mut hot = self.hot(server, kind).start(rig.load_cpu())?;
        let (hot_report, report) = (hot.report()?, cold.report()?);
        let device = rig.device.activity_since(&before)?;
        cold.drained()?;
        hot.drained()?;
        Ok((hot_report, Cold { report, device }))
    }

    /// The same files at the same rate, read by another process.
    fn beside_reader(&self, server: &Server, kind: Loop, cold: &Cold) -> Result<Report> {
        let rig = self.loads.rig;
        let mut walk = Walk::new(&rig.docroot, &self.loads.cold_list(kind)?);
        walk.seconds = self.loads.run.seconds + WARM_UP;
        walk.rate = Some(cold.report.requests_per_second().max(1.0));
        self.loads.cool_down(server)?;
        let reader = walk.start(rig.load_cpu())?;
        let hot = self.alone(server, kind)?;
        reader.report()?;
        Ok(hot)
    }
}

/// What the table shows.
#[must_use]
pub fn caption(run: &Run) -> String {
    format!(
        "Hot under cold: a 4 KB file from memory, in a closed loop on {CLOSED_CONNECTIONS} connections (requests/s) and in an \
         open loop at {rate} requests/s on {OPEN_CONNECTIONS} connections (p99, from the intended start), while \
         {COLD_CLIENTS} clients fetch cold 100 KB files, each once. Baseline: the same while another process reads the \
         same files at the same rate. Bar: {KEPT_MIN} of the baseline kept; p99 at most {P99_FACTOR_MAX} times alone or \
         1 ms; Levity's loop never waits over 5 ms. One worker each; median of {passes} interleaved passes of \
         {seconds} s (lowest to highest).",
        rate = run.rate,
        passes = run.passes,
        seconds = run.seconds,
    )
}

/// The figures of each row, and whether the bars are met.
#[must_use]
pub fn table(rows: &[Row], measured: &[Measured<Pass>]) -> Table {
    let mut table = Table::new(&[
        "server",
        "alone req/s",
        "beside a reader req/s",
        "under cold req/s",
        "kept",
        "p99 alone",
        "p99 beside a reader",
        "p99 under cold",
        "cold MB/s",
        "disk busy",
        "loop stall <=",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(measured) {
        table.push(cells(row, measured));
    }
    table
}

fn cells(row: &Row, measured: &Measured<Pass>) -> Vec<String> {
    let figures = Figures::of(measured);
    vec![
        measured.server.clone(),
        measured
            .spread(|pass| pass.alone.closed.requests_per_second())
            .show(number),
        figures.beside_reader.show(number),
        figures.under_cold.show(number),
        figures.kept.show(number),
        figures.p99_alone.show(time_us),
        measured
            .spread(|pass| pass.beside_reader.open.latency.p99_us)
            .show(time_us),
        figures.p99_under_cold.show(time_us),
        measured
            .spread(|pass| pass.cold[0].report.bytes_per_second() / 1e6)
            .show(number),
        measured
            .spread(|pass| pass.cold[0].device.utilisation * 100.0)
            .show(|percent| format!("{percent:.0} %")),
        figures.stall_seconds.map_or("-".into(), |seconds| {
            format!("{} ms", number(seconds * 1000.0))
        }),
        figures.verdict(row.is_levity()),
    ]
}

/// The figures that the bars apply to.
struct Figures {
    beside_reader: Spread,
    under_cold: Spread,
    kept: Spread,
    p99_alone: Spread,
    p99_under_cold: Spread,
    stall_seconds: Option<f64>,
    errors: u64,
}

impl Figures {
    fn of(measured: &Measured<Pass>) -> Self {
        let beside_reader = |pass: &Pass| pass.beside_reader.closed.requests_per_second();
        let under_cold = |pass: &Pass| pass.under_cold.closed.requests_per_second();
        let stalls = measured
            .passes
            .iter()
            .filter_map(|pass| pass.loop_stall_seconds);
        Self {
            beside_reader: measured.spread(beside_reader),
            under_cold: measured.spread(under_cold),
            kept: measured.spread(|pass| under_cold(pass) / beside_reader(pass)),
            p99_alone: measured.spread(|pass| pass.alone.open.latency.p99_us),
            p99_under_cold: measured.spread(|pass| pass.under_cold.open.latency.p99_us),
            stall_seconds: stalls.max_by(f64::total_cmp),
            errors: measured.passes.iter().map(Pass::errors).sum(),
        }
    }

    /// `pass`, or the bars that are missed.
    fn verdict(&self, is_levity: bool) -> String {
        let p99_max = (self.p99_alone.median * P99_FACTOR_MAX).max(P99_US_ALWAYS_FINE);
        let stalled = self
            .stall_seconds
            .is_none_or(|seconds| seconds > STALL_SECONDS_MAX);
        let bars = [
            (is_below(self.kept.median, KEPT_MIN), "throughput"),
            (is_above(self.p99_under_cold.median, p99_max), "p99"),
            (is_levity && stalled, "stall"),
        ];
        verdict(&bars, self.errors)
    }
}

impl Pass {
    fn errors(&self) -> u64 {
        let hot = [&self.alone, &self.beside_reader, &self.under_cold];
        let hot: u64 = hot
            .iter()
            .map(|hot| hot.closed.errors + hot.open.errors)
            .sum();
        hot + self.cold.iter().map(|cold| cold.report.errors).sum::<u64>()
    }
}

fn panel(rig: &Rig, measured: &[Measured<Pass>]) -> Panel {
    let kept = |row: &Measured<Pass>| {
        let figures = Figures::of(row);
        Kept {
            server: row.server.clone(),
            share: figures.kept.median,
            p99_us: figures.p99_under_cold.median,
        }
    };
    let speed = rig.calibration.iter().map(|at| at.reads_per_second);
    Panel {
        disk: match speed.reduce(f64::max) {
            Some(reads) => format!("slow disk, {} reads/s", number(reads)),
            None => "the machine's disk".into(),
        },
        rows: measured.iter().map(kept).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(
        kept: f64,
        p99_alone: f64,
        p99_under_cold: f64,
        stall_seconds: Option<f64>,
    ) -> Figures {
        let one = |value: f64| Spread::of([value]);
        Figures {
            beside_reader: one(1.0),
            under_cold: one(kept),
            kept: one(kept),
            p99_alone: one(p99_alone),
            p99_under_cold: one(p99_under_cold),
            stall_seconds,
            errors: 0,
        }
    }

    #[test]
    fn the_bars_of_the_design() {
        assert_eq!(figures(0.9, 100.0, 999.0, None).verdict(false), "pass");
        assert_eq!(
            figures(0.95, 600.0, 1100.0, Some(0.005)).verdict(true),
            "pass"
        );
        assert_eq!(
            figures(0.89, 100.0, 1001.0, None).verdict(false),
            "missed: throughput, p99"
        );
        assert_eq!(
            figures(1.0, 100.0, 100.0, Some(0.01)).verdict(true),
            "missed: stall"
        );
    }

    #[test]
    fn levity_without_a_stall_metric_fails() {
        assert_eq!(
            figures(1.0, 100.0, 100.0, None).verdict(true),
            "missed: stall"
        );
    }
}
