//! Cores: does a second worker cost CPU time that one worker does not need?
//!
//! With two CPUs, a second worker shares one of them with the load generator, so that requests/s do not double.
//! CPU time per request tells what two workers would do with two CPUs of their own.

use super::cost::Cost;
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number};
use crate::rig::Rig;
use crate::rig::tree::HOT_BYTES;
use serde::Serialize;

const CONNECTIONS: usize = 64;
/// The bar of the design: two workers do 1.9 times the work of one in the same time.
const SPEED_UP_MIN: f64 = 1.9;

/// A row in a pass, with one file size.
#[derive(Serialize)]
pub struct Pass {
    bytes: usize,
    one: Cost,
    two: Cost,
}

impl Pass {
    /// CPU time per request with two workers, divided by that with one.
    fn ratio(&self) -> f64 {
        self.two.us_per_request() / self.one.us_per_request()
    }

    fn errors(&self) -> u64 {
        self.one.report.errors + self.two.report.errors
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let mut table = Table::new(&[
        "server",
        "file bytes",
        "CPU us/request, one worker",
        "CPU us/request, two",
        "two / one",
        "speed-up by CPU time",
        "req/s, one worker",
        "req/s, two",
        "bar",
    ]);
    let mut all = Vec::new();
    for bytes in HOT_BYTES {
        let measured = interleaved(rows, run.passes, |row, pass| {
            measure(rig, row, bytes, pass, run.seconds)
        })?;
        for (row, measured) in rows.iter().zip(&measured) {
            table.push(cells(row, measured, bytes));
        }
        all.extend(measured);
    }
    Ok(Outcome {
        name: "cores".into(),
        caption: format!(
            "A file in memory, {CONNECTIONS} keep-alive connections in a closed loop, one worker on CPU 0 and two workers \
             on any CPU. The load generator needs most of one CPU, so requests/s cannot double; the speed-up is twice \
             the CPU time per request of one worker over that of two: what two CPUs would do without the load on \
             them. Bar: {SPEED_UP_MIN}. Median of {} interleaved passes of {} s (lowest to highest).",
            run.passes, run.seconds
        ),
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

/// Each pass begins with the other number of workers.
fn measure(rig: &Rig, row: &Row, bytes: usize, pass: u64, seconds: f64) -> Result<Pass> {
    let cost = |workers| {
        let server = Server::start(rig, &row.with_workers(workers))?;
        let path = format!("/hot/{bytes}.bin");
        let mut load = Load::new(server.address, &path, CONNECTIONS, seconds);
        load.body_bytes = Some(bytes as u64);
        Cost::measure(rig, &server, load)
    };
    let (one, two) = if pass % 2 == 1 {
        let one = cost(1)?;
        (one, cost(2)?)
    } else {
        let two = cost(2)?;
        (cost(1)?, two)
    };
    Ok(Pass { bytes, one, two })
}

fn cells(row: &Row, measured: &Measured<Pass>, bytes: usize) -> Vec<String> {
    let ratio = measured.spread(Pass::ratio);
    vec![
        measured.server.clone(),
        bytes.to_string(),
        measured
            .spread(|pass| pass.one.us_per_request())
            .show(number),
        measured
            .spread(|pass| pass.two.us_per_request())
            .show(number),
        ratio.show(number),
        measured.spread(|pass| 2.0 / pass.ratio()).show(number),
        measured
            .spread(|pass| pass.one.report.requests_per_second())
            .show(number),
        measured
            .spread(|pass| pass.two.report.requests_per_second())
            .show(number),
        if row.is_levity() {
            bar(ratio.median, measured.total(Pass::errors))
        } else {
            "-".into()
        },
    ]
}

fn bar(ratio: f64, errors: u64) -> String {
    let is_missed = is_above(ratio, 2.0 / SPEED_UP_MIN);
    verdict(&[(is_missed, "speed-up")], errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_may_cost_a_twentieth_more() {
        assert_eq!(bar(1.05, 0), "pass");
        assert_eq!(bar(1.06, 0), "missed: speed-up");
        assert_eq!(bar(0.9, 2), "missed: 2 errors");
    }
}
