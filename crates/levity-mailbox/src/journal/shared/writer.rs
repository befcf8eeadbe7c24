//! The thread that writes: it appends to the newest segment, and syncs it.
//!
//! Everything that arrives while a write is on its way becomes the next write, and everything that was written while a
//! sync is on its way is covered by the next sync. A write does not wait for a sync.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use levity_disk::{Change, Class, Completion, Op, OpenFile, Reply, is_full};

use super::super::batch::{Batch, What};
use super::super::files::FULL_RETRY_INTERVAL;
use super::super::segment::{Header, Loss, SYNCED, Synced, segment_name};
use super::Shared;
use super::keeper;
use crate::store::StoreError;

/// How long written messages wait for a sync that nobody waits for.
const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// Bytes that are written without a sync: more are synced at once.
const UNSYNCED_BYTES: u32 = 4 << 20;

/// Bytes that are written while a sync is on its way.
const UNSYNCED_BYTES_MAX: u32 = 16 << 20;

/// The pause before records are written again that could not be written.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Space is reserved in pieces of this size in bytes.
const RESERVED_BYTES: u64 = 1 << 20;

/// Space that is reserved beyond that for messages, in bytes: for records that free some.
const SPARE_BYTES: u64 = 256 << 10;

/// What the thread is told.
pub(in crate::journal) enum Event {
    /// There is something to write.
    Pending,
    /// A sync of the segment with that number has ended.
    Synced(u32, io::Result<()>),
    /// End, once everything is written.
    Close,
}

/// The state of the thread.
pub(in crate::journal) struct Writer {
    shared: Arc<Shared>,
    events: Receiver<Event>,
    to_self: Sender<Event>,
    to_keeper: Sender<keeper::Event>,
    /// What is lost of earlier runs, for the headers of segments.
    losses: Losses,
    next_number: u32,
    /// The segment that is written to; `None` until one is made.
    active: Option<Active>,
    /// Segments to which nothing more is added, but there is no newer one as yet.
    finished: Vec<u32>,
    /// What was written and is not synced.
    unsynced: VecDeque<Written>,
    /// Since when, without a sync.
    unsynced_since: Option<Instant>,
    /// The number of batches that the sync on its way covers.
    syncing: Option<usize>,
    is_closing: bool,
    /// The newest segment cannot be written, or was not synced.
    is_poisoned: bool,
    /// Records could not be written, and are to be tried again.
    has_failed: bool,
    /// The file that says how far the newest segment is synced.
    synced_file: Arc<OpenFile>,
}

/// What boxes may have lost before this run.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::journal) struct Losses {
    pub all: Loss,
    pub unsynced: Loss,
}

/// The newest segment.
struct Active {
    number: u32,
    file: Arc<OpenFile>,
    /// Where the first record begins, in bytes.
    first: u32,
    /// Where the next record begins.
    end: u32,
    /// How far it is synced.
    synced: u32,
    /// How far blocks are reserved.
    reserved: u32,
}

/// A batch in the newest segment.
struct Written {
    batch: Batch,
    start: u32,
}

/// Passes the end of a sync to the thread.
struct ToWriter(u32, Sender<Event>);

impl Reply for ToWriter {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        let result = completion.result.map(drop);
        let _ = self.1.send(Event::Synced(self.0, result));
    }
}

/// For what nobody waits for.
struct Ignored;

impl Reply for Ignored {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, _: Completion) {}
}

impl Writer {
    /// Ready to make the first segment of this run. `events` has what `to_self` is sent. Blocks.
    pub(in crate::journal) fn new(
        shared: Arc<Shared>,
        events: Receiver<Event>,
        to_self: Sender<Event>,
        to_keeper: Sender<keeper::Event>,
        losses: Losses,
        next_number: u32,
    ) -> io::Result<Self> {
        let synced_file = shared.files.open_or_create(name(SYNCED))?;
        Ok(Self {
            shared,
            events,
            to_self,
            to_keeper,
            losses,
            next_number,
            active: None,
            finished: Vec::new(),
            unsynced: VecDeque::new(),
            unsynced_since: None,
            syncing: None,
            is_closing: false,
            is_poisoned: false,
            has_failed: false,
            synced_file,
        })
    }

    /// Makes the first segment of this run. A full disk is no error: what is to be written tries again. Blocks.
    pub(in crate::journal) fn start(&mut self) -> io::Result<()> {
        match self.next_segment() {
            Err(error) if is_no_space(&error) => {
                self.shared.report_failure(&refusal(&error));
                Ok(())
            }
            result => result,
        }
    }

    /// Writes until it is told to end.
    pub(in crate::journal) fn run(mut self) {
        loop {
            self.write_pending();
            self.start_sync();
            if self.is_closing && self.syncing.is_none() {
                break;
            }
            match self.next_event() {
                Some(event) => self.handle(event),
                None => self.has_failed = false,
            }
            while let Ok(event) = self.events.try_recv() {
                self.handle(event);
            }
        }
        self.close();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Pending => {}
            Event::Synced(number, result) => self.sync_ended(number, result),
            Event::Close => self.is_closing = true,
        }
    }

    /// `None` when it is time to sync, or to try again.
    fn next_event(&self) -> Option<Event> {
        let now = Instant::now();
        let sync_at = self.unsynced_since.map(|since| since + SYNC_INTERVAL);
        let sync_at = sync_at.filter(|_| self.syncing.is_none());
        let retry_at = self.has_failed.then(|| now + RETRY_INTERVAL);
        let Some(at) = sync_at.into_iter().chain(retry_at).min() else {
            return self.events.recv().ok().or(Some(Event::Close));
        };
        match self.events.recv_timeout(at.saturating_duration_since(now)) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Close),
        }
    }

    fn write_pending(&mut self) {
        let unsynced = self.active.as_ref().map_or(0, |it| it.end - it.synced);
        if self.syncing.is_some() && unsynced >= UNSYNCED_BYTES_MAX {
            // It goes on after the sync.
            return;
        }
        let batch = {
            let mut state = self.shared.state();
            state.is_notified = false;
            std::mem::take(&mut state.pending)
        };
        if batch.is_empty() {
            return;
        }
        if batch.bytes == 0 {
            // Only for those who wait for what was written before.
            let start = self.active.as_ref().map_or(0, |active| active.end);
            self.keep(batch, start);
        } else if let Err((batch, error)) = self.try_write(batch) {
            self.refuse(batch, &error);
        }
    }

    /// Writes a batch at the end of the newest segment, or gives it back.
    fn try_write(&mut self, batch: Batch) -> Result<(), (Batch, io::Error)> {
        if let Err(error) = self.make_room(&batch) {
            return Err((batch, error));
        }
        let active = self.active.as_mut().expect("there is room in it");
        let start = active.end;
        let mut offset = u64::from(start);
        for piece in &batch.pieces {
            if let Err(error) = self.shared.files.write(&active.file, offset, piece) {
                // So that it has left no record, as far as that is possible.
                let zeroes = Arc::new(vec![0; 8]);
                let _ = self.shared.files.write(&active.file, start.into(), &zeroes);
                self.is_poisoned |= !is_no_space(&error);
                return Err((batch, error));
            }
            offset += piece.len() as u64;
        }
        active.end += batch.bytes as u32;
        if has_messages(&batch) {
            self.shared.report_success();
        }
        self.keep(batch, start);
        Ok(())
    }

    /// Notes that a batch is written.
    fn keep(&mut self, mut batch: Batch, start: u32) {
        let mut state = self.shared.state();
        if let Some(active) = &self.active {
            state.segments.add(active.number, active.end);
            state.written(&mut batch, active.number, start);
        }
        self.shared.evict(&mut state);
        drop(state);
        self.unsynced_since.get_or_insert_with(Instant::now);
        self.unsynced.push_back(Written { batch, start });
    }

    /// A batch cannot be written. Its messages, and those that came later, are refused; the rest is tried again.
    fn refuse(&mut self, batch: Batch, error: &io::Error) {
        let refusal = refusal(error);
        self.shared.report_failure(&refusal);
        let rest = {
            let mut state = self.shared.state();
            state.undo_pending(&refusal);
            state.undo(batch, &refusal)
        };
        if self.is_poisoned {
            self.put_back(rest, &refusal);
            self.abandon(&refusal);
        } else if is_no_space(error) && !rest.is_empty() && self.has_reserved(&rest) {
            if let Err((rest, _)) = self.try_write(rest) {
                self.put_back(rest, &refusal);
            }
        } else {
            self.put_back(rest, &refusal);
        }
    }

    /// Has records written before all others, soon. Nobody waits for them any more.
    fn put_back(&mut self, mut batch: Batch, refusal: &StoreError) {
        let waiters = std::mem::take(&mut batch.waiters).into_iter();
        waiters.for_each(|waiter| waiter.fail(refusal));
        if !batch.is_empty() {
            self.has_failed = true;
            self.shared.state().pending.prepend(batch);
        }
    }

    /// Whether there is room for a batch in what is reserved already.
    fn has_reserved(&self, batch: &Batch) -> bool {
        let end = |active: &Active| u64::from(active.end) + batch.bytes as u64;
        let active = self.active.as_ref();
        active.is_some_and(|active| end(active) <= u64::from(active.reserved))
    }

    /// Sees to it that the newest segment has room for a batch.
    fn make_room(&mut self, batch: &Batch) -> io::Result<()> {
        let has_messages = has_messages(batch);
        let bytes_max = u64::from(self.shared.options.segment_bytes);
        let is_full = |active: &Active| {
            let used = u64::from(active.end - active.first);
            used > 0 && used + batch.bytes as u64 > bytes_max
        };
        if self.active.as_ref().is_none_or(is_full) {
            match self.next_segment() {
                Err(error) if has_messages || !is_no_space(&error) => return Err(error),
                Err(error) if !self.has_reserved(batch) => return Err(error),
                _ => {}
            }
        }
        if !has_messages && self.has_reserved(batch) {
            return Ok(());
        }
        self.reserve(batch.bytes, has_messages)
    }

    /// Reserves space for so many bytes at the end of the newest segment, and a little more. For messages some has to be left.
    fn reserve(&mut self, bytes: usize, is_for_messages: bool) -> io::Result<()> {
        let shared = &self.shared;
        let active = self.active.as_mut().expect("a segment was made");
        let end = u64::from(active.end) + bytes as u64 + SPARE_BYTES;
        let reserved = u64::from(active.reserved);
        if end <= reserved {
            return Ok(());
        }
        let usual = u64::from(active.first) + u64::from(shared.options.segment_bytes) + SPARE_BYTES;
        let len = match is_for_messages {
            true => (end - reserved).max(RESERVED_BYTES.min(usual.saturating_sub(reserved))),
            false => end - reserved,
        };
        let left = shared.options.free_bytes_min.saturating_add(len);
        if is_for_messages && shared.files.free_bytes()? < left {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let allocate = Change::Allocate {
            file: active.file.clone(),
            offset: active.reserved.into(),
            len,
        };
        match shared.files.change(allocate) {
            // The file system cannot: only a write tells whether there is room.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => active.reserved = u32::MAX,
            result => {
                result?;
                active.reserved += len as u32;
            }
        }
        Ok(())
    }

    /// Begins a new segment. The one before is finished, and synced.
    fn next_segment(&mut self) -> io::Result<()> {
        self.sync_all()?;
        let number = self.next_number;
        let file = self.shared.files.create()?;
        let header = self.header(number).encode();
        let first = header.len() as u32;
        self.shared.files.write(&file, 0, &Arc::new(header))?;
        let before = self.active.replace(Active {
            number,
            file: file.clone(),
            first,
            end: first,
            synced: first,
            reserved: first,
        });
        let made = self
            .reserve(0, false)
            .and_then(|()| self.shared.files.sync(&file));
        if let Err(error) = made {
            self.active = before;
            return Err(error);
        }
        // From here on the number is used, whatever happens.
        self.next_number += 1;
        self.finished.extend(before.map(|before| before.number));
        if let Err(error) = self.link(&file, number) {
            self.active = None;
            return Err(error);
        }
        let mut state = self.shared.state();
        state.segments.add(number, first);
        state.active = number;
        drop(state);
        self.note_synced(false);
        for finished in self.finished.drain(..) {
            let _ = self.to_keeper.send(keeper::Event::Finished(finished));
        }
        Ok(())
    }

    fn link(&self, file: &Arc<OpenFile>, number: u32) -> io::Result<()> {
        self.shared.files.link(file, segment_name(number))?;
        self.shared.files.sync_folder()
    }

    fn header(&self, number: u32) -> Header {
        let state = self.shared.state();
        Header {
            number,
            boot: (*self.shared.options.boot).into(),
            epoch: state.epoch,
            all: self.losses.all,
            unsynced: self.losses.unsynced,
            others: state
                .segments
                .iter()
                .map(|(number, segment)| (number, segment.len))
                .collect(),
        }
    }

    /// Starts a sync, if one is due and none is on its way.
    fn start_sync(&mut self) {
        let Some(active) = &self.active else {
            return self.sync_ended_of(self.unsynced.len());
        };
        if self.syncing.is_some() || self.unsynced.is_empty() {
            return;
        }
        let bytes = active.end - active.synced;
        let is_due = self
            .unsynced_since
            .is_some_and(|since| since.elapsed() >= SYNC_INTERVAL);
        let is_awaited = self.unsynced.iter().any(|written| written.batch.needs_sync);
        if is_due || is_awaited || bytes >= UNSYNCED_BYTES || self.is_closing {
            let file = active.file.clone();
            let reply = ToWriter(active.number, self.to_self.clone());
            let sync = Op::Change(Change::Sync { file });
            self.syncing = Some(self.unsynced.len());
            self.shared
                .files
                .submit(sync, Class::Later, Box::new(reply));
        }
    }

    fn sync_ended(&mut self, number: u32, result: io::Result<()>) {
        let is_active = |active: &Active| active.number == number;
        if !self.active.as_ref().is_some_and(is_active) {
            // It was given up meanwhile.
            return;
        }
        match (self.syncing.take(), result) {
            (Some(covered), Ok(())) => self.sync_ended_of(covered),
            // Too many jobs are before it: it is tried again.
            (_, Err(error)) if is_full(&error) => thread::sleep(FULL_RETRY_INTERVAL),
            (_, Err(error)) => {
                let refusal = refusal(&error);
                self.shared.report_failure(&refusal);
                self.shared.state().undo_pending(&refusal);
                self.abandon(&refusal);
            }
            (None, Ok(())) => {}
        }
    }

    /// The first so many batches are synced.
    fn sync_ended_of(&mut self, covered: usize) {
        if covered == 0 {
            return;
        }
        let number = self.active.as_ref().map_or(0, |active| active.number);
        let mut state = self.shared.state();
        for Written { batch, start } in self.unsynced.drain(..covered) {
            if let Some(active) = &mut self.active {
                active.synced = active.synced.max(start + batch.bytes as u32);
            }
            state.synced(batch, number, start);
        }
        self.shared.evict(&mut state);
        drop(state);
        self.unsynced_since = (!self.unsynced.is_empty()).then(Instant::now);
        self.note_synced(false);
    }

    /// Waits until everything that was written is synced. After an error the segment is poisoned.
    fn sync_all(&mut self) -> io::Result<()> {
        while self.syncing.is_some() {
            match self.events.recv() {
                Ok(Event::Synced(_, Err(error))) if !is_full(&error) => {
                    self.is_poisoned = true;
                    return Err(error);
                }
                Ok(event) => self.handle(event),
                Err(_) => break,
            }
        }
        let Some(active) = self.active.as_ref().filter(|_| !self.unsynced.is_empty()) else {
            return Ok(());
        };
        let synced = self.shared.files.sync(&active.file);
        self.is_poisoned |= synced.is_err();
        synced?;
        self.sync_ended_of(self.unsynced.len());
        Ok(())
    }

    /// Gives up the newest segment beyond what is synced. What was acknowledged is written again, to another one.
    fn abandon(&mut self, refusal: &StoreError) {
        self.syncing = None;
        self.unsynced_since = None;
        self.is_poisoned = false;
        self.note_synced(true);
        let Some(active) = self.active.take() else {
            return;
        };
        let mut state = self.shared.state();
        state.segments.add(active.number, active.synced);
        while let Some(Written { batch, .. }) = self.unsynced.pop_back() {
            let rest = state.undo(batch, refusal);
            self.has_failed |= !rest.is_empty();
            state.pending.prepend(rest);
        }
        self.finished.push(active.number);
        // What was acknowledged without a sync may be lost if the process ends before it is written again.
        self.losses.unsynced = Loss {
            before: self.next_number,
            epoch: state.next_epoch(),
        };
    }

    /// Notes how far the newest segment is synced, without waiting.
    fn note_synced(&self, has_failed: bool) {
        let Some(active) = &self.active else {
            return;
        };
        let synced = Synced {
            segment: active.number,
            len: active.synced,
            has_failed,
        };
        let write = Op::Change(Change::Write {
            file: self.synced_file.clone(),
            offset: 0,
            bytes: Arc::new(synced.encode()),
        });
        self.shared
            .files
            .submit(write, Class::Later, Box::new(Ignored));
    }

    /// Tells the thread that keeps segments whether everything was written.
    fn close(mut self) {
        let is_written = self.shared.state().pending.bytes == 0;
        let active = self.active.take().filter(|_| is_written);
        let last = active.map(|active| active.number);
        let _ = self.to_keeper.send(keeper::Event::Close(last));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_ended = true;
        // Those who wait are told by the drop.
        state.pending = Batch::default();
    }
}

/// Whether it needs what is left for records that free space.
fn has_messages(batch: &Batch) -> bool {
    let mut entries = batch.entries.iter();
    entries.any(|entry| matches!(entry.what, What::Message { .. }))
}

/// What publishers are told.
fn refusal(error: &io::Error) -> StoreError {
    match is_no_space(error) {
        true => StoreError::Full("the disk of the journal is full".to_owned()),
        false => StoreError::Unavailable(format!("the journal cannot be written: {error}")),
    }
}

/// Whether an error means that there is no room for more.
fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

pub(in crate::journal) fn name(name: &str) -> CString {
    CString::new(name).expect("no zero byte in it")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::super::super::batch::{Reply, Waiter};
    use super::super::super::record::{Body, Head};
    use super::*;
    use crate::message::Draft;
    use crate::name::Name;
    use crate::settings::{Mode, Settings};
    use crate::store::Append;

    fn append() -> Append {
        let settings = Settings {
            set: "set".to_owned(),
            mode: Mode::Topic,
            messages_max: 10,
            bytes_max: 1000,
            lifetime: None,
            idle: Duration::from_secs(300),
            boxes_max: 10,
            receivers_max: 10,
            is_durable: true,
        };
        let draft = Draft {
            key: None,
            event: Box::default(),
            media_type: "text/plain".into(),
            content: b"text".as_slice().into(),
            deadline: None,
            reservation: None,
            is_damaged: false,
        };
        Append {
            name: Name::parse("set/a").expect("a name"),
            settings: Arc::new(settings),
            draft: Arc::new(draft),
        }
    }

    /// What frees space waits for a batch in which messages are refused.
    #[test]
    fn records_beside_messages_that_are_refused_are_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, _told) = Shared::of_test(folder.path(), u64::MAX);
        let (to_self, events) = mpsc::channel();
        let (to_keeper, _keeper_events) = mpsc::channel();
        let losses = Losses::default();
        let mut writer =
            Writer::new(shared.clone(), events, to_self, to_keeper, losses, 1).unwrap();
        writer.start().unwrap();
        let (appended, mut publisher) = oneshot::channel();
        let (done, mut keeper) = oneshot::channel();
        {
            let mut state = shared.state();
            let body = Body::Dropped { segment: 7 };
            state.pending.push(&Head::default(), &body, What::Dropped);
            let results = vec![state.append(append()).0];
            for (results, reply) in [
                (results, Reply::Appended(appended)),
                (Vec::new(), Reply::Done(done)),
            ] {
                let on_sync = true;
                state.pending.wait(Waiter {
                    results,
                    reply,
                    on_sync,
                });
            }
        }
        writer.write_pending();
        let refused = publisher.try_recv().expect("an answer");
        assert!(
            matches!(refused[..], [Err(StoreError::Full(_))]),
            "{refused:?}"
        );
        assert!(keeper.try_recv().is_err(), "it is not synced");
        writer.sync_all().unwrap();
        assert_eq!(keeper.try_recv(), Ok(Ok(())));
        assert!(shared.state().pending.is_empty());
    }
}
