//! Durations in logarithmic buckets: bounded memory, quantiles within 1 %.

/// Significant decimal digits of a quantile. Two keep a histogram below 64 KiB whatever it counts.
const DIGITS: u8 = 2;

/// How often something took how long. Times are in microseconds; count, sum and maximum are exact.
#[derive(Debug)]
pub struct Histogram {
    /// In nanoseconds.
    counts: hdrhistogram::Histogram<u64>,
    total_us: f64,
    max_us: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: hdrhistogram::Histogram::new(DIGITS).expect("up to 5 digits"),
            total_us: 0.0,
            max_us: 0.0,
        }
    }
}

impl Histogram {
    /// Counts one duration, which must not be negative.
    pub fn record(&mut self, us: f64) {
        self.counts
            .record((us * 1e3).round() as u64)
            .expect("it grows as needed");
        self.total_us += us;
        self.max_us = self.max_us.max(us);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Their sum.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.total_us
    }

    /// The longest; 0 without any.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.max_us
    }

    /// The mean; 0 without any.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.total_us / self.count().max(1) as f64
    }

    /// The duration that the given share of all, from 0 to 1, did not exceed, rounded up; 0 without any.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let upper_edge_ns = self.counts.value_at_quantile(share);
        (upper_edge_ns as f64 / 1e3).min(self.max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(f64::from(us) * 1.7);
        }
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = (share * 10_000.0_f64).ceil() * 1.7;
            let found = histogram.quantile_us(share);
            assert!(
                (exact..exact * 1.01).contains(&(found + 0.001)),
                "{share}: {found} {exact}"
            );
        }
        assert_eq!((histogram.count(), histogram.max_us()), (10_000, 17_000.0));
    }

    #[test]
    fn one_slow_request_in_ten_shows_in_the_tail_only() {
        let mut histogram = Histogram::default();
        for _ in 0..9 {
            histogram.record(10.0);
        }
        histogram.record(1e6);
        assert!((10.0..10.1).contains(&histogram.quantile_us(0.9)));
        assert_eq!(histogram.quantile_us(0.99), 1e6);
    }

    #[test]
    fn the_ends_are_safe() {
        let mut histogram = Histogram::default();
        assert_eq!(
            (histogram.quantile_us(0.5), histogram.mean_us()),
            (0.0, 0.0)
        );
        histogram.record(0.0);
        histogram.record(1e15);
        histogram.record(1e300);
        let quantiles = [0.1, 0.5, 1.0].map(|share| histogram.quantile_us(share));
        assert_eq!(quantiles[0], 0.0);
        assert!((quantiles[1] / 1e15 - 1.0).abs() < 0.01, "{quantiles:?}");
        assert!(quantiles[2] >= u64::MAX as f64 / 1e3, "{quantiles:?}");
    }
}
