//! Memory of messages, counted until the last reference to them is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on the memory of all messages of a process, in bytes. Taking and giving back are atomic operations.
#[derive(Debug)]
pub struct Budget {
    bytes_max: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of `bytes_max`, none of which is used.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max: AtomicUsize::new(bytes_max),
            used: AtomicUsize::new(0),
        })
    }

    /// Changes the bound. What is in use beyond it stays.
    pub fn set_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// The bound in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`; `None` if they would exceed the bound.
    #[must_use]
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.reserve_below(bytes, self.bytes_max())
    }

    /// Reserves `bytes` for a message that is read again. A quarter of the bound is left for new messages, which readers shall not
    /// keep out.
    #[must_use]
    pub fn try_reserve_to_read(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let bytes_max = self.bytes_max();
        self.reserve_below(bytes, bytes_max - bytes_max / 4)
    }

    /// Reserves `bytes` for a form of a message that several receivers send. Half of the bound is left for messages: those who
    /// have no room for a form can encode it again.
    #[must_use]
    pub fn try_reserve_for_form(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.reserve_below(bytes, self.bytes_max() / 2)
    }

    fn reserve_below(self: &Arc<Self>, bytes: usize, bytes_max: usize) -> Option<Reservation> {
        let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= bytes_max);
        let reserved = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        reserved.ok().map(|_| Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Reserves `bytes` even beyond the bound, for messages that a store has accepted already.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Reservation {
            budget: self.clone(),
            bytes,
        }
    }
}

/// Bytes of a [`Budget`], which get them back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Reserves further `bytes` of the same budget for [a form](Budget::try_reserve_for_form).
    #[must_use]
    pub fn try_more_for_form(&self, bytes: usize) -> Option<Self> {
        self.budget.try_reserve_for_form(bytes)
    }

    /// Takes over the bytes of `other`, which is of the same budget.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Makes it one of `bytes`, and gives back the rest; whether there is room. Otherwise it stays as it is.
    #[must_use]
    pub fn try_resize(&mut self, bytes: usize) -> bool {
        if let Some(rest) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.used.fetch_sub(rest, Ordering::Relaxed);
            return true;
        }
        let more = self.budget.try_reserve(bytes - self.bytes);
        more.map(|more| self.merge(more)).is_some()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_to_the_byte() {
        let budget = Budget::new(10);
        let first = budget.try_reserve(6).expect("room");
        assert!(budget.try_reserve(5).is_none());
        let second = budget.try_reserve(4).expect("room");
        assert!(budget.try_reserve(1).is_none() && budget.used() == 10);
        drop((first, second));
        assert_eq!(budget.used(), 0);
        let mut beyond = budget.reserve(11);
        assert_eq!(budget.used(), 11);
        beyond.merge(budget.reserve(2));
        assert_eq!(budget.used(), 13);
        drop(beyond);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn readers_leave_a_quarter() {
        let budget = Budget::new(8);
        let read = budget.try_reserve_to_read(6).expect("room");
        assert!(budget.try_reserve_to_read(1).is_none());
        drop((budget.try_reserve(2).expect("room"), read));
        let new = budget.try_reserve(7).expect("room");
        assert!(budget.try_reserve_to_read(0).is_none());
        drop(new);
    }

    #[test]
    fn what_is_not_needed_is_given_back() {
        let budget = Budget::new(10);
        let mut reservation = budget.try_reserve(10).expect("room");
        assert!(reservation.try_resize(3) && budget.used() == 3);
        let other = budget.try_reserve(5).expect("room");
        assert!(!reservation.try_resize(6) && budget.used() == 8);
        assert!(reservation.try_resize(5) && budget.used() == 10);
        drop((reservation, other));
        assert_eq!(budget.used(), 0);
    }
}
