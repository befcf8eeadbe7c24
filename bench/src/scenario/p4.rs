//! P4: a thousand clients and ten connections to an application that is killed and restarted every second: which
//! requests are lost, and which are processed twice?

use super::proxied::{Pair, dir, upstream};
use super::{Measured, Run, interleaved, to_json};
use crate::backend::Protocol;
use crate::backend::command::{Backend, RunningBackend};
use crate::failure::{Context, Result};
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::Row;
use crate::report::Outcome;
use crate::report::bar::verdict;
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Half of them send GET, the others POST.
const CLIENTS: usize = 1000;
/// Connections to all backends together. Each backend processes as many requests at a time as it has connections.
const CONNECTIONS: usize = 10;
const WORK_US: u64 = 2000;
const SECONDS: f64 = 20.0;
const QUICK_SECONDS: f64 = 4.0;
/// The time between kills. They hit the backends in turn.
const KILL_INTERVAL: Duration = Duration::from_secs(1);
/// The time from a kill to the restart.
const DOWN: Duration = Duration::from_millis(100);

/// A row in a pass, with one number of backends.
#[derive(Serialize)]
pub struct Pass {
    backends: usize,
    kills: u32,
    get: Side,
    post: Side,
    /// POST requests whose processing began more than once, at one backend or at several.
    doubled: u64,
    /// The same for GET requests, where it is allowed.
    repeated: u64,
    /// POST requests that failed although no backend had begun to process them.
    failed_untouched: u64,
}

/// The results of one method.
#[derive(Serialize)]
struct Side {
    report: Report,
    /// Failures by status.
    statuses: HashMap<u16, u64>,
    /// Connections that broke without a response.
    cut: u64,
}

impl Side {
    fn failures(&self) -> u64 {
        self.report.errors
    }

    fn status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }
}

impl Pass {
    /// Failed GET requests are avoidable losses if another backend was up.
    fn lost(&self) -> u64 {
        if self.backends > 1 {
            self.get.failures()
        } else {
            0
        }
    }

    fn answered(&self) -> u64 {
        self.get.report.requests + self.post.report.requests
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "proxy",
        "backends",
        "answered 200",
        "502",
        "503",
        "504",
        "cut",
        "other",
        "GET lost though retriable",
        "POST doubled",
        "POST failed untouched",
        "GET repeated",
        "p99 GET",
        "p99 POST",
        "bar",
    ]);
    let mut all = Vec::new();
    for backends in [2, 1] {
        let measured = interleaved(rows, run.passes, |row, _| {
            measure(
                rig,
                row,
                backends,
                if run.quick { QUICK_SECONDS } else { SECONDS },
            )
        })?;
        measured.iter().for_each(|row| table.push(cells(row)));
        all.extend(measured);
    }
    Ok(Outcome {
        name: "p4".into(),
        caption: caption(run),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(rig: &Rig, row: &Row, backends: usize, seconds: f64) -> Result<Pass> {
    let connections = CONNECTIONS / backends;
    let upstream = upstream(rig, Protocol::Http, backends, connections);
    let logs: Vec<PathBuf> = (0..backends)
        .map(|number| dir(rig).join(format!("log-{number}")))
        .collect();
    let mut options = Vec::new();
    for (socket, log) in upstream.sockets.iter().zip(&logs) {
        let _ = fs::remove_file(log);
        options.push(Backend {
            work_us: WORK_US,
            at_once: connections,
            log: Some(log.clone()),
            ..Backend::new(socket, upstream.protocol)
        });
    }
    let mut pair = Pair::start(rig, row, &upstream, &options)?;
    let load = |method: &str, path: &str| {
        let load = pair.load(path, CLIENTS / 2, seconds);
        Load {
            method: method.into(),
            numbered: true,
            ..load
        }
        .start(rig.load_cpu())
    };
    let mut get = load("GET", "/?bytes=500&id=g")?;
    let mut post = load("POST", "/?bytes=500&id=p")?;
    let kills = kill_in_turn(&mut pair.backends, seconds)?;
    let (get_report, post_report) = (get.report()?, post.report()?);
    get.drained()?;
    post.drained()?;
    let begun = begun(&logs)?;
    let failed_untouched = post_report
        .failed
        .iter()
        .filter(|failed| !begun.contains_key(&format!("p{}", failed.number)))
        .count();
    let more_than_once = |method: &str| {
        let times = begun.iter().filter(|(id, _)| id.starts_with(method));
        times.filter(|(_, times)| **times > 1).count() as u64
    };
    Ok(Pass {
        backends,
        kills,
        get: side(get_report),
        post: side(post_report),
        doubled: more_than_once("p"),
        repeated: more_than_once("g"),
        failed_untouched: failed_untouched as u64,
    })
}

/// Kills the backends in turn until the time is over. At the end all are up.
fn kill_in_turn(backends: &mut [RunningBackend], seconds: f64) -> Result<u32> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut kills = 0;
    loop {
        std::thread::sleep(KILL_INTERVAL - DOWN);
        if Instant::now() + DOWN >= end {
            return Ok(kills);
        }
        let backend = &mut backends[kills as usize % backends.len()];
        backend.kill()?;
        std::thread::sleep(DOWN);
        backend.restart()?;
        kills += 1;
    }
}

/// How often the processing of each request began.
fn begun(logs: &[PathBuf]) -> Result<HashMap<String, u32>> {
    let mut begun = HashMap::new();
    for log in logs {
        let text = fs::read_to_string(log).context(|| format!("read {}", log.display()))?;
        for id in text.lines() {
            *begun.entry(id.to_owned()).or_default() += 1;
        }
    }
    Ok(begun)
}

fn side(mut report: Report) -> Side {
    let mut statuses = HashMap::new();
    let mut cut = 0;
    for failed in std::mem::take(&mut report.failed) {
        match failed.status {
            Some(status) => *statuses.entry(status).or_default() += 1,
            None => cut += 1,
        }
    }
    Side {
        report,
        statuses,
        cut,
    }
}

fn caption(run: &Run) -> String {
    format!(
        "{CLIENTS} clients in a closed loop, half with GET and half with POST, each request with an id. {CONNECTIONS} connections \
         to the HTTP application, half of them to each process where there are two; a process works {} ms on each request and on as many at a time. Every {} s one process gets SIGKILL, \
         two in turn, and is started again {} ms later. It notes an id when the work begins. Lost: a GET without its answer while the other process was up. Doubled: \
         a POST that was begun twice. Failed untouched: a POST without an answer that nobody had begun, which a proxy cannot \
         always know. With one process nobody can answer while it is down. Bars: none lost, none doubled. Levity and HAProxy queue what their connections \
         cannot take; nginx and lighttpd cannot, and open as many as there are clients, so that a kill hits more requests at once. \
         nginx without max_fails, which would leave both processes alone for seconds; HAProxy with checks and with retry-on for all but POST; lighttpd \
         leaves a process alone for a second and may so have none. \
         Sums of {} interleaved passes; p99 is the median of them.",
        WORK_US / 1000,
        KILL_INTERVAL.as_secs(),
        DOWN.as_millis(),
        run.passes
    )
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let status = |status| row.total(|pass| pass.get.status(status) + pass.post.status(status));
    let cut = row.total(|pass| pass.get.cut + pass.post.cut);
    let failures = row.total(|pass| pass.get.failures() + pass.post.failures());
    let other = failures - cut - status(502) - status(503) - status(504);
    let (lost, doubled) = (row.total(Pass::lost), row.total(|pass| pass.doubled));
    let backends = row.passes[0].backends;
    let count = |count: u64| count.to_string();
    vec![
        row.server.clone(),
        backends.to_string(),
        count(row.total(Pass::answered)),
        count(status(502)),
        count(status(503)),
        count(status(504)),
        count(cut),
        count(other),
        if backends > 1 {
            count(lost)
        } else {
            "-".into()
        },
        count(doubled),
        count(row.total(|pass| pass.failed_untouched)),
        count(row.total(|pass| pass.repeated)),
        row.spread(|pass| pass.get.report.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.post.report.latency.p99_us)
            .show(time_us),
        verdict(
            &[
                (lost > 0, &format!("{} lost", number(lost as f64))),
                (doubled > 0, &format!("{} doubled", number(doubled as f64))),
            ],
            0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failed;

    fn failed(number: usize, status: Option<u16>) -> Failed {
        Failed { number, status }
    }

    #[test]
    fn failures_are_classified() {
        let side = side(Report {
            errors: 3,
            failed: vec![failed(1, Some(502)), failed(2, None), failed(9, Some(502))],
            ..Report::default()
        });
        assert_eq!((side.status(502), side.status(503), side.cut), (2, 0, 1));
        assert!(side.report.failed.is_empty(), "results keep counts only");
    }

    #[test]
    fn an_id_in_two_logs_was_processed_twice() {
        let dir = tempfile::tempdir().unwrap();
        let logs = ["a", "b"].map(|name| dir.path().join(name));
        fs::write(&logs[0], "p1\ng1\n").unwrap();
        fs::write(&logs[1], "p1\np2\n").unwrap();
        let begun = begun(&logs).unwrap();
        assert_eq!((begun["p1"], begun["g1"], begun["p2"]), (2, 1, 1));
    }
}
