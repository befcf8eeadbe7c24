//! Engines: cold files of five sizes on the machine's own disk, and what they cost with each engine, with the peers and
//! with a program that does nothing else.

use super::cold::Side;
use super::{BASELINE, Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::spread::Spread;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{BLOCKS, FAST_SETS, FileSet, IMAGES, LARGE, SIZE_SETS, STREAMS};
use serde::Serialize;

const CLIENTS: usize = 100;
const STREAM_CLIENTS: usize = 10;
/// Longer than any pass, unless a server leaves a request without a response.
const SECONDS_MAX: f64 = 30.0;
/// The engine that is judged. It may not choose that of the baseline.
const AUTO: &str = "levity auto";
/// The bars, relative to the best of the other engines that never block their loop.
const CPU_RATIO_MAX: f64 = 1.1;
const THROUGHPUT_RATIO_MIN: f64 = 0.9;
/// The peer that is judged against.
const NGINX: &str = "nginx-threads";
/// The bars for the CPU time of `auto` with files of each size, relative to [`NGINX`].
const OF_NGINX_MAX: [(FileSet, f64); 4] = [
    (BLOCKS, 0.95),
    (FAST_SETS[0], 0.85),
    (IMAGES, 0.95),
    (LARGE, 0.95),
];
/// The same, relative to [`Row::BARE_FILES`].
const OF_BARE_MAX: [(FileSet, f64); 1] = [(FAST_SETS[0], 1.3)];

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
        "of nginx",
        "of bare",
        "MB/s",
        "p50",
        "p99",
        "read / sent",
        "bar",
    ]);
    let mut all = Vec::new();
    let rows: Vec<Row> = rows
        .iter()
        .cloned()
        .chain([Row::bare_files(rig)?])
        .collect();
    for set in SIZE_SETS {
        let measured = interleaved(&rows, run.passes, |row, pass| measure(rig, row, set, pass))?;
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
             \"{bare}\" is a program with a thread for each connection that opens, sends and closes. \"of nginx\" and \
             \"of bare\" are the CPU time relative to {NGINX} and to it, pass by pass. Bars of `auto`, relative to the \
             best of the other engines that do not block the loop: CPU time at most {CPU_RATIO_MAX}, MB/s at least \
             {THROUGHPUT_RATIO_MIN}; of nginx: {of_nginx}; of bare: {of_bare}. A pass ends after {SECONDS_MAX} s; requests without \
             a response are errors. Median of {} interleaved passes (lowest to highest).",
            run.passes,
            bare = Row::BARE_FILES,
            of_nginx = listed(&OF_NGINX_MAX),
            of_bare = listed(&OF_BARE_MAX),
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn listed(bars: &[(FileSet, f64)]) -> String {
    let bars = bars
        .iter()
        .map(|(set, max)| format!("at most {max} with {} bytes", set.bytes));
    bars.collect::<Vec<_>>().join(", ")
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
        relative(row, all, NGINX).map_or("-".into(), |ratio| ratio.show(number)),
        relative(row, all, Row::BARE_FILES).map_or("-".into(), |ratio| ratio.show(number)),
        figure(|pass| pass.bytes_per_second() / 1e6),
        row.spread(|pass| pass.side.report.latency.p50_us)
            .show(time_us),
        row.spread(|pass| pass.side.report.latency.p99_us)
            .show(time_us),
        figure(|pass| pass.side.over_read()),
        bars(row, all, set),
    ]
}

/// The CPU time relative to the row with this name, if it is another one that was measured.
fn relative(row: &Measured<Pass>, all: &[Measured<Pass>], to: &str) -> Option<Spread> {
    let to = all.iter().find(|other| other.server == to)?;
    (to.server != row.server).then(|| row.spread_of_ratio(to, Pass::us_per_megabyte))
}

/// Whether the CPU time relative to the row with this name is above the bar for this size, if there is one.
fn exceeds(
    row: &Measured<Pass>,
    all: &[Measured<Pass>],
    to: &str,
    bars: &[(FileSet, f64)],
    set: FileSet,
) -> bool {
    let bar = bars.iter().find(|(of, _)| *of == set);
    let ratio = relative(row, all, to);
    ratio
        .zip(bar)
        .is_some_and(|(ratio, (_, max))| is_above(ratio.median, *max))
}

/// The verdict on `auto`; other rows have only errors.
fn bars(row: &Measured<Pass>, all: &[Measured<Pass>], set: FileSet) -> String {
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
        (exceeds(row, all, NGINX, &OF_NGINX_MAX, set), "nginx"),
        (
            exceeds(row, all, Row::BARE_FILES, &OF_BARE_MAX, set),
            "bare",
        ),
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
        let of_auto = |cpu, seconds| bars(&row(AUTO, cpu, seconds), &others, STREAMS);
        assert_eq!(of_auto(0.85, 1.1), "pass");
        assert_eq!(of_auto(1.0, 1.0), "missed: CPU time");
        assert_eq!(of_auto(0.85, 1.2), "missed: throughput");
        assert_eq!(bars(&others[0], &others, STREAMS), "-");
        assert_eq!(others[0].passes[0].us_per_file(), 1000.0);
    }

    #[test]
    fn auto_is_compared_with_nginx_and_the_bare_server() {
        let others = [row(NGINX, 1.0, 1.0), row(Row::BARE_FILES, 0.6, 1.0)];
        let of_auto = |cpu, set| bars(&row(AUTO, cpu, 1.0), &others, set);
        assert_eq!(of_auto(0.77, FAST_SETS[0]), "pass");
        assert_eq!(of_auto(0.8, FAST_SETS[0]), "missed: bare");
        assert_eq!(of_auto(0.9, FAST_SETS[0]), "missed: nginx, bare");
        assert_eq!(of_auto(0.96, LARGE), "missed: nginx");
        assert_eq!(of_auto(2.0, STREAMS), "pass");
    }
}
