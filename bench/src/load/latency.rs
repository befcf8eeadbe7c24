//! Percentiles of latencies.

use levity_inspect::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// Percentiles in microseconds.
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

impl From<&Histogram> for Latency {
    fn from(histogram: &Histogram) -> Self {
        Self {
            p50_us: histogram.quantile_us(0.5),
            p90_us: histogram.quantile_us(0.9),
            p99_us: histogram.quantile_us(0.99),
            p999_us: histogram.quantile_us(0.999),
            max_us: histogram.max_us(),
        }
    }
}
