//! G1: what do a thousand wrong passwords per second do to requests for a small file in memory, to the memory of the
//! server, and to a client with the right password?
//!
//! A hash of a password takes tens of milliseconds and megabytes. The guesses come from one client, or each from another
//! one. Server and load may use every processor, since the question is also where hashes are computed.

use super::cost::WARM_UP;
use super::hot_and_cold::{self, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, Subject, interleaved, name_left_out, startable, to_json};
use crate::failure::{Context, Result};
use crate::load::Report;
use crate::load::command::{Load, RunningLoad};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::slow_disk::create_dir_for_nobody;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Wrong passwords per second.
const GUESSES_PER_SECOND: u32 = 1000;
const GUESS_CONNECTIONS: usize = 64;
/// Users per second who log in with the right password, each once and from another client.
const LOGINS_PER_SECOND: u32 = 2;
const LOGIN_CONNECTIONS: usize = 8;
/// More than log in during a pass.
const USERS: usize = 2000;
/// A hash of `secret` by `levity passwd`: argon2id with 19 MiB.
const ARGON2: &str = "$argon2id$v=19$m=19456,t=2,p=1$H2CcpFAYy4sgnxIbTyFwjg$ZEB/jM2WOoc3nCXcHvlXyLgAuUWYyyExyl9wuoKyhgI";
const ARGON2_BYTES: u64 = 19 << 20;
/// The same by htpasswd: bcrypt with cost 10.
const BCRYPT: &str = "$2y$10$eiY7KaM2jeI.fqYjpMTpn.vd7pOR3tcou7uRkVABB9u4F96GS4oyq";
/// Memory that is not of hashes: connections of the load, and what the allocator keeps.
const OTHER_BYTES_MAX: u64 = 8 << 20;
/// How often the memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The bars of the design.
const P99_RATIO_MAX: f64 = 1.5;
const LOGIN_SECONDS_MAX: f64 = 1.0;

/// Where the guesses come from.
#[derive(Clone, Copy, Serialize)]
enum Guessers {
    One,
    Many,
}

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Report,
    beside: Report,
    guesses: Report,
    logins: Report,
    /// The most memory beside the guesses, less that before, in bytes.
    grown_bytes: u64,
    /// The memory of the hashes that may be computed at a time; Levity only.
    hash_bytes: Option<u64>,
}

impl Pass {
    fn p99_ratio(&self) -> f64 {
        self.beside.latency.p99_us / self.alone.latency.p99_us
    }

    fn guesses_with(&self, status: u16) -> f64 {
        let all: u64 = self.guesses.statuses.values().sum();
        let these = self.guesses.statuses.get(&status).copied();
        these.unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// Logins that did not succeed, or not in time to be seen.
    fn failed_logins(&self) -> u64 {
        self.logins.errors + self.logins.unfinished
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let dir = rig.setup.dir.join("users");
    create_dir_for_nobody(&dir)?;
    let (subjects, left_out) = startable(rig, subjects(rows, &dir)?)?;
    let measured = interleaved(&subjects, run.passes, |subject, _| {
        measure(rig, run, subject)
    })?;
    let mut table = Table::new(&[
        "server",
        "p99 alone",
        "p99 beside",
        "ratio",
        "guesses 401",
        "429",
        "503",
        "longest login",
        "failed logins",
        "memory MiB",
        "of hashes",
        "bar",
    ]);
    for (subject, measured) in subjects.iter().zip(&measured) {
        table.push(cells(subject.row.is_levity(), measured));
    }
    let mut caption = caption(run);
    name_left_out(&mut caption, &left_out);
    Ok(Outcome {
        name: "g1".into(),
        caption,
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn subjects(rows: &[Row], dir: &Path) -> Result<Vec<Subject<Guessers>>> {
    let mut subjects = Vec::new();
    for row in rows {
        let hash = if row.is_levity() { ARGON2 } else { BCRYPT };
        let users = users(dir, &row.name, hash)?;
        let Some(row) = row.unpinned().with_passwords(&users) else {
            continue;
        };
        let name = row.name.clone();
        subjects.extend(
            [(Guessers::One, "one client"), (Guessers::Many, "many")].map(|(guessers, from)| {
                Subject {
                    row: row.named(format!("{name}, {from}")),
                    kind: guessers,
                }
            }),
        );
    }
    Ok(subjects)
}

/// A file of users who all have the same password.
fn users(dir: &Path, server: &str, hash: &str) -> Result<PathBuf> {
    let path = dir.join(server.replace(' ', "-"));
    let lines: String = (0..USERS)
        .map(|number| format!("user{number}:{hash}\n"))
        .collect();
    fs::write(&path, lines).context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn measure(rig: &Rig, run: &Run, subject: &Subject<Guessers>) -> Result<Pass> {
    let server = Server::start(rig, &subject.row)?;
    let alone = hot(run, &server).measure(None)?;
    let before = server.anonymous_bytes()?;
    let seconds = WARM_UP.as_secs_f64() + run.seconds;
    let guesses = guesses(&server, subject.kind, seconds).start(None)?;
    let logins = logins(&server, seconds).start(None)?;
    let beside = hot(run, &server).start(None)?;
    let most = server.most_anonymous_bytes(Duration::from_secs_f64(seconds), LOOK_INTERVAL)?;
    let beside = report(beside)?;
    let (guesses, logins) = (report(guesses)?, report(logins)?);
    Ok(Pass {
        alone,
        beside,
        guesses,
        logins,
        grown_bytes: most.saturating_sub(before),
        hash_bytes: subject.row.is_levity().then_some(permits() * ARGON2_BYTES),
    })
}

/// The hashes that Levity computes at a time.
fn permits() -> u64 {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors as u64 / 2).max(1)
}

fn report(mut load: RunningLoad) -> Result<Report> {
    let report = load.report()?;
    load.drained()?;
    Ok(report)
}

/// The hot file in an open loop.
fn hot(run: &Run, server: &Server) -> Load {
    let mut load = hot_and_cold::hot(run, server, Loop::Open);
    load.warm_up = WARM_UP.as_secs_f64();
    load
}

fn guesses(server: &Server, guessers: Guessers, seconds: f64) -> Load {
    let mut load = Load::new(
        server.address,
        "/secret/hot/4096.bin",
        GUESS_CONNECTIONS,
        seconds,
    );
    load.credentials = Some("user0:guess {}".into());
    load.rate = Some(GUESSES_PER_SECOND);
    load.abandon = true;
    load.clients = match guessers {
        Guessers::One => None,
        Guessers::Many => Some(usize::MAX),
    };
    load
}

fn logins(server: &Server, seconds: f64) -> Load {
    let mut load = Load::new(
        server.address,
        "/secret/hot/4096.bin",
        LOGIN_CONNECTIONS,
        seconds,
    );
    load.credentials = Some("user{}:secret".into());
    load.rate = Some(LOGINS_PER_SECOND);
    load.clients = Some(USERS);
    load
}

fn caption(run: &Run) -> String {
    format!(
        "{GUESSES_PER_SECOND} wrong passwords per second on {GUESS_CONNECTIONS} connections, from one client or each from another \
         one, beside a 4 KB file from memory in an open loop at {rate} requests/s on {OPEN_CONNECTIONS} connections (p99, from the \
         intended start), and beside {LOGINS_PER_SECOND} users per second who give the right password for the first time, each \
         from another client. Levity's passwords are argon2id (19 MiB), those of peers bcrypt (cost 10), which they can verify. \
         Guesses: share of the responses with each status. Memory: the most anonymous memory during the guesses, less that \
         before; of hashes: what the hashes that Levity computes at a time need. Bars: {P99_RATIO_MAX} of the p99 alone; each login \
         within {LOGIN_SECONDS_MAX} s; no more memory than that of hashes and {other} MiB for connections. One worker each, placed \
         by the scheduler; median of {passes} interleaved passes of {seconds} s (lowest to highest).",
        rate = run.rate,
        other = OTHER_BYTES_MAX >> 20,
        passes = run.passes,
        seconds = run.seconds,
    )
}

fn cells(is_levity: bool, row: &Measured<Pass>) -> Vec<String> {
    let share = |status: u16| {
        row.spread(move |pass| pass.guesses_with(status))
            .show(number)
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let ratio = row.spread(Pass::p99_ratio);
    let login = row.spread(|pass| pass.logins.latency.max_us);
    let failed = row.total(Pass::failed_logins);
    let hashes = row.passes.iter().find_map(|pass| pass.hash_bytes);
    let most = row.passes.iter().map(|pass| pass.grown_bytes).max();
    let is_too_much = hashes.is_some_and(|hashes| most > Some(hashes + OTHER_BYTES_MAX));
    let is_late = failed > 0 || is_above(login.high, LOGIN_SECONDS_MAX * 1e6);
    vec![
        row.server.clone(),
        row.spread(|pass| pass.alone.latency.p99_us).show(time_us),
        row.spread(|pass| pass.beside.latency.p99_us).show(time_us),
        ratio.show(number),
        share(401),
        share(429),
        share(503),
        login.show(time_us),
        failed.to_string(),
        row.spread(|pass| mib(pass.grown_bytes)).show(number),
        hashes.map_or("-".into(), |bytes| number(mib(bytes))),
        verdict(
            &[
                (is_above(ratio.median, P99_RATIO_MAX), "p99"),
                (is_late, "login"),
                (is_levity && is_too_much, "memory"),
            ],
            row.total(|pass| pass.alone.errors + pass.beside.errors),
        ),
    ]
}
