//! Mutexes whose data stays whole even when a thread panics while it holds one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: nothing here leaves a lock's data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
