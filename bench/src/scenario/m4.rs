//! M4: how do requests for a file in memory fare while messages go to many subscribers?

use super::hot_and_cold::{self, CLOSED_CONNECTIONS, Loop, OPEN_CONNECTIONS};
use super::mailboxes::{SUBSCRIBERS, subscribe, subscribers};
use super::{Measured, Run, interleaved, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::mailbox::command::Subscribers;
use crate::mailbox::{Delivered, Order};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

/// The time from one message to the next, in milliseconds.
const INTERVAL_MS: u64 = 1000;
/// The length of a message in bytes.
const BYTES: usize = 1024;
const STALL: &str = "levity_loop_stall_seconds";
/// The bars of the design. The histogram of stalls has those of 1 ms or more.
const KEPT_MIN: f64 = 0.9;
const STALL_SECONDS_MAX: f64 = 0.0;

/// One kind of load on the hot file, in three situations.
#[derive(Serialize)]
struct Hot {
    alone: Report,
    /// Beside messages of the server itself.
    beside: Report,
    /// Beside the same messages of the writer, a process on the same CPU.
    beside_writer: Report,
}

impl Hot {
    fn kept(&self) -> f64 {
        self.beside.requests_per_second() / self.alone.requests_per_second()
    }

    fn kept_of_writer(&self) -> f64 {
        self.beside.requests_per_second() / self.beside_writer.requests_per_second()
    }

    fn errors(&self) -> u64 {
        self.alone.errors + self.beside.errors + self.beside_writer.errors
    }
}

/// A row in a pass.
#[derive(Serialize)]
struct Pass {
    closed: Hot,
    open: Hot,
    delivered: Vec<Delivered>,
    /// The upper edge of the highest bucket of [`STALL`] that grew beside the server's own messages; Levity only.
    stall_seconds: Option<f64>,
}

impl Pass {
    fn failures(&self) -> u64 {
        let delivered: u64 = self.delivered.iter().map(Delivered::failures).sum();
        delivered + self.closed.errors() + self.open.errors()
    }

    fn last_us(&self) -> f64 {
        let times = self
            .delivered
            .iter()
            .flat_map(|delivered| &delivered.last_us);
        times.copied().fold(f64::NAN, f64::max)
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let count = subscribers(SUBSCRIBERS);
    let rows: Vec<Row> = rows.iter().filter(|row| row.has_files()).cloned().collect();
    let measured = interleaved(&rows, run.passes, |row, _| {
        Bench { rig, run, count }.measure(row)
    })?;
    let mut table = Table::new(&[
        "server",
        "alone req/s",
        "beside req/s",
        "kept",
        "beside the writer req/s",
        "kept of that",
        "p99 alone",
        "p99 beside",
        "p99 beside the writer",
        "longest fan-out",
        "stall <=",
        "failed",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(&measured) {
        table.push(cells(measured, row.is_levity()));
    }
    Ok(Outcome {
        name: "m4".into(),
        caption: format!(
            "A 4 KB file from memory, in a closed loop on {CLOSED_CONNECTIONS} connections (requests/s) and in an open loop at {rate} \
             requests/s on {OPEN_CONNECTIONS} connections (p99, from the intended start): alone, with {count} idle subscribers; beside \
             a message of {BYTES} bytes to each of them every {interval} s; and beside the same messages of the writer, another process on the \
             server's CPU with as many subscribers. The closed loop uses up the CPU: what a message costs is lost to it, whoever \
             writes it. Stall: longest bucket of Levity's loop; below 1 ms it shows 0. Bars for Levity: {KEPT_MIN} of the \
             requests/s beside the writer, no stall. One worker each; median of {passes} interleaved passes of {seconds} s \
             (lowest to highest).",
            rate = run.rate,
            interval = INTERVAL_MS / 1000,
            passes = run.passes,
            seconds = run.seconds,
        ),
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

struct Bench<'a> {
    rig: &'a Rig,
    run: &'a Run,
    count: usize,
}

impl Bench<'_> {
    fn measure(&self, row: &Row) -> Result<Pass> {
        let server = Server::start(self.rig, row)?;
        let mut own = subscribe(self.rig, &server, self.count, 1, 1)?;
        let [closed_alone, open_alone] =
            [Loop::Closed, Loop::Open].map(|kind| self.hot(&server, kind));
        let before = server.metrics()?;
        let [closed_beside, open_beside] =
            [Loop::Closed, Loop::Open].map(|kind| self.beside(&server, &mut own, kind));
        let grown = server.metrics()?.zip(before);
        let writer = Server::start(self.rig, &Row::writer(self.rig)?.beside("other"))?;
        let mut others = subscribe(self.rig, &writer, self.count, 1, 1)?;
        let [closed_writer, open_writer] =
            [Loop::Closed, Loop::Open].map(|kind| self.beside(&server, &mut others, kind));
        let (closed_beside, open_beside) = (closed_beside?, open_beside?);
        let (closed_writer, open_writer) = (closed_writer?, open_writer?);
        Ok(Pass {
            closed: Hot {
                alone: closed_alone?,
                beside: closed_beside.0,
                beside_writer: closed_writer.0,
            },
            open: Hot {
                alone: open_alone?,
                beside: open_beside.0,
                beside_writer: open_writer.0,
            },
            delivered: vec![closed_beside.1, open_beside.1],
            stall_seconds: grown
                .map(|(after, before)| after.highest_since(&before, STALL).unwrap_or(f64::NAN)),
        })
    }

    fn hot(&self, server: &Server, kind: Loop) -> Result<Report> {
        hot_and_cold::hot(self.run, server, kind).measure(self.rig.load_cpu())
    }

    /// The hot file while messages go to these subscribers, who may be of another server.
    fn beside(
        &self,
        server: &Server,
        subscribers: &mut Subscribers,
        kind: Loop,
    ) -> Result<(Report, Delivered)> {
        let seconds_per_message = INTERVAL_MS as f64 / 1000.0;
        let order = Order::FanOut {
            messages: (self.run.seconds / seconds_per_message).ceil() as usize,
            bytes: BYTES,
            interval_ms: INTERVAL_MS,
        };
        subscribers.begin(order)?;
        let report = self.hot(server, kind)?;
        Ok((report, subscribers.result()?))
    }
}

fn cells(row: &Measured<Pass>, is_levity: bool) -> Vec<String> {
    let rate = |of: fn(&Hot) -> &Report| {
        row.spread(|pass| of(&pass.closed).requests_per_second())
            .show(number)
    };
    let p99 = |of: fn(&Hot) -> &Report| {
        row.spread(|pass| of(&pass.open).latency.p99_us)
            .show(time_us)
    };
    // The longest of all passes.
    let stall = row
        .passes
        .iter()
        .filter_map(|pass| pass.stall_seconds)
        .reduce(f64::max);
    let kept = row.spread(|pass| pass.closed.kept_of_writer());
    let stalls = is_above(stall.unwrap_or(f64::NAN), STALL_SECONDS_MAX);
    let failures = row.total(Pass::failures);
    vec![
        row.server.clone(),
        rate(|hot| &hot.alone),
        rate(|hot| &hot.beside),
        row.spread(|pass| pass.closed.kept()).show(number),
        rate(|hot| &hot.beside_writer),
        kept.show(number),
        p99(|hot| &hot.alone),
        p99(|hot| &hot.beside),
        p99(|hot| &hot.beside_writer),
        row.spread(Pass::last_us).show(time_us),
        stall.map_or("-".into(), |seconds| time_us(seconds * 1e6)),
        failures.to_string(),
        verdict(
            &[
                (is_levity && is_below(kept.median, KEPT_MIN), "throughput"),
                (is_levity && stalls, "stall"),
            ],
            failures,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_a_ratio_of_rates() {
        let report = |requests| Report {
            requests,
            seconds: 2.0,
            ..Report::default()
        };
        let hot = Hot {
            alone: report(1000),
            beside: report(810),
            beside_writer: report(900),
        };
        assert!((hot.kept() - 0.81).abs() < 1e-9 && (hot.kept_of_writer() - 0.9).abs() < 1e-9);
    }
}
