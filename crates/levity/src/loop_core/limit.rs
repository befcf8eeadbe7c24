//! A limit on operations in progress, shared by all event loops.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Allows a number of operations at a time. Takes no lock, in contrast to a semaphore, which locks the queue of
/// its waiters; nobody waits for a permit here.
pub struct Limit {
    max: usize,
    used: AtomicUsize,
}

/// The right to one operation. Dropping it returns the right.
pub struct Permit<'a>(&'a Limit);

impl Limit {
    /// A limit of `max` operations, none of which is in progress.
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            used: AtomicUsize::new(0),
        }
    }

    /// A permit for one more operation; `None` when the limit is reached.
    pub fn try_take(&self) -> Option<Permit<'_>> {
        let one_more = |used| (used < self.max).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()
            .map(|_| Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_is_free_for_another_operation() {
        let limit = Limit::new(2);
        let (first, second) = (limit.try_take(), limit.try_take());
        assert!(first.is_some() && second.is_some());
        assert!(limit.try_take().is_none());
        drop(first);
        let third = limit.try_take();
        assert!(third.is_some() && limit.try_take().is_none());
    }
}
