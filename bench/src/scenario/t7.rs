//! T7: what do handshakes with an RSA key of 4096 bits do to requests for a small file in memory on other connections?
//!
//! A signature takes milliseconds, in which a server that computes it on its event loop answers nobody. Server and load may
//! use every processor, since the question is also where signatures are computed.

use super::cost::WARM_UP;
use super::hot_and_cold::{self, Loop, OPEN_CONNECTIONS};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict, verdict_of_peer};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::certificates::{self, RSA_HOST};
use serde::Serialize;
use std::time::Duration;

const RSA_PATH: &str = "/hot/1024.bin";
const RSA_CONNECTIONS: usize = 64;
/// The handshakes per second, as a share of the signatures that one processor makes.
const OFFERED_SHARE: f64 = 0.5;
/// The time in which those are counted.
const COUNT_TIME: Duration = Duration::from_secs(1);
/// The bar of the design: p99 beside the handshakes, divided by that alone.
const P99_RATIO_MAX: f64 = 2.0;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Report,
    beside: Report,
    rsa: Report,
}

impl Pass {
    fn p99_ratio(&self) -> f64 {
        self.beside.latency.p99_us / self.alone.latency.p99_us
    }

    fn errors(&self) -> u64 {
        self.alone.errors + self.beside.errors + self.rsa.errors
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let possible = certificates::rsa_signatures_per_second(&certificates::folder(rig), COUNT_TIME)?;
    let rate = ((possible * OFFERED_SHARE) as u32).max(1);
    let rows: Vec<Row> = rows.iter().map(Row::unpinned).collect();
    let measured = interleaved(&rows, run.passes, |row, _| measure(rig, run, row, rate))?;
    let mut table = Table::new(&[
        "server",
        "p99 alone",
        "p99 beside",
        "ratio",
        "longest beside",
        "handshakes/s",
        "handshakes p99",
        "unfinished",
        "bar",
    ]);
    for (row, own) in rows.iter().zip(&measured) {
        table.push(cells(row, own));
    }
    Ok(Outcome {
        name: "t7".into(),
        caption: caption(run, possible, rate),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn measure(rig: &Rig, run: &Run, row: &Row, rate: u32) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let alone = hot(run, &server).measure(None)?;
    let mut rsa = handshakes(&server, rate, WARM_UP.as_secs_f64() + run.seconds).start(None)?;
    let mut beside = hot(run, &server).start(None)?;
    let (beside_report, rsa_report) = (beside.report()?, rsa.report()?);
    beside.drained()?;
    rsa.drained()?;
    Ok(Pass {
        alone,
        beside: beside_report,
        rsa: rsa_report,
    })
}

/// The hot file of the site with ECDSA, in an open loop.
fn hot(run: &Run, server: &Server) -> Load {
    let mut load = hot_and_cold::hot(run, server, Loop::Open);
    load.warm_up = WARM_UP.as_secs_f64();
    load
}

/// One handshake and one small request for each connection.
fn handshakes(server: &Server, rate: u32, seconds: f64) -> Load {
    let mut load = server.load(RSA_PATH, RSA_CONNECTIONS, seconds);
    load.tls = Some(RSA_HOST.into());
    load.close = true;
    load.rate = Some(rate);
    load.abandon = true;
    load
}

fn caption(run: &Run, possible: f64, rate: u32) -> String {
    format!(
        "A 4 KB file from memory over TLS 1.3 with an ECDSA P-256 certificate, in an open loop at {hot_rate} requests/s on \
         {OPEN_CONNECTIONS} connections (p99, from the intended start), alone and beside {rate} full handshakes per second with \
         a site whose certificate has RSA-4096: {OFFERED_SHARE} of the {possible} signatures per second that AWS-LC makes on one \
         processor, measured before. Handshakes p99: from the intended start to the end of a small response. Bar: \
         {P99_RATIO_MAX} of the p99 alone. One worker each, placed by the scheduler; median of {passes} interleaved passes of \
         {seconds} s (lowest to highest).",
        hot_rate = run.rate,
        possible = number(possible),
        passes = run.passes,
        seconds = run.seconds,
    )
}

fn cells(row: &Row, own: &Measured<Pass>) -> Vec<String> {
    let ratio = own.spread(Pass::p99_ratio);
    let errors = own.total(Pass::errors);
    vec![
        own.server.clone(),
        own.spread(|pass| pass.alone.latency.p99_us).show(time_us),
        own.spread(|pass| pass.beside.latency.p99_us).show(time_us),
        ratio.show(number),
        own.spread(|pass| pass.beside.latency.max_us).show(time_us),
        own.spread(|pass| pass.rsa.requests_per_second())
            .show(number),
        own.spread(|pass| pass.rsa.latency.p99_us).show(time_us),
        own.total(|pass| pass.rsa.unfinished).to_string(),
        if row.is_levity() {
            verdict(&[(is_above(ratio.median, P99_RATIO_MAX), "p99")], errors)
        } else {
            verdict_of_peer(errors)
        },
    ]
}
