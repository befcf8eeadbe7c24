//! W1: what a request for a small file in memory costs the server, in CPU time and system calls.

use super::{Measured, Run, interleaved, to_json};
use crate::failure::{Context, Failure, Result};
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::tree::HOT_BYTES;
use serde::Serialize;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

const CONNECTIONS: usize = 64;
const WARM_UP_SECONDS: f64 = 0.3;
/// Under strace, which slows a server down but does not change what it calls.
const TRACED_SECONDS: f64 = 1.0;
/// The bar of the design: CPU time for a request against the best peer.
const CPU_RATIO_MAX: f64 = 0.91;

/// One row in one pass and with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    report: Report,
    cpu_us_per_request: f64,
    /// In the first pass only.
    calls_per_request: Option<f64>,
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "file bytes",
        "CPU us/request",
        "of best peer",
        "req/s",
        "p99",
        "calls/request",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in HOT_BYTES {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, bytes, pass, run.seconds)
        })?;
        let best = best_peer(rows, &measured);
        for (row, measured) in rows.iter().zip(&measured) {
            table.push(cells(row, measured, bytes, best));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "w1".into(),
        caption: format!(
            "A file in memory, {CONNECTIONS} keep-alive connections in a closed loop, one worker. CPU time is that of the \
             server's control group, all threads and kernel work included. Bar: {CPU_RATIO_MAX} of the best peer. System \
             calls as counted by strace in a run of their own. Median of {} interleaved passes (lowest to highest).",
            run.passes
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, bytes: usize, pass: u64, seconds: f64) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let load = |seconds| {
        let mut load = Load::new(
            server.address,
            &format!("/hot/{bytes}.bin"),
            CONNECTIONS,
            seconds,
        );
        load.body_bytes = Some(bytes as u64);
        load.measure(rig.load_cpu())
    };
    load(WARM_UP_SECONDS)?;
    let before = server.group.cpu_time()?;
    let report = load(seconds)?;
    let cpu = server.group.cpu_time()? - before;
    let cpu_us_per_request = cpu.as_secs_f64() * 1e6 / report.requests as f64;
    let calls_per_request = (pass == 1)
        .then(|| calls_per_request(rig, &server, || load(TRACED_SECONDS)))
        .transpose()?;
    Ok(Pass {
        bytes,
        report,
        cpu_us_per_request,
        calls_per_request,
    })
}

fn calls_per_request(
    rig: &Rig,
    server: &Server,
    load: impl FnOnce() -> Result<Report>,
) -> Result<f64> {
    let summary = rig.setup.dir.join("strace.txt");
    let trace = Trace::attach(&server.group.threads()?, &summary)?;
    let report = load()?;
    trace.end()?;
    let text =
        std::fs::read_to_string(&summary).context(|| format!("read {}", summary.display()))?;
    Ok(total_calls(&text)? as f64 / report.requests as f64)
}

/// strace at work. Its standard error stays open until it has ended: it says goodbye to each thread,
/// and a closed pipe would end it before it writes its summary.
struct Trace {
    strace: Child,
    errors: BufReader<ChildStderr>,
}

impl Trace {
    /// Starts strace and waits until it has attached to all these threads.
    fn attach(threads: &[i32], summary: &Path) -> Result<Self> {
        let mut strace = Command::new("strace");
        strace
            .arg("-c")
            .arg("-o")
            .arg(summary)
            .stderr(Stdio::piped());
        strace.args(threads.iter().map(|thread| format!("--attach={thread}")));
        let mut strace = strace.spawn().context(|| "start strace".into())?;
        let errors = strace
            .stderr
            .take()
            .ok_or_else(|| Failure::new("no standard error"))?;
        let mut trace = Self {
            strace,
            errors: BufReader::new(errors),
        };
        threads.iter().try_for_each(|_| trace.expect_attached())?;
        Ok(trace)
    }

    fn expect_attached(&mut self) -> Result<()> {
        let mut line = String::new();
        self.errors
            .read_line(&mut line)
            .context(|| "read from strace".into())?;
        if line.ends_with(" attached\n") {
            Ok(())
        } else {
            Err(Failure::new(line))
        }
    }

    /// SIGINT makes strace detach and write its summary.
    fn end(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .context(|| "stop strace".into())?;
        self.errors
            .read_to_end(&mut Vec::new())
            .context(|| "read from strace".into())?;
        self.strace
            .wait()
            .context(|| "wait for strace".into())
            .map(drop)
    }
}

/// The last line of `strace -c`: `100.00 0.123456 3 41000 12 total`, without the errors column where
/// there were none.
fn total_calls(summary: &str) -> Result<u64> {
    let line = summary
        .lines()
        .find(|line| line.trim_end().ends_with(" total"));
    let calls = line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    calls.ok_or_else(|| Failure::new("strace wrote no total"))
}

/// The lowest median CPU time of a peer, in microseconds; None without peers.
fn best_peer(rows: &[Row], measured: &[Measured<Pass>]) -> Option<f64> {
    let peers = rows
        .iter()
        .zip(measured)
        .filter(|(row, _)| !row.is_levity());
    peers
        .map(|(_, row)| row.spread(|pass| pass.cpu_us_per_request).median)
        .min_by(f64::total_cmp)
}

fn cells(row: &Row, measured: &Measured<Pass>, bytes: usize, best: Option<f64>) -> Vec<String> {
    let cpu = measured.spread(|pass| pass.cpu_us_per_request);
    let ratio = best.map(|best| cpu.median / best);
    let calls = measured
        .passes
        .iter()
        .find_map(|pass| pass.calls_per_request);
    let errors: u64 = measured.passes.iter().map(|pass| pass.report.errors).sum();
    vec![
        measured.server.clone(),
        bytes.to_string(),
        cpu.show(number),
        ratio.map_or("-".into(), number),
        measured
            .spread(|pass| pass.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.report.latency.p99_us)
            .show(time_us),
        calls.map_or("-".into(), number),
        verdict(row.is_levity(), ratio, errors),
    ]
}

fn verdict(is_levity: bool, ratio: Option<f64>, errors: u64) -> String {
    match ratio {
        _ if errors > 0 => format!("{errors} errors"),
        Some(ratio) if is_levity && ratio <= CPU_RATIO_MAX => "pass".into(),
        Some(_) if is_levity => "missed".into(),
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_total_of_strace() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                        60.00    0.000006           3         2         1 read\n\
                       100.00    0.000010           2      4100         1 total\n";
        assert_eq!(total_calls(summary).unwrap(), 4100);
        assert!(total_calls("").is_err());
    }

    #[test]
    fn only_levity_has_a_bar() {
        assert_eq!(verdict(true, Some(0.9), 0), "pass");
        assert_eq!(verdict(true, Some(0.92), 0), "missed");
        assert_eq!(verdict(false, Some(1.0), 0), "-");
        assert_eq!(verdict(true, Some(0.5), 3), "3 errors");
    }
}
