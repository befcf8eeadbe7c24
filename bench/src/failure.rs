//! One error type: a sentence for the person who runs the benchmark.

use std::fmt;

/// An error message with the operation that failed.
pub struct Failure(String);

/// A result whose error is a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shown like [`fmt::Display`], because `main` prints errors with `Debug`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Adds the failed operation to an error.
pub trait Context<T> {
    /// Puts `doing` before the error's own text.
    ///
    /// # Errors
    /// The error of `self`, if it is one.
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", doing())))
    }
}
