//! Syncs of one file, made in groups.
//!
//! A sync covers what was written before it started. So a job may join one that has not started, and never one that
//! has. At most one per file is in flight: a second one would make the device write the same pages and the same
//! journal beside the first. Those that arrive meanwhile are held back, as one job, until it is done.
//!
//! So of each open file there is at most one sync in flight and one that waits, in a queue or held back.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared_job::SharedJob;
use crate::job::Op;

/// The syncs of a device.
#[derive(Default)]
pub(super) struct Syncs {
    /// By the address of the open file, which its jobs keep.
    files: HashMap<usize, FileSyncs>,
    /// The number of jobs that are held back.
    held: usize,
}

#[derive(Default)]
struct FileSyncs {
    is_in_flight: bool,
    /// The job that has not started, which others join.
    waiting: Option<Arc<SharedJob>>,
    /// It is in no queue until the one in flight is done.
    is_held: bool,
}

impl Syncs {
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_in_flight(&self, op: &Op) -> bool {
        self.of(op).is_some_and(|file| file.is_in_flight)
    }

    /// The job that a sync of the same file may join.
    pub(super) fn waiting(&self, op: &Op) -> Option<&Arc<SharedJob>> {
        self.of(op)?.waiting.as_ref()
    }

    fn of(&self, op: &Op) -> Option<&FileSyncs> {
        self.files.get(&key(op)?)
    }

    /// A job that has not started. Jobs that are not syncs are ignored, here and below.
    pub(super) fn register(&mut self, job: &Arc<SharedJob>) {
        if let Some(key) = key(&job.op) {
            let file = self.files.entry(key).or_default();
            debug_assert!(file.waiting.is_none(), "it would have joined");
            file.waiting = Some(Arc::clone(job));
        }
    }

    /// Holds back a registered job if another sync of the file is in flight. Returns whether it did.
    pub(super) fn hold(&mut self, job: &SharedJob) -> bool {
        let Some(file) = key(&job.op).and_then(|key| self.files.get_mut(&key)) else {
            return false;
        };
        file.is_held = file.is_in_flight;
        self.held += usize::from(file.is_held);
        file.is_held
    }

    pub(super) fn started(&mut self, job: &SharedJob) {
        if let Some(file) = key(&job.op).and_then(|key| self.files.get_mut(&key)) {
            file.is_in_flight = true;
            file.waiting = None;
        }
    }

    /// A job that is done or dropped. Returns the one that was held back because of it.
    pub(super) fn unregister(&mut self, job: &Arc<SharedJob>) -> Option<Arc<SharedJob>> {
        let key = key(&job.op)?;
        let file = self.files.get_mut(&key)?;
        let is_waiting = file
            .waiting
            .as_ref()
            .is_some_and(|waiting| Arc::ptr_eq(waiting, job));
        if is_waiting {
            file.waiting = None;
        } else {
            file.is_in_flight = false;
        }
        let freed = file.waiting.clone().filter(|_| file.is_held && !is_waiting);
        if freed.is_some() {
            file.is_held = false;
            self.held -= 1;
        }
        if file.waiting.is_none() && !file.is_in_flight {
            self.files.remove(&key);
        }
        freed
    }

    /// Takes the jobs that are held back. They stay registered.
    pub(super) fn take_held(&mut self) -> Vec<Arc<SharedJob>> {
        self.held = 0;
        let held = self.files.values_mut().filter(|file| file.is_held);
        held.filter_map(|file| {
            file.is_held = false;
            file.waiting.clone()
        })
        .collect()
    }
}

/// The file of a sync, as a number.
fn key(op: &Op) -> Option<usize> {
    op.synced().map(|file| Arc::as_ptr(file).addr())
}
