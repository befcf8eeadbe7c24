//! W5: streams, by their number and the size of reads.

use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number};
use crate::rig::tree::{FileSet, LONG_STREAMS, STREAMS};
use crate::rig::{Rig, fio};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;

/// The read size of fio if the server chooses its own: the largest of Levity.
const CHUNK_OF_ITS_OWN: usize = 512 * 1024;
/// More files than any server can send.
const ROUNDS: usize = 20;
/// Seconds to look up the files, which fio does not measure.
const WARM_UP: f64 = 1.0;
/// The bar of the design.
const E_MIN: f64 = 0.9;

/// A number of concurrent streams of one set of files, and their read size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
struct Step {
    file_bytes: usize,
    streams: usize,
    /// None for the choice of the server.
    chunk_bytes: Option<usize>,
}

/// A row in a pass, with one step.
#[derive(Serialize)]
pub struct Pass {
    step: Step,
    report: Report,
    /// Bytes per second of fio with the same files and number of streams, in the same pass.
    fio_bytes_per_second: f64,
    anonymous_bytes: u64,
}

impl Pass {
    fn e(&self) -> f64 {
        self.report.wire_bytes_per_second() / self.fio_bytes_per_second
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "file MB",
        "chunk KiB",
        "streams",
        "E",
        "MB/s",
        "fio MB/s",
        "memory MiB",
        "bar",
    ]);
    let levity: Vec<Row> = rows.iter().filter(|row| row.is_levity()).cloned().collect();
    let mut bench = Bench {
        rig,
        run,
        limits: HashMap::new(),
    };
    let (mut all, mut pairs) = (Vec::new(), Vec::new());
    for step in steps(run.quick) {
        // The read size of peers cannot be configured.
        let rows = if step.chunk_bytes.is_some() {
            &levity[..]
        } else {
            rows
        };
        let measured = interleaved(rows, run.passes, |row, pass| bench.measure(row, step, pass))?;
        measured.iter().for_each(|row| table.push(cells(row, step)));
        pairs.extend(measured.iter().map(|row| pair(row, step)));
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w5".into(),
        caption: caption(run),
        table,
        passes: to_json(&all)?,
        picture: Some(picture::svg(
            "Megabytes per second of streams (log scale)",
            ["fio with as many streams", "the server"],
            &pairs,
        )),
    })
}

/// Steps by number, then by chunk size.
fn steps(quick: bool) -> Vec<Step> {
    let step = |set: FileSet, streams, chunk_bytes| Step {
        file_bytes: set.bytes,
        streams,
        chunk_bytes,
    };
    let (short, long, kib): (&[usize], &[usize], &[usize]) = if quick {
        (&[1, 50], &[5], &[256])
    } else {
        (
            &[1, 2, 5, 10, 50, 200],
            &[1, 2, 5, 10],
            &[64, 128, 256, 512, 1024, 4096],
        )
    };
    let short = short.iter().map(|&streams| step(STREAMS, streams, None));
    let long = long
        .iter()
        .map(|&streams| step(LONG_STREAMS, streams, None));
    let chunks = kib.iter().map(|&kib| step(STREAMS, 10, Some(kib * 1024)));
    short.chain(long).chain(chunks).collect()
}

struct Bench<'a> {
    rig: &'a Rig,
    run: &'a Run,
    /// The figure of fio for a step in a pass, the upper bound for all rows.
    limits: HashMap<(Step, u64), f64>,
}

impl Bench<'_> {
    fn measure(&mut self, row: &Row, step: Step, pass: u64) -> Result<Pass> {
        let fio_bytes_per_second = self.limit(step, pass)?;
        let row = step
            .chunk_bytes
            .map_or(row.clone(), |bytes| row.with_chunk(bytes));
        let server = Server::start(self.rig, &row)?;
        let set = set_of(step);
        let paths: Vec<String> = (0..ROUNDS as u64)
            .flat_map(|round| set.shuffled(pass * ROUNDS as u64 + round, set.files))
            .collect();
        let mut load = Load::new(server.address, "", step.streams, self.run.seconds);
        load.list = Some(self.rig.list_of("streams", &paths)?);
        load.body_bytes = Some(set.bytes as u64);
        load.warm_up = WARM_UP;
        load.abandon = true;
        self.rig.drop_caches()?;
        let mut load = load.start(self.rig.load_cpu())?;
        let report = load.report()?;
        Ok(Pass {
            step,
            report,
            fio_bytes_per_second,
            anonymous_bytes: server.anonymous_bytes()?,
        })
    }

    fn limit(&mut self, step: Step, pass: u64) -> Result<f64> {
        if let Some(&limit) = self.limits.get(&(step, pass)) {
            return Ok(limit);
        }
        let set = set_of(step);
        let files: Vec<PathBuf> = (0..step.streams)
            .map(|stream| self.file(&set.cold_path(stream % set.files)))
            .collect();
        let chunk = step.chunk_bytes.unwrap_or(CHUNK_OF_ITS_OWN);
        self.rig.drop_caches()?;
        let limit = fio::streams(&files, chunk, self.run.seconds, self.rig.server_cpu())?;
        self.limits.insert((step, pass), limit);
        Ok(limit)
    }

    fn file(&self, path: &str) -> PathBuf {
        self.rig.docroot.join(path.trim_start_matches('/'))
    }
}

fn set_of(step: Step) -> FileSet {
    if step.file_bytes == LONG_STREAMS.bytes {
        LONG_STREAMS
    } else {
        STREAMS
    }
}

fn caption(run: &Run) -> String {
    format!(
        "Streams of cold files, as many at a time as the table says, for {} s after one in which they begin: what arrived in that time, finished or not. \
         The 700 MB files of the published tables are {} MB here, because a slow disk does not come to the end of either. \
         E: the server's bytes/s over those of fio on the same files in the same pass, with O_DIRECT, one read under way \
         for each stream, and the same chunk ({} KiB where the server chooses). A server that reads ahead can exceed it. \
         Bar: E >= {E_MIN}. Memory: anonymous, at the end. Median of {} interleaved passes (lowest to highest).",
        run.seconds,
        LONG_STREAMS.bytes / 1_000_000,
        CHUNK_OF_ITS_OWN / 1024,
        run.passes
    )
}

fn cells(row: &Measured<Pass>, step: Step) -> Vec<String> {
    let e = row.spread(Pass::e);
    vec![
        row.server.clone(),
        (step.file_bytes / 1_000_000).to_string(),
        step.chunk_bytes
            .map_or("own".into(), |bytes| (bytes / 1024).to_string()),
        step.streams.to_string(),
        e.show(number),
        row.spread(|pass| pass.report.wire_bytes_per_second() / 1e6)
            .show(number),
        row.spread(|pass| pass.fio_bytes_per_second / 1e6)
            .show(number),
        row.spread(|pass| pass.anonymous_bytes as f64 / f64::from(1 << 20))
            .show(number),
        verdict(
            &[(is_below(e.median, E_MIN), "E")],
            row.total(|pass| pass.report.errors),
        ),
    ]
}

fn pair(row: &Measured<Pass>, step: Step) -> Pair {
    let chunk = step
        .chunk_bytes
        .map_or(String::new(), |bytes| format!(", {} KiB", bytes / 1024));
    Pair {
        name: format!(
            "{}, {} x {} MB{chunk}",
            row.server,
            step.streams,
            step.file_bytes / 1_000_000
        ),
        limit: row.spread(|pass| pass.fio_bytes_per_second / 1e6).median,
        measured: row
            .spread(|pass| pass.report.wire_bytes_per_second() / 1e6)
            .median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_files_enough_for_its_streams() {
        for step in steps(false).into_iter().chain(steps(true)) {
            assert!(step.streams <= set_of(step).files, "{step:?}");
        }
        assert!(steps(true).len() < steps(false).len());
    }

    #[test]
    fn chunks_are_swept_from_64_kib_to_4_mib() {
        let chunks: Vec<usize> = steps(false)
            .iter()
            .filter_map(|step| step.chunk_bytes)
            .collect();
        assert_eq!(chunks.first(), Some(&(64 << 10)));
        assert_eq!(chunks.last(), Some(&(4 << 20)));
        assert!(chunks.iter().all(|bytes| bytes % 4096 == 0));
    }
}
