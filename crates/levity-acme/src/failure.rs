//! Why an attempt has failed.

use std::error::Error as _;
use std::fmt;
use std::time::SystemTime;

use instant_acme::{Error, Problem};

/// The part of the type of a problem that all have (RFC 8555, 6.7).
const PROBLEM_PREFIX: &str = "urn:ietf:params:acme:error:";

/// Why there is no certificate.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// When it makes sense to try again, if the other end has said so.
    pub not_before: Option<SystemTime>,
    /// The last part of the type of the problem that an authority has named.
    pub kind: Option<String>,
    /// Whose fault it is.
    pub cause: Cause,
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Anybody's.
    Other,
    /// Nobody's: this server asks for no more just now, so that the authority does not refuse it.
    Limit,
    /// The name's: the authority has looked for a proof and has not found it.
    Proof,
}

impl Failure {
    /// One with words only.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            not_before: None,
            kind: None,
            cause: Cause::Other,
        }
    }

    /// One of this server's own limits, which lasts until `not_before`.
    pub fn limit(reason: impl Into<String>, not_before: SystemTime) -> Self {
        Self {
            not_before: Some(not_before),
            cause: Cause::Limit,
            ..Self::new(reason)
        }
    }

    /// Whether the authority has named a problem of this type.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => of_problem(&problem),
            Error::Other(other) => match other.downcast::<Later>() {
                Ok(later) => Self {
                    not_before: Some(later.at),
                    ..Self::new(later.reason)
                },
                Err(other) => Self::new(other.to_string()),
            },
            Error::Timeout(_) => Self::new("the authority took too long"),
            Error::Json(error) => Self::new(format!(
                "a response of the authority makes no sense: {error}"
            )),
            error => {
                let cause = error.source().map(|cause| format!(": {cause}"));
                Self::new(format!("{error}{}", cause.unwrap_or_default()))
            }
        }
    }
}

/// The words of an authority.
fn of_problem(problem: &Problem) -> Failure {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix(PROBLEM_PREFIX).unwrap_or(kind);
    let mut reason = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        reason.push_str("; ");
        reason.push_str(part.detail.as_deref().unwrap_or_default());
    }
    if reason.is_empty() {
        "the authority gives no reason".clone_into(&mut reason);
    }
    Failure {
        kind: Some(kind.to_owned()),
        ..Failure::new(format!("{reason} ({kind})"))
    }
}

/// The authority wants to be left alone for a while.
#[derive(Debug)]
pub struct Later {
    /// What it has said.
    pub reason: String,
    /// Until when.
    pub at: SystemTime,
}

impl fmt::Display for Later {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for Later {}
