//! A run as text for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::concurrency::{self, Level};
use super::lines::{STEPS, SkippedLines};
use super::run::Run;
use super::units::{number, time};
use super::verdict::{Verdict, verdict};
use crate::histogram::Histogram;
use crate::printable::is_printable;

/// A row of the table of times.
struct Row<'a> {
    name: &'static str,
    histogram: &'a Histogram,
    /// Whether it is a part of the time of the requests.
    is_part: bool,
}

fn rows(run: &Run) -> Vec<Row<'_>> {
    let mut rows = vec![row("request", &run.requests)];
    for (step, histogram) in STEPS.into_iter().zip(&run.steps) {
        rows.push(Row {
            // It ends before the request begins.
            is_part: step != "accept",
            ..row(step, histogram)
        });
    }
    rows.extend([
        row("disk queue", &run.queue),
        row("disk read", &run.read),
        row("given up", &run.given_up),
        row("hand-over", &run.handover),
        row("write", &run.write),
        row("upst. queue", &run.upstream_queue),
        row("upst. ttfb", &run.upstream),
        row("filter queue", &run.filter_queue),
        row("filter run", &run.filter),
        row("io_wait", &run.io_wait),
        row("ttfb", &run.ttfb),
    ]);
    rows.retain(|row| row.histogram.count() > 0);
    rows
}

fn row<'a>(name: &'static str, histogram: &'a Histogram) -> Row<'a> {
    Row {
        name,
        histogram,
        is_part: true,
    }
}

/// The tables and the verdict.
pub(super) fn text(run: &Run) -> String {
    let mut out = format!(
        "{} requests in {}, {} on average at once\n\n",
        run.requests.count(),
        time(run.length_s() * 1e6),
        number(mean_concurrency(run)),
    );
    times(&mut out, run);
    sources(&mut out, run);
    levels(&mut out, &concurrency::levels(run));
    if run.chunks_omitted > 0 {
        let omitted = run.chunks_omitted;
        let _ = writeln!(
            out,
            "\n{omitted} chunks were not logged: a line has room for so many only"
        );
    }
    if let Some((mean, max)) = run.run_queue_wait.mean_and_max() {
        let _ = writeln!(
            out,
            "\nThe event loops waited for a processor {mean:.0} % of the time, at most {max:.0} % of one second."
        );
    }
    let _ = writeln!(out, "\n{}", wrapped(&verdict(run).sentence));
    out
}

/// Requests in progress at a time, on average.
fn mean_concurrency(run: &Run) -> f64 {
    run.requests.total_us() / 1e6 / run.length_s().max(1e-6)
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
        histogram,
        is_part,
    } in rows(run)
    {
        if name == "disk queue" || name == "io_wait" {
            out.push('\n');
        }
        let share = match is_part {
            true => format!("{:.1} %", histogram.total_us() / total * 100.0),
            false => "-".to_owned(),
        };
        let quantile = |share| time(histogram.quantile_us(share));
        let _ = writeln!(
            out,
            "{name:<12}{:>10}{:>11}{share:>8}{:>11}{:>11}{:>11}{:>11}",
            histogram.count(),
            time(histogram.total_us()),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            time(histogram.max_us()),
        );
    }
}

fn sources(out: &mut String, run: &Run) {
    let _ = writeln!(
        out,
        "\n{:<12}{:<14}{:>10}{:>11}{:>14}",
        "src", "engine", "requests", "mean", "bytes"
    );
    for ((source, engine), totals) in &run.sources {
        let mean = totals.duration_us / totals.requests as f64;
        let engine = if engine.is_empty() { "-" } else { engine };
        let _ = writeln!(
            out,
            "{:<12}{:<14}{:>10}{:>11}{:>14}",
            printable(source),
            printable(engine),
            totals.requests,
            time(mean),
            totals.bytes
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
            number(level.per_second())
        );
    }
}

/// A name cut to the width of a column, without characters that control a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|char| is_printable(*char))
        .take(13)
        .collect()
}

/// The same figures and a few more. Times are in microseconds.
pub(super) fn json(run: &Run, skipped: &SkippedLines) -> Value {
    let Verdict {
        part,
        share,
        sentence,
    } = verdict(run);
    let times = |row: &Row| {
        let histogram = row.histogram;
        json!({
            "name": row.name,
            "count": histogram.count(),
            "total_us": histogram.total_us(),
            "mean_us": histogram.mean_us(),
            "p50_us": histogram.quantile_us(0.5),
            "p90_us": histogram.quantile_us(0.9),
            "p99_us": histogram.quantile_us(0.99),
            "max_us": histogram.max_us(),
        })
    };
    let sources = run.sources.iter().map(|((source, engine), totals)| {
        let engine = (!engine.is_empty()).then_some(engine);
        json!({ "src": source, "engine": engine, "requests": totals.requests, "bytes": totals.bytes })
    });
    let levels = concurrency::levels(run);
    let levels = levels.iter().map(|level| {
        json!({
            "in_flight_from": level.from,
            "in_flight_to": level.to,
            "reads": level.reads,
            "mean_read_us": level.mean_read_us,
            "reads_per_s": level.per_second(),
        })
    });
    let run_queue_wait = run.run_queue_wait.mean_and_max();
    let run_queue_wait = run_queue_wait.map(|(mean, max)| json!({ "mean": mean, "max": max }));
    let bad = skipped
        .errors
        .iter()
        .map(|(line, error)| json!({ "line": line, "trouble": error.to_string() }));
    json!({
        "requests": run.requests.count(),
        "length_s": run.length_s(),
        "trips": run.trips,
        "times": rows(run).iter().map(times).collect::<Vec<_>>(),
        "sources": sources.collect::<Vec<_>>(),
        "readers": levels.collect::<Vec<_>>(),
        "chunks_omitted": run.chunks_omitted,
        "run_queue_wait_percent": run_queue_wait,
        "dominant": { "part": part.into_str(), "share": share, "sentence": sentence },
        "bad_lines": { "count": skipped.count, "first": bad.collect::<Vec<_>>() },
    })
}

/// The text in lines of at most 100 bytes.
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
    use super::super::tests::add_reads;
    use super::*;

    #[test]
    fn the_whole_table() {
        let mut run = Run::default();
        add_reads(&mut run, 1, 4, 30_000, 10_000);
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
}
