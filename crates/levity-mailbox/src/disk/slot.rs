//! What a thread uses, and the writer takes away after a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// `None` while the database is closed.
pub(super) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    pub fn new(content: T) -> Self {
        Self(Mutex::new(Some(content)))
    }

    /// The content, which nobody else uses meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
