//! M3j: how many durable messages per second does the store on a disk acknowledge, and how fast does it read them again?

use super::cost::WARM_UP;
use super::mailboxes::{Followed, subscribe};
use super::{Measured, Run, Subject, interleaved, name_left_out, startable, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::mailbox::{Delivered, Order};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::verdict;
use crate::report::table::{Table, number, time_us};
use crate::rig::journal::Step;
use crate::rig::slow_disk::create_dir_for_nobody;
use crate::rig::{Rig, fio};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Connections that publish, each to a box of its own.
const PUBLISHERS: [usize; 4] = [1, 8, 32, 128];
/// With its header, a message is about as long as a record of fio.
const BYTES: usize = 3900;
/// Boxes that are read again, and connections that do it.
const READ_BOXES: usize = 128;
const READERS: usize = 16;
const STALL: &str = "levity_loop_stall_seconds";
/// The bar of the design.
const STALL_SECONDS_MAX: f64 = 0.0;

/// One number of publishers in a pass.
#[derive(Serialize)]
struct Pass {
    followed: Followed,
    /// The rate of fio with one sync for each record.
    fio_per_second: f64,
    /// Every box read as JSON by a server that has just started, with nothing in the page cache.
    cold: Report,
    stall_seconds: f64,
}

impl Pass {
    fn delivered(&self) -> &Delivered {
        &self.followed.delivered
    }

    fn of_fio(&self) -> f64 {
        self.delivered().messages_per_second() / self.fio_per_second
    }
}

/// Runs the workload: Levity only, since no peer acknowledges durable messages.
///
/// # Errors
/// The rig, the server or fio fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let folder = rig.setup.dir.join("mailboxes");
    let _remove = rig.journal().note(Step::RemoveDirectory(folder.clone()))?;
    create_dir_for_nobody(&folder)?;
    let mut subjects = Vec::new();
    for row in rows.iter().filter(|row| row.is_levity()) {
        let row = row.with_mailboxes(rig, READ_BOXES, "durable = true")?;
        let row = row.with_disk(&folder);
        subjects.extend(PUBLISHERS.map(|kind| Subject {
            row: row.named(format!("{}, {kind} publishers", row.name)),
            kind,
        }));
    }
    let (subjects, left_out) = startable(rig, subjects)?;
    let measured = interleaved(&subjects, run.passes, |subject, _| {
        Bench {
            rig,
            folder: &folder,
            seconds: run.seconds,
        }
        .measure(subject)
    })?;
    let mut table = Table::new(&[
        "server",
        "acknowledged/s",
        "fio, one sync each",
        "of that",
        "p50",
        "p99",
        "cold boxes/s",
        "cold p99",
        "stall <=",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    let mut caption = format!(
        "Durable messages of {BYTES} bytes on the machine's disk: each publisher publishes to a box of its own, and \
         again when it has its acknowledgement, which follows the sync. fio writes records of 4 KiB to one file, with \
         fdatasync after each. p50 and p99: of the acknowledgement. Cold: {READERS} clients then read every box once, as JSON, from a server that has just started, with nothing in the page \
         cache. Stall: longest bucket of Levity's loop in both parts; below 1 ms it shows 0. Bar: no stall. \
         Median of {} interleaved passes of {} s (lowest to highest).",
        run.passes, run.seconds
    );
    name_left_out(&mut caption, &left_out);
    Ok(Outcome {
        name: "m3j".into(),
        caption,
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

struct Bench<'a> {
    rig: &'a Rig,
    folder: &'a Path,
    seconds: f64,
}

impl Bench<'_> {
    fn measure(&self, subject: &Subject<usize>) -> Result<Pass> {
        create_dir_for_nobody(self.folder)?;
        let (followed, stall) = self.publish(subject)?;
        let (cold, cold_stall) = self.read_cold(subject)?;
        remove_content(self.folder)?;
        let file = self.folder.join("fio");
        let fio_per_second = fio::durable_appends(&file, 1, self.seconds)?;
        remove_content(self.folder)?;
        Ok(Pass {
            followed,
            fio_per_second,
            cold,
            stall_seconds: stall.max(cold_stall),
        })
    }

    /// Also the longest stall.
    fn publish(&self, subject: &Subject<usize>) -> Result<(Followed, f64)> {
        let server = Server::start(self.rig, &subject.row)?;
        let mut publishers = subscribe(self.rig, &server, 0, READ_BOXES, subject.kind)?;
        let order = |seconds| Order::Publish {
            seconds,
            bytes: BYTES,
        };
        publishers.follow(order(WARM_UP.as_secs_f64()))?;
        let before = server.metrics()?.unwrap_or_default();
        let followed = Followed::measure(&server, &mut publishers, order(self.seconds))?;
        let after = server.metrics()?.unwrap_or_default();
        Ok((
            followed,
            after.highest_since(&before, STALL).unwrap_or(f64::NAN),
        ))
    }

    fn read_cold(&self, subject: &Subject<usize>) -> Result<(Report, f64)> {
        self.rig.drop_caches()?;
        let server = Server::start(self.rig, &subject.row)?;
        let paths: Vec<String> = (0..READ_BOXES)
            .map(|index| format!("/box/b{index}"))
            .collect();
        let mut load = Load::new(server.address, "", READERS, 60.0);
        load.list = Some(self.rig.list_of("boxes", &paths)?);
        let before = server.metrics()?.unwrap_or_default();
        let report = load.measure(self.rig.load_cpu())?;
        let after = server.metrics()?.unwrap_or_default();
        let stall = after.highest_since(&before, STALL).unwrap_or(f64::NAN);
        Ok((report, stall))
    }
}

fn remove_content(folder: &Path) -> Result<()> {
    use crate::failure::Context;
    let emptied = || {
        for entry in fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            match path.is_dir() {
                true => fs::remove_dir_all(path)?,
                false => fs::remove_file(path)?,
            }
        }
        std::io::Result::Ok(())
    };
    emptied().context(|| format!("empty {}", folder.display()))
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let figure = |figure: fn(&Pass) -> f64| row.spread(figure).show(number);
    let time = |figure: fn(&Pass) -> f64| row.spread(figure).show(time_us);
    let stall = row.passes.iter().map(|pass| pass.stall_seconds);
    let stall = stall.fold(0.0, f64::max);
    let failures = row.total(|pass| pass.delivered().failures() + pass.cold.errors);
    vec![
        row.server.clone(),
        figure(|pass| pass.delivered().messages_per_second()),
        figure(|pass| pass.fio_per_second),
        figure(Pass::of_fio),
        time(|pass| pass.delivered().acknowledged.p50_us),
        time(|pass| pass.delivered().acknowledged.p99_us),
        figure(|pass| pass.cold.requests_per_second()),
        time(|pass| pass.cold.latency.p99_us),
        time_us(stall * 1e6),
        verdict(&[(stall > STALL_SECONDS_MAX, "stall")], failures),
    ]
}
