//! P5: cold files with an application that opens each file before the server sends it (X-Sendfile): does that take the
//! disk waits off the server?

use super::cold::Sides;
use super::proxied::{dir, upstream};
use super::{Measured, Run, interleaved, to_json};
use crate::backend::Protocol;
use crate::backend::command::RunningBackend;
use crate::failure::{Context, Failure, Result};
use crate::peer::proxy::{Handover, Upstream};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::slow_disk::create_dir_for_nobody;
use crate::rig::tree::{COLD_SETS, FileSet};
use serde::Serialize;

const PROGRAM: &str = "fcgi-stat-accel";
const CLIENTS: usize = 200;
/// Of the application, and connections to it.
const THREADS: usize = 20;
const SET: FileSet = COLD_SETS[0];
/// Reads per second of the slow disk.
const FILES_PER_SECOND: f64 = 260.0;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    #[serde(flatten)]
    sides: Sides,
}

/// Runs the workload.
///
/// # Errors
/// The rig, a server or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let rows: Vec<Row> = rows.iter().flat_map(|row| variants(rig, row)).collect();
    if rows.is_empty() {
        return Err(Failure::new("no server that sends files"));
    }
    let measured = interleaved(&rows, run.passes, |row, pass| {
        measure(rig, row, pass, run.seconds)
    })?;
    let mut table = Table::new(&[
        "server",
        "E",
        "of directly",
        "MB/s",
        "files/s",
        "p50",
        "p99",
        "slowest",
        "disk busy",
        "errors",
    ]);
    for (index, row) in measured.iter().enumerate() {
        let directly = rows[index].is_proxy().then(|| &measured[index - 1]);
        table.push(cells(row, directly));
    }
    Ok(Outcome {
        name: "p5".into(),
        caption: format!(
            "Cold files of {} bytes, each once, {CLIENTS} at a time, caches dropped before each pass: by the server itself, and with {PROGRAM}, \
             a FastCGI application of {THREADS} threads, which opens and stats the file, reads its first pages and answers with X-Sendfile. It has \
             the CPU of the load and the disk. E: the server's body bytes/s over those of a walker on the same files right before. Of directly: \
             bytes/s over those of the same server without it, in the same pass. Median of {} interleaved passes (lowest to highest).",
            SET.bytes, run.passes
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

/// Measures the server with the files as its own, and then as a proxy in front of the application.
fn variants(rig: &Rig, row: &Row) -> Vec<Row> {
    let files = row.with_files().filter(|_| row.naming().prefix.is_none());
    let Some(files) = files else {
        return Vec::new();
    };
    let upstream = Upstream {
        handover: Handover::Files(rig.docroot.clone()),
        ..upstream(rig, Protocol::Fastcgi, 1, THREADS)
    };
    let name = format!("{} + {PROGRAM}", row.name);
    vec![
        files.named(row.name.clone()),
        row.before(&upstream).named(name),
    ]
}

fn measure(rig: &Rig, row: &Row, pass: u64, seconds: f64) -> Result<Pass> {
    let count = if rig.is_slow() {
        ((seconds * FILES_PER_SECOND) as usize).clamp(CLIENTS, SET.files)
    } else {
        SET.files
    };
    let list = rig.list(&SET, pass, count)?;
    let mut application = None;
    let start = || {
        if row.is_proxy() {
            application = Some(start_application(rig)?);
        }
        Server::start(rig, row)
    };
    Ok(Pass {
        sides: Sides::measure(rig, list, SET.bytes, CLIENTS, start)?,
    })
}

fn start_application(rig: &Rig) -> Result<RunningBackend> {
    create_dir_for_nobody(&dir(rig))?;
    let built = std::env::current_exe().context(|| "path of this program".into())?;
    let program = rig.copy_of(&built.with_file_name(PROGRAM))?;
    let socket = upstream(rig, Protocol::Fastcgi, 1, THREADS)
        .sockets
        .remove(0);
    let command_line = [
        program.to_string_lossy(),
        socket.to_string_lossy(),
        rig.docroot.to_string_lossy(),
        THREADS.to_string().into(),
    ];
    RunningBackend::start(rig, &socket, command_line.map(Into::into).into())
}

fn cells(row: &Measured<Pass>, directly: Option<&Measured<Pass>>) -> Vec<String> {
    let rate = |pass: &Pass| pass.sides.server.report.bytes_per_second() / 1e6;
    let latency = |figure: fn(&Pass) -> f64| row.spread(figure).show(time_us);
    vec![
        row.server.clone(),
        row.spread(|pass| pass.sides.e()).show(number),
        directly.map_or("-".into(), |directly| {
            row.spread_of_ratio(directly, rate).show(number)
        }),
        row.spread(rate).show(number),
        row.spread(|pass| pass.sides.server.report.requests_per_second())
            .show(number),
        latency(|pass| pass.sides.server.report.latency.p50_us),
        latency(|pass| pass.sides.server.report.latency.p99_us),
        latency(|pass| pass.sides.server.report.latency.max_us),
        row.spread(|pass| pass.sides.server.device.utilisation * 100.0)
            .show(|percent| format!("{percent:.0} %")),
        row.total(|pass| pass.sides.server.report.errors)
            .to_string(),
    ]
}
