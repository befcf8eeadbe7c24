//! A run as tables for people, and as JSON for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::lines::Troubles;
use super::readers::{self, Level};
use super::run::Run;
use super::spread::Spread;
use super::verdict::{Verdict, verdict};
use levity_telemetry::escape::is_plain;
use levity_telemetry::step::Step;

/// A line of the first table.
struct Row<'a> {
    name: &'static str,
    spread: &'a Spread,
    /// It is a part of the time of the requests.
    is_part: bool,
}

fn rows(run: &Run) -> Vec<Row<'_>> {
    let mut rows = vec![row("request", &run.requests)];
    for (step, spread) in Step::TIMED.into_iter().zip(&run.steps) {
        rows.push(Row {
            // Before the request came there was nothing to wait for it.
            is_part: step != Step::Accept,
            ..row(step.label(), spread)
        });
    }
    rows.extend([
        row("disk queue", &run.queue),
        row("disk read", &run.read),
        row("hand-over", &run.handover),
        row("write", &run.write),
        row("upst. queue", &run.upstream_queue),
        row("upstream", &run.upstream),
        row("io_wait", &run.io_wait),
        row("ttfb", &run.ttfb),
    ]);
    rows.retain(|row| row.spread.count() > 0);
    rows
}

fn row<'a>(name: &'static str, spread: &'a Spread) -> Row<'a> {
    Row {
        name,
        spread,
        is_part: true,
    }
}

/// For people.
pub(super) fn text(run: &Run) -> String {
    let mut out = format!(
        "{} requests in {}, {} on average at once\n\n",
        run.requests.count(),
        time(run.length_s() * 1e6),
        at_once(run),
    );
    times(&mut out, run);
    kinds(&mut out, run);
    levels(&mut out, &readers::levels(run));
    if run.chunks_omitted > 0 {
        let omitted = run.chunks_omitted;
        let _ = writeln!(
            out,
            "\n{omitted} chunks were not logged: a line has room for so many only"
        );
    }
    let _ = writeln!(out, "\n{}", wrapped(&verdict(run).sentence));
    out
}

fn at_once(run: &Run) -> String {
    rate(run.requests.total_us() / 1e6 / run.length_s().max(1e-6))
}

fn times(out: &mut String, run: &Run) {
    let total = run.requests.total_us().max(1e-3);
    let _ = writeln!(
        out,
        "{:<12}{:>10}{:>11}{:>8}{:>11}{:>11}{:>11}{:>11}",
        "", "count", "total", "share", "p50", "p90", "p99", "max"
    );
    for Row {
        name,
        spread,
        is_part,
    } in rows(run)
    {
        if name == "disk queue" || name == "io_wait" {
            out.push('\n');
        }
        let share = match is_part {
            true => format!("{:.1} %", spread.total_us() / total * 100.0),
            false => "-".to_owned(),
        };
        let quantile = |share| time(spread.quantile_us(share));
        let _ = writeln!(
            out,
            "{name:<12}{:>10}{:>11}{share:>8}{:>11}{:>11}{:>11}{:>11}",
            spread.count(),
            time(spread.total_us()),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            time(spread.max_us()),
        );
    }
}

fn kinds(out: &mut String, run: &Run) {
    let _ = writeln!(
        out,
        "\n{:<12}{:<14}{:>10}{:>11}{:>14}",
        "src", "engine", "requests", "mean", "bytes"
    );
    for ((source, engine), kind) in &run.kinds {
        let mean = kind.duration_us / kind.requests.max(1) as f64;
        let engine = if engine.is_empty() { "-" } else { engine };
        let _ = writeln!(
            out,
            "{:<12}{:<14}{:>10}{:>11}{:>14}",
            printable(source),
            printable(engine),
            kind.requests,
            time(mean),
            kind.bytes
        );
    }
}

fn levels(out: &mut String, levels: &[Level]) {
    if levels.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<12}{:>10}{:>11}{:>14}",
        "in flight", "reads", "mean read", "reads/s"
    );
    for level in levels {
        let Level { from, to, .. } = level;
        let name = if from == to {
            to.to_string()
        } else {
            format!("{from}-{to}")
        };
        let _ = writeln!(
            out,
            "{name:<12}{:>10}{:>11}{:>14}",
            level.reads,
            time(level.mean_read_us),
            rate(level.per_second())
        );
    }
}

/// A log may hold anything, and a terminal obeys some of it.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|char| is_plain(*char))
        .take(13)
        .collect()
}

/// For machines. Times are in microseconds.
pub(super) fn json(run: &Run, troubles: &Troubles) -> Value {
    let Verdict {
        part,
        share,
        sentence,
    } = verdict(run);
    let spread = |row: &Row| {
        let spread = row.spread;
        json!({
            "name": row.name,
            "count": spread.count(),
            "total_us": spread.total_us(),
            "mean_us": spread.mean_us(),
            "p50_us": spread.quantile_us(0.5),
            "p90_us": spread.quantile_us(0.9),
            "p99_us": spread.quantile_us(0.99),
            "max_us": spread.max_us(),
        })
    };
    let kinds = run.kinds.iter().map(|((source, engine), kind)| {
        let engine = (!engine.is_empty()).then_some(engine);
        json!({ "src": source, "engine": engine, "requests": kind.requests, "bytes": kind.bytes })
    });
    let levels = readers::levels(run);
    let levels = levels.iter().map(|level| {
        json!({
            "in_flight_from": level.from,
            "in_flight_to": level.to,
            "reads": level.reads,
            "mean_read_us": level.mean_read_us,
            "reads_per_s": level.per_second(),
        })
    });
    let bad = troubles
        .kept
        .iter()
        .map(|(line, trouble)| json!({ "line": line, "trouble": trouble.to_string() }));
    json!({
        "requests": run.requests.count(),
        "length_s": run.length_s(),
        "trips": run.trips,
        "times": rows(run).iter().map(spread).collect::<Vec<_>>(),
        "sources": kinds.collect::<Vec<_>>(),
        "readers": levels.collect::<Vec<_>>(),
        "chunks_omitted": run.chunks_omitted,
        "dominant": { "part": part.label(), "share": share, "sentence": sentence },
        "bad_lines": { "count": troubles.count, "first": bad.collect::<Vec<_>>() },
    })
}

/// A duration with three digits and its unit.
pub(super) fn time(us: f64) -> String {
    let (value, unit) = match us {
        _ if us < 1e3 => (us, "us"),
        _ if us < 1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    format!("{} {unit}", rate(value))
}

/// A number with three digits, or all that it has before the point.
pub(super) fn rate(value: f64) -> String {
    let places = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// In lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut out = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        if width > 0 && width + 1 + word.len() > WIDTH {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::readers::tests::reads;
    use super::*;

    #[test]
    fn the_whole_table() {
        let mut run = Run::default();
        reads(&mut run, 1, 4, 30_000, 10_000);
        let expected = "\
4 requests in 70.0 ms, 2.29 on average at once

                 count      total   share        p50        p90        p99        max
request              4     160 ms 100.0 %    40.0 ms    40.0 ms    40.0 ms    40.0 ms

disk queue           4     120 ms  75.0 %    30.0 ms    30.0 ms    30.0 ms    30.0 ms
disk read            4    40.0 ms  25.0 %    10.0 ms    10.0 ms    10.0 ms    10.0 ms
hand-over            4    0.00 us   0.0 %    0.00 us    0.00 us    0.00 us    0.00 us
write                4    40.0 us   0.0 %    10.0 us    10.0 us    10.0 us    10.0 us

io_wait              4     160 ms 100.0 %    40.0 ms    40.0 ms    40.0 ms    40.0 ms
ttfb                 4    0.00 us   0.0 %    0.00 us    0.00 us    0.00 us    0.00 us

src         engine          requests       mean         bytes
disk        threads                4    40.0 ms             0

in flight        reads  mean read       reads/s
1                    4    10.0 ms           100

Waiting for a turn at the disk dominates: 75 % of the time, 30.0 ms per trip, 3.0 times as long as
the reads themselves (10.0 ms), with one read in flight at a time. There are too few readers, or
more requests than the disk can serve. Raise `disk.depth` (and `disk.threads`) and compare two runs:
there are enough readers when reads take longer and no more of them are finished per second. Then
only more memory or more disks help.
";
        let text = text(&run);
        assert!(text == expected, "{text}");
    }

    #[test]
    fn numbers_have_three_digits() {
        for (us, text) in [
            (0.312, "0.31 us"),
            (9.999, "10.0 us"),
            (123.4, "123 us"),
            (45_600.0, "45.6 ms"),
            (1_234_000.0, "1.23 s"),
            (98_765_000_000.0, "98765 s"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
