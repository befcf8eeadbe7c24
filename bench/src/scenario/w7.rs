//! W7: one client requests three small hot files repeatedly while large files, which exceed the memory, are streamed. It
//! is the case that showed for Perlbal that an event loop must not read files.

use super::{Measured, Run, interleaved, percent, to_json};
use crate::failure::Result;
use crate::load::Report;
use crate::load::command::Load;
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::picture::{self, Pair};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use crate::rig::device::Activity;
use crate::rig::tree::{HOT_BYTES, LONG_STREAMS, MEGABYTES};
use crate::walk::Walk;
use serde::Serialize;

const STREAMS: usize = 7;
/// Requests that are timed together.
const TIMED: f64 = 100.0;
const WARM_UP: f64 = 0.5;
/// The bar of the design.
const SLOWDOWN_MAX: f64 = 1.05;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Report,
    /// While another process reads the disk.
    beside_reader: Report,
    /// While the server sends the large files.
    under_streams: Report,
    streams: Report,
    device: Activity,
    /// Hot requests that were served neither from the server's memory nor from the page cache; Levity only.
    hot_from_disk: Option<f64>,
}

impl Pass {
    fn slowdown(&self) -> f64 {
        self.beside_reader.requests_per_second() / self.under_streams.requests_per_second()
    }

    fn errors(&self) -> u64 {
        let reports = [
            &self.alone,
            &self.beside_reader,
            &self.under_streams,
            &self.streams,
        ];
        reports.iter().map(|report| report.errors).sum()
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let measured = interleaved(rows, run.passes, |row, _| Bench { rig, run }.measure(row))?;
    let mut table = Table::new(&[
        "server",
        "alone ms",
        "beside a reader ms",
        "under streams ms",
        "slowdown",
        "of alone",
        "p99 under streams",
        "slowest",
        "hot from disk",
        "streams MB/s",
        "disk busy",
        "bar",
    ]);
    for (row, measured) in rows.iter().zip(&measured) {
        table.push(cells(row, measured));
    }
    Ok(Outcome {
        name: "w7".into(),
        caption: caption(rig, run),
        table,
        picture: Some(picture::svg(
            "Small hot files per second for one client, while large ones stream by (log scale)",
            [
                "while another process reads the slow disk",
                "while 7 clients stream 100 MB files from the same server",
            ],
            &measured.iter().map(pair).collect::<Vec<_>>(),
        )),
        passes: to_json(&measured)?,
    })
}

struct Bench<'a> {
    rig: &'a Rig,
    run: &'a Run,
}

impl Bench<'_> {
    fn measure(&self, row: &Row) -> Result<Pass> {
        let server = Server::start(self.rig, row)?;
        let alone = self.hot(&server)?.measure(self.rig.load_cpu())?;
        let beside_reader = self.beside_reader(&server)?;
        self.cool_down(&server)?;
        let before = server.metrics()?;
        let (under_streams, streams, device) = self.under_streams(&server)?;
        let hot_from_disk = server.metrics()?.zip(before).map(|(after, before)| {
            let from = |source: &str| {
                let label = format!("source=\"{source}\"");
                after.growth_since(&before, "levity_responses_by_source_total", &label)
            };
            let elsewhere = under_streams.requests as f64 - from("memory") - from("cached");
            elsewhere.max(0.0)
        });
        Ok(Pass {
            alone,
            beside_reader,
            under_streams,
            streams,
            device,
            hot_from_disk,
        })
    }

    fn hot(&self, server: &Server) -> Result<Load> {
        let paths = HOT_BYTES.map(|bytes| format!("/hot/{bytes}.bin"));
        let mut load = Load::new(server.address, "", 1, self.run.seconds);
        load.list = Some(self.rig.list_of("hot", &paths)?);
        load.repeat = true;
        load.warm_up = WARM_UP;
        Ok(load)
    }

    /// Nothing cached but the hot files.
    fn cool_down(&self, server: &Server) -> Result<()> {
        self.rig.drop_caches()?;
        let mut touch = self.hot(server)?;
        (touch.seconds, touch.warm_up) = (0.05, 0.0);
        touch.measure(self.rig.load_cpu()).map(drop)
    }

    fn beside_reader(&self, server: &Server) -> Result<Report> {
        let list = self.rig.list(&MEGABYTES, 0, MEGABYTES.files)?;
        let mut walk = Walk::new(&self.rig.docroot, &list);
        walk.threads = STREAMS;
        walk.seconds = self.run.seconds + WARM_UP;
        self.cool_down(server)?;
        let reader = walk.start(self.rig.load_cpu())?;
        let hot = self.hot(server)?.measure(self.rig.load_cpu())?;
        reader.report()?;
        Ok(hot)
    }

    fn under_streams(&self, server: &Server) -> Result<(Report, Report, Activity)> {
        let paths: Vec<String> = (0..STREAMS)
            .map(|index| LONG_STREAMS.cold_path(index))
            .collect();
        let seconds = self.run.seconds + WARM_UP;
        let mut streams = Load::new(server.address, "", STREAMS, seconds);
        streams.list = Some(self.rig.list_of("streams", &paths)?);
        streams.repeat = true;
        streams.abandon = true;
        let before = self.rig.device.sample()?;
        let mut streams = streams.start(self.rig.load_cpu())?;
        let mut hot = self.hot(server)?;
        // Wait for pending responses, so that both sides count the same requests.
        hot.warm_up = 0.0;
        let mut hot = hot.start(self.rig.load_cpu())?;
        let reports = (hot.report()?, streams.report()?);
        Ok((
            reports.0,
            reports.1,
            self.rig.device.activity_since(&before)?,
        ))
    }
}

fn caption(rig: &Rig, run: &Run) -> String {
    format!(
        "One client fetches three small files in turn, timed by the {TIMED} (mean), while {STREAMS} clients stream {STREAMS} \
         files of 100 MB again and again; the server has {} MiB. Slowdown: against the same while another process reads the \
         same disk. Bars: {SLOWDOWN_MAX}, and no hot file from the disk (Levity's own count: hot requests answered neither from \
         its memory nor from the page cache). Median of {} interleaved passes of {} s (lowest to \
         highest).",
        rig.memory_mib(),
        run.passes,
        run.seconds
    )
}

/// Milliseconds for [`TIMED`] requests.
fn timed_ms(report: &Report) -> f64 {
    TIMED * 1000.0 / report.requests_per_second()
}

fn cells(row: &Row, measured: &Measured<Pass>) -> Vec<String> {
    let slowdown = measured.spread(Pass::slowdown);
    let from_disk = measured.spread(|pass| pass.hot_from_disk.unwrap_or(f64::NAN));
    let bars = [
        (is_above(slowdown.median, SLOWDOWN_MAX), "slowdown"),
        (row.is_levity() && is_above(from_disk.high, 0.0), "evicted"),
    ];
    let alone = |pass: &Pass| timed_ms(&pass.under_streams) / timed_ms(&pass.alone);
    vec![
        measured.server.clone(),
        measured.spread(|pass| timed_ms(&pass.alone)).show(number),
        measured
            .spread(|pass| timed_ms(&pass.beside_reader))
            .show(number),
        measured
            .spread(|pass| timed_ms(&pass.under_streams))
            .show(number),
        slowdown.show(number),
        measured.spread(alone).show(number),
        measured
            .spread(|pass| pass.under_streams.latency.p99_us)
            .show(time_us),
        measured
            .spread(|pass| pass.under_streams.latency.max_us)
            .show(time_us),
        from_disk.show(number),
        measured
            .spread(|pass| pass.streams.wire_bytes_per_second() / 1e6)
            .show(number),
        measured
            .spread(|pass| pass.device.utilisation)
            .show(percent),
        verdict(&bars, measured.total(Pass::errors)),
    ]
}

fn pair(row: &Measured<Pass>) -> Pair {
    let rate = |report: fn(&Pass) -> &Report| row.spread(|pass| report(pass).requests_per_second());
    Pair {
        name: row.server.clone(),
        limit: rate(|pass| &pass.beside_reader).median,
        measured: rate(|pass| &pass.under_streams).median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_requests_are_timed_together() {
        let report = Report {
            requests: 4000,
            seconds: 2.0,
            ..Report::default()
        };
        assert_eq!(timed_ms(&report), 50.0);
    }
}
