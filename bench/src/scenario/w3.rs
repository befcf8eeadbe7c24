//! W3: cold files of 100 000 and 100 001 bytes, each once, 64 at a time, against the walker.

use super::cold::Side;
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{COLD_SETS, ColdSet};
use crate::walk::Walk;
use serde::Serialize;

const CLIENTS: usize = 64;
/// Longer than any pass takes.
const SECONDS_MAX: f64 = 600.0;
/// The walker's reads per second are not known before; a pass of S seconds gets this many files for
/// each of them, which is what the slow disk can do.
const FILES_PER_SECOND: f64 = 260.0;
/// The bar of the design.
const E_MIN: f64 = 0.95;

/// One row in one pass and with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    server: Side,
    /// Right before, on the same files.
    walker: Side,
}

impl Pass {
    fn e(&self) -> f64 {
        self.server.report.bytes_per_second() / self.walker.report.bytes_per_second()
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
        "E",
        "MB/s",
        "walker MB/s",
        "p50",
        "p99",
        "slowest",
        "disk busy",
        "read / sent",
        "bar",
    ]);
    let mut all = Vec::new();
    for set in COLD_SETS {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, set, pass, run.seconds)
        })?;
        measured.iter().for_each(|row| table.push(cells(row, set)));
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w3".into(),
        caption: format!(
            "Cold files, each once, {CLIENTS} at a time, caches dropped before each pass. E: the server's body bytes/s over \
             those of a walker that opens, stats, reads and closes the same files with {CLIENTS} threads on the server's CPU right before. \
             Bar: E >= {E_MIN}. nginx-best-filled need not \
             open files, which the walker does, so its E is above what a first visit allows. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, set: ColdSet, pass: u64, seconds: f64) -> Result<Pass> {
    let count = files_of_a_pass(rig, set, seconds);
    let list = rig.list(&set, pass, count)?;
    let walk = Walk::new(&rig.docroot, &list);
    let walker = Side::measure(rig, || walk.start(rig.server_cpu())?.report())?;
    let server = Server::start(rig, row)?;
    if row.is_filled() {
        server.fill_cache_of_open_files(rig, &set)?;
    }
    let mut load = Load::new(server.address, "", CLIENTS, SECONDS_MAX);
    load.list = Some(list);
    load.body_bytes = Some(set.bytes as u64);
    let server = Side::measure(rig, || load.measure(rig.load_cpu()))?;
    Ok(Pass {
        bytes: set.bytes,
        server,
        walker,
    })
}

/// The whole set on a real disk, where even that is a matter of a second.
fn files_of_a_pass(rig: &Rig, set: ColdSet, seconds: f64) -> usize {
    if !rig.is_slow() {
        return set.files;
    }
    ((seconds * FILES_PER_SECOND) as usize).clamp(CLIENTS, set.files)
}

fn cells(row: &Measured<Pass>, set: ColdSet) -> Vec<String> {
    let e = row.spread(Pass::e);
    let errors: u64 = row
        .passes
        .iter()
        .map(|pass| pass.server.report.errors)
        .sum();
    vec![
        row.server.clone(),
        set.bytes.to_string(),
        e.show(number),
        row.spread(|pass| pass.server.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.walker.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.server.report.latency.p50_us)
            .show(time_us),
        row.spread(|pass| pass.server.report.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.server.report.latency.max_us)
            .show(time_us),
        row.spread(|pass| pass.server.device.utilisation * 100.0)
            .show(|percent| format!("{percent:.0} %")),
        row.spread(|pass| pass.server.over_read()).show(number),
        match (errors, e.median >= E_MIN) {
            (0, true) => "pass".into(),
            (0, false) => "missed".into(),
            _ => format!("{errors} errors"),
        },
    ]
}
