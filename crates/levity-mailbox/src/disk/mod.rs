//! The store in a folder: an SQLite database, so messages outlive the process.
//!
//! | thread | does |
//! |---|---|
//! | `mailbox-writer` | one transaction for all that arrived during the last one |
//! | `mailbox-reader` | summaries, lists, parts of boxes, without waiting for a commit |
//! | `mailbox-syncer` | syncs what nobody waits for, and moves the write-ahead log to the database |
//!
//! | file | is |
//! |---|---|
//! | `messages.db`, `messages.db-wal` | the database |
//! | `acknowledged` | which commits there were (`witness.rs`) |
//! | `reserve` | space that is given back when the disk is full |
//! | `damaged` | says that the next start has to set the database aside |
//! | `lock` | keeps other processes out |
//!
//! # What is acknowledged, and what a crash takes
//!
//! - A message of a durable set is acknowledged after the sync that covers it. No crash takes it.
//! - Any other message is acknowledged after the commit, and synced at most 250 ms later. The end of the process, in whatever
//!   way, does not take it; a crash of the machine may take those of that time.
//!
//! Loss is never silent: what a start finds decides which boxes begin a new epoch, as `start.rs` says. A damaged message is a
//! gap for its receivers. A box of which the row is damaged, or of which messages are missing, begins a new epoch with what is
//! left of it when it is opened or written to.
//!
//! # What follows a failure
//!
//! - *A commit or a sync fails*: whatever the batch was is refused, and it is not known whether it was written: the next start
//!   may find it. Keys are written in the same transaction, so a publisher that tries again does not double its message.
//!   Nothing is acknowledged before the database was opened again, as by a start, and all of its log was moved to it and synced,
//!   which is tried twice a second. Reads go on. Receivers open their boxes again.
//! - *A sync hangs*: calls end after ten seconds, later ones too, and at most 4096 messages wait. What becomes of those that
//!   had begun is reported when the sync ends. Reads go on.
//! - *The disk is full*: messages are refused while less than 64 MiB are free. If others take these as well, or a quota is used
//!   up, the reserved 32 MiB are given back, so that boxes can be removed and messages expire.
//! - *A page of the database is damaged*, also when it is read a second time: requests that need it are refused, and the next
//!   start sets the database aside, as `messages.damaged-NUMBER.db`, and begins an empty one with larger epochs. A checkpoint
//!   that was cut short is no damage: the write-ahead log has its pages until the database is synced.

mod boxes;
mod failure;
mod mark;
mod reader;
mod schema;
mod space;
mod start;
mod syncer;
mod witness;
mod writer;

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use rusqlite::Connection;

use self::failure::Failure;
use self::mark::Mark;
use self::reader::{Reader, Reading};
use self::schema::{DATABASE, Found, Meta, connect, log_of, make_tables};
use self::space::Space;
use self::syncer::{Log, Syncer};
use self::witness::Witness;
use self::writer::{Parts, Writer};
use crate::budget::Budget;
use crate::locked::Locked;
use crate::shared::SharedStore;
use crate::store::new_epoch;

/// The file that keeps other processes out.
const LOCK: &str = "lock";

/// The endings of the files of a journal, which earlier versions kept.
const OF_JOURNAL: [&str; 2] = ["segment", "index"];

/// How messages are kept on a disk.
#[derive(Clone)]
pub struct Options {
    /// Space that messages leave free on the file system, in bytes.
    pub free_bytes_min: u64,
    /// What tells one run of the machine from another, and the folder from a copy of it.
    pub boot: String,
    /// Logs a line. Must not block.
    pub report: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Options {
    /// The usual sizes for a store in `folder`, which is made if it does not exist; `report` logs a line and must not block.
    /// Reads which run of the machine this is, and so blocks.
    ///
    /// # Errors
    /// The folder cannot be made, or the kernel does not tell the run of the machine.
    pub fn new(folder: &Path, report: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Self> {
        make_folder(folder)?;
        let of = fs::metadata(folder)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        // A folder that was restored, or is on another file system, may be without what was not synced. The number of the
        // mount would not do: it is another one for each start of a service with a view of its own of the file system.
        let boot = format!("{} {}:{}", boot.trim(), of.dev(), of.ino());
        Ok(Self {
            free_bytes_min: 64 << 20,
            boot,
            report: Arc::new(report),
        })
    }
}

/// A folder of this machine. The drop blocks until everything is written and synced.
pub struct Disk {
    threads: Vec<JoinHandle<()>>,
    log: Arc<Log>,
    /// Locked, so that no other process uses the folder.
    lock: File,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.log.end();
        for thread in self.threads.drain(..) {
            // A panic was reported.
            let _ = thread.join();
        }
        // A child of this process may have the file open, for a moment.
        let _ = self.lock.unlock();
    }
}

/// Keeps messages in an SQLite database.
pub type DiskStore = SharedStore<Disk>;

impl DiskStore {
    /// Opens the store in `folder`. Messages that are read take memory of `budget`. Blocks.
    ///
    /// # Errors
    /// `ResourceBusy` if another process uses the folder; if it has the files of a journal; those of reading and writing it,
    /// but not that the disk is full.
    pub fn open(
        folder: &Path,
        budget: Arc<Budget>,
        options: Options,
        now: SystemTime,
    ) -> io::Result<Self> {
        let lock = lock(folder)?;
        refuse_journal(folder)?;
        let database = match mark::is_made(folder) {
            true => Err(Failure::Damaged("marked as damaged".to_owned())),
            false => open_twice(folder),
        };
        let database = match database {
            Err(Failure::Damaged(reason)) => {
                set_aside(folder, now, &reason, &options)?;
                open_database(folder)
            }
            other => other,
        };
        let (database, found) =
            database.map_err(|failure| io::Error::other(failure.to_string()))?;
        let (witness, said) = Witness::open(&folder.join("acknowledged"))?;
        let start = start::decide(found.clone(), said, &options.boot, now);
        if let Some(fault) = start.fault {
            (options.report)(&format!("{}: {fault}", folder.display()));
        }
        let opening = Opening {
            folder,
            budget,
            options,
            now,
        };
        opening.start(lock, (database, found), start.meta, witness)
    }
}

struct Opening<'a> {
    folder: &'a Path,
    budget: Arc<Budget>,
    options: Options,
    now: SystemTime,
}

impl Opening<'_> {
    /// Starts the threads.
    fn start(
        self,
        lock: File,
        (database, found): (Connection, Found),
        meta: Meta,
        witness: Witness,
    ) -> io::Result<DiskStore> {
        let log = Arc::new(Log::default());
        let kind = Disk {
            threads: Vec::new(),
            log: log.clone(),
            lock,
        };
        let (mut store, ends) = DiskStore::with_ends(kind, true);
        let reading = Reading::new(self.folder, meta.bases).map_err(io::Error::other)?;
        let reading = Arc::new(Locked::new(Some(reading)));
        let file = Arc::new(File::open(self.folder.join(DATABASE))?);
        let report = self.options.report.clone();
        let mark = Arc::new(Mark::new(self.folder, file.clone(), report));
        let reader = Reader {
            reading: reading.clone(),
            reads: ends.reads,
            requests: store.requests.downgrade(),
            bounces: HashMap::new(),
            budget: self.budget,
            folder: self.folder.to_owned(),
            mark: mark.clone(),
        };
        let syncing = connect(self.folder, syncer::CACHE_KIB).map_err(io::Error::other)?;
        let syncing = Arc::new(Locked::new(Some(syncing)));
        // A close of this file ends no lock: SQLite locks the database only.
        let written = File::options()
            .append(true)
            .create(true)
            .open(log_of(self.folder))?;
        let syncer = Syncer {
            connection: syncing.clone(),
            written: [written, witness.file()?],
            database: file,
            log: log.clone(),
        };
        let parts = Parts {
            folder: self.folder.to_owned(),
            requests: ends.requests,
            reads: store.reads.downgrade(),
            changes: ends.changes,
            figures: ends.figures,
            witness,
            space: Space::new(self.folder, self.options.free_bytes_min)?,
            log,
            watched: ends.watched,
            reading,
            syncing,
            mark,
            report: self.options.report,
        };
        let writer = Writer::new(parts, found, meta, self.now);
        store.kind.threads = vec![
            spawn("mailbox-writer", move || writer.run(database))?,
            spawn("mailbox-reader", move || reader.run())?,
            spawn("mailbox-syncer", move || syncer.run())?,
        ];
        Ok(store)
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// As `open_database`; what seems to be damaged is read a second time from the disk.
fn open_twice(folder: &Path) -> Result<(Connection, Found), Failure> {
    let opened = open_database(folder);
    if let Err(Failure::Damaged(_)) = opened
        && let Ok(file) = File::open(folder.join(DATABASE))
    {
        mark::forget_pages(&file);
        return open_database(folder);
    }
    opened
}

/// A connection, and what the last process has left.
fn open_database(folder: &Path) -> Result<(Connection, Found), Failure> {
    let database = connect(folder, writer::CACHE_KIB)?;
    // A full disk is no reason not to start: what is there can be read.
    let full = match make_tables(&database).map_err(Failure::from) {
        Ok(()) => None,
        Err(full @ Failure::Full(_)) => Some(full),
        Err(failure) => return Err(failure),
    };
    match Meta::read(&database).map_err(Failure::from) {
        Ok(found) => Ok((database, found)),
        // There are no tables to read.
        Err(failure) => Err(full.unwrap_or(failure)),
    }
}

/// Makes the last folder of the path, if it is not there. Nobody else may look into it.
fn make_folder(folder: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Sees to it that no other process uses the folder.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let reason = "another process keeps messages here";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Refuses a folder with the files of a journal, whose messages would be lost without a word.
///
/// # Errors
/// If it is one; those of reading the folder. Blocks.
fn refuse_journal(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| OF_JOURNAL.contains(&ending)) {
            let reason = "the folder has a journal of an earlier version, which this version cannot read: name another folder";
            return Err(io::Error::other(reason));
        }
    }
    Ok(())
}

/// Keeps a damaged database under another name, and begins anew.
fn set_aside(folder: &Path, now: SystemTime, reason: &str, options: &Options) -> io::Result<()> {
    let number = mark::set_aside(folder, new_epoch(now))?;
    let folder = folder.display();
    let line = format!(
        "{folder}: {reason}; it is kept as messages.damaged-{number}.db, and all mailboxes are empty"
    );
    (options.report)(&line);
    Ok(())
}
