//! The values of what clients share.

/// How much of a resource clients hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareFigure {
    /// Its name.
    pub resource: &'static str,
    /// What is held: a number, or bytes.
    pub used: u64,
    /// The maximum.
    pub max: u64,
    /// Clients that hold any.
    pub holders: u64,
    /// Requests that did not get as much as they wanted.
    pub refused: u64,
    /// Requests that were ended for others, because their clients moved no bytes.
    pub reclaimed: u64,
}
