//! C1: how fast is a small file in memory while the server compresses text at high levels?
//!
//! Two kinds of rows compress 100 MB of text. On the way: clients download large files. Idle work: clients ask for many
//! files often, and Levity makes variants of them. Server and load may use every processor, since the question is what
//! becomes of the processor time that hot requests leave.

use super::cost::WARM_UP;
use super::hot_and_cold::{self, CLOSED_CONNECTIONS, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, Subject, interleaved, name_left_out, startable, to_json};
use crate::failure::{Context, Result};
use crate::load::Report;
use crate::load::command::Load;
use crate::machine;
use crate::peer::compression::{Coding, Compression};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::journal::Step;
use crate::rig::slow_disk::create_dir_for_nobody;
use crate::rig::tree::{LARGE_TEXTS, TEXTS};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Clients that download text: one for each processor keeps all of them busy without a queue.
const DOWNLOADS_PER_PROCESSOR: usize = 1;
/// Requests per second for popular files. More would be work of its own.
const POPULAR_PER_SECOND: u32 = 200;
/// Requests for one file in a row, as many as make it popular.
const POPULAR_IN_A_ROW: usize = 4;
/// Requests per second for large files, more than can be compressed at the highest levels. Without this bound, clients
/// that got their files as they are, because the processors do not suffice, would request ever more of them.
const DOWNLOADS_PER_SECOND: u32 = 10;
/// Idle processors, below which a share of them would be noise.
const IDLE_MIN: f64 = 0.1;
/// The time that the text load outlasts the hot one, in seconds.
const MARGIN: f64 = 0.3;
/// The histograms of Levity that show a loop that did not turn.
const STALLS: [&str; 3] = [
    "levity_loop_stall_seconds",
    "levity_loop_hog_seconds",
    "levity_loop_preempted_seconds",
];
/// The bars of the design. The histogram of stalls has those of 1 ms or more.
const STALL_SECONDS_MAX: f64 = 0.0;
const KEPT_MIN: f64 = 0.9;
const SHARE_MIN: f64 = 0.8;

/// The hot file in one situation.
#[derive(Serialize)]
struct Hot {
    report: Report,
    /// CPU seconds per second of the server.
    server: f64,
    /// Idle CPU seconds per second of the machine.
    idle: f64,
}

/// The hot file alone and beside compression.
#[derive(Serialize)]
struct Pair {
    alone: Hot,
    beside: Hot,
    /// The load on text.
    text: Report,
    /// Text that was sent or became variants, in bytes. Files that are not complete do not count.
    text_bytes: u64,
    /// The share of the compressed responses that had the level of the configuration; Levity only.
    at_level: Option<f64>,
}

impl Pair {
    fn kept(&self) -> f64 {
        self.beside.report.requests_per_second() / self.alone.report.requests_per_second()
    }

    /// The share of the otherwise idle processor time that the server uses in addition; NaN where hardly any is idle.
    fn share(&self) -> f64 {
        if self.alone.idle < IDLE_MIN {
            return f64::NAN;
        }
        (self.beside.server - self.alone.server) / self.alone.idle
    }
}

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    closed: Pair,
    open: Pair,
    /// The upper edges of the highest buckets of [`STALLS`] that grew during compression; Levity only.
    loop_seconds: Option<[f64; 3]>,
}

/// The load on text beside the hot file.
struct Text {
    coding: Coding,
    makes_variants: bool,
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    LARGE_TEXTS.prepare_texts(&rig.docroot)?;
    TEXTS.prepare_texts(&rig.docroot)?;
    let folder = rig.setup.dir.join("variants");
    let _remove = rig.journal().note(Step::RemoveDirectory(folder.clone()))?;
    create_dir_for_nobody(&folder)?;
    let subjects: Vec<Subject<Text>> = rows.iter().flat_map(|row| subjects(row, &folder)).collect();
    let (subjects, left_out) = startable(rig, subjects)?;
    let measured = interleaved(&subjects, run.passes, |subject, _| {
        let bench = Bench {
            rig,
            run,
            folder: &folder,
            subject,
        };
        bench.measure()
    })?;
    let mut table = Table::new(&[
        "server",
        "alone req/s",
        "beside req/s",
        "kept",
        "p99 alone",
        "p99 beside",
        "stall <=",
        "hog <=",
        "preempted <=",
        "share of idle",
        "text MB",
        "at its level",
        "share, closed loop",
        "text MB, closed loop",
        "at its level, closed loop",
        "bar",
    ]);
    for (subject, measured) in subjects.iter().zip(&measured) {
        table.push(cells(subject.row.is_levity(), measured));
    }
    let mut caption = caption(run);
    name_left_out(&mut caption, &left_out);
    Ok(Outcome {
        name: "c1".into(),
        caption,
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

/// The rows of a server: each coding at its highest level, or what comes next to it.
fn subjects(row: &Row, folder: &Path) -> Vec<Subject<Text>> {
    let highest = [
        Compression::at(Coding::Br, 11),
        Compression::at(Coding::Zstd, 19),
        Compression::at(Coding::Gzip, 9),
        Compression::by_default(Coding::Zstd),
    ];
    let mut subjects: Vec<Subject<Text>> = Vec::new();
    for compression in highest {
        let coding = compression.coding;
        let is_there = |subject: &Subject<Text>| subject.kind.coding == coding;
        // Levity has no row with gzip: its level 9 is cheap.
        let is_wanted = !row.is_levity() || coding != Coding::Gzip;
        if let Some(row) = row.unpinned().compressed(compression)
            && is_wanted
            && !subjects.iter().any(is_there)
        {
            subjects.push(Subject {
                row,
                kind: Text {
                    coding,
                    makes_variants: false,
                },
            });
        }
    }
    if row.is_levity() {
        // What a client gets until there is a variant shall cost little.
        subjects.extend([Coding::Br, Coding::Zstd].map(|coding| {
            Subject {
                row: row
                    .unpinned()
                    .compressed(Compression::at(coding, 1))
                    .unwrap_or(row.unpinned())
                    .with_variants(folder),
                kind: Text {
                    coding,
                    makes_variants: true,
                },
            }
        }));
    }
    subjects
}

struct Bench<'a> {
    rig: &'a Rig,
    run: &'a Run,
    folder: &'a Path,
    subject: &'a Subject<Text>,
}

impl Bench<'_> {
    fn measure(&self) -> Result<Pass> {
        self.empty_folder()?;
        let server = Server::start(self.rig, &self.subject.row)?;
        let alone = [Loop::Closed, Loop::Open].map(|kind| self.hot(&server, kind));
        let [closed_alone, open_alone] = alone;
        let before = server.metrics()?;
        let closed = self.beside(&server, Loop::Closed, closed_alone?)?;
        let open = self.beside(&server, Loop::Open, open_alone?)?;
        let grown = server.metrics()?.zip(before);
        Ok(Pass {
            closed,
            open,
            loop_seconds: grown.map(|(after, before)| {
                STALLS.map(|name| after.highest_since(&before, name).unwrap_or(f64::NAN))
            }),
        })
    }

    fn beside(&self, server: &Server, kind: Loop, alone: Hot) -> Result<Pair> {
        let (before, made_before) = (server.metrics()?, self.made()?);
        let mut text = self.text(server)?.start(None)?;
        let beside = self.hot(server, kind)?;
        let text = text.report()?;
        let grown = server.metrics()?.zip(before);
        let text_bytes = match self.subject.kind.makes_variants {
            true => (self.made()? - made_before) * TEXTS.bytes as u64,
            false => text.requests * LARGE_TEXTS.bytes as u64,
        };
        Ok(Pair {
            alone,
            beside,
            text,
            text_bytes,
            at_level: grown.map(|(after, before)| super::at_level(&after, &before)),
        })
    }

    fn hot(&self, server: &Server, kind: Loop) -> Result<Hot> {
        let mut load = hot_and_cold::hot(self.run, server, kind);
        load.warm_up = WARM_UP.as_secs_f64();
        load.abandon = true;
        let mut load = load.start(None)?;
        std::thread::sleep(WARM_UP);
        let before = (server.group.cpu_time()?, machine::idle_seconds()?);
        let started = Instant::now();
        let report = load.report()?;
        let seconds = started.elapsed().as_secs_f64();
        let server = (server.group.cpu_time()? - before.0).as_secs_f64();
        Ok(Hot {
            report,
            server: server / seconds,
            idle: (machine::idle_seconds()? - before.1) / seconds,
        })
    }

    fn text(&self, server: &Server) -> Result<Load> {
        let seconds = WARM_UP.as_secs_f64() + self.run.seconds + MARGIN;
        let mut load = Load::new(server.address, "", downloads(), seconds);
        load.coding = Some(self.subject.kind.coding.word().into());
        load.abandon = true;
        if self.subject.kind.makes_variants {
            let paths: Vec<String> = (0..TEXTS.files)
                .flat_map(|index| vec![TEXTS.text_path(index); POPULAR_IN_A_ROW])
                .collect();
            load.list = Some(self.rig.list_of("popular", &paths)?);
            load.rate = Some(POPULAR_PER_SECOND);
        } else {
            let paths: Vec<String> = (0..LARGE_TEXTS.files)
                .map(|index| LARGE_TEXTS.text_path(index))
                .collect();
            load.list = Some(self.rig.list_of("texts", &paths)?);
            load.rate = Some(DOWNLOADS_PER_SECOND);
        }
        Ok(load)
    }

    fn empty_folder(&self) -> Result<()> {
        fs::remove_dir_all(self.folder).context(|| format!("remove {}", self.folder.display()))?;
        create_dir_for_nobody(self.folder)
    }

    /// The number of variants.
    fn made(&self) -> Result<u64> {
        let names = fs::read_dir(self.folder);
        let names = names.context(|| format!("list {}", self.folder.display()))?;
        Ok(names.count() as u64)
    }
}

fn downloads() -> usize {
    DOWNLOADS_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Pass {
    fn errors(&self) -> u64 {
        let pairs = [&self.closed, &self.open];
        let errors =
            |pair: &Pair| pair.alone.report.errors + pair.beside.report.errors + pair.text.errors;
        pairs.map(errors).iter().sum()
    }
}

fn caption(run: &Run) -> String {
    format!(
        "Compression beside hot requests: a 4 KB file from memory, in a closed loop on {CLOSED_CONNECTIONS} connections \
         (requests/s) and in an open loop at {rate} requests/s on {OPEN_CONNECTIONS} connections (p99, from the intended \
         start), alone and while text is compressed. {downloads} clients download {files} files of 1 MB in the coding and \
         level of the row, {DOWNLOADS_PER_SECOND} per second if they get them so fast; where it says \"variants\", clients send {POPULAR_PER_SECOND} requests per \
         second for {many} files of 100 KB, which Levity compresses at the highest level in idle time. Share of idle: CPU \
         time of the server beside compression less that alone, over the machine's idle time while the hot file is served \
         alone, in the open loop (and in the closed one, where little is idle). Text MB: complete files. At its \
         level: share of the responses that were not compressed less, or not at all, because of the load. Stall, hog and preempted: longest bucket of \
         Levity's loop; below 1 ms it shows 0. Bars: no stall of 1 ms, {KEPT_MIN} of the requests/s kept, \
         {SHARE_MIN} of the idle time used. One worker each, placed by the scheduler; median of {passes} interleaved passes \
         of {seconds} s (lowest to highest). Caddy of Debian cannot choose the level of zstd.",
        rate = run.rate,
        downloads = downloads(),
        files = LARGE_TEXTS.files,
        many = TEXTS.files,
        passes = run.passes,
        seconds = run.seconds,
    )
}

fn cells(is_levity: bool, row: &Measured<Pass>) -> Vec<String> {
    let rate = |of: fn(&Pass) -> &Hot| {
        row.spread(|pass| of(pass).report.requests_per_second())
            .show(number)
    };
    let p99 = |of: fn(&Pass) -> &Hot| {
        row.spread(|pass| of(pass).report.latency.p99_us)
            .show(time_us)
    };
    // The longest of all passes.
    let loop_seconds = |index: usize| {
        let longest = row.passes.iter().filter_map(|pass| pass.loop_seconds);
        longest.map(|seconds| seconds[index]).reduce(f64::max)
    };
    let show = |seconds: Option<f64>| seconds.map_or("-".into(), |seconds| time_us(seconds * 1e6));
    let (kept, share) = (
        row.spread(|pass| pass.closed.kept()),
        row.spread(|pass| pass.open.share()),
    );
    let bars = bars(is_levity, loop_seconds(0), kept.median, share.median);
    let text = |of: fn(&Pass) -> &Pair| {
        let at_level = row.spread(|pass| of(pass).at_level.unwrap_or(f64::NAN));
        [
            row.spread(|pass| of(pass).share()).show(number),
            row.spread(|pass| of(pass).text_bytes as f64 / 1e6)
                .show(number),
            at_level.show(number),
        ]
    };
    let mut cells = vec![
        row.server.clone(),
        rate(|pass| &pass.closed.alone),
        rate(|pass| &pass.closed.beside),
        kept.show(number),
        p99(|pass| &pass.open.alone),
        p99(|pass| &pass.open.beside),
        show(loop_seconds(0)),
        show(loop_seconds(1)),
        show(loop_seconds(2)),
    ];
    cells.extend(text(|pass| &pass.open));
    cells.extend(text(|pass| &pass.closed));
    cells.push(verdict(&bars, row.total(Pass::errors)));
    cells
}

fn bars(is_levity: bool, stall: Option<f64>, kept: f64, share: f64) -> [(bool, &'static str); 3] {
    let stall = is_above(stall.unwrap_or(f64::NAN), STALL_SECONDS_MAX);
    [
        (is_levity && stall, "stall"),
        (is_below(kept, KEPT_MIN), "throughput"),
        (is_levity && is_below(share, SHARE_MIN), "share"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(requests: u64, server: f64, idle: f64) -> Hot {
        Hot {
            report: Report {
                requests,
                seconds: 1.0,
                ..Report::default()
            },
            server,
            idle,
        }
    }

    #[test]
    fn compression_uses_what_was_idle() {
        let pair = Pair {
            alone: hot(1000, 0.5, 1.0),
            beside: hot(900, 1.25, 0.25),
            text: Report::default(),
            text_bytes: 0,
            at_level: None,
        };
        assert!((pair.kept() - 0.9).abs() < 1e-9 && (pair.share() - 0.75).abs() < 1e-9);
        let busy = Pair {
            alone: hot(1000, 1.0, 0.09),
            ..pair
        };
        assert!(busy.share().is_nan());
    }

    #[test]
    fn the_bars_of_the_design() {
        assert_eq!(verdict(&bars(true, Some(0.0), 0.9, 0.8), 0), "pass");
        assert_eq!(
            verdict(&bars(true, Some(0.0025), 0.89, 0.79), 0),
            "missed: stall, throughput, share"
        );
        assert_eq!(verdict(&bars(true, None, 0.9, 0.8), 0), "missed: stall");
        assert_eq!(verdict(&bars(false, None, 0.9, 0.8), 0), "pass");
    }

    #[test]
    fn every_server_has_rows_with_its_highest_levels() {
        let names = |row: Row| {
            let subjects = subjects(&row, Path::new("/v"));
            let names = subjects.into_iter().map(|subject| subject.row.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            names(Row::levity(Path::new("/l"), "auto")),
            [
                "levity auto br:11",
                "levity auto zstd:19",
                "levity auto br:1, variants",
                "levity auto zstd:1, variants"
            ]
        );
        let peer = |name| names(Row::compressor(name).unwrap());
        assert_eq!(peer("nginx"), ["nginx br:11", "nginx gzip:9"]);
        assert_eq!(peer("caddy"), ["caddy gzip:9", "caddy zstd"]);
        assert_eq!(
            peer("lighttpd"),
            ["lighttpd br:11", "lighttpd zstd:19", "lighttpd gzip:9"]
        );
    }
}
