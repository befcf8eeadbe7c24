//! Bounds on how many of something this process has at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound. Takes no lock.
#[derive(Debug)]
pub(crate) struct Permits {
    max: AtomicUsize,
    taken: AtomicUsize,
}

/// The right to have so many, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(&'static Permits, usize);

impl Permits {
    pub(crate) const fn new(max: usize) -> Permits {
        Permits {
            max: AtomicUsize::new(max),
            taken: AtomicUsize::new(0),
        }
    }

    /// Permits that are taken already stay so.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Whether `count` are no more than all.
    pub(crate) fn can_have(&self, count: usize) -> bool {
        count <= self.max.load(Ordering::Relaxed)
    }

    /// `None` if fewer than `count` are left.
    pub(crate) fn take(&'static self, count: usize) -> Option<Permit> {
        let max = self.max.load(Ordering::Relaxed);
        let more = |taken: usize| (taken + count <= max).then_some(taken + count);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Permit(self, count))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Self(permits, count) = self;
        permits.taken.fetch_sub(*count, Ordering::Relaxed);
    }
}
