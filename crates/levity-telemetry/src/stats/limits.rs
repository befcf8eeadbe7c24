//! The values of rate limits.

/// The values of all rate limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFigures {
    /// Each limit; several may have one name.
    pub limits: Vec<LimitFigure>,
    /// The state of their keys; `None` without limits.
    pub table: Option<LimitTableFigures>,
}

/// The state of the clients, files and routes that limits count under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitTableFigures {
    /// Keys that have used some of what they may; an estimate if there are many.
    pub keys: u64,
    /// The maximum number of keys.
    pub keys_max: u64,
    /// Keys that were forgotten before their time, because the table was full.
    pub evictions: u64,
}

/// What a limit has let through, and how often it was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFigure {
    /// Its name.
    pub limit: String,
    /// What it did: `refused`, `slowed` or `reported`.
    pub action: &'static str,
    /// Requests within the limit whose responses have ended, slowed ones left out.
    pub allowed: u64,
    /// Requests that were refused, responses that were slowed down, or those that would have been.
    pub count: u64,
}
