//! The memory that computations of one kind may take, all together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on memory that all event loops and the threads of the pool share. Nothing here blocks.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// How much of a budget may be used when memory is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All.
    Whole,
    /// Three quarters, for what is large, so that it leaves some for what is small.
    Most,
    /// A half, for what is kept for hours: otherwise idle streams would leave nothing for other responses.
    Half,
}

/// Memory of a budget, until it is dropped.
pub struct Reserved {
    budget: Arc<Budget>,
    share: Share,
    bytes: usize,
}

impl Budget {
    /// A budget of which nothing is used.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
        })
    }

    /// Replaces the maximum. What has been reserved remains.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// The maximum in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// What is reserved at present, in bytes.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`, unless more than `share` is used then.
    pub fn reserve(self: &Arc<Self>, bytes: usize, share: Share) -> Option<Reserved> {
        let mut reserved = self.nothing(share);
        reserved.try_grow(bytes).then_some(reserved)
    }

    /// No memory at first.
    pub fn nothing(self: &Arc<Self>, share: Share) -> Reserved {
        Reserved {
            budget: self.clone(),
            share,
            bytes: 0,
        }
    }
}

impl Reserved {
    /// What it has, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `bytes` more, unless more than its share of the budget is used then. Returns whether they are there.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let bytes_max = match self.share {
            Share::Whole => self.budget.bytes_max(),
            Share::Most => self.budget.bytes_max() / 4 * 3,
            Share::Half => self.budget.bytes_max() / 2,
        };
        let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= bytes_max);
        let used = &self.budget.used;
        let is_there = used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok();
        if is_there {
            self.bytes += bytes;
        }
        is_there
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reserved({} bytes)", self.bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
