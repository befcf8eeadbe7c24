//! What the threads of a journal share.

pub mod keeper;
pub mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::writer::Event;
use super::Options;
use super::files::Files;
use super::state::State;
use crate::budget::Budget;
use crate::store::StoreError;

/// What the threads of a journal share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub files: Files,
    pub budget: Arc<Budget>,
    pub options: Options,
    /// The process ends: nothing is tidied any more.
    pub is_closing: AtomicBool,
    /// What was reported last, unless messages were written since.
    failure: Mutex<Option<StoreError>>,
    to_writer: Sender<Event>,
}

impl Shared {
    pub(super) fn new(
        state: State,
        files: Files,
        budget: Arc<Budget>,
        options: Options,
        to_writer: Sender<Event>,
    ) -> Self {
        Self {
            state: Mutex::new(state),
            files,
            budget,
            options,
            is_closing: AtomicBool::new(false),
            failure: Mutex::default(),
            to_writer,
        }
    }

    /// Nobody holds the lock while it waits for anything.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the writer that there is something to write, unless it knows.
    pub(super) fn notify(&self, state: &mut State) {
        if !state.pending.is_empty() && !std::mem::replace(&mut state.is_notified, true) {
            let _ = self.to_writer.send(Event::Pending);
        }
    }

    /// Ends the writer, once everything is written.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        let _ = self.to_writer.send(Event::Close);
    }

    /// Frees memory of messages beyond the bound.
    pub(super) fn evict(&self, state: &mut State) {
        let share = self.budget.bytes_max() / 4;
        state.evict(share.min(self.options.recent_bytes_max));
    }

    /// Reports an error, unless it was the last one too.
    pub(super) fn report_failure(&self, error: &StoreError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref() != Some(error) {
            self.report(&error.to_string());
            *failure = Some(error.clone());
        }
    }

    /// Messages are written.
    pub(super) fn report_success(&self) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.take().is_some() {
            self.report("the journal is written again");
        }
    }

    /// Logs a line.
    pub(super) fn report(&self, line: &str) {
        (self.options.report)(line);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{self, Receiver};
    use std::time::SystemTime;

    use levity_disk::{Disk, Root, Symlinks};

    use super::*;

    impl Shared {
        /// For a folder that exists. Messages leave `free_bytes_min` bytes free; the receiver has what the writer is told.
        pub(super) fn of_test(folder: &Path, free_bytes_min: u64) -> (Arc<Self>, Receiver<Event>) {
            let files = Files {
                disk: Disk::start(levity_disk::Settings::default()).expect("a disk"),
                root: Root::open(folder, Symlinks::Beneath).expect("a folder"),
            };
            let mut options = Options::new(|_| {}).expect("the kernel says which boot this is");
            options.free_bytes_min = free_bytes_min;
            let state = State::new(1, SystemTime::now(), 1 << 20);
            let (to_writer, events) = mpsc::channel();
            let shared = Self::new(state, files, Budget::new(1 << 20), options, to_writer);
            (Arc::new(shared), events)
        }
    }
}
