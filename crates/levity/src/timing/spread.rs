//! Times in logarithmic buckets: constant memory, every percentile within 1.6 %.

/// Each power of two is cut into this many buckets (as a power of two), hence the 1.6 %.
const BITS: u32 = 6;
const SLICES: u64 = 1 << BITS;

/// How often something took how long.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// By nanoseconds.
    counts: Vec<u64>,
    count: u64,
    total_us: f64,
    max_us: f64,
}

impl Spread {
    pub(super) fn add(&mut self, us: f64) {
        let bucket = bucket((us * 1e3) as u64);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.total_us += us;
        self.max_us = self.max_us.max(us);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn total_us(&self) -> f64 {
        self.total_us
    }

    pub(super) fn max_us(&self) -> f64 {
        self.max_us
    }

    /// 0 when there are none.
    pub(super) fn mean_us(&self) -> f64 {
        self.total_us / self.count.max(1) as f64
    }

    /// What the given share of all, from 0 to 1, did not exceed.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge_us(bucket).min(self.max_us);
            }
        }
        0.0
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SLICES {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS;
    (SLICES * u64::from(shift) + (ns >> shift)) as usize
}

fn upper_edge_us(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    let (shift, slice) = match bucket < 2 * SLICES {
        true => (0, bucket),
        false => (bucket / SLICES - 1, SLICES + bucket % SLICES),
    };
    ((slice + 1) as f64 * (shift as f64).exp2() - 1.0) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_percentile_is_near() {
        let mut spread = Spread::default();
        for us in 1..=10_000 {
            spread.add(f64::from(us) * 1.7);
        }
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = (share * 10_000.0_f64).ceil() * 1.7;
            let found = spread.quantile_us(share);
            assert!(
                (exact..exact * 1.02).contains(&(found + 0.001)),
                "{share}: {found} {exact}"
            );
        }
        assert_eq!((spread.count(), spread.max_us()), (10_000, 17_000.0));
    }

    #[test]
    fn the_ends_are_safe() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile_us(0.5), 0.0);
        spread.add(0.0);
        spread.add(1e15);
        assert_eq!(
            (spread.quantile_us(0.5), spread.quantile_us(1.0)),
            (0.0, 1e15)
        );
    }
}
