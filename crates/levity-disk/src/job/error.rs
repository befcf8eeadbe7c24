//! Why the scheduler refused or gave up a job, as a mark inside an [`io::Error`].

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Whether an error means that the job was not accepted: the queue of its device, or the queue to the
/// scheduler, is full; or the job would start now and there is no memory for it. Nothing has been done,
/// and the job may be submitted again.
pub fn is_full(error: &io::Error) -> bool {
    Refusal::of(error) == Some(Refusal::Full)
}

/// Whether an error means that the job's device is considered dead: it has not answered for
/// [`Settings::dead_after`](crate::Settings::dead_after). The kind of the error is `TimedOut`.
pub fn is_dead(error: &io::Error) -> bool {
    Refusal::of(error) == Some(Refusal::Dead)
}

/// Why a job was not accepted, or was given up. Except for `Closed` the mark of an error that [`is_full`] or
/// [`is_dead`] recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue or the memory is full.
    Full,
    /// The device is dead.
    Dead,
    /// The disk is shutting down: ECANCELED.
    Closed,
}

impl Refusal {
    fn of(error: &io::Error) -> Option<Refusal> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Full => io::Error::new(io::ErrorKind::ResourceBusy, refusal),
            Refusal::Dead => io::Error::new(io::ErrorKind::TimedOut, refusal),
            Refusal::Closed => Errno::CANCELED.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "the queue of the disk is full",
            Refusal::Dead => "the disk does not answer",
            Refusal::Closed => "the disk is shutting down",
        })
    }
}

impl std::error::Error for Refusal {}
