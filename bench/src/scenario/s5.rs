//! S5: what does a client that abuses HTTP/2 do to requests for a small file in memory, and to the memory of the server?

use super::hot_and_cold::{self, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, Subject, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::attack::{Attack, AttackReport, Attacker};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict, verdict_of_peer};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// An attack may be measured for longer than the load without one, which changes little.
const ALONE_SECONDS_MAX: f64 = 5.0;
/// The bars of the design: the share of the hot requests that are answered, and in this time.
const KEPT_MIN: f64 = 0.9;
const P99_US_MAX: f64 = 10_000.0;
/// 5000 requests that have begun to be answered, and what the allocator keeps.
const GROWN_BYTES_MAX: u64 = 64 << 20;
/// `ENHANCE_YOUR_CALM` and `REFUSED_STREAM` (RFC 9113, 7).
const CALM: u32 = 11;
const REFUSED: u32 = 7;

/// A row with one attack in a pass.
#[derive(Serialize)]
pub struct Pass {
    attack: Attack,
    alone: Report,
    beside: Report,
    attacker: AttackReport,
    /// The most memory beside the attack, less that before, in bytes.
    grown_bytes: u64,
}

impl Pass {
    /// The share of the hot requests that were due and are answered.
    fn kept(&self) -> f64 {
        let beside = &self.beside;
        let due = beside.requests + beside.errors + beside.unfinished;
        beside.requests as f64 / due as f64
    }

    /// Whether the codes for the attacker are the right ones.
    fn has_right_codes(&self) -> bool {
        let ended = |code| self.attacker.ended.contains_key(&code);
        match self.attack {
            Attack::ZeroWindow => true,
            Attack::Streams => self.attacker.resets.contains_key(&REFUSED) && ended(CALM),
            _ => self.attacker.ended.keys().eq([&CALM]),
        }
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let of_row = |row: &Row| {
        let row = row.clone();
        let attacks = Attack::value_variants().iter();
        attacks.map(move |&kind| Subject {
            row: row.clone(),
            kind,
        })
    };
    let subjects: Vec<_> = rows.iter().flat_map(of_row).collect();
    let measured = interleaved(&subjects, run.passes, |subject, _| {
        measure(rig, run, subject)
    })?;
    let mut table = Table::new(&[
        "server",
        "attack",
        "kept",
        "p99 alone",
        "p99 beside",
        "memory MiB",
        "connections/s",
        "frames/s",
        "ended by code",
        "reset by code",
        "bar",
    ]);
    for (subject, own) in subjects.iter().zip(&measured) {
        table.push(cells(&subject.row, own));
    }
    Ok(Outcome {
        name: "s5".into(),
        caption: caption(run),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, run: &Run, subject: &Subject<Attack>) -> Result<Pass> {
    let server = Server::start(rig, &subject.row)?;
    let hot = hot_and_cold::hot(run, &server, Loop::Open);
    let mut alone = hot.clone();
    alone.seconds = run.seconds.min(ALONE_SECONDS_MAX);
    let alone = alone.measure(rig.load_cpu())?;
    let before = server.anonymous_bytes()?;
    let attacker = Attacker {
        address: server.address,
        attack: subject.kind,
        seconds: run.seconds,
    };
    let attacker = attacker.start(rig.load_cpu())?;
    let mut running = hot.start(rig.load_cpu())?;
    let most = server.most_anonymous_bytes(Duration::from_secs_f64(run.seconds), LOOK_INTERVAL)?;
    let beside = running.report()?;
    running.drained()?;
    let attacker = attacker.report()?;
    Ok(Pass {
        attack: subject.kind,
        alone,
        beside,
        attacker,
        grown_bytes: most.saturating_sub(before),
    })
}

fn caption(run: &Run) -> String {
    format!(
        "A client that abuses HTTP/2 as fast as the server lets it, on one connection after another (zero-window: 50 at a time), \
         beside a 4 KB file from memory over HTTP/2 in an open loop at {rate} requests/s on {OPEN_CONNECTIONS} connections (p99, \
         from the intended start). Kept: the share of these requests that were answered. Memory: the most anonymous memory \
         during the attack, less that before. Ended and reset: what the attacker was told by GOAWAY (0: nothing) and RST_STREAM, \
         code: times; 7 is REFUSED_STREAM, 11 ENHANCE_YOUR_CALM. Bars: {KEPT_MIN} kept, p99 at most {p99} ms, at most {memory} MiB \
         more, ended with code 11. Attacker and load share a CPU. One worker each; median of {passes} interleaved passes of \
         {seconds} s (lowest to highest).",
        rate = run.rate,
        p99 = P99_US_MAX / 1000.0,
        memory = GROWN_BYTES_MAX >> 20,
        passes = run.passes,
        seconds = run.seconds,
    )
}

fn cells(row: &Row, own: &Measured<Pass>) -> Vec<String> {
    let kept = own.spread(Pass::kept);
    let p99 = own.spread(|pass| pass.beside.latency.p99_us);
    let grown = own.spread(|pass| pass.grown_bytes as f64);
    let errors = own.total(|pass| pass.alone.errors + pass.beside.errors);
    let first = &own.passes[0];
    let per_second = |count: u64| number(count as f64 / first.beside.seconds);
    let bars = [
        (is_below(kept.median, KEPT_MIN), "kept"),
        (is_above(p99.median, P99_US_MAX), "p99"),
        (is_above(grown.high, GROWN_BYTES_MAX as f64), "memory"),
        (!own.passes.iter().all(Pass::has_right_codes), "code"),
    ];
    let attack = first.attack.to_possible_value();
    vec![
        own.server.clone(),
        attack.map_or(String::new(), |attack| attack.get_name().to_owned()),
        kept.show(number),
        own.spread(|pass| pass.alone.latency.p99_us).show(time_us),
        p99.show(time_us),
        own.spread(|pass| pass.grown_bytes as f64 / f64::from(1 << 20))
            .show(number),
        per_second(first.attacker.connections),
        per_second(first.attacker.frames),
        codes(&first.attacker.ended),
        codes(&first.attacker.resets),
        match row.is_levity() {
            true => verdict(&bars, errors),
            false => verdict_of_peer(errors),
        },
    ]
}

/// How often each code came.
fn codes(counts: &BTreeMap<u32, u64>) -> String {
    let parts: Vec<_> = counts
        .iter()
        .map(|(code, count)| format!("{code}: {count}"))
        .collect();
    match parts.is_empty() {
        true => "-".into(),
        false => parts.join(", "),
    }
}
