//! W13: five hundred clients request one cold file at the same time. The disk must read it once.

use super::cold::Side;
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use crate::rig::tree::{FileSet, LONG_STREAMS, MEGABYTES, STREAMS};
use crate::walk::Walk;
use serde::Serialize;

const CLIENTS: usize = 500;
/// The maximum number of bytes in all responses: five hundred times 10 MB. With 100 MB the loopback would be measured
/// for a minute.
const CLIENTS_OF_A_LONG_STREAM: usize = 50;
/// Longer than any pass.
const SECONDS_MAX: f64 = 600.0;
/// The bar of the design.
const READ_MAX: f64 = 1.05;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    clients: usize,
    one: Side,
    /// The walker on another file of the same size. It includes the reads of names and metadata, which are more than a
    /// twentieth of a small file.
    walker: Side,
    /// The same file.
    herd: Side,
}

impl Pass {
    /// Bytes read from the disk per byte of the file.
    fn read(&self, side: fn(&Self) -> &Side) -> f64 {
        side(self).device.bytes as f64 / self.bytes as f64
    }

    fn reads(&self) -> f64 {
        self.herd.device.bytes as f64 / self.walker.device.bytes as f64
    }

    fn slowdown(&self) -> f64 {
        self.herd.report.seconds / self.one.report.seconds
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
        "clients",
        "reads",
        "disk / file",
        "disk / file, walker",
        "seconds to the last",
        "of one client",
        "bar",
    ]);
    let (mut all, mut pairs) = (Vec::new(), Vec::new());
    for (set, clients) in herds(run.quick) {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, (*set, *clients), pass)
        })?;
        measured
            .iter()
            .for_each(|row| table.push(cells(row, *set, *clients)));
        pairs.extend(measured.iter().map(|row| pair(row, *set)));
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w13".into(),
        caption: format!(
            "Many clients ask for one cold file at the same time. Disk / file: bytes that the device read over the \
             length of the file, blocks of names and metadata included. Reads: those bytes over what the device read for a walker that \
             opens, stats, reads and closes the same file once. Bar: {READ_MAX} reads. Of one client: time until the last client has \
             all of it, against the time of one for another file. The file of {} MB has \
             {CLIENTS_OF_A_LONG_STREAM} clients. Median of {} interleaved passes (lowest to highest).",
            LONG_STREAMS.bytes / 1_000_000,
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: Some(picture::svg(
            "Kilobytes read from the disk (log scale)",
            ["the file", "for all clients"],
            &pairs,
        )),
    })
}

fn herds(quick: bool) -> &'static [(FileSet, usize)] {
    const HERDS: [(FileSet, usize); 3] = [
        (MEGABYTES, CLIENTS),
        (STREAMS, CLIENTS),
        (LONG_STREAMS, CLIENTS_OF_A_LONG_STREAM),
    ];
    if quick { &HERDS[..2] } else { &HERDS }
}

fn measure(rig: &Rig, row: &Row, (set, clients): (FileSet, usize), pass: u64) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let files = set.shuffled(pass, 2);
    let ask = |path: &String, clients: usize| {
        let list = rig.list_of("herd", &vec![path.clone(); clients])?;
        let mut load = Load::new(server.address, "", clients, SECONDS_MAX);
        load.list = Some(list);
        load.body_bytes = Some(set.bytes as u64);
        Side::measure(rig, || load.measure(rig.load_cpu()))
    };
    let walk = Walk::new(&rig.docroot, &rig.list_of("one", &files[1..])?);
    Ok(Pass {
        bytes: set.bytes,
        clients,
        walker: Side::measure(rig, || walk.start(rig.server_cpu())?.report())?,
        one: ask(&files[0], 1)?,
        herd: ask(&files[1], clients)?,
    })
}

fn cells(row: &Measured<Pass>, set: FileSet, clients: usize) -> Vec<String> {
    let reads = row.spread(Pass::reads);
    let errors = row.total(|pass| pass.one.report.errors + pass.herd.report.errors);
    vec![
        row.server.clone(),
        (set.bytes / 1_000_000).to_string(),
        clients.to_string(),
        reads.show(number),
        row.spread(|pass| pass.read(|pass| &pass.herd)).show(number),
        row.spread(|pass| pass.read(|pass| &pass.walker))
            .show(number),
        row.spread(|pass| pass.herd.report.seconds).show(number),
        row.spread(Pass::slowdown).show(number),
        verdict(&[(is_above(reads.median, READ_MAX), "disk")], errors),
    ]
}

fn pair(row: &Measured<Pass>, set: FileSet) -> Pair {
    Pair {
        name: format!("{}, {} MB", row.server, set.bytes / 1_000_000),
        limit: set.bytes as f64 / 1e3,
        measured: row
            .spread(|pass| pass.herd.device.bytes as f64 / 1e3)
            .median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pass_sends_more_than_five_gigabytes() {
        for (set, clients) in herds(false) {
            assert!(set.bytes * clients <= 5_000_000_000);
            assert!(set.files >= 2, "one client and the herd have a file each");
        }
    }
}
