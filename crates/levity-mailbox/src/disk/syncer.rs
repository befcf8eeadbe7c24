//! The thread that syncs what nobody waits for, and moves what is in the write-ahead log to the database.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use super::slot::Slot;

/// How long a message of a set that is not durable may stay out of reach of a sync. A crash of the machine takes no older one.
const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// The length of the write-ahead log from which on its content is moved, in pages: 16 MiB. Pages that are written often
/// are moved once then.
const LOG_PAGES: usize = 4 * 1024;

/// The longest write-ahead log in pages: 32 MiB. Then the writer waits until the database has what is in it.
pub(super) const LOG_PAGES_MAX: usize = 8 * 1024;

/// The memory of the connection for pages of the database, in KiB.
pub(super) const CACHE_KIB: u32 = 1024;

/// What writer and syncer tell each other of the write-ahead log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Its length.
    pages: AtomicUsize,
    /// When the first commit came that is not synced.
    unsynced: Mutex<Option<Instant>>,
    has_failed: AtomicBool,
    /// Held during a checkpoint: SQLite does not let a second one wait, but refuses it.
    checkpoint: Mutex<()>,
}

impl Log {
    fn unsynced(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer has committed. A sync covers the commits before it.
    pub fn committed(&self, is_synced: bool) {
        let mut unsynced = self.unsynced();
        match is_synced {
            true => *unsynced = None,
            false => drop(unsynced.get_or_insert_with(Instant::now)),
        }
    }

    /// Whether the syncer is late, since it has something else to do: then the writer syncs.
    pub fn is_overdue(&self) -> bool {
        self.unsynced()
            .is_some_and(|since| since.elapsed() > SYNC_INTERVAL)
    }

    /// The log has as many pages.
    pub fn has_pages(&self, pages: i32) {
        let pages = usize::try_from(pages).unwrap_or(0);
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// The log is empty, and the database synced.
    pub fn truncated(&self) {
        self.pages.store(0, Ordering::Relaxed);
        *self.unsynced() = None;
        self.has_failed.store(false, Ordering::Relaxed);
    }

    /// Moves what is in the log to the database: the number of pages in the log, and how many of them were moved.
    pub fn checkpoint(
        &self,
        database: &Connection,
        mode: CheckpointMode,
    ) -> rusqlite::Result<(i32, i32)> {
        let _only = self
            .checkpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        database.wal_checkpoint_v2(None::<&str>, mode)
    }

    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Whether a sync has failed since this was asked last: what the kernel could not write may be lost.
    pub fn take_failure(&self) -> bool {
        self.has_failed.swap(false, Ordering::Acquire)
    }
}

pub(super) struct Syncer {
    database: Arc<Slot<Connection>>,
    /// The write-ahead log and the witness, to sync them.
    files: [File; 2],
    log: Arc<Log>,
    /// Pages that a checkpoint has found in the log, all of which it has moved.
    moved: usize,
}

impl Syncer {
    pub fn new(database: Arc<Slot<Connection>>, files: [File; 2], log: Arc<Log>) -> Self {
        Self {
            database,
            files,
            log,
            moved: 0,
        }
    }

    /// Works until the other end of `ended` is dropped.
    pub fn run(mut self, ended: &Receiver<()>) {
        while ended.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let unsynced = self.log.unsynced().take();
            let synced = |file: &File| file.sync_data().is_ok();
            if unsynced.is_some() && !self.files.iter().all(synced) {
                self.log.has_failed.store(true, Ordering::Release);
            }
            let pages = self.log.pages();
            if pages >= LOG_PAGES && pages != self.moved {
                self.checkpoint();
            }
        }
    }

    /// Moves what is in the log. If that fails, the log grows until the writer does it, and fails.
    fn checkpoint(&mut self) {
        let passive = CheckpointMode::PASSIVE;
        let database = self.database.lock();
        let Some(database) = &*database else {
            return;
        };
        if let Ok((pages, moved)) = self.log.checkpoint(database, passive)
            && pages == moved
        {
            self.moved = usize::try_from(pages).unwrap_or(0);
        }
    }
}
