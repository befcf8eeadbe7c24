//! The store without a disk: messages end with the process.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use crate::by_name::ByName;
use crate::log::{Log, Trimmed};
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Opened, Opening, Reading,
    Removing, Store, StoreError, Summary, Summing,
};
use crate::stream_state::{Refused, Source, StreamState};

/// The maximum number of boxes that a sweep looks at.
const SWEPT_MAX: usize = 128;

/// A sweep that has dropped as many messages looks at no further box.
const DROPPED_MAX: usize = 1024;

/// Keeps messages in memory.
#[derive(Debug)]
pub struct MemoryStore {
    boxes: ByName<MemoryBox>,
    /// The names of all boxes in their order.
    names: BTreeSet<Name>,
    /// Boxes with receivers, also those that are not known.
    watched: ByName<()>,
    /// The number of boxes of each set.
    counts: HashMap<String, usize>,
    /// Boxes that give way to others.
    unused: BTreeSet<Name>,
    /// Which box is due when, each as [`MemoryBox::due`] says.
    due: BTreeSet<(SystemTime, Name)>,
    /// The epoch of the next box.
    epoch: u64,
    figures: Figures,
}

#[derive(Debug)]
struct MemoryBox {
    log: Log,
    /// Of a stream.
    state: Option<Arc<StreamState>>,
    settings: Arc<Settings>,
    is_watched: bool,
    used_at: SystemTime,
    /// When a sweep looks at it: not later than [`next_due`](Self::next_due).
    due: Option<SystemTime>,
}

impl MemoryBox {
    /// When its first message expires, or it is idle for long enough.
    fn next_due(&self) -> Option<SystemTime> {
        let idle = (!self.is_watched).then(|| self.idle_end());
        self.log.next_deadline().into_iter().chain(idle).min()
    }

    /// Nobody watches it, and it has never had a message.
    fn is_unused(&self) -> bool {
        !self.is_watched && self.log.next == 1
    }

    fn idle_end(&self) -> SystemTime {
        let of_stream = self.state.as_ref().map(|state| state.idle(self.used_at));
        self.used_at + of_stream.unwrap_or(self.settings.idle)
    }

    fn is_idle(&self, now: SystemTime) -> bool {
        !self.is_watched && self.idle_end() <= now
    }

    fn summary(&self, name: &Name) -> Summary {
        self.log.summary(name, self.state.clone())
    }

    fn read(&self, after: Option<MessageId>, limit: Limit) -> Opened {
        self.log.opened(after, limit, self.state.clone())
    }
}

impl MemoryStore {
    /// An empty store. Its first box has the epoch `epoch`, and each further one the next: a box that is removed and made
    /// again does not have the ids of its earlier life. [`new_epoch`](crate::store::new_epoch) makes one.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            boxes: ByName::default(),
            names: BTreeSet::new(),
            watched: ByName::default(),
            counts: HashMap::new(),
            unused: BTreeSet::new(),
            due: BTreeSet::new(),
            epoch,
            figures: Figures::default(),
        }
    }

    /// The box, which is made if it is not known.
    fn get(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
        now: SystemTime,
    ) -> Result<&mut MemoryBox, StoreError> {
        if self.boxes.get(name).is_none() {
            self.make_room(settings)?;
            *self.counts.entry(settings.set.clone()).or_default() += 1;
            let made = MemoryBox {
                log: Log::new(self.epoch),
                state: None,
                settings: settings.clone(),
                is_watched: self.watched.get(name).is_some(),
                used_at: now,
                due: None,
            };
            self.epoch += 1;
            self.boxes.insert(name.clone(), made);
            self.names.insert(name.clone());
            self.schedule(name);
            self.note_use(name);
        }
        let found = self.boxes.get_mut(name).expect("it was made");
        // A reload may have changed them.
        found.settings = settings.clone();
        Ok(found)
    }

    /// Has a box give way, if the set has as many as it may.
    fn make_room(&mut self, settings: &Settings) -> Result<(), StoreError> {
        let count = self.counts.get(&settings.set);
        if count.is_none_or(|&count| count < settings.boxes_max) {
            return Ok(());
        }
        let unused = Name::first_in(&self.unused, &settings.set);
        self.drop_box(&unused.ok_or(StoreError::TooManyBoxes)?);
        Ok(())
    }

    /// Notes whether the box gives way to others.
    fn note_use(&mut self, name: &Name) {
        match self.boxes.get(name).is_some_and(MemoryBox::is_unused) {
            true => self.unused.insert(name.clone()),
            false => self.unused.remove(name),
        };
    }

    fn append_one(&mut self, append: Append, now: SystemTime) -> Result<Appended, StoreError> {
        let updated = self.updated(&append)?;
        let source = append.source().cloned();
        let found = self.get(&append.name, &append.settings, now)?;
        found.used_at = now;
        if let Some((state, number)) = updated {
            found.log.next = number;
            found.state = Some(Arc::new(state));
        }
        let key = append.draft.key.as_deref();
        if let Some(id) = key.and_then(|key| found.log.find(key)) {
            return Ok(Appended::Duplicate(id));
        }
        let deadline = append.draft.deadline;
        let (message, trimmed) = found.log.append(append.draft, &append.settings);
        let lost = found.log.lost;
        let due = found.due;
        let is_stream = found.state.is_some();
        if is_stream || deadline.is_some_and(|deadline| due.is_none_or(|due| deadline < due)) {
            self.schedule(&append.name);
        }
        if let Some(source) = source {
            let source = self.state_of(&source.name);
            source.expect("it was there").forks += 1;
        }
        self.count(trimmed);
        self.unused.remove(&append.name);
        Ok(Appended::New { message, lost })
    }

    /// What an append makes of the state of a stream, and the number of its message.
    fn updated(&self, append: &Append) -> Result<Option<(StreamState, u64)>, StoreError> {
        if append.update.is_none() {
            return Ok(None);
        }
        let state = |found: &MemoryBox| found.state.clone();
        let is_there = |source: &Source| {
            let found = self.boxes.get(&source.name);
            source.is_there(found.and_then(state).as_deref())
        };
        if !append.source().is_none_or(is_there) {
            return Err(StoreError::Refused(Refused::NoSource));
        }
        let found = self.boxes.get(&append.name);
        let next = found.map_or(1, |found| found.log.next);
        append.updated(found.and_then(state).as_deref(), next)
    }

    fn state_of(&mut self, name: &Name) -> Option<&mut StreamState> {
        let state = self.boxes.get_mut(name)?.state.as_mut();
        state.map(Arc::make_mut)
    }

    fn count(&mut self, trimmed: Trimmed) {
        self.figures.lost += trimmed.lost as u64;
        self.figures.expired += trimmed.expired as u64;
    }

    fn schedule(&mut self, name: &Name) {
        let Some(found) = self.boxes.get_mut(name) else {
            return;
        };
        let due = found.next_due();
        if due == found.due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut found.due, due) {
            self.due.remove(&(before, name.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, name.clone()));
        }
    }

    /// Removes the box; the number of messages that were dropped, if it was known. A stream with forks stays, as removed.
    fn remove_box(&mut self, name: &Name) -> Option<usize> {
        if let Some(state) = self.state_of(name).filter(|state| state.forks > 0) {
            state.is_removed = true;
            self.schedule(name);
            return Some(0);
        }
        self.boxes.get(name)?;
        let (mut next, mut count) = (Some(name.clone()), 0);
        while let Some(name) = next.take() {
            let Some(dropped) = self.drop_box(&name) else {
                break;
            };
            count += dropped.log.messages().len();
            let source = dropped.state.and_then(|state| state.source.clone());
            let source = source.filter(|source| self.release(source));
            next = source.map(|source| source.name);
        }
        Some(count)
    }

    /// Notes that one stream less inherits from `source`; whether it goes as well.
    fn release(&mut self, source: &Source) -> bool {
        let state = self.state_of(&source.name);
        state.is_some_and(|state| state.release(source))
    }

    fn drop_box(&mut self, name: &Name) -> Option<MemoryBox> {
        let dropped = self.boxes.remove(name)?;
        self.names.remove(name);
        self.unused.remove(name);
        if let Some(due) = dropped.due {
            self.due.remove(&(due, name.clone()));
        }
        if let Some(count) = self.counts.get_mut(name.set()) {
            *count -= 1;
        }
        Some(dropped)
    }

    /// Drops what has expired of a due box; the number of messages.
    fn sweep_box(&mut self, name: &Name, now: SystemTime) -> usize {
        let found = self.boxes.get_mut(name).expect("it is due");
        if found.is_idle(now) {
            self.figures.idle_boxes += 1;
            return self.remove_box(name).unwrap_or_default();
        }
        let trimmed = found.log.expire(now);
        self.schedule(name);
        self.count(trimmed);
        trimmed.expired
    }
}

impl Store for MemoryStore {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, now: SystemTime) -> Opening {
        let opened = self
            .get(name, settings, now)
            .map(|found| found.read(None, Limit::to_open(settings.keeps_all)))
            .map(|opened| opened.for_receivers(settings.keeps_all));
        Box::pin(ready(opened))
    }

    fn summary(&mut self, name: &Name) -> Summing {
        let found = self.boxes.get(name);
        let summary = found.map(|found| found.summary(name));
        Box::pin(ready(Ok(summary)))
    }

    fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Reading {
        let found = self.boxes.get(name);
        let opened = found.map(|found| found.read(after, limit));
        Box::pin(ready(Ok(opened)))
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let results = appends
            .into_iter()
            .map(|append| self.append_one(append, now));
        Box::pin(ready(results.collect()))
    }

    fn remove(&mut self, name: &Name, epoch: Option<u64>) -> Removing {
        let life = self.boxes.get(name).map(|found| found.log.epoch);
        let is_meant = epoch.is_none() || life == epoch;
        let removed = is_meant && self.remove_box(name).is_some();
        Box::pin(ready(Ok(removed)))
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        if let Some(found) = self.boxes.get_mut(name) {
            found.log.mark_read(last);
        }
    }

    fn watch(&mut self, name: &Name, is_read: bool, now: SystemTime) {
        match is_read {
            true => self.watched.insert(name.clone(), ()),
            false => self.watched.remove(name),
        };
        if let Some(found) = self.boxes.get_mut(name) {
            (found.is_watched, found.used_at) = (is_read, now);
            self.schedule(name);
            self.note_use(name);
        }
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        let first = Name::first_of(set);
        let start = Bound::Excluded(after.unwrap_or(&first));
        let names = self.names.range((start, Bound::Unbounded));
        let names = names.take_while(|name| name.set() == set);
        let summaries = names.take(count_max).filter_map(|name| {
            let found = self.boxes.get(name)?;
            Some(found.summary(name))
        });
        Box::pin(ready(Ok(summaries.collect())))
    }

    fn poll_change(&mut self, _: &mut Context<'_>) -> Poll<Change> {
        Poll::Pending
    }

    fn sweep(&mut self, now: SystemTime) {
        let mut dropped = 0;
        for _ in 0..SWEPT_MAX {
            let is_due = |(due, _): &&(SystemTime, Name)| *due <= now;
            let Some((_, name)) = self.due.first().filter(is_due) else {
                return;
            };
            let name = name.clone();
            dropped += self.sweep_box(&name, now);
            if dropped >= DROPPED_MAX {
                return;
            }
        }
    }

    fn figures(&self) -> Figures {
        Figures {
            boxes: self.boxes.len(),
            ..self.figures
        }
    }
}

#[cfg(test)]
mod tests;
