//! W14: file systems of several kinds. Files in memory must not depend on them, and none may block the event loop.

use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::file_systems::{COLD, Kind, Mounted};
use serde::Serialize;

/// Sizes of files that Levity sends from its own memory, and from the page cache.
const BYTES: [usize; 2] = [4096, 1 << 20];
const CONNECTIONS: usize = 64;
const WARM_UP_SECONDS: f64 = 0.3;
/// Longer than any pass.
const SECONDS_MAX: f64 = 600.0;
/// The bar of the design.
const RATIO_MIN: f64 = 0.9;

/// A row in a pass, on one file system.
#[derive(Serialize)]
pub struct Pass {
    file_system: &'static str,
    small: Report,
    large: Report,
    /// Caches dropped, each file once.
    cold: Report,
    /// Time that the event loop was blocked; Levity only.
    stalled_seconds: Option<f64>,
}

impl Pass {
    fn errors(&self) -> u64 {
        self.small.errors + self.large.errors + self.cold.errors
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails. File systems that this machine does not support are skipped.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut left_out = String::new();
    let mut mounted: Vec<Mounted> = Vec::new();
    for kind in Kind::ALL {
        match kind.mount(rig) {
            Ok(file_system) => mounted.push(file_system),
            Err(error) => left_out.push_str(&format!(" Left out: {} ({error}).", kind.name())),
        }
    }
    let mut table = Table::new(&[
        "server",
        "file system",
        "4 KB of ext4",
        "1 MB of ext4",
        "4 KB req/s",
        "1 MB req/s",
        "cold files/s",
        "cold p99",
        "loop stalled ms",
        "bar",
    ]);
    let mut all: Vec<Measured<Pass>> = Vec::new();
    for file_system in &mounted {
        let measured = interleaved(rows, run.passes, |row, _| {
            measure(rig, row, file_system.kind, run)
        })?;
        all.extend(measured);
    }
    let mut pairs = Vec::new();
    for (index, own) in all.iter().enumerate() {
        // The first file system is the baseline.
        let row = index % rows.len();
        table.push(cells(&rows[row], own, &all[row]));
        pairs.push(pair(own, &all[row]));
    }
    Ok(Outcome {
        name: "w14".into(),
        caption: format!(
            "Files in memory, {CONNECTIONS} connections in a closed loop, on file systems of several kinds, as a share of \
             ext4 (noatime, an image on the machine's disk); ext4-atime is written to at each read, overlay is upon the machine's \
             disk. Then {} cold files of 100 KB, each once (tmpfs has none). Bars: {RATIO_MIN} of ext4; Levity's loop does not \
             sleep (by its own measure, sleeps of less than 1 ms not counted). One worker; median of {} interleaved passes of \
             {} s (lowest to highest).{left_out}",
            COLD.files, run.passes, run.seconds
        ),
        table,
        passes: to_json(&all)?,
        picture: Some(picture::svg(
            "Requests per second for a 1 MB file in memory (log scale)",
            ["on ext4", "on this file system"],
            &pairs,
        )),
    })
}

fn measure(rig: &Rig, row: &Row, kind: Kind, run: &Run) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let hot = |bytes: usize| {
        let path = format!("{}/hot/{bytes}.bin", kind.prefix());
        let mut load = Load::new(server.address, &path, CONNECTIONS, run.seconds);
        load.warm_up = WARM_UP_SECONDS;
        load.body_bytes = Some(bytes as u64);
        load.measure(rig.load_cpu())
    };
    let before = server.metrics()?;
    let (small, large) = (hot(BYTES[0])?, hot(BYTES[1])?);
    let paths: Vec<String> = COLD
        .shuffled(1, COLD.files)
        .iter()
        .map(|path| kind.prefix() + path)
        .collect();
    let mut cold = Load::new(server.address, "", CONNECTIONS, SECONDS_MAX);
    cold.list = Some(rig.list_of("file-system", &paths)?);
    cold.body_bytes = Some(COLD.bytes as u64);
    rig.drop_caches()?;
    let cold = cold.measure(rig.load_cpu())?;
    let stalled_seconds = server
        .metrics()?
        .zip(before)
        .map(|(after, before)| after.growth_since(&before, "levity_loop_stall_seconds_sum", ""));
    Ok(Pass {
        file_system: kind.name(),
        small,
        large,
        cold,
        stalled_seconds,
    })
}

fn cells(row: &Row, own: &Measured<Pass>, ext4: &Measured<Pass>) -> Vec<String> {
    let small = |pass: &Pass| pass.small.requests_per_second();
    let large = |pass: &Pass| pass.large.requests_per_second();
    let ratios = [
        own.spread_of_ratio(ext4, small),
        own.spread_of_ratio(ext4, large),
    ];
    let stalled = own.spread(|pass| pass.stalled_seconds.unwrap_or(f64::NAN));
    let bars = [
        (is_below(ratios[0].median, RATIO_MIN), "4 KB"),
        (is_below(ratios[1].median, RATIO_MIN), "1 MB"),
        (row.is_levity() && is_above(stalled.high, 0.0), "stall"),
    ];
    vec![
        own.server.clone(),
        own.passes
            .first()
            .map_or("-", |pass| pass.file_system)
            .into(),
        ratios[0].show(number),
        ratios[1].show(number),
        own.spread(small).show(number),
        own.spread(large).show(number),
        own.spread(|pass| pass.cold.requests_per_second())
            .show(number),
        own.spread(|pass| pass.cold.latency.p99_us).show(time_us),
        stalled.show(|seconds| number(seconds * 1000.0)),
        verdict(&bars, own.total(Pass::errors)),
    ]
}

fn pair(own: &Measured<Pass>, ext4: &Measured<Pass>) -> Pair {
    let rate = |row: &Measured<Pass>| row.spread(|pass| pass.large.requests_per_second()).median;
    let file_system = own.passes.first().map_or("-", |pass| pass.file_system);
    Pair {
        name: format!("{}, {file_system}", own.server),
        limit: rate(ext4),
        measured: rate(own),
    }
}
