//! C3: what do many slow clients of compressed streams cost the others, and how much memory do they take?

use super::cost::Cost;
use super::proxied::{CLIENTS, JSON_BYTES, PLACES, Pair, json_path, upstream};
use super::{Measured, Run, interleaved, name_left_out, startable, to_json};
use crate::backend::Protocol;
use crate::backend::command::Backend;
use crate::failure::Result;
use crate::load::sip::{Sip, Sipped};
use crate::metrics::Metrics;
use crate::peer::compression::{Coding, Compression};
use crate::peer::{Row, Server};
use crate::report::Outcome;
use crate::report::bar::{is_above, is_below, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;
use std::time::{Duration, Instant};

const SLOW_CLIENTS: usize = 2000;
const QUICK_SLOW_CLIENTS: usize = 200;
const SLOW_BYTES_PER_SECOND: usize = 1024;
/// A stream without an end, as far as its clients are concerned: at their speed it takes hours.
const STREAM_BYTES: usize = 64_000_000;
/// The time in which the buffers between the application and the slow clients fill up.
const SETTLE_MAX: Duration = Duration::from_secs(25);
const SETTLE_LOOK: Duration = Duration::from_millis(250);
/// CPU seconds per second of a server below which its buffers are full.
const SETTLED_PROCESSORS: f64 = 0.3;
/// Every server has gzip.
const COMPRESSION: Compression = Compression::at(Coding::Gzip, 4);
/// Memory of a server, in MiB: its own bounds shall show, not those of the control group.
const MEMORY_MIB: u64 = 8192;
/// Levity's memory for encoders that is enough for all clients.
const AMPLE_ENCODERS: &str = "compression_memory = \"2GiB\"";
/// The bar of the design.
const KEPT_MIN: f64 = 0.95;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    alone: Cost,
    beside: Cost,
    /// Anonymous memory before, during and after the slow clients, in bytes.
    memory: [u64; 3],
    slow_clients: usize,
    /// The share of the slow clients whose stream is compressed, at whatever level; Levity only.
    slow_compressed: Option<f64>,
    /// The time until the buffers were full, in seconds.
    settle_seconds: f64,
    /// The slow clients when all responses had begun, and at their end.
    slow: [Sipped; 2],
}

impl Pass {
    fn kept(&self) -> f64 {
        self.beside.report.requests_per_second() / self.alone.report.requests_per_second()
    }

    /// Slow clients whose response did not begin, or ended.
    fn lost(&self) -> u64 {
        (self.slow_clients - self.slow[1].reading) as u64
    }

    fn kib_per_slow_client(&self) -> f64 {
        let [before, during, _] = self.memory;
        during.saturating_sub(before) as f64 / 1024.0 / self.slow_clients as f64
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let slow_clients = if run.quick {
        QUICK_SLOW_CLIENTS
    } else {
        SLOW_CLIENTS
    };
    let upstream = upstream(rig, Protocol::Http, 1, slow_clients + CLIENTS);
    // lighttpd compresses a response only when it has all of it.
    let rows = rows.iter().filter(|row| row.name != "lighttpd");
    let rows: Vec<Row> = rows
        .filter_map(|row| row.before(&upstream).compressed(COMPRESSION))
        .map(|row| row.with_memory_mib(MEMORY_MIB))
        .flat_map(with_ample_encoders)
        .collect();
    let (rows, left_out) = startable(rig, rows)?;
    let measured = interleaved(&rows, run.passes, |row, _| {
        let backend = Backend::new(&upstream.sockets[0], upstream.protocol);
        let pair = Pair::start(rig, row, &upstream, &[backend])?;
        measure(rig, &pair, slow_clients, run.seconds)
    })?;
    let mut table = Table::new(&[
        "proxy",
        "alone req/s",
        "beside req/s",
        "kept",
        "bytes alone",
        "bytes beside",
        "CPU us/request alone",
        "memory MiB before",
        "during",
        "after",
        "KiB per slow client",
        "slow compressed",
        "slow KB/s",
        "full after",
        "bar",
    ]);
    measured.iter().for_each(|row| table.push(cells(row)));
    let mut caption = caption(run, slow_clients);
    name_left_out(&mut caption, &left_out);
    Ok(Outcome {
        name: "c3".into(),
        caption,
        table,
        passes: to_json(&measured)?,
        picture: None,
    })
}

/// Levity with its own bound on the memory of encoders, and with one that suffices for all clients.
fn with_ample_encoders(row: Row) -> Vec<Row> {
    if !row.is_levity() {
        return vec![row];
    }
    let ample = row.with_limits(AMPLE_ENCODERS);
    let ample = ample.named(format!("{}, 2 GiB for encoders", row.name));
    vec![row, ample]
}

fn measure(rig: &Rig, pair: &Pair, slow_clients: usize, seconds: f64) -> Result<Pass> {
    let proxy = &pair.proxy;
    let ordinary = || {
        let mut load = pair.load(&json_path(), CLIENTS, seconds);
        load.coding = Some(COMPRESSION.coding.word().into());
        Cost::measure(rig, proxy, load)
    };
    let alone = ordinary()?;
    let before = proxy.anonymous_bytes()?;
    let slow = Sip {
        address: proxy.address,
        connections: slow_clients,
        path: format!("/?bytes={STREAM_BYTES}&json&chunked"),
        coding: COMPRESSION.coding.word().into(),
        bytes_per_second: SLOW_BYTES_PER_SECOND,
    };
    let metrics_before = proxy.metrics()?;
    let (slow, begun) = slow.start(rig.load_cpu())?;
    let grown = proxy.metrics()?.zip(metrics_before);
    let settle_seconds = settle(proxy)?;
    let beside = ordinary()?;
    let during = proxy.anonymous_bytes()?;
    let ended = slow.end()?;
    // The server learns here that the slow clients are gone.
    ordinary()?;
    let after = proxy.anonymous_bytes()?;
    Ok(Pass {
        alone,
        beside,
        memory: [before, during, after],
        slow_clients,
        slow_compressed: grown.map(|(after, before)| compressed(&after, &before)),
        settle_seconds,
        slow: [begun, ended],
    })
}

/// The share of the responses of Levity that could be compressed and were; NaN if there were none.
fn compressed(after: &Metrics, before: &Metrics) -> f64 {
    let grown = |label: &str| after.growth_since(before, "levity_compressions_total", label);
    (grown("outcome=\"usual\"") + grown("outcome=\"fast\"")) / grown("")
}

/// Waits until the server has little to do. Returns the time that it took, in seconds.
fn settle(server: &Server) -> Result<f64> {
    let started = Instant::now();
    loop {
        let (looked, before) = (Instant::now(), server.group.cpu_time()?);
        std::thread::sleep(SETTLE_LOOK);
        let used = (server.group.cpu_time()? - before).as_secs_f64();
        let is_settled = used / looked.elapsed().as_secs_f64() < SETTLED_PROCESSORS;
        if is_settled || started.elapsed() > SETTLE_MAX {
            return Ok(started.elapsed().as_secs_f64());
        }
    }
}

fn caption(run: &Run, slow_clients: usize) -> String {
    format!(
        "{CLIENTS} keep-alive clients request JSON of {JSON_BYTES} bytes in a closed loop, alone and beside {slow_clients} \
         clients that read {SLOW_BYTES_PER_SECOND} bytes per second of a chunked stream without an end. Everything comes \
         from an HTTP/1.1 application over a Unix socket, and the proxy compresses it with gzip at level 4. {PLACES} Bytes: \
         mean length of a JSON body: more beside slow clients than alone means that responses were compressed less, or not \
         at all. Memory: anonymous, resident, in MiB; \"after\" is after another measurement without slow clients. Slow compressed: the share of the slow clients whose stream Levity compresses. Slow \
         KB/s: what all of them received. Full after: the measurement beside slow clients begins when the server uses less \
         than {SETTLED_PROCESSORS} processors, because the buffers of all streams are full, or after {settle_max} s. Bar: {KEPT_MIN} of the requests/s kept, at no greater length, and no slow client \
         lost. lighttpd is missing because it compresses no stream. Median of {} interleaved passes (lowest to highest).",
        run.passes,
        settle_max = SETTLE_MAX.as_secs(),
    )
}

fn cells(row: &Measured<Pass>) -> Vec<String> {
    let rate = |of: fn(&Pass) -> &Cost| {
        row.spread(|pass| of(pass).report.requests_per_second())
            .show(number)
    };
    let size = |of: fn(&Pass) -> &Cost| {
        row.spread(|pass| {
            let report = &of(pass).report;
            report.body_bytes as f64 / report.requests as f64
        })
    };
    let memory = |index: usize| {
        row.spread(|pass| pass.memory[index] as f64 / f64::from(1 << 20))
            .show(number)
    };
    let kept = row.spread(Pass::kept);
    let (size_alone, size_beside) = (size(|pass| &pass.alone), size(|pass| &pass.beside));
    let bars = bars(
        kept.median,
        size_beside.median / size_alone.median,
        row.total(Pass::lost),
    );
    let errors = |pass: &Pass| pass.alone.report.errors + pass.beside.report.errors;
    vec![
        row.server.clone(),
        rate(|pass| &pass.alone),
        rate(|pass| &pass.beside),
        kept.show(number),
        size_alone.show(number),
        size_beside.show(number),
        row.spread(|pass| pass.alone.us_per_request()).show(number),
        memory(0),
        memory(1),
        memory(2),
        row.spread(Pass::kib_per_slow_client).show(number),
        row.spread(|pass| pass.slow_compressed.unwrap_or(f64::NAN))
            .show(number),
        row.spread(|pass| pass.slow[1].bytes as f64 / 1e3 / pass.slow[1].seconds)
            .show(number),
        row.spread(|pass| pass.settle_seconds * 1e6).show(time_us),
        verdict(&bars, row.total(errors)),
    ]
}

/// The mean length varies with the requests that a measurement cuts.
const LENGTH_GROWTH_MAX: f64 = 1.02;

fn bars(kept: f64, length_growth: f64, lost: u64) -> [(bool, &'static str); 3] {
    [
        (is_below(kept, KEPT_MIN), "throughput"),
        (
            is_above(length_growth, LENGTH_GROWTH_MAX),
            "compressed less",
        ),
        (lost > 0, "slow clients lost"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bars_of_the_design() {
        assert_eq!(verdict(&bars(0.95, 1.0, 0), 0), "pass");
        assert_eq!(
            verdict(&bars(0.94, 3.0, 1), 0),
            "missed: throughput, compressed less, slow clients lost"
        );
    }

    #[test]
    fn only_levity_has_a_row_with_more_memory() {
        let levity = Row::levity(std::path::Path::new("/l"), "auto");
        let names: Vec<_> = with_ample_encoders(levity)
            .into_iter()
            .map(|row| row.name)
            .collect();
        assert_eq!(names, ["levity auto", "levity auto, 2 GiB for encoders"]);
        assert_eq!(
            with_ample_encoders(Row::compressor("caddy").unwrap()).len(),
            1
        );
    }
}
