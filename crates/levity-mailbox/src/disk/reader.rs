//! The thread that reads: it never waits for a commit.
//!
//! Boxes take turns: a large one is read in parts, each in a transaction of its own, so that the write-ahead log need not keep
//! for long what they see.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use levity_wire::mailbox::MessageId;
use rusqlite::{Connection, Row, params};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};

use super::boxes::{count, names_of};
use super::failure::Refusal;
use super::mark::Mark;
use super::schema::{BOX_COLUMNS, Bases, BoxRow, all, connect, crc_of_message, signed, unsigned};
use crate::budget::Budget;
use crate::encoding;
use crate::locked::Locked;
use crate::message::{Draft, Message};
use crate::name::Name;
use crate::shared::Request;
use crate::store::{Limit, Opened, StoreError, Summary};

/// The memory of the connection for pages of the database, in KiB.
const CACHE_KIB: u32 = 8 * 1024;

/// What is read of a box before others have a turn.
const PART: Limit = Limit {
    messages: 256,
    bytes: 256 * 1024,
};

/// Requests that are accepted before a box is read on.
const ACCEPTED_MAX: usize = 64;

/// How often a box is read from its beginning because it begins a new life meanwhile.
const LIVES_MAX: usize = 8;

/// Boxes whose parts are read in turn. Others wait, and hold no memory.
const JOBS_MAX: usize = 4;

/// How long a box waits for memory that others give back.
const MEMORY_TIME_MAX: Duration = Duration::from_secs(2);

/// The pause while no box that is to be read has memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(2);

/// How often a box is looked for that the writer has made or mended.
const BOUNCES_MAX: u32 = 8;

/// What is read.
pub(super) struct Reading {
    database: Connection,
    bases: Bases,
}

impl Reading {
    /// Opens the database. Blocks.
    pub fn new(folder: &Path, bases: Bases) -> rusqlite::Result<Self> {
        let database = connect(folder, CACHE_KIB)?;
        Ok(Self { database, bases })
    }
}

pub(super) struct Reader {
    /// `None` while the database is closed.
    pub reading: Arc<Locked<Option<Reading>>>,
    pub reads: UnboundedReceiver<Request>,
    /// Where boxes are made. It ends before the reader does.
    pub requests: WeakUnboundedSender<Request>,
    /// How often boxes were passed to the writer in vain.
    pub bounces: HashMap<Name, u32>,
    pub budget: Arc<Budget>,
    pub folder: PathBuf,
    pub mark: Arc<Mark>,
}

/// A box that is being read.
struct Job {
    /// [`Request::Open`], for which the box is made if it is not there, or [`Request::ReadAfter`].
    request: Request,
    name: Name,
    after: Option<MessageId>,
    /// What was asked for, and what is left of it.
    asked: Limit,
    limit: Limit,
    /// What was read so far, and how often from the beginning.
    opened: Option<Opened>,
    lives: usize,
    /// Bytes of messages for which there was no memory, and when that happened first.
    missing: usize,
    starved: Option<Instant>,
}

/// What has become of a part.
enum Part {
    /// There is more.
    More,
    Whole,
    /// The box is not known, or it is damaged and has to begin a new epoch.
    Missing {
        is_damaged: bool,
    },
    /// There is no memory for a message of as many bytes.
    Starved(usize),
}

impl Reader {
    /// Reads until the store is dropped.
    pub fn run(mut self) {
        let (mut jobs, mut starved) = (VecDeque::new(), VecDeque::new());
        loop {
            if jobs.is_empty() && starved.is_empty() {
                match self.reads.blocking_recv() {
                    Some(request) => jobs.extend(self.accept(request)),
                    None => return,
                }
            }
            for _ in 0..ACCEPTED_MAX {
                match self.reads.try_recv() {
                    Ok(request) => jobs.extend(self.accept(request)),
                    Err(_) => break,
                }
            }
            // The first one that waits for memory is the one that has waited longest.
            let first: Option<&Job> = starved.front();
            if first.is_some_and(|job| job.may_go_on(&self.budget)) {
                jobs.extend(starved.pop_front());
            }
            let Some(job) = jobs.pop_front() else {
                if !starved.is_empty() {
                    thread::sleep(MEMORY_PAUSE);
                }
                continue;
            };
            match self.go_on(job) {
                Some(job) if job.missing > 0 => starved.push_back(job),
                // Those after the first ones wait until one of these has ended.
                Some(job) => jobs.insert(jobs.len().min(JOBS_MAX - 1), job),
                None => {}
            }
        }
    }

    /// Answers what is small. Anything else is a job.
    fn accept(&self, request: Request) -> Option<Job> {
        match request {
            Request::Open(ref name, ref settings, _) => {
                let (name, limit) = (name.clone(), Limit::to_open(settings.keeps_all));
                Some(Job::new(request, name, None, limit))
            }
            Request::ReadAfter(ref name, after, limit, _) => {
                let name = name.clone();
                Some(Job::new(request, name, after, limit))
            }
            Request::Summary(name, reply) => {
                let found = self.read(|reading| reading.summary(&name));
                reply.send(found.map_err(|refusal| self.error(refusal)));
                None
            }
            Request::List(set, after, count_max, reply) => {
                let list = self.read(|reading| reading.list(&set, after.as_ref(), count_max));
                reply.send(list.map_err(|refusal| self.error(refusal)));
                None
            }
            _ => None,
        }
    }

    /// Reads, unless the database is closed. What seems to be damaged is read once more, without what is in memory.
    fn read<T>(&self, mut read: impl FnMut(&Reading) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut reading = self.reading.lock();
        let Some(open) = &*reading else {
            let reason = "the database is closed after a failure".to_owned();
            return Err(StoreError::Unavailable(reason).into());
        };
        match read(open) {
            Err(Refusal::Failure(failure)) if self.mark.is_in_doubt(&failure) => {
                let again = Reading::new(&self.folder, open.bases)?;
                read(reading.insert(again))
            }
            result => result,
        }
    }

    fn error(&self, refusal: Refusal) -> StoreError {
        match refusal {
            Refusal::Store(error) => error,
            Refusal::Failure(failure) => {
                self.mark.make(&failure);
                failure.error()
            }
        }
    }

    /// Reads one more part of a box, and answers if it was the last one.
    fn go_on(&mut self, mut job: Job) -> Option<Job> {
        if job.request.is_closed() {
            return None;
        }
        job.missing = 0;
        let part = self.read(|reading| {
            let part = reading.read_part(&mut job, &self.budget);
            if let Err(Refusal::Failure(_)) = part {
                job.restart();
            }
            part
        });
        let part = match part {
            Ok(Part::More) => return Some(job),
            Ok(Part::Starved(bytes)) if job.starve(bytes) => return Some(job),
            Ok(Part::Starved(_)) => Err(StoreError::Memory),
            part => part.map_err(|refusal| self.error(refusal)),
        };
        if let Ok(Part::Whole) = part {
            self.bounces.remove(&job.name);
        }
        match (part, job.request) {
            (Err(error), request) => drop(request.fail(&error)),
            (Ok(Part::Missing { .. }), request @ Request::Open(..)) => {
                self.bounce(job.name, request);
            }
            (Ok(Part::Missing { is_damaged: true }), request) => drop(request.fail(&is_damaged())),
            (Ok(Part::Missing { .. }), Request::ReadAfter(.., reply)) => reply.send(Ok(None)),
            (Ok(_), Request::ReadAfter(.., reply)) => reply.send(Ok(job.opened)),
            (Ok(_), Request::Open(_, settings, reply)) => {
                let opened = job.opened.ok_or_else(is_damaged);
                reply.send(opened.map(|opened| opened.for_receivers(settings.keeps_all)));
            }
            _ => {}
        }
        None
    }

    /// Has the writer make or mend a box, and pass it back.
    fn bounce(&mut self, name: Name, request: Request) {
        let bounces = self.bounces.entry(name.clone()).or_default();
        *bounces += 1;
        if *bounces > BOUNCES_MAX {
            self.bounces.remove(&name);
            return drop(request.fail(&is_damaged()));
        }
        // Without a sender the store is being dropped, and nobody waits.
        if let Some(requests) = self.requests.upgrade() {
            let _ = requests.send(request);
        }
    }
}

impl Reading {
    fn summary(&self, name: &Name) -> Result<Option<Summary>, Refusal> {
        match BoxRow::find(&self.database, name, self.bases)? {
            None => Ok(None),
            Some((_, Some(row))) => Ok(Some(row.summary(name.clone()))),
            Some((_, None)) => Err(is_damaged().into()),
        }
    }

    fn list(
        &self,
        set: &str,
        after: Option<&Name>,
        count_max: usize,
    ) -> Result<Vec<Summary>, Refusal> {
        let (first, end) = names_of(set);
        let first = after.map_or(first.as_str(), Name::as_str);
        let select = format!(
            "SELECT {BOX_COLUMNS} FROM box WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT ?3"
        );
        let list = all(
            &self.database,
            &select,
            params![first, end, count_max],
            |row| {
                let (name, row) = BoxRow::read(row, self.bases)?;
                let empty = || nothing_known(name.clone());
                Ok(row.map_or_else(empty, |row| row.summary(name.clone())))
            },
        );
        Ok(list?)
    }

    fn read_part(&self, job: &mut Job, budget: &Arc<Budget>) -> Result<Part, Refusal> {
        let transaction = self.database.unchecked_transaction()?;
        let row = match BoxRow::find(&transaction, &job.name, self.bases)? {
            Some((_, Some(row))) => row,
            found => {
                let is_damaged = found.is_some();
                return Ok(Part::Missing { is_damaged });
            }
        };
        let is_first = job.opened.is_none();
        // A stream may have very many messages.
        if is_first && row.state.is_none() && count(&transaction, &row)? < row.messages {
            return Ok(Part::Missing { is_damaged: true });
        }
        let opened = job.opened.get_or_insert_with(|| row.opened());
        if opened.epoch != row.epoch {
            job.begin_again()?;
            return Ok(Part::More);
        }
        opened.lost = row.lost;
        opened.messages.retain(|one| one.id.sequence >= row.lost);
        self.read_messages(&transaction, &row, job, budget)
    }

    /// Reads messages up to the end of the part.
    fn read_messages(
        &self,
        database: &Connection,
        row: &BoxRow,
        job: &mut Job,
        budget: &Arc<Budget>,
    ) -> Result<Part, Refusal> {
        let opened = job.opened.as_mut().expect("it was begun");
        let after = job.after.filter(|after| after.epoch == row.epoch);
        let last = opened.messages.last().map(|message| message.id);
        let after = last.or(after).map_or(0, |after| after.sequence);
        let mut statement = database.prepare_cached(
            "SELECT seq, size, body, crc FROM message WHERE box = ?1 AND seq > ?2 AND seq < ?3 ORDER BY seq",
        )?;
        let (after, end) = (signed(after), signed(opened.next));
        let mut rows = statement.query(params![row.id, after, end])?;
        let mut part = PART;
        while let Some(found) = rows.next()? {
            let bytes = found.get(1)?;
            if !part.take(bytes) {
                return Ok(Part::More);
            }
            if !job.limit.take(bytes) {
                return Ok(Part::Whole);
            }
            let (sequence, mut draft) = message(found, row.id)?;
            let bytes = draft.bytes();
            draft.reservation = budget.try_reserve_to_read(bytes);
            if draft.reservation.is_none() {
                return Ok(Part::Starved(bytes));
            }
            let epoch = row.epoch;
            let id = MessageId { epoch, sequence };
            let draft = draft.into();
            opened.messages.push(Message { id, draft });
        }
        Ok(Part::Whole)
    }
}

impl Job {
    fn new(request: Request, name: Name, after: Option<MessageId>, limit: Limit) -> Self {
        Self {
            request,
            name,
            after,
            asked: limit,
            limit,
            opened: None,
            lives: 0,
            missing: 0,
            starved: None,
        }
    }

    /// Forgets what was read.
    fn restart(&mut self) {
        (self.opened, self.limit) = (None, self.asked);
    }

    /// Gives back its memory, for others to end, since there is none for `bytes` more; whether it may wait for theirs.
    fn starve(&mut self, bytes: usize) -> bool {
        let read = self.opened.iter().flat_map(|opened| &opened.messages);
        self.missing = bytes + read.map(|message| message.draft.bytes()).sum::<usize>();
        self.restart();
        let since = *self.starved.get_or_insert_with(Instant::now);
        since.elapsed() < MEMORY_TIME_MAX
    }

    /// Whether there is memory for what it had read, and more. When its time is over it is read once more, to fail.
    fn may_go_on(&self, budget: &Arc<Budget>) -> bool {
        let is_over = |since: Instant| since.elapsed() >= MEMORY_TIME_MAX;
        let has_memory = || budget.try_reserve_to_read(self.missing).is_some();
        self.starved.is_some_and(is_over) || self.request.is_closed() || has_memory()
    }

    /// Begins with another box, which has the name by now.
    fn begin_again(&mut self) -> Result<(), Refusal> {
        self.restart();
        self.lives += 1;
        if self.lives < LIVES_MAX {
            return Ok(());
        }
        let reason = "the mailbox is removed again and again".to_owned();
        Err(StoreError::Unavailable(reason).into())
    }
}

fn is_damaged() -> StoreError {
    StoreError::Unavailable("the mailbox is damaged until it is received from".to_owned())
}

/// The summary of a box whose row is damaged.
fn nothing_known(name: Name) -> Summary {
    Summary {
        name,
        epoch: 0,
        next: 1,
        lost: 1,
        read: 1,
        messages: 0,
        bytes: 0,
        state: None,
    }
}

/// The number and the content of a message.
fn message(found: &Row<'_>, id: i64) -> rusqlite::Result<(u64, Draft)> {
    let sequence = unsigned(found, 0)?;
    let body = found.get_ref(2)?.as_blob()?;
    let is_right = found.get::<_, i64>(3)? == i64::from(crc_of_message(id, sequence, body));
    let draft = encoding::decode(body).filter(|_| is_right);
    Ok((sequence, draft.unwrap_or_else(Draft::damaged)))
}
