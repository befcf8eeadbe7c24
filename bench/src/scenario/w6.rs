//! W6: fifty connections for one large hot file, and two hundred for cold files, as in the article that announced the
//! thread pools of nginx.

use super::{Measured, Run, interleaved, percent, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::device::Activity;
use crate::rig::tree::MEGABYTES;
use crate::walk::Walk;
use serde::Serialize;
use std::path::PathBuf;

const HOT_PATH: &str = "/hot/4194304.bin";
const HOT_BYTES: u64 = 4 << 20;
const HOT_CONNECTIONS: usize = 50;
const COLD_CONNECTIONS: usize = 200;
/// Seconds of cold load before the hot measurement.
const WARM_UP: f64 = 0.5;
const HEAT_SECONDS: f64 = 0.3;
/// The bars of the design.
const KEPT_MIN: f64 = 0.9;
const P99_FACTOR_MAX: f64 = 1.2;
const E_MIN: f64 = 0.85;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Report,
    /// While the walker reads the cold files.
    beside_walker: Report,
    walker: Report,
    /// While the server sends them.
    under_cold: Report,
    cold: Report,
    device: Activity,
}

impl Pass {
    fn kept(&self) -> f64 {
        self.under_cold.wire_bytes_per_second() / self.beside_walker.wire_bytes_per_second()
    }

    fn p99_factor(&self) -> f64 {
        self.under_cold.latency.p99_us / self.beside_walker.latency.p99_us
    }

    fn e(&self) -> f64 {
        self.cold.wire_bytes_per_second() / self.walker.bytes_per_second()
    }

    fn errors(&self) -> u64 {
        let reports = [
            &self.alone,
            &self.beside_walker,
            &self.under_cold,
            &self.cold,
        ];
        reports.iter().map(|report| report.errors).sum()
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let measured = interleaved(rows, run.passes, |row, pass| {
        Bench { rig, run, pass }.measure(row)
    })?;
    let mut table = Table::new(&[
        "server",
        "hot alone MB/s",
        "beside the walker MB/s",
        "under cold MB/s",
        "kept",
        "p99 alone",
        "p99 beside the walker",
        "p99 under cold",
        "cold E",
        "cold MB/s",
        "disk busy",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    Ok(Outcome {
        name: "w6".into(),
        caption: caption(run),
        table,
        picture: Some(picture::svg(
            "Megabytes per second of one hot 4 MB file, while others wait for the disk (log scale)",
            [
                "while another process reads the slow disk",
                "while 200 clients fetch cold files from the same server",
            ],
            &measured.iter().map(pair).collect::<Vec<_>>(),
        )),
        passes: to_json(&measured)?,
    })
}

struct Bench<'a> {
    rig: &'a Rig,
    run: &'a Run,
    pass: u64,
}

impl Bench<'_> {
    fn measure(&self, row: &Row) -> Result<Pass> {
        let server = Server::start(self.rig, row)?;
        let alone = self.hot(&server).measure(self.rig.load_cpu())?;
        let (beside_walker, walker) = self.beside_walker(&server)?;
        let (under_cold, cold, device) = self.under_cold(&server)?;
        Ok(Pass {
            alone,
            beside_walker,
            walker,
            under_cold,
            cold,
            device,
        })
    }

    fn hot(&self, server: &Server) -> Load {
        let seconds = self.run.seconds;
        let mut load = Load::new(server.address, HOT_PATH, HOT_CONNECTIONS, seconds);
        load.warm_up = WARM_UP;
        load.body_bytes = Some(HOT_BYTES);
        load
    }

    fn beside_walker(&self, server: &Server) -> Result<(Report, Report)> {
        let mut walk = Walk::new(&self.rig.docroot, &self.cold_list()?);
        walk.seconds = self.run.seconds + WARM_UP;
        self.cool_down(server)?;
        let walker = walk.start(self.rig.load_cpu())?;
        let hot = self.hot(server).measure(self.rig.load_cpu())?;
        Ok((hot, walker.report()?))
    }

    fn under_cold(&self, server: &Server) -> Result<(Report, Report, Activity)> {
        let seconds = self.run.seconds + WARM_UP;
        let mut cold = Load::new(server.address, "", COLD_CONNECTIONS, seconds);
        cold.list = Some(self.cold_list()?);
        cold.body_bytes = Some(MEGABYTES.bytes as u64);
        cold.abandon = true;
        self.cool_down(server)?;
        let before = self.rig.device.sample()?;
        let mut cold = cold.start(self.rig.load_cpu())?;
        let mut hot = self.hot(server).start(self.rig.load_cpu())?;
        let reports = (hot.report()?, cold.report()?);
        Ok((
            reports.0,
            reports.1,
            self.rig.device.activity_since(&before)?,
        ))
    }

    /// Drops the caches and requests the hot file repeatedly: a server may keep files that are requested once out of the
    /// page cache.
    fn cool_down(&self, server: &Server) -> Result<()> {
        self.rig.drop_caches()?;
        Load::new(server.address, HOT_PATH, 1, HEAT_SECONDS)
            .measure(self.rig.load_cpu())
            .map(drop)
    }

    fn cold_list(&self) -> Result<PathBuf> {
        self.rig.list(&MEGABYTES, self.pass, MEGABYTES.files)
    }
}

fn caption(run: &Run) -> String {
    format!(
        "{HOT_CONNECTIONS} connections on one hot file of 4 MiB, in a closed loop, while {COLD_CONNECTIONS} connections fetch \
         cold files of 1 MB, each once (the published test had cold files of 4 MB, which this disk would not finish). \
         Baseline: the same while a walker with 64 threads reads the same cold files. Cold E: what arrived per second \
         over what the walker read. Bars: {KEPT_MIN} of the baseline kept, p99 at most {P99_FACTOR_MAX} times the baseline's, \
         E >= {E_MIN}. One worker each; median of {} interleaved passes of {} s (lowest to highest).",
        run.passes, run.seconds
    )
}

fn hot_megabytes(
    row: &Measured<Pass>,
    report: fn(&Pass) -> &Report,
) -> crate::report::spread::Spread {
    // Fifty times 4 MiB are a large part of a short run, so incomplete responses at its end count too.
    row.spread(|pass| report(pass).wire_bytes_per_second() / 1e6)
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let (kept, p99, e) = (
        row.spread(Pass::kept),
        row.spread(Pass::p99_factor),
        row.spread(Pass::e),
    );
    let bars = [
        (is_below(kept.median, KEPT_MIN), "throughput"),
        (is_above(p99.median, P99_FACTOR_MAX), "p99"),
        (is_below(e.median, E_MIN), "E"),
    ];
    vec![
        row.server.clone(),
        hot_megabytes(row, |pass| &pass.alone).show(number),
        hot_megabytes(row, |pass| &pass.beside_walker).show(number),
        hot_megabytes(row, |pass| &pass.under_cold).show(number),
        kept.show(number),
        row.spread(|pass| pass.alone.latency.p99_us).show(time_us),
        row.spread(|pass| pass.beside_walker.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.under_cold.latency.p99_us)
            .show(time_us),
        e.show(number),
        row.spread(|pass| pass.cold.wire_bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.device.utilisation).show(percent),
        verdict(&bars, row.total(Pass::errors)),
    ]
}

fn pair(row: &Measured<Pass>) -> Pair {
    Pair {
        name: row.server.clone(),
        limit: hot_megabytes(row, |pass| &pass.beside_walker).median,
        measured: hot_megabytes(row, |pass| &pass.under_cold).median,
    }
}
