//! The Prometheus text exposition format, version 0.0.4.

use std::fmt::{Display, Write};

use strum::IntoStaticStr;

use crate::cells::HistogramFigures;

/// Prometheus' kinds of metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Collects the samples of one metric.
pub(super) struct Samples<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Samples<'_> {
    /// Appends one metric with its HELP and TYPE, or nothing when `samples` gives none.
    pub(super) fn family(
        out: &mut String,
        name: &'static str,
        kind: Kind,
        text: &str,
        samples: impl FnOnce(&mut Samples),
    ) {
        let start = out.len();
        let _ = writeln!(out, "# HELP {name} {}", help(text));
        let _ = writeln!(out, "# TYPE {name} {}", kind.into_str());
        let header = out.len();
        samples(&mut Samples { out, name });
        if out.len() == header {
            out.truncate(start);
        }
    }

    pub(super) fn value(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, None, value);
    }

    pub(super) fn histogram(&mut self, labels: &[(&str, &str)], figures: &HistogramFigures) {
        let mut count = 0;
        let bounds = figures
            .bounds_us
            .iter()
            .map(|&bound| (bound as f64 / 1e6).to_string());
        for (bound, more) in bounds.chain(["+Inf".to_owned()]).zip(&figures.counts) {
            count += more;
            self.sample("_bucket", labels, Some(&bound), count);
        }
        self.sample("_sum", labels, None, figures.sum.as_secs_f64());
        self.sample("_count", labels, None, count);
    }

    fn sample(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        bound: Option<&str>,
        value: impl Display,
    ) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut separator = '{';
        for (name, text) in labels
            .iter()
            .copied()
            .chain(bound.map(|bound| ("le", bound)))
        {
            let _ = write!(self.out, "{separator}{name}=\"{}\"", label(text));
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

fn help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn label(text: &str) -> String {
    help(text).replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(give: impl FnOnce(&mut Samples)) -> String {
        let mut out = String::new();
        give(&mut Samples {
            out: &mut out,
            name: "m",
        });
        out
    }

    #[test]
    fn label_values_are_escaped() {
        let out = samples(|samples| samples.value(&[("device", "a\"b\\c\nd")], 1));
        assert_eq!(out, "m{device=\"a\\\"b\\\\c\\nd\"} 1\n");
    }

    #[test]
    fn a_histogram_is_cumulative() {
        let figures = HistogramFigures {
            bounds_us: &[50, 2_500_000],
            counts: vec![2, 1, 4],
            sum: std::time::Duration::from_millis(12_500),
        };
        let out = samples(|samples| samples.histogram(&[("worker", "0")], &figures));
        assert_eq!(
            out,
            "m_bucket{worker=\"0\",le=\"0.00005\"} 2\n\
             m_bucket{worker=\"0\",le=\"2.5\"} 3\n\
             m_bucket{worker=\"0\",le=\"+Inf\"} 7\n\
             m_sum{worker=\"0\"} 12.5\n\
             m_count{worker=\"0\"} 7\n"
        );
    }
}
