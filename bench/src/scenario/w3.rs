//! W3: cold files of 100 000 and 100 001 bytes, each once, 64 at a time, compared with the walker.

use super::cold::Sides;
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{COLD_SETS, FileSet};
use serde::Serialize;

const CLIENTS: usize = 64;
/// Files per second of a pass: the speed of the slow disk. The speed of the walker is not known in advance.
const FILES_PER_SECOND: f64 = 260.0;
/// The bar of the design.
const E_MIN: f64 = 0.95;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    #[serde(flatten)]
    sides: Sides,
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

fn measure(rig: &Rig, row: &Row, set: FileSet, pass: u64, seconds: f64) -> Result<Pass> {
    let count = files_of_a_pass(rig, set, seconds);
    let list = rig.list(&set, pass, count)?;
    let start = || {
        let server = Server::start(rig, row)?;
        if row.is_filled() {
            server.fill_cache_of_open_files(rig, &set)?;
        }
        Ok(server)
    };
    Ok(Pass {
        bytes: set.bytes,
        sides: Sides::measure(rig, list, set.bytes, CLIENTS, start)?,
    })
}

/// On a real disk the whole set, which takes about a second.
fn files_of_a_pass(rig: &Rig, set: FileSet, seconds: f64) -> usize {
    if !rig.is_slow() {
        return set.files;
    }
    ((seconds * FILES_PER_SECOND) as usize).clamp(CLIENTS, set.files)
}

fn cells(row: &Measured<Pass>, set: FileSet) -> Vec<String> {
    let e = row.spread(|pass| pass.sides.e());
    let errors: u64 = row
        .passes
        .iter()
        .map(|pass| pass.sides.server.report.errors)
        .sum();
    vec![
        row.server.clone(),
        set.bytes.to_string(),
        e.show(number),
        row.spread(|pass| pass.sides.server.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.sides.walker.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.sides.server.report.latency.p50_us)
            .show(time_us),
        row.spread(|pass| pass.sides.server.report.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.sides.server.report.latency.max_us)
            .show(time_us),
        row.spread(|pass| pass.sides.server.device.utilisation * 100.0)
            .show(|percent| format!("{percent:.0} %")),
        row.spread(|pass| pass.sides.server.over_read())
            .show(number),
        match (errors, e.median >= E_MIN) {
            (0, true) => "pass".into(),
            (0, false) => "missed".into(),
            _ => format!("{errors} errors"),
        },
    ]
}
