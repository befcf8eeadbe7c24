//! The thread that syncs what nobody waits for, and moves what is in the write-ahead log to the database.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::locked::Locked;

/// How long a message of a set that is not durable may stay out of reach of a sync. A crash of the machine takes no older one.
const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// The length of the write-ahead log from which on its content is moved, in pages: 16 MiB. Pages that are written often
/// are moved once then.
const LOG_PAGES: usize = 4 * 1024;

/// The longest write-ahead log in pages: 32 MiB. Then the writer waits until the database has what is in it.
pub(super) const LOG_PAGES_MAX: usize = 8 * 1024;

/// Pages that are not moved of a log that is: for less than these the writer waits, and for more of them the syncer moves them
/// beside it.
const LEFT_PAGES: usize = 1024;

/// The memory of the connection for pages of the database, in KiB.
pub(super) const CACHE_KIB: u32 = 1024;

/// What writer and syncer tell each other of the write-ahead log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Its length.
    pages: AtomicUsize,
    /// Pages at its begin that the syncer has moved.
    moved: AtomicUsize,
    /// When the first commit came that is not synced.
    unsynced: Locked<Option<Instant>>,
    has_failed: AtomicBool,
    /// Held during a checkpoint: SQLite does not let a second one wait, but refuses it.
    checkpoint: Locked<()>,
    syncer: OnceLock<Thread>,
    has_ended: AtomicBool,
}

impl Log {
    /// The writer has committed. A sync covers the commits before it.
    pub fn committed(&self, is_synced: bool) {
        let mut unsynced = self.unsynced.lock();
        match is_synced {
            true => *unsynced = None,
            false => drop(unsynced.get_or_insert_with(Instant::now)),
        }
    }

    /// Whether the syncer is late, since it has something else to do: then the writer syncs.
    pub fn is_overdue(&self) -> bool {
        self.unsynced
            .lock()
            .is_some_and(|since| since.elapsed() > SYNC_INTERVAL)
    }

    /// A commit has made the log as many pages long.
    pub fn has_pages(&self, pages: i32) {
        let pages = usize::try_from(pages).unwrap_or(0);
        let before = self.pages.swap(pages, Ordering::Relaxed);
        if pages < before {
            self.moved.store(0, Ordering::Relaxed);
        }
        if before < LOG_PAGES && pages >= LOG_PAGES {
            self.wake();
        }
    }

    /// Whether the syncer has something to do that would hold up the writer.
    fn is_to_move(&self) -> bool {
        let pages = self.pages();
        pages >= LOG_PAGES && pages >= self.moved.load(Ordering::Relaxed) + LEFT_PAGES
    }

    /// Has the log begin anew with the next commit, if little of it is not moved and nobody reads it, or if it is too long.
    pub fn shorten(&self, database: &Connection) -> rusqlite::Result<()> {
        let (pages, moved) = (self.pages(), self.moved.load(Ordering::Relaxed));
        if pages > LOG_PAGES_MAX {
            self.checkpoint(database, CheckpointMode::RESTART)?;
        } else if moved > 0 && pages < moved + LEFT_PAGES {
            self.checkpoint(database, CheckpointMode::PASSIVE)?;
            // Once, if somebody reads it.
            self.moved.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the syncer look at the log at once.
    fn wake(&self) {
        if let Some(syncer) = self.syncer.get() {
            syncer.unpark();
        }
    }

    /// Ends the syncer.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.wake();
    }

    /// The log is empty, and the database synced.
    pub fn truncated(&self) {
        self.pages.store(0, Ordering::Relaxed);
        self.moved.store(0, Ordering::Relaxed);
        *self.unsynced.lock() = None;
        self.has_failed.store(false, Ordering::Relaxed);
    }

    /// Moves what is in the log to the database: the number of pages in the log, and how many of them were moved.
    pub fn checkpoint(
        &self,
        database: &Connection,
        mode: CheckpointMode,
    ) -> rusqlite::Result<(i32, i32)> {
        let _only = self.checkpoint.lock();
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
    /// `None` while the database is closed.
    pub connection: Arc<Locked<Option<Connection>>>,
    /// The write-ahead log and the witness, to sync them.
    pub written: [File; 2],
    pub database: Arc<File>,
    pub log: Arc<Log>,
}

impl Syncer {
    /// Works until [`Log::end`].
    pub fn run(self) {
        let _ = self.log.syncer.set(thread::current());
        while !self.log.has_ended.load(Ordering::Acquire) {
            thread::park_timeout(SYNC_INTERVAL);
            let unsynced = self.log.unsynced.lock().take();
            if unsynced.is_some() {
                self.written.iter().for_each(|file| self.sync(file));
            }
            // Again for what has come meanwhile, until the writer can do it.
            while self.log.is_to_move() && self.checkpoint().is_some() {}
        }
    }

    fn sync(&self, file: &File) {
        if file.sync_data().is_err() {
            self.log.has_failed.store(true, Ordering::Release);
        }
    }

    /// Moves what is in the log; `None` if that is not more than before. If that fails, the log grows until the writer does it,
    /// and fails.
    fn checkpoint(&self) -> Option<()> {
        let connection = self.connection.lock();
        let passive = CheckpointMode::PASSIVE;
        let (pages, moved) = self.log.checkpoint(connection.as_ref()?, passive).ok()?;
        drop(connection);
        // Otherwise the database is synced. What is synced now, the writer need not wait for.
        if moved < pages {
            self.sync(&self.database);
        }
        let moved = usize::try_from(moved).ok()?;
        (self.log.moved.swap(moved, Ordering::Relaxed) < moved).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_moved_until_little_is_left() {
        let log = Log::default();
        let is_to_move = |pages: usize, moved: usize| {
            log.has_pages(i32::try_from(pages).expect("few"));
            log.moved.store(moved, Ordering::Relaxed);
            log.is_to_move()
        };
        assert!(!is_to_move(LOG_PAGES - 1, 0));
        assert!(is_to_move(LOG_PAGES, 0));
        assert!(!is_to_move(LOG_PAGES + LEFT_PAGES - 1, LOG_PAGES));
        assert!(is_to_move(LOG_PAGES + LEFT_PAGES, LOG_PAGES));
        // What was moved of the log before says nothing of the next one.
        log.has_pages(1);
        assert_eq!(log.moved.load(Ordering::Relaxed), 0);
    }
}
