//! HUC-N, hot under cold on a fast disk: the machine's own, where not the disk but the processor is short.
//!
//! The cold files take their share of the server's processor, so the hot file cannot keep everything. What is measured
//! is whether cold work takes more than its share, and whether a hot request waits for it. There are two groups of rows:
//! one worker on one CPU, and two workers with a quota of one processor.

use super::cost::{Cost, WARM_UP};
use super::hot_and_cold::{CLOSED_CONNECTIONS, COLD_CLIENTS, Loads, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::kept::{self, Kept, Panel};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::FAST_SETS;
use serde::Serialize;

/// The workers and the quota of the second group of rows.
const QUOTA_WORKERS: usize = 2;
const QUOTA: f64 = 1.0;
/// The bars of the design: share of the hot and of the cold throughput kept, and latency in microseconds.
const KEPT_MIN: f64 = 0.85;
const P99_US_MAX: f64 = 2000.0;
const COLD_MIN: f64 = 0.8;
/// A shorter cold load has read all its files.
const COLD_SECONDS_MIN: f64 = 0.99;

/// The hot file in one situation.
#[derive(Serialize)]
struct Hot {
    /// Closed loop on a few connections.
    closed: Cost,
    /// Open loop at the fixed rate.
    open: Cost,
}

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    has_quota: bool,
    alone: Hot,
    cold_alone: Cost,
    with_cold: Hot,
    /// During the closed and the open loop.
    cold: [Report; 2],
}

/// Runs the workload. The panel is its part of the picture for both disks.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<(Outcome, Panel)> {
    let mut all = rows.to_vec();
    let with_quota = |row: &Row| row.with_workers(QUOTA_WORKERS).with_processors_max(QUOTA);
    all.extend(rows.iter().map(with_quota));
    let measured = interleaved(&all, run.passes, |row, pass| {
        let set = FAST_SETS[0];
        let loads = Loads {
            cold_rate: None,
            rig,
            run,
            pass,
            set,
        };
        Bench { loads }.measure(row)
    })?;
    let mut table = Table::new(&[
        "server",
        "its CPU",
        "hot alone req/s",
        "with cold req/s",
        "kept",
        "at most",
        "p50 alone",
        "p50 with cold",
        "p99 alone",
        "p99 with cold",
        "cold MB/s alone",
        "cold MB/s with hot",
        "of alone",
        "CPUs used: hot",
        "cold",
        "both",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row, run)));
    let fastest = measured
        .iter()
        .map(|row| row.spread(|pass| megabytes(&pass.cold_alone.report)).median)
        .fold(0.0, f64::max);
    let panel = Panel {
        disk: format!("the machine's own disk, {} MB/s", number(fastest)),
        rows: measured[..rows.len()].iter().map(kept).collect(),
    };
    let outcome = Outcome {
        name: "huc-n".into(),
        caption: caption(run),
        table,
        picture: Some(kept::svg(std::slice::from_ref(&panel))),
        passes: to_json(&measured)?,
    };
    Ok((outcome, panel))
}

struct Bench<'a> {
    loads: Loads<'a>,
}

impl Bench<'_> {
    fn measure(&self, row: &Row) -> Result<Pass> {
        let server = Server::start(self.loads.rig, row)?;
        let alone = Hot {
            closed: self.cost(&server, self.loads.hot(&server, Loop::Closed))?,
            open: self.cost(&server, self.loads.hot(&server, Loop::Open))?,
        };
        self.loads.cool_down(&server)?;
        let cold_alone = self.cost(&server, self.cold(&server, Loop::Closed)?)?;
        let (closed, cold_closed) = self.with_cold(&server, Loop::Closed)?;
        let (open, cold_open) = self.with_cold(&server, Loop::Open)?;
        Ok(Pass {
            has_quota: row.has_quota(),
            alone,
            cold_alone,
            with_cold: Hot { closed, open },
            cold: [cold_closed, cold_open],
        })
    }

    fn cost(&self, server: &Server, load: Load) -> Result<Cost> {
        Cost::measure(self.loads.rig, server, load)
    }

    /// The clients discard the bodies, so that the CPU of the load has time for the hot file.
    fn cold(&self, server: &Server, kind: Loop) -> Result<Load> {
        let mut load = self.loads.cold(server, kind)?;
        load.warm_up = WARM_UP.as_secs_f64();
        load.discard = true;
        load.abandon = true;
        Ok(load)
    }

    fn with_cold(&self, server: &Server, kind: Loop) -> Result<(Cost, Report)> {
        self.loads.cool_down(server)?;
        let mut cold = self.cold(server, kind)?.start(self.loads.rig.load_cpu())?;
        let hot = self.cost(server, self.loads.hot(server, kind))?;
        Ok((hot, cold.report()?))
    }
}

impl Pass {
    fn kept(&self) -> f64 {
        requests(&self.with_cold.closed) / requests(&self.alone.closed)
    }

    fn cold_kept(&self) -> f64 {
        self.cold[0].wire_bytes_per_second() / self.cold_alone.report.wire_bytes_per_second()
    }

    /// The share of the hot throughput that the CPU time allows: what is left of the server's processor and of the
    /// load's, if a cold byte costs what it costs without hot requests.
    fn kept_max(&self) -> f64 {
        let share = self.cold_kept();
        let left = |hot: f64, cold: f64| (1.0 - cold * share) / hot;
        let server = left(self.alone.closed.processors, self.cold_alone.processors);
        let load = left(
            self.alone.closed.report.processors(),
            self.cold_alone.report.processors(),
        );
        server.min(load).clamp(0.0, 1.0)
    }

    fn errors(&self) -> u64 {
        let costs = [
            &self.alone.closed,
            &self.alone.open,
            &self.cold_alone,
            &self.with_cold.closed,
            &self.with_cold.open,
        ];
        let reports = costs.into_iter().map(|cost| &cost.report);
        reports.chain(&self.cold).map(|report| report.errors).sum()
    }

    /// Whether all cold files were read before the end of a measurement.
    fn ran_out(&self, seconds: f64) -> bool {
        let reports = self.cold.iter().chain([&self.cold_alone.report]);
        reports
            .into_iter()
            .any(|report| report.seconds < seconds * COLD_SECONDS_MIN)
    }
}

fn megabytes(report: &Report) -> f64 {
    report.wire_bytes_per_second() / 1e6
}

fn requests(cost: &Cost) -> f64 {
    cost.report.requests_per_second()
}

fn kept(row: &Measured<Pass>) -> Kept {
    Kept {
        server: row.server.clone(),
        share: row.spread(Pass::kept).median,
        p99_us: row
            .spread(|pass| pass.with_cold.open.report.latency.p99_us)
            .median,
    }
}

fn caption(run: &Run) -> String {
    format!(
        "Hot under cold on the machine's own disk: a 4 KB file from memory, in a closed loop on {CLOSED_CONNECTIONS} \
         connections (requests/s) and in an open loop at {rate} requests/s on {OPEN_CONNECTIONS} connections (p50 and \
         p99, from the intended start), alone and while {COLD_CLIENTS} clients fetch cold 100 KB files, each once. Cold \
         MB/s: those during the closed loop, and without hot requests. \"CPU 0\" is one worker on one CPU, \"quota\" two \
         workers on any CPU with a quota of {QUOTA} processor for the server. The cold files need CPU time of the \
         server and of the load generator, both of which the closed loop uses up: \"at most\" is the share of the hot \
         throughput that is left if a cold byte costs what it costs alone. Bars: {KEPT_MIN} of the hot requests/s kept, \
         p99 at most {p99}, {COLD_MIN} of the cold MB/s. Median of {passes} interleaved passes of {seconds} s (lowest \
         to highest).",
        rate = run.rate,
        p99 = time_us(P99_US_MAX),
        passes = run.passes,
        seconds = run.seconds,
    )
}

fn cells(row: &Measured<Pass>, run: &Run) -> Vec<String> {
    let latency = |of: fn(&Pass) -> &Hot| {
        let latency = move |pass: &Pass| of(pass).open.report.latency;
        [
            row.spread(|pass| latency(pass).p50_us),
            row.spread(|pass| latency(pass).p99_us),
        ]
    };
    let [p50_alone, p99_alone] = latency(|pass| &pass.alone);
    let [p50, p99] = latency(|pass| &pass.with_cold);
    let (kept, cold_kept) = (row.spread(Pass::kept), row.spread(Pass::cold_kept));
    let ran_out = row.passes.iter().any(|pass| pass.ran_out(run.seconds));
    let has_quota = row.passes.iter().any(|pass| pass.has_quota);
    let bars = bars(kept.median, p99.median, cold_kept.median, ran_out);
    vec![
        row.server.clone(),
        if has_quota { "quota" } else { "CPU 0" }.into(),
        row.spread(|pass| requests(&pass.alone.closed)).show(number),
        row.spread(|pass| requests(&pass.with_cold.closed))
            .show(number),
        kept.show(number),
        row.spread(Pass::kept_max).show(number),
        p50_alone.show(time_us),
        p50.show(time_us),
        p99_alone.show(time_us),
        p99.show(time_us),
        row.spread(|pass| megabytes(&pass.cold_alone.report))
            .show(number),
        row.spread(|pass| megabytes(&pass.cold[0])).show(number),
        cold_kept.show(number),
        row.spread(|pass| pass.alone.closed.processors).show(number),
        row.spread(|pass| pass.cold_alone.processors).show(number),
        row.spread(|pass| pass.with_cold.closed.processors)
            .show(number),
        verdict(&bars, row.total(Pass::errors)),
    ]
}

fn bars(kept: f64, p99_us: f64, cold_kept: f64, ran_out: bool) -> [(bool, &'static str); 4] {
    [
        (is_below(kept, KEPT_MIN), "throughput"),
        (is_above(p99_us, P99_US_MAX), "p99"),
        (is_below(cold_kept, COLD_MIN), "cold"),
        (ran_out, "too few cold files for the time"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hot` requests and `cold` bytes per second, of a server and a load with these CPUs.
    fn cost(requests: u64, wire_bytes: u64, [server, load]: [f64; 2]) -> Cost {
        Cost {
            report: report(requests, wire_bytes, load),
            processors: server,
            user: 0.0,
        }
    }

    fn report(requests: u64, wire_bytes: u64, cpu_seconds: f64) -> Report {
        Report {
            requests,
            wire_bytes,
            cpu_seconds,
            seconds: 1.0,
            ..Report::default()
        }
    }

    fn pass(load_alone: f64) -> Pass {
        let hot = |requests, load| Hot {
            closed: cost(requests, 0, [1.0, load]),
            open: cost(2000, 0, [0.1, 0.1]),
        };
        Pass {
            has_quota: false,
            alone: hot(100, load_alone),
            cold_alone: cost(0, 500, [0.25, 0.2]),
            with_cold: hot(70, 0.7),
            cold: [report(0, 400, 0.1), report(0, 400, 0.1)],
        }
    }

    #[test]
    fn cold_files_take_their_share_of_the_cpu_time() {
        let pass = pass(0.5);
        assert!((pass.kept() - 0.7).abs() < 1e-9 && (pass.cold_kept() - 0.8).abs() < 1e-9);
        assert!((pass.kept_max() - 0.8).abs() < 1e-9, "{}", pass.kept_max());
    }

    #[test]
    fn the_load_generator_may_be_the_limit() {
        let mut load_bound = pass(1.0);
        load_bound.alone.closed.processors = 0.5;
        assert!((load_bound.kept_max() - 0.84).abs() < 1e-9);
        let mut idle = pass(0.5);
        idle.alone.closed.processors = 0.5;
        assert_eq!(idle.kept_max(), 1.0);
    }

    #[test]
    fn the_bars_of_the_design() {
        assert_eq!(verdict(&bars(0.85, 2000.0, 0.8, false), 0), "pass");
        assert_eq!(
            verdict(&bars(0.84, 2001.0, 0.79, true), 0),
            "missed: throughput, p99, cold, too few cold files for the time"
        );
    }

    #[test]
    fn files_that_run_out_are_noticed() {
        assert!(!pass(0.5).ran_out(1.0) && pass(0.5).ran_out(1.1));
    }
}
