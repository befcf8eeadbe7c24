//! C2: what does it cost a proxy to compress a response, and how small does it become?

use super::proxied::{Cost, JSON_BYTES, PLACES, Pair, WARM_UP_SECONDS, json_path, upstream};
use super::{Measured, Run, Subject, interleaved, name_left_out, proxied, startable, to_json};
use crate::backend::Protocol;
use crate::failure::Result;
use crate::peer::Row;
use crate::peer::compression::{Coding, Compression};
use crate::report::Outcome;
use crate::report::bar::{is_above, verdict};
use crate::report::table::{Table, number, time_us};
use crate::rig::Rig;
use serde::Serialize;

/// Of each coding: the default levels, and those around them. Other servers get the same.
const LEVELS: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, &[1, 3, 6]),
    (Coding::Br, &[1, 4, 5]),
    (Coding::Gzip, &[1, 2, 3, 4, 5, 6]),
];
const QUICK_LEVELS: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, &[3]),
    (Coding::Br, &[4]),
    (Coding::Gzip, &[4]),
];
/// Clients. Levity compresses less where jobs of many clients wait, so that few show what a level costs.
const CONNECTIONS: [usize; 2] = [2, 64];
/// Sizes that differ by less than this factor count as equal.
const EQUAL_SIZE: f64 = 1.02;
const COST_MAX: f64 = 1.0;

/// A row in a pass.
#[derive(Serialize)]
pub struct Pass {
    connections: usize,
    compression: Compression,
    #[serde(flatten)]
    cost: Cost,
    /// The share of responses with the level of the configuration; Levity only.
    at_level: Option<f64>,
}

impl Pass {
    /// The mean length of a response in bytes.
    fn size(&self) -> f64 {
        self.cost.report.body_bytes as f64 / self.cost.report.requests as f64
    }
}

/// Runs the workload.
///
/// # Errors
/// The rig, a proxy or the application fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let (subjects, left_out) = startable(rig, subjects(rig, rows, run.quick))?;
    let mut table = Table::new(&[
        "proxy",
        "clients",
        "bytes",
        "of the JSON",
        "CPU us/request",
        "best peer of equal size",
        "of best peer",
        "req/s",
        "p99",
        "at its level",
        "bar",
    ]);
    let mut all = Vec::new();
    for &connections in run.connections_or(&CONNECTIONS) {
        let measured = interleaved(&subjects, run.passes, |subject, _| {
            measure(rig, subject, connections, run.seconds)
        })?;
        let peers: Vec<&Measured<Pass>> = subjects
            .iter()
            .zip(&measured)
            .filter_map(|(subject, measured)| (!subject.row.is_levity()).then_some(measured))
            .collect();
        for (subject, measured) in subjects.iter().zip(&measured) {
            table.push(cells(subject.row.is_levity(), measured, &peers));
        }
        all.extend(measured);
    }
    let mut caption = caption(run);
    name_left_out(&mut caption, &left_out);
    Ok(Outcome {
        name: "c2".into(),
        caption,
        table,
        passes: to_json(&all)?,
        picture: None,
    })
}

fn subjects(rig: &Rig, rows: &[Row], is_quick: bool) -> Vec<Subject<Compression>> {
    let upstream = upstream(rig, Protocol::Http, 1, proxied::CLIENTS);
    let levels = if is_quick { QUICK_LEVELS } else { LEVELS };
    let at = |(coding, levels): (Coding, &'static [u8])| {
        levels
            .iter()
            .map(move |&level| Compression::at(coding, level))
    };
    // Some servers have one level only.
    let by_default = [Compression::by_default(Coding::Zstd)];
    let compressions: Vec<Compression> = levels.into_iter().flat_map(at).collect();
    let mut subjects = Vec::new();
    for row in rows.iter().map(|row| row.before(&upstream)) {
        let has_levels = row.compressed(Compression::at(Coding::Zstd, 1)).is_some();
        let only = by_default.iter().filter(|_| !has_levels);
        for &compression in compressions.iter().chain(only) {
            let row = row.compressed(compression);
            subjects.extend(row.map(|row| Subject {
                row,
                kind: compression,
            }));
        }
    }
    subjects
}

fn measure(
    rig: &Rig,
    subject: &Subject<Compression>,
    connections: usize,
    seconds: f64,
) -> Result<Pass> {
    let pair = Pair::simple(rig, &subject.row)?;
    let mut load = pair.load(&json_path(), connections, WARM_UP_SECONDS);
    load.coding = Some(subject.kind.coding.word().into());
    load.measure(rig.load_cpu())?;
    load.seconds = seconds;
    let before = pair.proxy.metrics()?;
    let cost = pair.measure(rig, &load)?;
    let grown = pair.proxy.metrics()?.zip(before);
    Ok(Pass {
        connections,
        compression: subject.kind,
        cost,
        at_level: grown.map(|(after, before)| super::at_level(&after, &before)),
    })
}

/// The peer that compresses at least as well with the same coding, at the lowest cost; None if none is as good.
fn best_of_equal_size<'a>(
    own: &Measured<Pass>,
    peers: &[&'a Measured<Pass>],
) -> Option<&'a Measured<Pass>> {
    let size = |row: &Measured<Pass>| row.spread(Pass::size).median;
    let coding = |row: &Measured<Pass>| row.passes[0].compression.coding;
    let size_max = size(own) * EQUAL_SIZE;
    peers
        .iter()
        .filter(|peer| coding(peer) == coding(own) && size(peer) <= size_max)
        .min_by(|one, other| cpu(one).total_cmp(&cpu(other)))
        .copied()
}

fn cpu(row: &Measured<Pass>) -> f64 {
    row.spread(|pass| pass.cost.proxy_us_per_request()).median
}

fn caption(run: &Run) -> String {
    format!(
        "JSON of {JSON_BYTES} bytes from an HTTP/1.1 application over a Unix socket, compressed by the proxy; \
         keep-alive clients in a closed loop, which accept one coding each. {PLACES} CPU time is that of the proxy's control \
         group, kernel work included, per request. Bytes: mean length of the body. Best peer of equal size: the one with the \
         lowest CPU time among those whose bodies are no longer than {EQUAL_SIZE} of Levity's, with the same coding; where there is \
         none, no peer compresses as well. At its level: responses that Levity did not compress less because of the load, or \
         not at all. Bar: the CPU time of that peer. lighttpd compresses \
         a response only when it has all of it; Caddy of Debian has one level of zstd; nginx has no zstd. Median of {} interleaved passes \
         (lowest to highest).",
        run.passes
    )
}

fn cells(is_levity: bool, row: &Measured<Pass>, peers: &[&Measured<Pass>]) -> Vec<String> {
    let best = is_levity.then(|| best_of_equal_size(row, peers)).flatten();
    let ratio = best.map(|best| cpu(row) / cpu(best));
    let size = row.spread(Pass::size);
    let bars = [
        (
            is_above(size.median, JSON_BYTES as f64 - 1.0),
            "not compressed",
        ),
        (is_above(ratio.unwrap_or(0.0), COST_MAX), "CPU"),
    ];
    vec![
        row.server.clone(),
        row.passes[0].connections.to_string(),
        size.show(number),
        number(size.median / JSON_BYTES as f64),
        row.spread(|pass| pass.cost.proxy_us_per_request())
            .show(number),
        best.map_or("-".into(), |best| best.server.clone()),
        ratio.map_or("-".into(), number),
        row.spread(|pass| pass.cost.report.requests_per_second())
            .show(number),
        row.spread(|pass| pass.cost.report.latency.p99_us)
            .show(time_us),
        row.spread(|pass| pass.at_level.unwrap_or(f64::NAN))
            .show(number),
        match verdict(&bars, row.total(|pass| pass.cost.report.errors)) {
            passed if passed == "pass" && best.is_none() => "-".into(),
            verdict => verdict,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Report;

    fn row(server: &str, coding: Coding, size: u64, cpu: f64) -> Measured<Pass> {
        let report = Report {
            requests: 1,
            body_bytes: size,
            ..Report::default()
        };
        let cost = Cost {
            report,
            proxy_cpu: Some(cpu),
            backend_cpu: 0.0,
        };
        Measured {
            server: server.into(),
            passes: vec![Pass {
                connections: 2,
                compression: Compression::by_default(coding),
                cost,
                at_level: None,
            }],
        }
    }

    #[test]
    fn a_peer_is_compared_if_its_bodies_are_not_longer() {
        let own = row("own", Coding::Br, 1000, 0.5);
        let peers = [
            row("cheap", Coding::Br, 1021, 0.1),
            row("another coding", Coding::Zstd, 1000, 0.2),
            row("equal", Coding::Br, 1020, 0.4),
            row("small", Coding::Br, 900, 0.9),
        ];
        let peers: Vec<_> = peers.iter().collect();
        let best = |peers| best_of_equal_size(&own, peers).map(|row| row.server.as_str());
        assert_eq!(best(&peers), Some("equal"));
        assert_eq!(best(&peers[3..]), Some("small"));
        assert_eq!(best(&peers[..2]), None);
    }
}
