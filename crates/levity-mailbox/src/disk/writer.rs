//! The thread that writes: what arrives during a commit forms the next one.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender};

use super::boxes::{Boxes, has_due, milliseconds};
use super::failure::{Failure, Refusal};
use super::mark::Mark;
use super::reader::Reading;
use super::schema::{Found, Meta, connect, log_of, make_tables};
use super::space::Space;
use super::start::decide;
use super::syncer::{self, Log};
use super::witness::{Acknowledged, Witness};
use crate::locked::Locked;
use crate::name::Name;
use crate::shared::{Outage, Request, Watched};
use crate::store::{Append, Appended, Change, Figures, StoreError};

/// The memory of the connection for pages of the database, in KiB.
pub(super) const CACHE_KIB: u32 = 16 * 1024;

/// The maximum number of requests, and of bytes of messages, in a transaction.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The length of the write-ahead log that most commits find, in bytes: it begins anew at about this length.
const LOG_BYTES: u64 = 20 << 20;

pub(super) struct Parts {
    pub folder: PathBuf,
    pub requests: UnboundedReceiver<Request>,
    /// Where boxes are read that were made. It ends before the writer does.
    pub reads: WeakUnboundedSender<Request>,
    pub changes: UnboundedSender<Change>,
    pub figures: Arc<Locked<Figures>>,
    pub witness: Witness,
    pub space: Space,
    pub log: Arc<Log>,
    pub watched: Watched,
    /// What the other threads use, which is closed with the database: `None` then.
    pub reading: Arc<Locked<Option<Reading>>>,
    pub syncing: Arc<Locked<Option<Connection>>>,
    pub mark: Arc<Mark>,
    /// Logs a line. Must not block.
    pub report: Arc<dyn Fn(&str) + Send + Sync>,
}

pub(super) struct Writer {
    parts: Parts,
    /// `None` after a failure.
    database: Option<Connection>,
    /// As the last commit has left it.
    meta: Meta,
    /// What `meta` was decided on, until the decision is written.
    decided_on: Option<Found>,
    acknowledged: Acknowledged,
    boxes: Boxes,
    /// The latest time that a request has named.
    now: SystemTime,
    outage: Outage,
    /// Why messages are refused, and not before when the database is opened again.
    failed: Option<(StoreError, Instant)>,
}

/// What has become of a request.
enum Done {
    Appended(Appended),
    Removed(bool),
    Refused(StoreError),
    Other,
}

impl Writer {
    /// A writer that has written nothing yet, not even `meta`: that the store is open, and what its start has decided on `found`.
    pub fn new(parts: Parts, found: Found, meta: Meta, now: SystemTime) -> Self {
        let report = parts.report.clone();
        let outage = Outage::new(parts.figures.clone(), move |line| report(line));
        let acknowledged = Acknowledged {
            commits: meta.commits,
            synced: meta.commits,
            epoch: meta.epoch,
        };
        Self {
            boxes: new_boxes(&meta, &parts.watched, now),
            parts,
            database: None,
            meta,
            decided_on: Some(found),
            acknowledged,
            now,
            outage,
            failed: None,
        }
    }

    /// Serves requests until the store is dropped.
    pub fn run(mut self, database: Connection) {
        if let Err(failure) = self.begin(database) {
            self.fail(&failure);
        }
        while let Some(first) = self.parts.requests.blocking_recv() {
            let batch = self.gather(first);
            self.serve(batch);
        }
        if let Err(failure) = self.close() {
            (self.parts.report)(&format!("not closed in order: {failure}"));
        }
    }

    /// What waits, a bounded part of it.
    fn gather(&mut self, first: Request) -> Vec<Request> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match &request {
                Request::Append(append, now, _) => {
                    bytes += append.draft.bytes();
                    self.now = self.now.max(*now);
                }
                Request::Sweep(now) => self.now = self.now.max(*now),
                _ => {}
            }
            batch.push(request);
            if batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
                next = self.parts.requests.try_recv().ok();
            }
        }
        batch
    }

    /// Does what a batch asks for, and answers.
    fn serve(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.mend() {
            return self.refuse(batch, &error);
        }
        let has_appends = batch.iter().any(is_append);
        let batch = match self.parts.space.refusal().filter(|_| has_appends) {
            Some(full) => self.refuse_appends(batch, &full),
            None => batch,
        };
        match self.commit(&batch) {
            Ok(done) => self.answer(batch, done),
            Err(full @ Failure::Full(_)) => {
                let others = self.refuse_appends(batch, &full);
                self.release_space();
                self.serve_each(others);
            }
            Err(failure @ Failure::Damaged(_)) => {
                if self.parts.mark.is_in_doubt(&failure)
                    && let Err(failure) = self.connect_again()
                {
                    return self.refuse_for(batch, &failure);
                }
                // What has to do with other pages can be done.
                self.serve_each(batch);
            }
            Err(failure) => self.refuse_for(batch, &failure),
        }
    }

    /// Does what each request of a batch asks for, as far as that is possible.
    fn serve_each(&mut self, batch: Vec<Request>) {
        for request in batch {
            if let Err(error) = self.mend() {
                self.refuse(vec![request], &error);
                continue;
            }
            let request = [request];
            let committed = self.commit(&request);
            let request = Vec::from(request);
            match committed {
                Ok(done) => self.answer(request, done),
                Err(failure @ Failure::Damaged(_)) => {
                    self.parts.mark.make(&failure);
                    self.refuse(request, &failure.error());
                }
                Err(failure) => self.refuse_for(request, &failure),
            }
        }
    }

    /// Has the database become longer for what is in the write-ahead log, with space that was left for this. Then the log begins
    /// anew, and what frees space finds it long enough.
    fn release_space(&mut self) {
        self.parts.space.release();
        if let Some(database) = &self.database {
            // An error leaves what there is.
            let _ = self.parts.log.checkpoint(database, CheckpointMode::RESTART);
        }
    }

    fn refuse(&self, batch: Vec<Request>, error: &StoreError) {
        for request in batch {
            if let Some(Request::Watch(name, false)) = request.fail(error) {
                self.parts.watched.end(&name);
            }
        }
    }

    /// Refuses requests, and notes why.
    fn refuse_for(&mut self, batch: Vec<Request>, failure: &Failure) {
        let error = self.fail(failure);
        self.refuse(batch, &error);
    }

    /// Refuses messages for which there is no space; the other requests.
    fn refuse_appends(&mut self, batch: Vec<Request>, full: &Failure) -> Vec<Request> {
        let (appends, others) = batch.into_iter().partition(is_append);
        self.refuse_for(appends, full);
        others
    }

    /// Commits what a batch asks for. If that fails, none of it is done, or it is not known whether it is.
    fn commit(&mut self, batch: &[Request]) -> Result<Vec<Done>, Failure> {
        let mut database = self.database.take().expect("it was mended");
        let committed = self.try_commit(&mut database, batch);
        if !matches!(committed, Err(Failure::Broken(_))) {
            self.database = Some(database);
        }
        if committed.is_err() {
            self.boxes.forget(self.meta.epoch);
        }
        committed
    }

    fn try_commit(
        &mut self,
        database: &mut Connection,
        batch: &[Request],
    ) -> Result<Vec<Done>, Failure> {
        if !needs_transaction(database, batch)? {
            return Ok(batch.iter().map(|_| Done::Other).collect());
        }
        let is_synced = batch.iter().any(is_synced) || self.parts.log.is_overdue();
        let mode = if is_synced { "FULL" } else { "NORMAL" };
        database.pragma_update(None, "synchronous", mode)?;
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = batch
            .iter()
            .map(|request| match self.apply(&transaction, request) {
                Err(Refusal::Store(error)) => Ok(Done::Refused(error)),
                Err(Refusal::Failure(failure)) => Err(failure),
                Ok(done) => Ok(done),
            });
        let done = done.collect::<Result<_, _>>()?;
        self.boxes.within(&transaction, self.now).write()?;
        let mut meta = self.meta.clone();
        (meta.commits, meta.epoch) = (meta.commits + 1, self.boxes.epoch);
        meta.write(&transaction)?;
        transaction.commit()?;
        self.committed(meta, is_synced)?;
        Ok(done)
    }

    /// Notes a commit where the next start finds it.
    fn committed(&mut self, meta: Meta, is_synced: bool) -> Result<(), Failure> {
        self.meta = meta;
        self.acknowledged.commits = self.meta.commits;
        self.acknowledged.epoch = self.meta.epoch;
        if is_synced {
            self.acknowledged.synced = self.meta.commits;
        }
        self.parts.witness.write(self.acknowledged)?;
        self.parts.log.committed(is_synced);
        Ok(())
    }

    fn apply(&mut self, database: &Connection, request: &Request) -> Result<Done, Refusal> {
        let now = match request {
            Request::Append(_, now, _) | Request::Sweep(now) => *now,
            _ => self.now,
        };
        let mut boxes = self.boxes.within(database, now);
        match request {
            Request::Append(append, ..) => return Ok(Done::Appended(boxes.append(append)?)),
            Request::Open(name, settings, _) => boxes.open(name, settings)?,
            Request::Remove(name, epoch, ..) => {
                return Ok(Done::Removed(boxes.remove_life(name, *epoch)?));
            }
            Request::Read(name, last, _) => boxes.mark_read(name, *last)?,
            Request::Watch(name, false) => {
                self.parts.watched.end(name);
                boxes.touch(name)?;
            }
            Request::Sweep(_) => boxes.sweep()?,
            Request::Watch(_, true)
            | Request::Summary(..)
            | Request::ReadAfter(..)
            | Request::List(..) => {}
        }
        Ok(Done::Other)
    }

    fn answer(&mut self, batch: Vec<Request>, done: Vec<Done>) {
        let changes = self.boxes.take_changes();
        let mut figures = self.parts.figures.lock();
        figures.boxes = (figures.boxes + changes.made).saturating_sub(changes.removed);
        figures.lost += changes.lost;
        figures.expired += changes.expired;
        figures.idle_boxes += changes.idle_boxes;
        drop(figures);
        for name in changes.dropped_boxes {
            self.change(&name, Change::Removed(name.clone()));
        }
        for name in changes.renewed_boxes {
            self.change(&name, Change::Outdated(name.clone()));
        }
        let has_appended = batch.iter().any(is_append);
        for (request, done) in batch.into_iter().zip(done) {
            match (request, done) {
                (request, Done::Refused(error)) => drop(request.fail(&error)),
                (Request::Append(append, _, reply), Done::Appended(appended)) => {
                    self.report_append(&append, &appended);
                    reply.send(Ok(appended));
                }
                (request @ Request::Open(..), _) => {
                    // Without a sender the store is being dropped, and nobody waits.
                    if let Some(reads) = self.parts.reads.upgrade() {
                        let _ = reads.send(request);
                    }
                }
                (Request::Remove(_, _, reply, pending), Done::Removed(was_known)) => {
                    drop(pending);
                    reply.send(Ok(was_known));
                }
                (Request::Read(_, _, pending), _) => drop(pending),
                _ => {}
            }
        }
        if has_appended {
            self.outage.end();
        }
        if let Some(database) = &self.database
            && let Err(error) = self.parts.log.shorten(database)
            && error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy)
        {
            self.database = None;
            self.fail(&error.into());
        }
    }

    fn report_append(&self, append: &Append, appended: &Appended) {
        if let Appended::New { message, lost } = appended {
            let change = Change::Appended {
                name: append.name.clone(),
                message: message.clone(),
                lost: *lost,
            };
            self.change(&append.name, change);
        }
    }

    fn change(&self, name: &Name, change: Change) {
        if self.parts.watched.contains(name) {
            let _ = self.parts.changes.send(change);
        }
    }

    /// Notes that messages are refused, and returns what to say of it.
    fn fail(&mut self, failure: &Failure) -> StoreError {
        self.parts.mark.make(failure);
        self.outage.begin(&failure.to_string());
        let error = failure.error();
        self.failed = Some((error.clone(), Instant::now() + PAUSE));
        error
    }

    /// Opens the database again after a failure.
    fn mend(&mut self) -> Result<(), StoreError> {
        if self.database.is_some() && !self.parts.log.take_failure() {
            return Ok(());
        }
        if let Some((error, again)) = &self.failed
            && self.database.is_none()
            && Instant::now() < *again
        {
            return Err(error.clone());
        }
        let mut begun = self.open_again();
        if let Err(Failure::Full(_)) = begun {
            self.parts.space.release();
            begun = self.open_again();
        }
        begun.map_err(|failure| self.fail(&failure))?;
        self.outage.end();
        // What was refused may have been written all the same.
        for name in self.parts.watched.all() {
            let _ = self.parts.changes.send(Change::Outdated(name));
        }
        Ok(())
    }

    /// Closes all connections, so that the next one verifies the write-ahead log as a start does: after a failed sync the file may
    /// not have what was written to it.
    fn open_again(&mut self) -> Result<(), Failure> {
        self.database = None;
        let (reading, syncing) = (self.parts.reading.clone(), self.parts.syncing.clone());
        let (mut reading, mut syncing) = (reading.lock(), syncing.lock());
        (*reading, *syncing) = (None, None);
        let database = connect(&self.parts.folder, CACHE_KIB)?;
        make_tables(&database)?;
        let found = Meta::read(&database)?;
        // What was decided on the same holds: another decision would take what it has not written for lost.
        if self.decided_on.as_ref() != Some(&found) {
            self.decide(found);
        }
        let folder = &self.parts.folder;
        *reading = Some(Reading::new(folder, self.meta.bases)?);
        *syncing = Some(connect(folder, syncer::CACHE_KIB)?);
        drop((reading, syncing));
        self.begin(database)
    }

    /// Decides what `found` means.
    fn decide(&mut self, found: Found) {
        let acknowledged = Some(self.acknowledged);
        let start = decide(found.clone(), acknowledged, &self.meta.boot, self.now);
        if let Some(fault) = start.fault {
            (self.parts.report)(fault);
        }
        self.boxes = new_boxes(&start.meta, &self.parts.watched, self.now);
        (self.meta, self.decided_on) = (start.meta, Some(found));
    }

    /// Begins to write to `database`, once it has all that is in its write-ahead log: after a failed sync the kernel takes what
    /// it could not write for written, and only another write of the same pages reaches the disk.
    fn begin(&mut self, mut database: Connection) -> Result<(), Failure> {
        let log = &self.parts.log;
        log.checkpoint(&database, CheckpointMode::TRUNCATE)?;
        log.truncated();
        // A start may have had no space for those that an earlier version does not have.
        make_tables(&database)?;
        self.observe(&mut database)?;
        self.commit_meta(&mut database, false)?;
        lengthen_log(&self.parts.folder);
        self.boxes.forget(self.meta.epoch);
        self.parts.witness.sync()?;
        // Without an index that can be read, the figure stays as it is.
        if let Ok(boxes) = database.query_row("SELECT count(*) FROM box", [], |row| row.get(0)) {
            self.parts.figures.lock().boxes = boxes;
        }
        (self.database, self.decided_on) = (Some(database), None);
        Ok(())
    }

    /// Notes the length of the write-ahead log after each commit.
    fn observe(&self, database: &mut Connection) -> rusqlite::Result<()> {
        let log = self.parts.log.clone();
        database.wal_hook(Some(move |_: &mut _, pages| {
            log.has_pages(pages);
            Ok(())
        }))
    }

    /// Takes a new connection, which has nothing in its memory.
    fn connect_again(&mut self) -> Result<(), Failure> {
        self.database = None;
        let mut database = connect(&self.parts.folder, CACHE_KIB)?;
        self.observe(&mut database)?;
        self.database = Some(database);
        Ok(())
    }

    /// Commits that the store is open, or closed in order, and what its start has decided.
    fn commit_meta(&mut self, database: &mut Connection, is_closed: bool) -> Result<(), Failure> {
        let mut meta = self.meta.clone();
        (meta.is_closed, meta.commits) = (is_closed, meta.commits + 1);
        database.pragma_update(None, "synchronous", "FULL")?;
        let transaction = database.transaction()?;
        meta.write(&transaction)?;
        transaction.commit()?;
        self.committed(meta, true)
    }

    /// Notes that the store was closed in order.
    fn close(&mut self) -> Result<(), Failure> {
        let Some(mut database) = self.database.take() else {
            return Ok(());
        };
        self.commit_meta(&mut database, true)?;
        let log = &self.parts.log;
        Ok(log
            .checkpoint(&database, CheckpointMode::TRUNCATE)
            .map(drop)?)
    }
}

fn new_boxes(meta: &Meta, watched: &Watched, now: SystemTime) -> Boxes {
    Boxes::new(meta.bases, meta.epoch, watched.clone(), milliseconds(now))
}

/// Lengthens the write-ahead log by zeros, which no start takes for commits. The sync of a commit that makes the file longer waits
/// for the file system's journal as well.
fn lengthen_log(folder: &Path) {
    let log = File::options().append(true).open(log_of(folder));
    // Without space the log grows as it has to.
    let _ = log.and_then(|mut log| {
        let zeros = [0; 64 * 1024];
        let len = log.metadata()?.len();
        (len..LOG_BYTES)
            .step_by(zeros.len())
            .try_for_each(|_| log.write_all(&zeros))
    });
}

/// Whether anything in a batch changes the database.
fn needs_transaction(database: &Connection, batch: &[Request]) -> rusqlite::Result<bool> {
    for request in batch {
        let is_change = match request {
            Request::Sweep(now) => has_due(database, *now)?,
            Request::Watch(_, is_read) => !is_read,
            _ => true,
        };
        if is_change {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a request is answered only when a crash of the machine can no longer undo it.
fn is_synced(request: &Request) -> bool {
    match request {
        Request::Append(append, ..) => append.settings.is_durable,
        Request::Remove(..) => true,
        _ => false,
    }
}

fn is_append(request: &Request) -> bool {
    matches!(request, Request::Append(..))
}
