//! A count to which all workers add.

use std::sync::atomic::{AtomicUsize, Ordering};

use levity_disk::memory::CacheLines;

/// The number of shares. Workers beyond it share one each with another worker.
const SHARES: usize = 16;

/// A count in shares of a cache line each: workers that add to the same line would wait for each other at each request.
pub struct ShardedCount(CacheLines);

impl ShardedCount {
    /// A count of 0.
    pub fn new() -> Self {
        Self(CacheLines::zeroed(SHARES))
    }

    /// Adds one to the share of the thread.
    pub fn add_one(&self) {
        self.0[share()].0[0].fetch_add(1, Ordering::Relaxed);
    }

    /// The sum.
    pub fn sum(&self) -> u64 {
        let shares = self.0.iter();
        shares.map(|line| line.0[0].load(Ordering::Relaxed)).sum()
    }
}

/// The number of the share of the thread.
fn share() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARES;
    }
    SHARE.with(|share| *share)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_add_up() {
        let count = ShardedCount::new();
        thread::scope(|scope| {
            for _ in 0..2 * SHARES {
                scope.spawn(|| (0..1000).for_each(|_| count.add_one()));
            }
        });
        assert_eq!(count.sum(), 2 * SHARES as u64 * 1000);
    }
}
