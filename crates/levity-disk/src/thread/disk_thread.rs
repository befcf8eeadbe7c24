//! Threads of engines.

use std::io;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

use super::{lock, priority};

/// A thread below the priority of event loops.
pub(crate) struct DiskThread(Mutex<Option<JoinHandle<()>>>);

impl DiskThread {
    /// Starts the thread. Call it before a guard is installed on the calling thread, because threads inherit it.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn start(
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<DiskThread> {
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(|| {
            priority::set_for_disk();
            body();
        })?;
        Ok(DiskThread(Mutex::new(Some(thread))))
    }

    /// Waits until the thread ends. A second call does nothing.
    ///
    /// # Panics
    /// If the thread has panicked.
    pub(crate) fn join(&self) {
        if let Some(thread) = lock(&self.0).take() {
            thread.join().expect("a thread of an engine does not panic");
        }
    }
}
