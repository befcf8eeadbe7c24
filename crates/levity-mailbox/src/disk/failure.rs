//! Why the database does not do what it was asked for.

use std::fmt;
use std::io;

use rusqlite::{ErrorCode, ffi};
use rustix::io::Errno;

use crate::store::StoreError;

/// A failure of the database or of a file beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The disk is full, or a quota is used up. Nothing was written.
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
        let is_over_quota = is_over_quota(&error);
        let reason = format!("the database: {error}");
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(reason),
            Some(ErrorCode::SystemIoFailure) if is_over_quota => Self::Full(reason),
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

/// Why a request is not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The box, or its set, does not permit it, or nobody can.
    Store(StoreError),
    /// The database does not do it.
    Failure(Failure),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failure(error.into())
    }
}

/// Whether a write has failed because a quota is used up. To SQLite that is a disk that fails, unlike a disk that is full. Its
/// last system call was the write, so the error number of the thread is still that of it.
fn is_over_quota(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let number = io::Error::last_os_error().raw_os_error();
    code == Some(ffi::SQLITE_IOERR_WRITE) && number == Some(Errno::DQUOT.raw_os_error())
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(format!("the folder of the database: {error}"))
    }
}
