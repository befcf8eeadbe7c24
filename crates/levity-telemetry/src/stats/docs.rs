//! Generates `docs/metrics.md` from the table of metrics.

use std::fmt::Write;

use super::metric::Metric;
use super::metrics::METRICS;

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from crates/levity-telemetry/src/stats/metrics.rs: LEVITY_WRITE_DOCS=1 cargo test -p levity-telemetry --lib docs -->

The admin listener serves these at `/metrics`, in the Prometheus text format. Times are in seconds. Workers are numbered from 0.
The one to watch is `levity_loop_stall_seconds`: while there are processors enough, it should stay empty.
";

/// The text of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    METRICS.iter().for_each(|metric| section(&mut out, metric));
    out
}

fn section(out: &mut String, metric: &Metric) {
    let labels: Vec<_> = metric
        .labels()
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!(" by {}", labels.join(", "))
    };
    let _ = writeln!(out, "\n## `{}`\n", metric.name);
    let _ = writeln!(
        out,
        "{}, in {}{labels}. {}\n",
        metric.kind.into_str(),
        metric.unit,
        metric.help()
    );
    let _ = writeln!(out, "When it grows: {}", metric.grows());
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

    #[test]
    fn the_committed_file_is_current() {
        if std::env::var_os("LEVITY_WRITE_DOCS").is_some() {
            std::fs::write(PATH, markdown()).expect("write docs/metrics.md");
        }
        let committed = std::fs::read_to_string(PATH).expect("docs/metrics.md");
        assert!(
            committed == markdown(),
            "docs/metrics.md is old: run LEVITY_WRITE_DOCS=1 cargo test -p levity-telemetry --lib docs"
        );
    }
}
