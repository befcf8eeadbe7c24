//! T3 and T4: how many handshakes does a CPU second of the server make, full and resumed?
//!
//! Each connection also makes one request, because the client does not see otherwise that the server has finished, and has
//! its tickets only then.

use super::cost::Cost;
use super::{Measured, Run, best_peer, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_below, verdict, verdict_of_peer};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

const CONNECTIONS: [usize; 1] = [64];
const PATH: &str = "/hot/1024.bin";
const BODY_BYTES: u64 = 1024;
/// The bar of the design: handshakes per CPU second, divided by those of the best peer.
const RATIO_MIN: f64 = 1.0;
/// The share of handshakes of the wanted kind from which on the others do not matter. The first ones have no ticket.
const WANTED: f64 = 0.99;
/// With fewer than this, the figure would be mostly that of the others.
const WANTED_MIN: f64 = 0.5;

/// The kind that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Handshake {
    /// With a signature.
    Full,
    /// With a ticket.
    Resumed,
}

/// A row in a pass, with one number of connections.
#[derive(Serialize)]
pub struct Pass {
    connections: usize,
    kind: Handshake,
    cost: Cost,
    /// Full handshakes alone, if too many of the others were full.
    full: Option<Cost>,
}

impl Pass {
    /// The share of the handshakes that are of the wanted kind.
    fn wanted(&self) -> f64 {
        let made = self.cost.report.handshakes;
        let wanted = match self.kind {
            Handshake::Full => made.full,
            Handshake::Resumed => made.resumed,
        };
        wanted as f64 / (made.full + made.resumed) as f64
    }

    /// CPU time of a handshake of the wanted kind, in microseconds: that of full ones is taken off.
    fn us_per_handshake(&self) -> f64 {
        let (us, wanted) = (self.cost.us_per_request(), self.wanted());
        let full = self.full.as_ref().map(Cost::us_per_request);
        full.map_or(us, |full| (us - (1.0 - wanted) * full) / wanted)
    }

    fn handshakes_per_cpu_second(&self) -> f64 {
        1e6 / self.us_per_handshake()
    }

    fn errors(&self) -> u64 {
        self.cost.report.errors + self.full.as_ref().map_or(0, |full| full.report.errors)
    }
}

/// Runs one of them.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run, kind: Handshake) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "connections",
        "handshakes/CPU s",
        "of best peer",
        "CPU us/handshake",
        "handshakes/s",
        "p99",
        "of this kind",
        "CPUs: server",
        "load",
        "bar",
    ]);
    let mut all = Vec::new();
    for &connections in run.connections_or(&CONNECTIONS) {
        let measured = interleaved(rows, run.passes, |row, _| {
            measure(rig, row, run, (kind, connections))
        })?;
        let best = best_peer(rows, &measured, Pass::us_per_handshake);
        for (row, own) in rows.iter().zip(&measured) {
            table.push(cells(row, own, connections, best));
        }
        all.extend(measured);
    }
    let name = match kind {
        Handshake::Full => "t3",
        Handshake::Resumed => "t4",
    };
    Ok(Outcome {
        name: name.into(),
        caption: caption(run, kind),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn measure(
    rig: &Rig,
    row: &Row,
    run: &Run,
    (kind, connections): (Handshake, usize),
) -> Result<Pass> {
    let server = Server::start(rig, row)?;
    let measure = |kind| Cost::measure(rig, &server, load(&server, run, (kind, connections)));
    let mut pass = Pass {
        connections,
        kind,
        cost: measure(kind)?,
        full: None,
    };
    if kind == Handshake::Resumed && is_below(pass.wanted(), WANTED) {
        pass.full = Some(measure(Handshake::Full)?);
    }
    Ok(pass)
}

fn load(server: &Server, run: &Run, (kind, connections): (Handshake, usize)) -> Load {
    let mut load = server.load(PATH, connections, run.seconds);
    load.body_bytes = Some(BODY_BYTES);
    load.close = true;
    load.resume = kind == Handshake::Resumed;
    load
}

fn caption(run: &Run, kind: Handshake) -> String {
    let how = match kind {
        Handshake::Full => "full, with a certificate for ECDSA P-256",
        Handshake::Resumed => {
            "resumed with a ticket of an earlier connection, each used once; what is left of full ones, because a server \
             sends no ticket in a resumed session, is measured by itself and taken off"
        }
    };
    format!(
        "Handshakes of TLS 1.3, {how}; the group X25519 and AES-128-GCM, which all servers get offered alone. Each \
         connection makes one handshake and one request for a file of {BODY_BYTES} bytes, and the server closes it: the CPU \
         time has all of that. Closed loop, one worker; CPU time is that of the server's control group. Bar: at least \
         {RATIO_MIN} of the peer with the most handshakes per CPU second. CPUs: CPU seconds per second; the load has one and \
         verifies nothing. Median of {} interleaved passes of {} s (lowest to highest).",
        run.passes, run.seconds
    )
}

fn cells(
    row: &Row,
    own: &Measured<Pass>,
    connections: usize,
    best: Option<&Measured<Pass>>,
) -> Vec<String> {
    let rate = Pass::handshakes_per_cpu_second;
    let ratio = best.map(|best| own.spread_of_ratio(best, rate));
    let wanted = own.spread(Pass::wanted);
    let errors = own.total(Pass::errors);
    vec![
        own.server.clone(),
        connections.to_string(),
        own.spread(rate).show(number),
        ratio.map_or("-".into(), |ratio| ratio.show(number)),
        own.spread(Pass::us_per_handshake).show(number),
        own.spread(|pass| pass.cost.report.requests_per_second())
            .show(number),
        own.spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        wanted.show(number),
        own.spread(|pass| pass.cost.processors).show(number),
        own.spread(|pass| pass.cost.report.processors())
            .show(number),
        match ratio {
            _ if is_below(wanted.low, WANTED_MIN) => "not this kind".into(),
            Some(ratio) if row.is_levity() => {
                verdict(&[(is_below(ratio.median, RATIO_MIN), "handshakes")], errors)
            }
            _ => verdict_of_peer(errors),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Handshakes, Report};

    fn cost(us: f64, full: u64, resumed: u64) -> Cost {
        Cost {
            report: Report {
                requests: 1000,
                seconds: 1.0,
                handshakes: Handshakes { full, resumed },
                ..Report::default()
            },
            processors: us / 1000.0,
            user: 0.0,
        }
    }

    #[test]
    fn handshakes_of_the_other_kind_are_taken_off() {
        let mut pass = Pass {
            connections: 1,
            kind: Handshake::Resumed,
            cost: cost(200.0, 250, 750),
            full: None,
        };
        assert_eq!(pass.wanted(), 0.75);
        assert_eq!(pass.us_per_handshake().round(), 200.0);
        pass.full = Some(cost(500.0, 1000, 0));
        assert_eq!(pass.us_per_handshake().round(), 100.0);
        assert_eq!(pass.handshakes_per_cpu_second().round(), 10_000.0);
    }
}
