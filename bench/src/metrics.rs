//! Reads metrics of a server in the Prometheus text format, as far as the benchmarks need it.

use crate::failure::{Context, Failure, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One sample of a metric.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    /// The text between the braces; may be empty.
    labels: String,
    /// The upper edge of a histogram bucket.
    le: Option<f64>,
    value: f64,
}

/// All samples of one page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Sample>);

impl Metrics {
    /// Fetches `/metrics`. Blocks for five seconds at most.
    ///
    /// # Errors
    /// The page cannot be fetched.
    pub fn fetch(address: SocketAddr) -> Result<Self> {
        let page =
            get(address, "/metrics").context(|| format!("fetch http://{address}/metrics"))?;
        let (head, body) = page.split_once("\r\n\r\n").unwrap_or_default();
        if head.split(' ').nth(1) != Some("200") {
            return Err(Failure::new(format!(
                "http://{address}/metrics: {}",
                head.lines().next().unwrap_or("empty")
            )));
        }
        Ok(Self(body.lines().filter_map(parse_line).collect()))
    }

    /// The upper edge, in seconds, of the highest bucket of a histogram that has grown since `before` on any
    /// worker. 0 when none has; None when there is no such histogram.
    #[must_use]
    pub fn highest_since(&self, before: &Self, histogram: &str) -> Option<f64> {
        let name = format!("{histogram}_bucket");
        let edges = self.edges(&name);
        let mut below = 0.0;
        let mut highest = edges.first().map(|_| 0.0);
        for edge in edges {
            let grown = self.count(&name, edge) - before.count(&name, edge);
            if grown > below {
                highest = Some(edge);
            }
            below = grown;
        }
        highest
    }

    /// The growth since `before` of the samples with this name whose labels contain `label`, over all workers.
    #[must_use]
    pub fn growth_since(&self, before: &Self, name: &str, label: &str) -> f64 {
        self.sum(name, label) - before.sum(name, label)
    }

    fn sum(&self, name: &str, label: &str) -> f64 {
        self.0
            .iter()
            .filter(|s| s.name == name && s.labels.contains(label))
            .map(|s| s.value)
            .sum()
    }

    fn edges(&self, name: &str) -> Vec<f64> {
        let mut edges: Vec<f64> = self
            .0
            .iter()
            .filter(|s| s.name == name)
            .filter_map(|s| s.le)
            .collect();
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        edges
    }

    fn count(&self, name: &str, edge: f64) -> f64 {
        self.0
            .iter()
            .filter(|s| s.name == name && s.le == Some(edge))
            .map(|s| s.value)
            .sum()
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

fn parse_line(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let le = labels
        .split([',', '}'])
        .find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'));
    Some(Sample {
        name: name.into(),
        labels: labels.trim_end_matches('}').into(),
        le: le.and_then(edge),
        value: value.parse().ok()?,
    })
}

fn edge(text: &str) -> Option<f64> {
    if text == "+Inf" {
        Some(f64::INFINITY)
    } else {
        text.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fast: u32, slow: u32, all: u32) -> Metrics {
        let text = format!(
            "# TYPE s histogram\ns_bucket{{worker=\"0\",le=\"0.001\"}} {fast}\n\
             s_bucket{{worker=\"0\",le=\"0.01\"}} {slow}\ns_bucket{{worker=\"0\",le=\"+Inf\"}} {all}\n\
             s_count{{worker=\"0\"}} {all}\nup 1"
        );
        Metrics(text.lines().filter_map(parse_line).collect())
    }

    #[test]
    fn growth_of_the_samples_with_a_label() {
        let page = |disk: u32| {
            let text = format!("r{{source=\"disk\"}} {disk}\nr{{source=\"memory\"}} 5\nr_sum 9");
            Metrics(text.lines().filter_map(parse_line).collect())
        };
        assert_eq!(page(7).growth_since(&page(3), "r", "source=\"disk\""), 4.0);
        assert_eq!(page(7).growth_since(&page(3), "r", ""), 4.0);
        assert_eq!(
            page(7).growth_since(&page(3), "r", "source=\"memory\""),
            0.0
        );
    }

    #[test]
    fn the_highest_bucket_that_has_grown() {
        let before = page(5, 6, 7);
        assert_eq!(page(5, 6, 7).highest_since(&before, "s"), Some(0.0));
        assert_eq!(page(9, 10, 11).highest_since(&before, "s"), Some(0.001));
        assert_eq!(page(9, 11, 12).highest_since(&before, "s"), Some(0.01));
        assert_eq!(
            page(9, 11, 13).highest_since(&before, "s"),
            Some(f64::INFINITY)
        );
        assert_eq!(before.highest_since(&before, "other"), None);
    }
}
