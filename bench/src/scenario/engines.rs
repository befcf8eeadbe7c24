//! Engines: cold files of four sizes on the machine's own disk, and what a megabyte costs with each engine.

use super::cold::Side;
use super::{BASELINE, Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{FileSet, SIZE_SETS, STREAMS};
use serde::Serialize;

const CLIENTS: usize = 64;
const STREAM_CLIENTS: usize = 10;
/// Longer than any pass, unless a server leaves a request without a response.
const SECONDS_MAX: f64 = 30.0;
/// The engine that is judged. It may not choose that of the baseline.
const AUTO: &str = "levity auto";
/// The bars, relative to the best of the other engines that never block their loop.
const CPU_RATIO_MAX: f64 = 1.1;
const THROUGHPUT_RATIO_MIN: f64 = 0.9;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    side: Side,
    /// CPU seconds of the server's control group.
    processor_seconds: f64,
    /// The part of it in user space.
    user_seconds: f64,
}

impl Pass {
    fn bytes_per_second(&self) -> f64 {
        self.side.report.bytes_per_second()
    }

    fn us_per_megabyte(&self) -> f64 {
        self.processor_seconds * 1e12 / self.side.report.body_bytes as f64
    }

    fn user_us_per_megabyte(&self) -> f64 {
        self.user_seconds * 1e12 / self.side.report.body_bytes as f64
    }

    fn us_per_file(&self) -> f64 {
        self.us_per_megabyte() * self.bytes as f64 / 1e6
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
        "clients",
        "CPU us/MB",
        "user us/MB",
        "CPU us/file",
        "MB/s",
        "p50",
        "p99",
        "read / sent",
        "bar",
    ]);
    let mut all = Vec::new();
    for set in SIZE_SETS {
        let measured = interleaved(rows, run.passes, |row, pass| measure(rig, row, set, pass))?;
        for row in &measured {
            table.push(cells(row, &measured, set));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "engines".into(),
        caption: format!(
            "Cold files on the machine's own disk, each once, caches dropped before each pass. One worker; its threads \
             and the loop share one CPU. CPU time is that of the server's control group, opens and kernel work included. \
             Bars of `auto`, relative to the best of the other engines that do not block the loop: CPU time at most \
             {CPU_RATIO_MAX}, MB/s at least {THROUGHPUT_RATIO_MIN}. A pass ends after {SECONDS_MAX} s; requests without \
             a response are errors. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn clients(set: FileSet) -> usize {
    if set == STREAMS {
        STREAM_CLIENTS
    } else {
        CLIENTS
    }
}

fn measure(rig: &Rig, row: &Row, set: FileSet, pass: u64) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let mut load = Load::new(server.address, "", clients(set), SECONDS_MAX);
    load.list = Some(rig.list(&set, pass, set.files)?);
    load.body_bytes = Some(set.bytes as u64);
    load.discard = true;
    let before = server.group.cpu_usage()?;
    let side = Side::measure(rig, || load.measure(rig.load_cpu()))?;
    let used = server.group.cpu_usage()?.since(&before);
    Ok(Pass {
        bytes: set.bytes,
        side,
        processor_seconds: used.total.as_secs_f64(),
        user_seconds: used.user.as_secs_f64(),
    })
}

fn cells(row: &Measured<Pass>, all: &[Measured<Pass>], set: FileSet) -> Vec<String> {
    let figure = |figure: fn(&Pass) -> f64| row.spread(figure).show(number);
    vec![
        row.server.clone(),
        set.bytes.to_string(),
        clients(set).to_string(),
        figure(Pass::us_per_megabyte),
        figure(Pass::user_us_per_megabyte),
        figure(Pass::us_per_file),
        figure(|pass| pass.bytes_per_second() / 1e6),
        row.spread(|pass| pass.side.report.latency.p50_us)
            .show(time_us),
        row.spread(|pass| pass.side.report.latency.p99_us)
            .show(time_us),
        figure(|pass| pass.side.over_read()),
        bars(row, all),
    ]
}

/// The verdict on `auto`; other rows have only errors.
fn bars(row: &Measured<Pass>, all: &[Measured<Pass>]) -> String {
    let errors = row.total(|pass| pass.side.report.errors + pass.side.report.unfinished);
    if row.server != AUTO {
        return if errors == 0 {
            "-".into()
        } else {
            verdict(&[], errors)
        };
    }
    let others = || {
        all.iter().filter(|other| {
            other.server.starts_with("levity ") && ![AUTO, BASELINE].contains(&&*other.server)
        })
    };
    let ratios = |figure: fn(&Pass) -> f64| {
        others().map(move |other| row.spread_of_ratio(other, figure).median)
    };
    let cpu = ratios(Pass::us_per_megabyte).fold(0.0, f64::max);
    let throughput = ratios(Pass::bytes_per_second).fold(f64::INFINITY, f64::min);
    let bars = [
        (is_above(cpu, CPU_RATIO_MAX), "CPU time"),
        (is_below(throughput, THROUGHPUT_RATIO_MIN), "throughput"),
    ];
    verdict(&bars, errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Report;
    use crate::rig::device::Activity;

    fn row(server: &str, processor_seconds: f64, seconds: f64) -> Measured<Pass> {
        let report = Report {
            seconds,
            body_bytes: 1_000_000_000,
            ..Report::default()
        };
        let side = Side {
            report,
            device: Activity::default(),
        };
        Measured {
            server: server.into(),
            passes: vec![Pass {
                bytes: 1_000_000,
                side,
                processor_seconds,
                user_seconds: 0.0,
            }],
        }
    }

    #[test]
    fn auto_is_compared_with_the_best_engine_that_does_not_block() {
        let others = [
            row("levity threads", 1.0, 1.0),
            row("levity io_uring", 0.8, 1.25),
            row("levity sendfile", 0.1, 0.1),
            row("nginx-best", 0.1, 0.1),
        ];
        let of_auto = |cpu, seconds| bars(&row(AUTO, cpu, seconds), &others);
        assert_eq!(of_auto(0.85, 1.1), "pass");
        assert_eq!(of_auto(1.0, 1.0), "missed: CPU time");
        assert_eq!(of_auto(0.85, 1.2), "missed: throughput");
        assert_eq!(bars(&others[0], &others), "-");
        assert_eq!(others[0].passes[0].us_per_file(), 1000.0);
    }
}
