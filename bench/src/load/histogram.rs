//! Latencies in logarithmic buckets: constant memory, every percentile within 1.6 %.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Each power of two is cut into this many buckets (as a power of two), hence the 1.6 %.
const BITS: u32 = 6;
const SLICES: u64 = 1 << BITS;

/// Counts of durations, by nanoseconds.
#[derive(Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

/// What a table shows of a [`Histogram`], in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The slowest request, exact.
    pub max_us: f64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket_of(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The upper edge, in nanoseconds, of the bucket that holds the given share (0 to 1) of all
    /// durations; 0 when nothing was counted.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge(bucket).min(self.max_ns);
            }
        }
        0
    }

    /// The percentiles of a table.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let us = |share| self.quantile_ns(share) as f64 / 1000.0;
        Latency {
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: self.max_ns as f64 / 1000.0,
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < SLICES {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS;
    let slice = (ns >> shift) - SLICES;
    (SLICES * u64::from(shift + 1) + slice) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SLICES {
        return bucket;
    }
    let shift = bucket / SLICES - 1;
    let next = u128::from(SLICES + bucket % SLICES + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_within_its_bucket() {
        let values = (0..63).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for ns in values.chain([u64::MAX]) {
            let bucket = bucket_of(ns);
            let below = bucket.checked_sub(1).map_or(0, upper_edge);
            assert!(ns <= upper_edge(bucket), "{ns}");
            assert!(ns == 0 || ns > below, "{ns} fits in a lower bucket");
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let latency = histogram.latency();
        assert!((latency.p50_us / 500.0 - 1.0).abs() < 0.016, "{latency:?}");
        assert!((latency.p99_us / 990.0 - 1.0).abs() < 0.016, "{latency:?}");
        assert_eq!(latency.max_us, 1000.0);
    }

    #[test]
    fn an_empty_histogram_reads_zero() {
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }

    #[test]
    fn one_slow_request_in_ten_shows_in_the_tail_only() {
        let mut histogram = Histogram::default();
        for _ in 0..9 {
            histogram.record(Duration::from_micros(10));
        }
        histogram.record(Duration::from_secs(1));
        assert!(histogram.latency().p90_us < 11.0);
        assert_eq!(histogram.latency().p99_us, 1_000_000.0);
    }
}
