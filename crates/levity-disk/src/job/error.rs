//! Why the scheduler refused or gave up a job, as marks inside an [`io::Error`].

use std::fmt;
use std::io;

/// Whether an error means that the job was not accepted: the queue of its device, or the queue to the
/// scheduler, is full; or the job would start now and there is no memory for it. Nothing has been done,
/// and the job may be submitted again.
pub fn is_full(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Full>())
}

/// The mark of an error that [`is_full`] recognises.
#[derive(Debug)]
pub(crate) struct Full;

impl From<Full> for io::Error {
    fn from(full: Full) -> io::Error {
        io::Error::new(io::ErrorKind::ResourceBusy, full)
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the disk is full")
    }
}

impl std::error::Error for Full {}

/// Whether an error means that the job's device is considered dead: it has not answered for
/// [`Settings::dead_after`](crate::Settings::dead_after). The kind of the error is `TimedOut`.
pub fn is_dead(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Dead>())
}

/// The mark of an error that [`is_dead`] recognises.
#[derive(Debug)]
pub(crate) struct Dead;

impl From<Dead> for io::Error {
    fn from(dead: Dead) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, dead)
    }
}

impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk does not answer")
    }
}

impl std::error::Error for Dead {}
