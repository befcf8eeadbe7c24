//! What threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time uses. A panic of one does not keep it from the others.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// The value, which nobody else uses meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
