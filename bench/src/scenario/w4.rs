//! W4: cold files of 4 KB and 1 MB for a thousand connections, with one worker and with two.

use super::cold::{Side, Sides};
use super::{Measured, Run, interleaved, percent, to_json};
use crate::failure::Result;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::{BLOCKS, FileSet, MEGABYTES};
use serde::Serialize;

const CONNECTIONS: usize = 1000;
const WORKERS: [usize; 2] = [1, 2];
/// The speed of the emulated disks, so that a pass takes about the configured time.
const READS_PER_SECOND: f64 = 260.0;
const BYTES_PER_SECOND: f64 = 40e6;
/// The bar of the design.
const E_MIN: f64 = 0.9;

/// A row in a pass, with one file size and one number of workers.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    workers: usize,
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
        "workers",
        "E",
        "MB/s",
        "walker MB/s",
        "p50",
        "p99",
        "disk busy",
        "read / sent",
        "bar",
    ]);
    let (mut all, mut pairs) = (Vec::new(), Vec::new());
    for (set, workers) in [BLOCKS, MEGABYTES]
        .into_iter()
        .flat_map(|set| WORKERS.map(|workers| (set, workers)))
    {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, &row.with_workers(workers), (set, workers), pass, run)
        })?;
        measured
            .iter()
            .for_each(|row| table.push(cells(row, set, workers)));
        pairs.extend(measured.iter().map(|row| pair(row, set, workers)));
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w4".into(),
        caption: caption(rig, run),
        table,
        passes: to_json(&all)?,
        picture: Some(picture::svg(
            "Kilobytes per second of cold files, each once (log scale)",
            ["a walker with 64 threads", "the server, 1000 connections"],
            &pairs,
        )),
    })
}

fn caption(rig: &Rig, run: &Run) -> String {
    let files = |set| files_of_a_pass(rig.is_slow(), set, run.seconds);
    format!(
        "Cold files, each once, {CONNECTIONS} connections ({} and {} files in a pass; where there are fewer files than \
         connections, the others stay idle), caches dropped before each pass. E: the server's body bytes/s over those of \
         a walker that opens, stats, reads and closes the same files with 64 threads right before. Bar: E >= {E_MIN}. \
         With two workers the server is on any CPU. Median of {} interleaved passes (lowest to highest).",
        files(BLOCKS),
        files(MEGABYTES),
        run.passes
    )
}

fn measure(
    rig: &Rig,
    row: &Row,
    (set, workers): (FileSet, usize),
    pass: u64,
    run: &Run,
) -> Result<Pass> {
    let count = files_of_a_pass(rig.is_slow(), set, run.seconds);
    let list = rig.list(&set, pass, count)?;
    let start = || Server::start(rig, row);
    Ok(Pass {
        bytes: set.bytes,
        workers,
        sides: Sides::measure(rig, list, set.bytes, CONNECTIONS, start)?,
    })
}

/// On a real disk the whole set, on an emulated one as much as it can read during a pass.
fn files_of_a_pass(is_slow: bool, set: FileSet, seconds: f64) -> usize {
    if !is_slow {
        return set.files;
    }
    let seconds_of_a_file = 1.0 / READS_PER_SECOND + set.bytes as f64 / BYTES_PER_SECOND;
    ((seconds / seconds_of_a_file) as usize).clamp(1, set.files)
}

fn cells(row: &Measured<Pass>, set: FileSet, workers: usize) -> Vec<String> {
    let e = row.spread(|pass| pass.sides.e());
    let errors = row.total(|pass| pass.sides.server.report.errors);
    vec![
        row.server.clone(),
        set.bytes.to_string(),
        workers.to_string(),
        e.show(number),
        row.spread(|pass| pass.sides.server.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.sides.walker.report.bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.sides.server.report.latency.p50_us)
            .show(time_us),
        row.spread(|pass| pass.sides.server.report.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.sides.server.device.utilisation)
            .show(percent),
        row.spread(|pass| pass.sides.server.over_read())
            .show(number),
        verdict(&[(is_below(e.median, E_MIN), "E")], errors),
    ]
}

fn pair(row: &Measured<Pass>, set: FileSet, workers: usize) -> Pair {
    let kilobytes = |side: fn(&Pass) -> &Side| {
        row.spread(|pass| side(pass).report.bytes_per_second() / 1e3)
            .median
    };
    Pair {
        name: format!("{}, {} B, {workers} w", row.server, set.bytes),
        limit: kilobytes(|pass| &pass.sides.walker),
        measured: kilobytes(|pass| &pass.sides.server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_on_a_slow_disk_takes_about_the_configured_time() {
        assert_eq!(files_of_a_pass(true, MEGABYTES, 10.0), 346);
        assert_eq!(files_of_a_pass(true, MEGABYTES, 0.001), 1);
        assert_eq!(files_of_a_pass(true, BLOCKS, 1e9), BLOCKS.files);
        assert_eq!(files_of_a_pass(false, BLOCKS, 1.0), BLOCKS.files);
    }
}
