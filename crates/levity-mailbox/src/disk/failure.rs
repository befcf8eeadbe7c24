//! Why the database does not do what it was asked for.

use std::fmt;
use std::io;

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// A failure of the database or of a file beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The disk is full. Nothing was written.
    Full(String),
    /// The database is damaged.
    Damaged(String),
    /// A disk that fails, or anything else. It is not known what was written.
    Broken(String),
}

impl Failure {
    pub fn error(&self) -> StoreError {
        match self {
            Self::Full(reason) => StoreError::Full(reason.clone()),
            Self::Damaged(reason) | Self::Broken(reason) => StoreError::Unavailable(reason.clone()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Full(reason) | Self::Damaged(reason) | Self::Broken(reason)) = self;
        formatter.write_str(reason)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let reason = format!("the database: {error}");
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(reason),
            // Our statements are right, and so are our values, unless what describes the tables, or an index, is wrong.
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::Unknown
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch,
            )
            | None => Self::Damaged(reason),
            _ => Self::Broken(reason),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(format!("the folder of the database: {error}"))
    }
}
