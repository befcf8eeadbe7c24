//! Counters, gauges and histograms that one thread writes and any thread reads.
//!
//! A counter has one writer, so that counting is a load and a store, without the bus lock of a read-modify-write.
//! Each worker has its own; a scrape adds them up. A scrape sees no torn value, but it does not see all values at
//! one instant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. For its one writer.
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Replaces it by a count that is kept elsewhere. For its one writer.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value at this moment.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls, stored as one counter of rises and one of falls.
#[derive(Debug, Default)]
pub struct Gauge {
    ups: Counter,
    downs: Counter,
}

impl Gauge {
    /// Raises it. For its one writer.
    pub fn up(&self, by: u64) {
        self.ups.add(by);
    }

    /// Lowers it. For its one writer.
    pub fn down(&self, by: u64) {
        self.downs.add(by);
    }

    /// The sum of several gauges. Falls are read first: a rise and its fall between the two reads cannot make the
    /// difference negative.
    pub(crate) fn sum<'g>(gauges: impl Iterator<Item = &'g Self>) -> u64 {
        let now = gauges.map(|gauge| {
            let downs = gauge.downs.get();
            gauge.ups.get().saturating_sub(downs)
        });
        now.sum()
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct Histogram {
    bounds_us: &'static [u64],
    counts: Box<[Counter]>,
    sum_ns: Counter,
}

impl Histogram {
    /// `bounds_us` are upper bounds in microseconds, inclusive and ascending.
    pub(crate) fn new(bounds_us: &'static [u64]) -> Self {
        let counts = (0..=bounds_us.len()).map(|_| Counter::default()).collect();
        Self {
            bounds_us,
            counts,
            sum_ns: Counter::default(),
        }
    }

    /// Counts one duration. For its one writer.
    pub fn observe(&self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        // From the lowest bound, because most values are small.
        let mut bounds = self.bounds_us.iter();
        let bucket = bounds
            .position(|bound| nanos <= bound * 1_000)
            .unwrap_or(self.bounds_us.len());
        self.counts[bucket].add(1);
        self.sum_ns.add(nanos);
    }

    /// The values at this moment.
    pub fn figures(&self) -> HistogramFigures {
        HistogramFigures {
            bounds_us: self.bounds_us,
            counts: self.counts.iter().map(Counter::get).collect(),
            sum: Duration::from_nanos(self.sum_ns.get()),
        }
    }
}

/// A histogram of durations whose buckets are each four times as wide as the one before, from 1 us to 67 s. The
/// bucket is found without a search, because every request counts several times.
#[derive(Debug, Default)]
pub(crate) struct Fourfold {
    counts: [Counter; FOURFOLD_BOUNDS_US.len() + 1],
    sum_ns: Counter,
}

/// Upper bounds of a [`Fourfold`], in microseconds.
const FOURFOLD_BOUNDS_US: &[u64] = &[
    1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
    67_108_864,
];

impl Fourfold {
    pub(crate) fn observe(&self, nanos: u64) {
        let over_us = nanos.div_ceil(1_000).saturating_sub(1);
        let bucket = (u64::BITS - over_us.leading_zeros()).div_ceil(2) as usize;
        self.counts[bucket.min(FOURFOLD_BOUNDS_US.len())].add(1);
        self.sum_ns.add(nanos);
    }

    pub(crate) fn figures(&self) -> HistogramFigures {
        HistogramFigures {
            bounds_us: FOURFOLD_BOUNDS_US,
            counts: self.counts.iter().map(Counter::get).collect(),
            sum: Duration::from_nanos(self.sum_ns.get()),
        }
    }
}

/// The values of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramFigures {
    /// Upper bounds in microseconds, inclusive and ascending.
    pub bounds_us: &'static [u64],
    /// Number of values per bucket, not cumulative; one bucket more than bounds, for values above the last.
    pub counts: Vec<u64>,
    /// Sum of the values.
    pub sum: Duration,
}

impl HistogramFigures {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The values since `earlier`, which was taken from the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts);
        Self {
            bounds_us: self.bounds_us,
            counts: counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// The quantile at `share` (0 to 1), rounded up to a bound; values above the last bound count as that bound.
    /// `None` without values.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        let bound = self.bounds_us.get(bucket).or(self.bounds_us.last())?;
        Some(Duration::from_micros(*bound))
    }

    pub(crate) fn total(parts: impl Iterator<Item = Self>) -> Option<Self> {
        parts.reduce(|mut total, part| {
            debug_assert_eq!(total.bounds_us, part.bounds_us);
            total
                .counts
                .iter_mut()
                .zip(part.counts)
                .for_each(|(sum, count)| *sum += count);
            total.sum += part.sum;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        let histogram = Histogram::new(&[50, 100]);
        for nanos in [0, 50_000, 50_001, 100_000, 100_001, u64::MAX / 2] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        assert_eq!(histogram.figures().counts, [2, 2, 2]);
    }

    #[test]
    fn quantiles_are_bounds() {
        let histogram = Histogram::new(&[50, 100, 1_000]);
        assert_eq!(histogram.figures().quantile(0.5), None);
        for micros in [20, 60, 60, 5_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let figures = histogram.figures();
        let at = |share| figures.quantile(share).map(|time| time.as_micros());
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 0.99].map(at),
            [50, 50, 100, 100, 1_000].map(Some)
        );
    }

    #[test]
    fn a_difference_has_what_came_between() {
        let histogram = Histogram::new(&[50]);
        histogram.observe(Duration::from_micros(20));
        let earlier = histogram.figures();
        histogram.observe(Duration::from_micros(70));
        let between = histogram.figures().since(&earlier);
        assert_eq!(between.counts, [0, 1]);
        assert_eq!(between.sum, Duration::from_micros(70));
    }

    #[test]
    fn fourfold_buckets_are_those_of_their_bounds() {
        for nanos in (0..40).map(|power| 1_u64 << power) {
            for nanos in [nanos - 1, nanos, nanos + 1, nanos * 1000, nanos * 1000 + 1] {
                let value = Duration::from_nanos(nanos);
                let (searched, found) = (Histogram::new(FOURFOLD_BOUNDS_US), Fourfold::default());
                searched.observe(value);
                found.observe(nanos);
                assert_eq!(searched.figures(), found.figures(), "{value:?}");
            }
        }
    }

    #[test]
    fn totals_add_up() {
        let (one, two) = (Histogram::new(&[50]), Histogram::new(&[50]));
        one.observe(Duration::from_micros(20));
        two.observe(Duration::from_micros(30));
        two.observe(Duration::from_micros(60));
        let total = HistogramFigures::total([one.figures(), two.figures()].into_iter());
        let expected = HistogramFigures {
            bounds_us: &[50],
            counts: vec![2, 1],
            sum: Duration::from_micros(110),
        };
        assert_eq!(total, Some(expected));
    }
}
