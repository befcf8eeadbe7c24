//! W8: small files with neither inode nor content in memory, three in ten of which do not exist. Most disk reads belong
//! to lookups, which must not run on the event loop.

use super::cold::Side;
use super::{Measured, Run, interleaved, percent, to_json};
use crate::failure::{Context, Failure, Result};
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::TINY;
use crate::walk::Walk;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 200;
/// Longer than any pass.
const SECONDS_MAX: f64 = 600.0;
/// Files per second that an emulated disk can look up and read.
const FILES_PER_SECOND: f64 = 150.0;
/// The minimum duration of a reported system call, in milliseconds.
const LONG_CALL_MS: &str = "0.2";
/// System calls in which an event loop waits for events.
const WAITS: [&str; 4] = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "rt_sigsuspend"];
/// The time-out for perf to attach.
const ATTACH_MAX: Duration = Duration::from_secs(10);
/// The bars of the design.
const E_MIN: f64 = 0.95;
const STALL_SECONDS_MAX: f64 = 0.0;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    server: Side,
    /// The walker right before, on the same files.
    walker: Side,
    /// Time that event loops were blocked, in seconds; Levity only.
    stalled_seconds: Option<f64>,
    /// System calls of the event loops that took longer than 0.2 ms, in a separate run after the first pass; None without
    /// perf.
    long_calls: Option<Vec<LongCall>>,
}

/// A system call that took long.
#[derive(Debug, PartialEq, Serialize)]
struct LongCall {
    name: String,
    ms: f64,
}

impl Pass {
    fn e(&self) -> f64 {
        self.server.report.requests_per_second() / self.walker.report.requests_per_second()
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
        "E",
        "files/s",
        "walker files/s",
        "p50",
        "p99",
        "disk busy",
        "walker's disk busy",
        "loop stalled ms",
        "calls > 0.2 ms",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(&measured) {
        table.push(cells(row, measured));
    }
    Ok(Outcome {
        name: "w8".into(),
        caption: caption(rig, run),
        table,
        picture: Some(picture::svg(
            "Small cold files per second, three in ten of them missing (log scale)",
            ["a walker with 64 threads", "the server, 200 connections"],
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
        let list = self.list(self.pass)?;
        let mut walk = Walk::new(&self.rig.docroot, &list);
        walk.missing_ok = true;
        let walker = Side::measure(self.rig, || walk.start(self.rig.server_cpu())?.report())?;
        let server = Server::start(self.rig, row)?;
        let before = server.metrics()?;
        let side = Side::measure(self.rig, || self.load(&server, list))?;
        let stalled_seconds = server.metrics()?.zip(before).map(|(after, before)| {
            after.growth_since(&before, "levity_loop_stall_seconds_sum", "")
        });
        let long_calls = match self.pass {
            1 => self.long_calls(&server)?,
            _ => None,
        };
        Ok(Pass {
            server: side,
            walker,
            stalled_seconds,
            long_calls,
        })
    }

    fn load(&self, server: &Server, list: PathBuf) -> Result<crate::load::Report> {
        let mut load = Load::new(server.address, "", CONNECTIONS, SECONDS_MAX);
        load.list = Some(list);
        load.missing_ok = true;
        load.measure(self.rig.load_cpu())
    }

    fn list(&self, seed: u64) -> Result<PathBuf> {
        let count = files_of_a_pass(self.rig.is_slow(), self.run.seconds);
        let paths = with_missing(TINY.shuffled(seed, count));
        self.rig.list_of("tiny", &paths)
    }

    /// Other files than before, so that the server has to look them up.
    fn long_calls(&self, server: &Server) -> Result<Option<Vec<LongCall>>> {
        let list = self.list(u64::MAX)?;
        self.rig.drop_caches()?;
        let output = self.rig.setup.dir.join("perf-trace.txt");
        let Some(trace) = Trace::attach(&server.loops()?, &output)? else {
            return Ok(None);
        };
        self.load(server, list)?;
        trace.end()?;
        let text =
            std::fs::read_to_string(&output).context(|| format!("read {}", output.display()))?;
        Ok(Some(text.lines().filter_map(long_call).collect()))
    }
}

/// On a real disk the whole set, on an emulated one as much as it can read during a pass.
fn files_of_a_pass(is_slow: bool, seconds: f64) -> usize {
    if !is_slow {
        return TINY.files;
    }
    ((seconds * FILES_PER_SECOND) as usize).clamp(CONNECTIONS, TINY.files)
}

/// Replaces three of ten paths by names that do not exist, in directories that do.
fn with_missing(paths: Vec<String>) -> Vec<String> {
    let name = |(index, path): (usize, String)| match index % 10 {
        1 | 4 | 8 => format!("{path}.missing"),
        _ => path,
    };
    paths.into_iter().enumerate().map(name).collect()
}

/// A running `perf trace` of some threads.
struct Trace(Child);

impl Trace {
    /// None without perf, or if the kernel does not permit tracing.
    fn attach(threads: &[i32], output: &Path) -> Result<Option<Self>> {
        let threads: Vec<String> = threads.iter().map(ToString::to_string).collect();
        let perf = Command::new("perf")
            .args(["trace", "--duration", LONG_CALL_MS])
            .arg(format!("--tid={}", threads.join(",")))
            .arg("--output")
            .arg(output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(perf) = perf else { return Ok(None) };
        let mut trace = Self(perf);
        Ok(trace.has_begun()?.then_some(trace))
    }

    /// perf does not report that it has attached; its descriptors show it.
    fn has_begun(&mut self) -> Result<bool> {
        let end = Instant::now() + ATTACH_MAX;
        let descriptors = format!("/proc/{}/fd", self.0.id());
        while Instant::now() < end {
            if self
                .0
                .try_wait()
                .context(|| "wait for perf".into())?
                .is_some()
            {
                return Ok(false);
            }
            let traces = std::fs::read_dir(&descriptors).is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry.is_ok_and(|entry| {
                        std::fs::read_link(entry.path())
                            .is_ok_and(|link| link.to_string_lossy().contains("perf_event"))
                    })
                })
            });
            if traces {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Failure::new("perf does not begin to trace"))
    }

    /// SIGINT makes perf write its output.
    fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::INT).context(|| "stop perf".into())?;
        self.0.wait().context(|| "wait for perf".into()).map(drop)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // The load may have failed meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Parses `  5.383 ( 0.628 ms): nginx/18124 openat(dfd: CWD, ...) = 3`; with a single thread its name is missing. None
/// for waits and for lines that are not system calls.
fn long_call(line: &str) -> Option<LongCall> {
    let (time, call) = line.split_once("): ")?;
    let ms = time.split_once('(')?.1.trim().strip_suffix(" ms")?;
    let call = call.trim_start_matches("... [continued]: ");
    let name = call.split('(').next()?.split_whitespace().last()?;
    let name = name.to_owned();
    (!WAITS.contains(&&*name)).then_some(LongCall {
        name,
        ms: ms.trim().parse().ok()?,
    })
}

fn caption(rig: &Rig, run: &Run) -> String {
    format!(
        "{} of 100 000 files of 1 KB, each once, three in ten of them missing, for {CONNECTIONS} connections; inodes, names and \
         content dropped from the caches before. E: the server's files/s over those of a walker that opens, stats, reads \
         and closes the same files with 64 threads right before. Loop stalled: time that an event loop slept where it should \
         not, as Levity itself measures it (sleeps under 1 ms are not counted). Calls over 0.2 ms: system calls of the event \
         loops, waits for events left out, as `perf trace` sees them in a run of their own with other files; time for which \
         another process had the CPU is included. Bars for Levity: E >= {E_MIN}, no stall, no such call. Median of {} \
         interleaved passes (lowest to highest).",
        files_of_a_pass(rig.is_slow(), run.seconds),
        run.passes
    )
}

fn cells(row: &Row, measured: &Measured<Pass>) -> Vec<String> {
    let e = measured.spread(Pass::e);
    let stalled = measured.spread(|pass| pass.stalled_seconds.unwrap_or(f64::NAN));
    let calls = measured
        .passes
        .iter()
        .find_map(|pass| pass.long_calls.as_ref());
    let has_long_calls = calls.is_some_and(|calls| !calls.is_empty());
    let bars = [
        (is_below(e.median, E_MIN), "E"),
        (
            row.is_levity() && is_above(stalled.high, STALL_SECONDS_MAX),
            "stall",
        ),
        (row.is_levity() && has_long_calls, "calls"),
    ];
    let side = |figure: fn(&Side) -> f64| measured.spread(move |pass| figure(&pass.server));
    vec![
        measured.server.clone(),
        e.show(number),
        side(|side| side.report.requests_per_second()).show(number),
        measured
            .spread(|pass| pass.walker.report.requests_per_second())
            .show(number),
        side(|side| side.report.latency.p50_us).show(time_us),
        side(|side| side.report.latency.p99_us).show(time_us),
        side(|side| side.device.utilisation).show(percent),
        measured
            .spread(|pass| pass.walker.device.utilisation)
            .show(percent),
        stalled.show(|seconds| number(seconds * 1000.0)),
        calls.map_or("-".into(), |calls| summary(calls)),
        verdict(&bars, measured.total(|pass| pass.server.report.errors)),
    ]
}

/// The number of calls, and the longest.
fn summary(calls: &[LongCall]) -> String {
    let longest = calls
        .iter()
        .max_by(|one, other| one.ms.total_cmp(&other.ms));
    longest.map_or("0".into(), |call| {
        format!("{}, {} {} ms", calls.len(), call.name, number(call.ms))
    })
}

fn pair(row: &Measured<Pass>) -> Pair {
    let rate =
        |side: fn(&Pass) -> &Side| row.spread(|pass| side(pass).report.requests_per_second());
    Pair {
        name: row.server.clone(),
        limit: rate(|pass| &pass.walker).median,
        measured: rate(|pass| &pass.server).median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_ten_are_missing() {
        let paths = with_missing(vec!["/a".into(); 100]);
        let missing = paths.iter().filter(|path| path.ends_with(".missing"));
        assert_eq!(missing.count(), 30);
    }

    #[test]
    fn parses_the_output_of_perf() {
        let call = |line| long_call(line).map(|call| (call.name, call.ms));
        assert_eq!(
            call("     5.383 ( 0.628 ms): nginx/18124 openat(dfd: CWD, filename: \"/a (b)\") = 3"),
            Some(("openat".into(), 0.628))
        );
        assert_eq!(
            call("     0.351 (100.098 ms): sendfile(out_fd: 5, in_fd: 6)       = 0"),
            Some(("sendfile".into(), 100.098))
        );
        assert_eq!(
            call("  7.1 ( 2.000 ms): nginx/1  ... [continued]: pread64())  = 4096"),
            Some(("pread64".into(), 2.0))
        );
        assert_eq!(call("  7.1 ( 2.000 ms): epoll_pwait2(epfd: 4) = 1"), None);
        assert_eq!(call("  7.1 (         ): nginx/1 pread64(fd: 5) ..."), None);
        assert_eq!(call(""), None);
    }

    #[test]
    fn the_longest_call_is_named() {
        let call = |name: &str, ms| LongCall {
            name: name.into(),
            ms,
        };
        assert_eq!(summary(&[]), "0");
        assert_eq!(
            summary(&[call("openat", 1.0), call("pread64", 12.0)]),
            "2, pread64 12.0 ms"
        );
    }
}
