//! The values of rate limits.

/// The values of all rate limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFigures {
    /// Each limit; several may have one name.
    pub limits: Vec<LimitFigure>,
    /// Keys that were forgotten before their time, because the table was full; `None` without limits.
    pub evictions: Option<u64>,
}

/// How often a limit was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFigure {
    /// Its name.
    pub limit: String,
    /// What it did: `refused`, `slowed` or `reported`.
    pub action: &'static str,
    /// Requests that were refused, responses that were slowed down, or those that would have been.
    pub count: u64,
}
