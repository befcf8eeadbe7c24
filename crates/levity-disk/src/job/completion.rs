//! The outcome of a job.

use std::io;
use std::time::Duration;

use super::op::{Appended, Done, Operation};
use super::ready::Ready;

/// The outcome of a job, and the time that it took.
#[derive(Debug)]
pub struct Completion<T = Done> {
    /// The output of the operation. An error carries the errno of the call that failed.
    pub result: io::Result<T>,
    /// Time spent waiting for a slot of the device and for a thread.
    pub queued: Duration,
    /// Time spent in the kernel.
    pub service: Duration,
    /// Whether the bytes were read past the page cache.
    pub direct: bool,
}

impl Completion {
    /// The completion of a job whose operation is an `O`.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn of<O: Operation>(self) -> Completion<O::Output> {
        let Completion {
            result,
            queued,
            service,
            direct,
        } = self;
        Completion {
            result: result.map(O::output),
            queued,
            service,
            direct,
        }
    }

    /// The completion of a job that was never started.
    pub(crate) fn not_started(error: io::Error) -> Completion {
        Completion {
            result: Err(error),
            queued: Duration::ZERO,
            service: Duration::ZERO,
            direct: false,
        }
    }

    /// The bytes that the job has read, if any.
    pub fn ready(&self) -> Option<&Ready> {
        match &self.result {
            Ok(Done::Read((ready, _))) => Some(ready),
            Ok(Done::Open(opened)) => opened.first.as_ref(),
            _ => None,
        }
    }

    /// The number of bytes that the job has written.
    pub(crate) fn written(&self) -> Option<usize> {
        match &self.result {
            Ok(Done::Write(len) | Done::Append(Appended { len, .. })) => Some(*len),
            _ => None,
        }
    }
}
