//! The store in a folder: messages outlive the process.
//!
//! # Files
//!
//! Boxes share a log. It consists of *segments*, files to which records are appended. A record is complete in
//! itself and has a checksum. When a segment is large enough, a new one begins, and the finished one gets an
//! index, which is all that a start reads of it. The messages themselves are read when a box is opened. A segment
//! of which less than half is needed is freed: what is needed of it is copied to the newest one.
//!
//! | thread | does |
//! |---|---|
//! | that of the caller | boxes and numbers, in memory; reads through the disk engines, as futures |
//! | `mailbox-writer` | one write for all that arrived during the last one, one sync for all that was written during the last one |
//! | `mailbox-keeper` | indexes, and freeing of segments |
//!
//! # What is acknowledged, and what a crash takes
//!
//! - A message of a durable set is acknowledged after the sync that covers it. No crash takes it.
//! - Any other message is acknowledged after the write, and synced soon after. The end of the process, in whatever way, does
//!   not take it; a crash of the machine may take those of the last quarter of a second.
//! - A message is visible to [`open`](crate::Store::open) when it is acknowledged, not before.
//!
//! Loss is never silent: no id is given twice to different messages. When the newest segment has no index at start, the process
//! has not ended in order. If the machine has started anew since then, or a sync had failed, all boxes that are not durable
//! begin a new epoch, because nobody can know which of them had messages that were not synced. If something is missing or
//! wrong that had been synced, all boxes begin one. What was kept is kept, under ids of the new epoch. A record that turns out
//! to be wrong when it is read costs the messages in it, and its box begins a new epoch.
//!
//! After a failed sync the kernel takes what it could not write for written. So the segment is given up beyond what had been
//! synced before: messages that were not acknowledged are refused, and all others are written again to a new segment. At the
//! next start all boxes that are not durable begin a new epoch.
//!
//! A full disk refuses messages with [`StoreError::Full`], while some space is left for what frees
//! space: removals and copies.

mod batch;
mod files;
mod index;
mod load;
mod record;
mod recover;
mod scan;
mod segment;
mod segments;
mod shared;
mod slot;
mod state;
mod stored;

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use levity_disk::{Disk, Root, Symlinks};
use levity_wire::mailbox::MessageId;
use tokio::sync::oneshot;
use tokio::time;

use self::batch::{Outcome, Reply, Waiter};
use self::files::Files;
use self::load::Plan;
use self::recover::{Boxes, Recovered, recover};
use self::segment::{LOCK, segment_name};
use self::shared::Shared;
use self::shared::keeper;
use self::shared::writer::{Losses, Writer};
use self::state::{State, milliseconds};
use crate::budget::Budget;
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{
    Append, Appending, Change, Figures, Limit, Listing, Opening, Reading, Removing, Store,
    StoreError, Summing, new_epoch,
};

/// The maximum of read positions that a sweep has written.
const READ_POSITIONS_MAX: usize = 256;

/// How a journal is kept.
#[derive(Clone)]
pub struct Options {
    /// The size of a segment in bytes, about.
    pub segment_bytes: u32,
    /// Space that messages leave free on the file system, in bytes.
    pub free_bytes_min: u64,
    /// The maximum size of messages that wait to be written, in bytes. Further ones are refused.
    pub pending_bytes_max: usize,
    /// The maximum size of messages that are kept in memory although they are written, in bytes; at most a quarter of the
    /// budget.
    pub recent_bytes_max: usize,
    /// How long a call waits for the disk.
    pub time_max: Duration,
    /// What tells one run of the machine from another.
    pub boot: Arc<str>,
    /// Logs a line. Must not block.
    pub report: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Options {
    /// The usual sizes; `report` logs a line and must not block. Reads which run of the machine this is, and so blocks.
    ///
    /// # Errors
    /// When the kernel does not tell the run of the machine.
    pub fn new(report: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self {
            segment_bytes: 16 << 20,
            free_bytes_min: 64 << 20,
            pending_bytes_max: 8 << 20,
            recent_bytes_max: 32 << 20,
            time_max: Duration::from_secs(10),
            boot: boot.trim().into(),
            report: Arc::new(report),
        })
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("segment_bytes", &self.segment_bytes)
            .field("free_bytes_min", &self.free_bytes_min)
            .field("pending_bytes_max", &self.pending_bytes_max)
            .field("recent_bytes_max", &self.recent_bytes_max)
            .field("time_max", &self.time_max)
            .field("boot", &self.boot)
            .finish_non_exhaustive()
    }
}

/// Keeps messages in a folder. The drop blocks until everything is written and synced.
pub struct JournalStore {
    shared: Arc<Shared>,
    to_keeper: Sender<keeper::Event>,
    threads: Vec<JoinHandle<()>>,
    /// Locked, so that no other process uses the folder.
    lock: File,
}

impl JournalStore {
    /// Opens the journal in `folder`, which is made if it does not exist, and reads what is in it. Boxes count as used `now`.
    /// Messages that are read are counted in `budget`. `disk` must not be shut down before the store is dropped. Blocks.
    ///
    /// # Errors
    /// `ResourceBusy` if another process uses the folder; those of reading and writing the folder and its files, but not
    /// that the disk is full.
    pub fn open(
        folder: &Path,
        disk: Arc<Disk>,
        budget: Arc<Budget>,
        options: Options,
        now: SystemTime,
    ) -> io::Result<Self> {
        make_folder(folder)?;
        let lock = lock(folder)?;
        let root = Root::open(folder, Symlinks::Beneath)?;
        let files = Files { disk, root };
        let found = recover(&files, &options.boot)?;
        for fault in &found.faults {
            (options.report)(&format!("the journal in {}: {fault}", folder.display()));
        }
        sync_found(&files, &found)?;
        let state = restored(&found, now, options.pending_bytes_max);
        let (to_writer, events) = mpsc::channel();
        let (to_keeper, keeper_events) = mpsc::channel();
        let shared = Shared::new(state, files, budget, options, to_writer.clone());
        let shared = Arc::new(shared);
        let losses = Losses {
            all: found.header.all,
            unsynced: found.header.unsynced,
        };
        let mut writer = Writer::new(
            shared.clone(),
            events,
            to_writer,
            to_keeper.clone(),
            losses,
            found.next_number,
        )?;
        writer.start()?;
        for number in found.without_index {
            let _ = to_keeper.send(keeper::Event::Finished(number));
        }
        let keeper = keeper::Keeper::new(shared.clone(), keeper_events);
        let threads = vec![
            spawn("mailbox-writer", move || writer.run())?,
            spawn("mailbox-keeper", move || keeper.run())?,
        ];
        Ok(Self {
            shared,
            to_keeper,
            threads,
            lock,
        })
    }

    /// Reads what is not in memory of what is to be opened.
    fn load(&self, plan: Plan) -> Reading {
        match plan.in_memory() {
            Ok(opened) => Box::pin(ready(Ok(Some(opened)))),
            Err(plan) => {
                let (time_max, shared) = (self.shared.options.time_max, self.shared.clone());
                Box::pin(async move {
                    let read = time::timeout(time_max, plan.read(shared)).await;
                    read.unwrap_or_else(|_| Err(too_slow()))
                })
            }
        }
    }
}

impl fmt::Debug for JournalStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.shared.options;
        formatter
            .debug_struct("JournalStore")
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl Drop for JournalStore {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A panic was reported.
            let _ = thread.join();
        }
        // A child of this process may have the file open, for a moment.
        let _ = self.lock.unlock();
    }
}

impl Store for JournalStore {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, now: SystemTime) -> Opening {
        let of = {
            let mut state = self.shared.state();
            state.now = now;
            let of = state.open(name, settings);
            self.shared.notify(&mut state);
            of
        };
        let plan = match of {
            Ok(of) => Plan::new(&self.shared, of),
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let looking = self.load(plan.expect("it was made"));
        Box::pin(async move {
            let removed = || StoreError::Unavailable("the box was removed meanwhile".to_owned());
            looking.await?.ok_or_else(removed)
        })
    }

    fn summary(&mut self, name: &Name) -> Summing {
        Box::pin(ready(Ok(self.shared.state().summary(name))))
    }

    fn read(&mut self, name: &Name, after: Option<MessageId>, mut limit: Limit) -> Reading {
        let of = self.shared.state().find(name).map(|(of, _)| of);
        let Some(plan) = of.and_then(|of| Plan::new(&self.shared, of)) else {
            return Box::pin(ready(Ok(None)));
        };
        let loading = self.load(plan);
        Box::pin(async move {
            let mut found = loading.await?;
            if let Some(found) = &mut found {
                let after = after.filter(|after| after.epoch == found.epoch);
                found.messages.retain(|one| {
                    after.is_none_or(|after| one.id > after) && limit.take(one.draft.bytes())
                });
            }
            Ok(found)
        })
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let count = appends.len();
        let mut state = self.shared.state();
        state.now = now;
        let mut on_sync = false;
        let append = |append| {
            let (outcome, is_on_sync) = state.append(append);
            on_sync |= is_on_sync;
            outcome
        };
        let results: Vec<_> = appends.into_iter().map(append).collect();
        let is_decided = |outcome: &Outcome| matches!(outcome, Outcome::Decided(_));
        if results.iter().all(is_decided) {
            let decided = results.into_iter().filter_map(|outcome| match outcome {
                Outcome::Decided(result) => Some(result),
                _ => None,
            });
            return Box::pin(ready(decided.collect()));
        }
        let (sender, receiver) = oneshot::channel();
        state.pending.wait(Waiter {
            results,
            reply: Reply::Appended(sender),
            on_sync,
        });
        self.shared.notify(&mut state);
        drop(state);
        let time_max = self.shared.options.time_max;
        Box::pin(async move {
            // What nobody waits for any more is reported as a change if it is written later.
            let results = in_time(time_max, receiver).await;
            let failed = |error: StoreError| (0..count).map(|_| Err(error.clone())).collect();
            results.unwrap_or_else(failed)
        })
    }

    fn remove(&mut self, name: &Name) -> Removing {
        let mut state = self.shared.state();
        let Some(on_sync) = state.remove(name) else {
            return Box::pin(ready(Ok(false)));
        };
        let (sender, receiver) = oneshot::channel();
        state.pending.wait(Waiter {
            results: Vec::new(),
            reply: Reply::Done(sender),
            on_sync,
        });
        self.shared.notify(&mut state);
        drop(state);
        let time_max = self.shared.options.time_max;
        Box::pin(async move {
            // What cannot be written now will be later: the box is gone in any case.
            let _ = in_time(time_max, receiver).await;
            Ok(true)
        })
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        self.shared.state().mark_read(name, last);
    }

    fn watch(&mut self, name: &Name, is_read: bool, now: SystemTime) {
        let mut state = self.shared.state();
        state.now = now;
        state.watch(name, is_read);
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        let list = self.shared.state().list(set, after, count_max);
        Box::pin(ready(Ok(list)))
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        let mut state = self.shared.state();
        match state.changes.pop_front() {
            Some(change) => Poll::Ready(change),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn sweep(&mut self, now: SystemTime) {
        let mut state = self.shared.state();
        state.now = now;
        state.sweep();
        state.write_read(READ_POSITIONS_MAX);
        self.shared.notify(&mut state);
        if state.segments.take_changed() {
            let _ = self.to_keeper.send(keeper::Event::Check);
        }
    }

    fn figures(&self) -> Figures {
        self.shared.state().figures()
    }
}

/// What arrives within `time_max`.
async fn in_time<T>(time_max: Duration, receiver: oneshot::Receiver<T>) -> Result<T, StoreError> {
    match time::timeout(time_max, receiver).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err(StoreError::Unavailable("the journal was closed".to_owned())),
        Err(_) => Err(too_slow()),
    }
}

fn too_slow() -> StoreError {
    StoreError::Unavailable("the disk of the journal does not answer in time".to_owned())
}

/// Makes the last folder of the path, if it is not there. Nobody else may look into it.
fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
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
            let reason = format!("another process uses the journal in {}", folder.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What is known at the start.
fn restored(found: &Recovered, now: SystemTime, pending_bytes_max: usize) -> State {
    let epoch = found.epoch.max(new_epoch(now));
    let mut state = State::new(epoch, now, pending_bytes_max);
    state.active = found.next_number - 1;
    for index in &found.indexes {
        state.segments.add(index.segment, index.segment_len);
    }
    let mut boxes = Boxes::new(&found.indexes, &found.header, milliseconds(now));
    state.restore(&mut boxes);
    for (segment, bytes) in boxes.tombs {
        state.segments.bury(segment, bytes);
    }
    state
}

/// Makes durable what was found and may not be: the next segment says that it is there.
fn sync_found(files: &Files, found: &Recovered) -> io::Result<()> {
    for &number in &found.without_index {
        let file = files.open_or_create(segment_name(number))?;
        files.sync(&file)?;
    }
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}
