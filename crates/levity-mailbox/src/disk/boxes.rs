//! Boxes and their messages, within a transaction.
//!
//! The rows of boxes are kept in memory. If a transaction fails, they are forgotten and read again: nothing has to be undone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::MessageId;
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::failure::Refusal;
use super::schema::{Bases, BoxRow, all, crc_of_message, execute, one, signed, unsigned};
use crate::clock::since_1970;
use crate::encoding;
use crate::message::Message;
use crate::name::Name;
use crate::settings::Settings;
use crate::shared::Watched;
use crate::store::{Append, Appended, Limit, StoreError};
use crate::stream_state::{Refused, StreamState};

/// The minimum of keys that a box remembers.
const KEYS_MIN: u64 = 256;

/// Keys are forgotten after as many messages.
const KEYS_INTERVAL: u64 = 64;

/// The maximum number of rows of boxes that are kept in memory between two transactions.
const ROWS_MAX: usize = 65_536;

/// The maximum number of messages whose time is over that a sweep drops.
const EXPIRED_MAX: usize = 256;

/// What a transaction drops of boxes that are removed, about: more would hold up the others, and lengthen the write-ahead log.
/// To free messages, the database reads them.
const REMOVED: Limit = Limit {
    messages: 1024,
    bytes: 4 << 20,
};

/// The maximum number of boxes that a sweep looks at.
const SWEPT_MAX: usize = 128;

/// A box that is watched or used has its time in the table renewed when this part of its idle time is over.
const DUE_DIVISOR: u64 = 16;

/// The bytes of messages that a sweep drops, about: to free them, the database reads them.
const SWEPT_BYTES_MAX: usize = 4 << 20;

/// When a removed stream with forks is due: it ends with the last of them.
const NEVER_MS: u64 = i64::MAX as u64;

/// The idle time of a box that does not say its own: a day.
const IDLE_MS: u64 = 24 * 3_600_000;

/// What a transaction has changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub made: usize,
    pub removed: usize,
    pub lost: u64,
    pub expired: u64,
    pub idle_boxes: u64,
    /// Boxes that have begun a new epoch because something was damaged.
    pub renewed_boxes: Vec<Name>,
    /// Boxes that were removed although nobody has asked for that.
    pub dropped_boxes: Vec<Name>,
}

/// The boxes as the transaction sees them.
pub(super) struct Boxes {
    rows: HashMap<Name, BoxRow>,
    changed: HashSet<Name>,
    /// The number of boxes of a set.
    counts: HashMap<String, usize>,
    bases: Bases,
    /// The last epoch that was given to a box.
    pub epoch: u64,
    changes: Changes,
    watched: Watched,
    /// What else the transaction may drop of boxes that are removed.
    removable: Limit,
    /// Sets of which no box gives way, since somebody watches each that is empty.
    full: HashSet<String>,
    /// When the store was opened, in milliseconds since 1970: boxes count as used then.
    started: u64,
}

impl Boxes {
    pub fn new(bases: Bases, epoch: u64, watched: Watched, started: u64) -> Self {
        Self {
            rows: HashMap::new(),
            changed: HashSet::new(),
            counts: HashMap::new(),
            bases,
            epoch,
            changes: Changes::default(),
            watched,
            removable: REMOVED,
            full: HashSet::new(),
            started,
        }
    }

    /// Forgets what a failed transaction has done.
    pub fn forget(&mut self, epoch: u64) {
        *self = Self::new(self.bases, epoch, self.watched.clone(), self.started);
    }

    /// Takes what a transaction has done, after its commit.
    pub fn take_changes(&mut self) -> Changes {
        if self.rows.len() > ROWS_MAX {
            self.rows.clear();
        }
        self.removable = REMOVED;
        std::mem::take(&mut self.changes)
    }

    /// The same within a transaction of `database`, at the time `now`.
    pub fn within<'t>(&'t mut self, database: &'t Connection, now: SystemTime) -> Within<'t> {
        let boxes = self;
        Within {
            boxes,
            database,
            now,
        }
    }

    fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }
}

/// The boxes within a transaction.
pub(super) struct Within<'t> {
    boxes: &'t mut Boxes,
    database: &'t Connection,
    now: SystemTime,
}

impl Within<'_> {
    /// Writes the rows that have changed.
    pub fn write(&mut self) -> Result<()> {
        for name in self.boxes.changed.drain() {
            if let Some(row) = self.boxes.rows.get(&name) {
                row.write(self.database, &name)?;
            }
        }
        Ok(())
    }

    /// The row of a box; `None` if it is not known.
    fn get(&mut self, name: &Name) -> Result<Option<&mut BoxRow>> {
        if !self.boxes.rows.contains_key(name) {
            let Some((id, found)) = BoxRow::find(self.database, name, self.boxes.bases)? else {
                return Ok(None);
            };
            let row = match found {
                Some(row) => row,
                None => self.counted_again(name, id, None)?,
            };
            self.boxes.rows.insert(name.clone(), row);
        }
        Ok(self.boxes.rows.get_mut(name))
    }

    /// The row of a box whose row, or one of whose messages, is damaged: it begins a new epoch with what is left.
    fn counted_again(&mut self, name: &Name, id: i64, state: Option<Box<str>>) -> Result<BoxRow> {
        let select = "SELECT count(*), total(size), min(seq), max(seq) FROM message WHERE box = ?1 AND seq > 0";
        let (messages, bytes, first, last) = one(self.database, select, [id], |row| {
            let numbers: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
            Ok((row.get(0)?, row.get::<_, f64>(1)?, numbers.0, numbers.1))
        })?;
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        // A key outlives its message, and names its number.
        let select = "SELECT max(seq) FROM key WHERE box = ?1";
        let of_key = one(self.database, select, [id], |row| row.get(0))?;
        let last = number(last).max(number(of_key));
        let next = last.map_or(1, |last| last + 1);
        let epoch = self.boxes.next_epoch();
        self.boxes.changes.renewed_boxes.push(name.clone());
        self.boxes.changed.insert(name.clone());
        Ok(BoxRow {
            id,
            epoch,
            next,
            lost: number(first).unwrap_or(next),
            read: 1,
            messages,
            bytes: bytes as usize,
            is_durable: false,
            // Until it is used again: what the row says may be wrong.
            idle_ms: IDLE_MS,
            due_ms: self.boxes.started + IDLE_MS,
            state,
        })
    }

    /// Makes a box if it is not known. One of which messages are missing begins a new epoch.
    pub fn open(&mut self, name: &Name, settings: &Settings) -> Result<(), Refusal> {
        let row = self.get_or_make(name, settings)?.clone();
        // The reader has found none, or a damaged one: this is what it has to find.
        self.boxes.changed.insert(name.clone());
        if count(self.database, &row)? < row.messages {
            let row = self.counted_again(name, row.id, row.state)?;
            self.boxes.rows.insert(name.clone(), row);
        }
        Ok(())
    }

    /// The row of a box, which is made if it is not known.
    fn get_or_make(&mut self, name: &Name, settings: &Settings) -> Result<&mut BoxRow, Refusal> {
        if self.get(name)?.is_none() {
            self.make_room(settings)?;
            self.make(name, settings)?;
        }
        let row = self.boxes.rows.get_mut(name).expect("it is there");
        // That of a stream is in its state.
        if row.state.is_none() && use_until(row, settings.idle, self.now) {
            self.boxes.changed.insert(name.clone());
        }
        Ok(row)
    }

    fn make(&mut self, name: &Name, settings: &Settings) -> Result<()> {
        let idle_ms = settings.idle.as_millis() as u64;
        let mut row = BoxRow {
            // Of boxes that are made in turn, no two have the same, not even one that was removed.
            id: signed(self.boxes.next_epoch()),
            epoch: self.boxes.epoch,
            next: 1,
            lost: 1,
            read: 1,
            messages: 0,
            bytes: 0,
            is_durable: settings.is_durable,
            idle_ms,
            due_ms: milliseconds(self.now) + idle_ms,
            state: None,
        };
        row.epoch = self.boxes.bases.epoch_of(&row);
        row.write(self.database, name)?;
        self.boxes.rows.insert(name.clone(), row);
        *self.count_of(&settings.set)? += 1;
        self.boxes.changes.made += 1;
        Ok(())
    }

    fn count_of(&mut self, set: &str) -> Result<&mut usize> {
        match self.boxes.counts.entry(set.to_owned()) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(vacant) => {
                let (first, end) = names_of(set);
                let select = "SELECT count(*) FROM box WHERE name > ?1 AND name < ?2";
                let count = one(self.database, select, [first, end], |row| row.get(0))?;
                Ok(vacant.insert(count))
            }
        }
    }

    /// Has a box give way that nobody watches and that has never had a message, if the set has as many as it may.
    fn make_room(&mut self, settings: &Settings) -> Result<(), Refusal> {
        if *self.count_of(&settings.set)? < settings.boxes_max {
            return Ok(());
        }
        if self.boxes.full.contains(&settings.set) {
            return Err(StoreError::TooManyBoxes.into());
        }
        self.write()?;
        let (first, end) = names_of(&settings.set);
        let mut statement = self.database.prepare_cached(
            "SELECT name FROM box WHERE next = 1 AND name > ?1 AND name < ?2 ORDER BY name",
        )?;
        let mut names = statement.query([first, end])?;
        while let Some(row) = names.next()? {
            let name = Name::parse(&row.get::<_, String>(0)?);
            if let Some(name) = name.filter(|name| !self.boxes.watched.contains(name)) {
                return Ok(self.drop_box(name)?);
            }
        }
        self.boxes.full.insert(settings.set.clone());
        Err(StoreError::TooManyBoxes.into())
    }

    /// Appends a message, unless the box remembers its key, and drops what exceeds the bounds.
    pub fn append(&mut self, append: &Append) -> Result<Appended, Refusal> {
        let Append {
            name,
            settings,
            draft,
            ..
        } = append;
        let updated = self.updated(append)?;
        self.get_or_make(name, settings)?;
        let (boxes, database) = (&mut *self.boxes, self.database);
        let row = boxes.rows.get_mut(name).expect("it is there");
        if let Some(key) = &draft.key {
            let select = "SELECT seq FROM key WHERE box = ?1 AND key = ?2";
            let found = one(database, select, params![row.id, key], |row| {
                unsigned(row, 0)
            });
            if let Some(sequence) = found.optional()? {
                let epoch = row.epoch;
                return Ok(Appended::Duplicate(MessageId { epoch, sequence }));
            }
        }
        if row.is_durable != settings.is_durable {
            // As one that is not durable it must not get the epoch of an earlier start.
            if !settings.is_durable && row.epoch < boxes.bases.unsynced {
                boxes.epoch += 1;
                row.epoch = boxes.epoch;
                boxes.changes.renewed_boxes.push(name.clone());
            }
            row.is_durable = settings.is_durable;
        }
        if let Some((state, number)) = &updated {
            row.next = *number;
            row.state = Some(state.to_json().into());
            use_until(row, state.idle(self.now), self.now);
        }
        let (epoch, sequence) = (row.epoch, row.next);
        let (replaced, dropped) = make_room_in(database, row, append)?;
        store(database, row.id, sequence, append, replaced)?;
        row.next += 1;
        row.messages += 1;
        row.bytes += draft.bytes();
        if sequence.is_multiple_of(KEYS_INTERVAL) {
            forget_keys(database, row)?;
        }
        let lost = row.lost;
        boxes.changes.lost += dropped;
        boxes.changed.insert(name.clone());
        if let Some(source) = append.source() {
            self.update_state(&source.name, |state| state.forks += 1)?;
        }
        let id = MessageId { epoch, sequence };
        let draft = Arc::clone(draft);
        let message = Message { id, draft };
        Ok(Appended::New { message, lost })
    }

    /// What an append makes of the state of a stream, and the number of its message.
    fn updated(&mut self, append: &Append) -> Result<Option<(StreamState, u64)>, Refusal> {
        if append.update.is_none() {
            return Ok(None);
        }
        if let Some(source) = append.source() {
            let row = self.get(&source.name)?;
            if !source.is_there(row.and_then(|row| row.stream_state()).as_ref()) {
                return Err(StoreError::Refused(Refused::NoSource).into());
            }
        }
        let row = self.get(&append.name)?;
        let next = row.as_ref().map_or(1, |row| row.next);
        let state = row.and_then(|row| row.stream_state());
        Ok(append.updated(state.as_ref(), next)?)
    }

    /// Changes the state of a stream; the state, if it is one.
    fn update_state(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut StreamState),
    ) -> Result<Option<StreamState>> {
        let Some(row) = self.get(name)? else {
            return Ok(None);
        };
        let Some(mut state) = row.stream_state() else {
            return Ok(None);
        };
        change(&mut state);
        row.state = Some(state.to_json().into());
        self.boxes.changed.insert(name.clone());
        Ok(Some(state))
    }

    /// Removes a box for which nobody has asked, so that whoever has just come to receive from it has to learn of it.
    fn drop_box(&mut self, name: Name) -> Result<()> {
        self.remove(&name)?;
        self.boxes.changes.dropped_boxes.push(name);
        Ok(())
    }

    /// Removes a box, if it is in the life `epoch`, where one is given; whether it did.
    pub fn remove_life(&mut self, name: &Name, epoch: Option<u64>) -> Result<bool> {
        let life = self.get(name)?.map(|row| row.epoch);
        Ok((epoch.is_none() || life == epoch) && self.remove(name)?)
    }

    /// Removes a box; whether it was known. A stream with forks stays, as removed.
    fn remove(&mut self, name: &Name) -> Result<bool> {
        let Some(row) = self.get(name)? else {
            return Ok(false);
        };
        let mut state = row.stream_state();
        if state.as_ref().is_some_and(|state| state.forks > 0) {
            (row.idle_ms, row.due_ms) = (0, NEVER_MS);
            self.update_state(name, |state| state.is_removed = true)?;
            return Ok(true);
        }
        self.delete_box(name)?;
        while let Some(source) = state.and_then(|state| state.source) {
            let mut goes = false;
            let release = |state: &mut StreamState| goes = state.release(&source);
            state = self.update_state(&source.name, release)?;
            if !goes {
                break;
            }
            self.delete_box(&source.name)?;
        }
        Ok(true)
    }

    fn delete_box(&mut self, name: &Name) -> Result<()> {
        let Some(row) = self.get(name)? else {
            return Ok(());
        };
        let id = row.id;
        self.boxes.full.remove(name.set());
        self.count_of(name.set())?;
        execute(self.database, "DELETE FROM box WHERE id = ?1", [id])?;
        if !self.drop_content(id)? {
            execute(self.database, "INSERT INTO removed (box) VALUES (?1)", [id])?;
        }
        self.boxes.rows.remove(name);
        self.boxes.changed.remove(name);
        *self.count_of(name.set())? -= 1;
        self.boxes.changes.removed += 1;
        Ok(())
    }

    /// Drops what is left of a box that was removed, or a part of it; whether nothing is left.
    fn drop_content(&mut self, id: i64) -> Result<bool> {
        let mut statement = self
            .database
            .prepare_cached("SELECT row, seq, size FROM message WHERE box = ?1 ORDER BY seq")?;
        let mut rows = statement.query([id])?;
        let mut part = Vec::new();
        let mut is_whole = true;
        while is_whole && let Some(found) = rows.next()? {
            is_whole = self.boxes.removable.take(found.get(2)?);
            if is_whole {
                part.push((found.get(0)?, found.get::<_, i64>(1)?));
            }
        }
        drop(rows);
        for &(number, _) in &part {
            delete(self.database, number)?;
        }
        // Of messages that are gone, few keys are remembered.
        let last = part.last().map(|(_, sequence)| *sequence);
        let last = if is_whole { Some(i64::MAX) } else { last };
        let forget = "DELETE FROM key WHERE box = ?1 AND seq <= ?2";
        execute(self.database, forget, params![id, last])?;
        Ok(is_whole)
    }

    /// Drops what is left of boxes that were removed: a bounded number of messages.
    fn drop_removed(&mut self) -> Result<()> {
        let next = "SELECT box FROM removed LIMIT 1";
        while let Some(id) = one(self.database, next, [], |row| row.get(0)).optional()?
            && self.drop_content(id)?
        {
            execute(self.database, "DELETE FROM removed WHERE box = ?1", [id])?;
        }
        Ok(())
    }

    /// Moves the read position of a life of a box forward.
    pub fn mark_read(&mut self, name: &Name, last: MessageId) -> Result<()> {
        if let Some(row) = self.get(name)?
            && row.epoch == last.epoch
        {
            let read = last.sequence.saturating_add(1).min(row.next);
            if read > row.read {
                row.read = read;
                self.boxes.changed.insert(name.clone());
            }
        }
        Ok(())
    }

    /// Begins the idle time of a box anew.
    pub fn touch(&mut self, name: &Name) -> Result<()> {
        let now = self.now;
        self.boxes.full.remove(name.set());
        if let Some(row) = self.get(name)? {
            let idle = Duration::from_millis(row.idle_ms);
            if use_until(row, idle, now) {
                self.boxes.changed.insert(name.clone());
            }
        }
        Ok(())
    }

    /// Drops messages whose time is over, idle boxes, and what is left of boxes that were removed: a bounded number.
    pub fn sweep(&mut self) -> Result<()> {
        self.drop_removed()?;
        self.expire()?;
        self.write()?;
        let now_ms = milliseconds(self.now);
        for name in due_boxes(self.database, now_ms)? {
            if !self.boxes.removable.has_room() {
                break;
            }
            let Some(row) = self.get(&name)? else {
                continue;
            };
            let (idle_ms, due_ms) = (row.idle_ms, row.due_ms);
            let is_watched = self.boxes.watched.contains(&name);
            let is_used = is_watched || self.boxes.started + idle_ms > now_ms;
            if is_used || due_ms > now_ms {
                self.touch(&name)?;
                continue;
            }
            self.drop_box(name)?;
            self.boxes.changes.idle_boxes += 1;
        }
        Ok(())
    }

    fn expire(&mut self) -> Result<()> {
        let due = due_messages(self.database, self.now)?;
        let mut bytes = 0;
        for (number, size, name) in due {
            if bytes >= SWEPT_BYTES_MAX {
                break;
            }
            bytes += size;
            delete(self.database, number)?;
            let Some(name) = Name::parse(&name) else {
                continue;
            };
            if let Some(row) = self.get(&name)? {
                row.messages = row.messages.saturating_sub(1);
                row.bytes = row.bytes.saturating_sub(size);
                self.boxes.changed.insert(name);
            }
            self.boxes.changes.expired += 1;
        }
        Ok(())
    }
}

/// Whether a sweep has something to drop or to renew.
pub(super) fn has_due(database: &Connection, now: SystemTime) -> Result<bool> {
    let select =
        "SELECT EXISTS (SELECT 1 FROM message WHERE due_ns <= ?1) OR EXISTS (SELECT 1 FROM box WHERE due_ms <= ?2)
         OR EXISTS (SELECT 1 FROM removed)";
    let times = params![nanoseconds(now), signed(milliseconds(now))];
    one(database, select, times, |row| row.get(0))
}

/// Rows, sizes and boxes of messages whose time is over.
fn due_messages(database: &Connection, now: SystemTime) -> Result<Vec<(i64, usize, String)>> {
    let select =
        "SELECT message.row, message.size, box.name FROM message JOIN box ON box.id = message.box
         WHERE message.due_ns <= ?1 ORDER BY message.due_ns LIMIT ?2";
    all(
        database,
        select,
        params![nanoseconds(now), EXPIRED_MAX],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )
}

fn due_boxes(database: &Connection, now_ms: u64) -> Result<Vec<Name>> {
    let select = "SELECT name FROM box WHERE due_ms <= ?1 ORDER BY due_ms LIMIT ?2";
    let names = all(
        database,
        select,
        params![signed(now_ms), SWEPT_MAX],
        |row| row.get::<_, String>(0),
    )?;
    Ok(names.iter().filter_map(|name| Name::parse(name)).collect())
}

/// The number of messages of a box that are there, by the index: looked for as whoever reads them does, since in an index that is
/// out of order other questions have other answers.
pub(super) fn count(database: &Connection, row: &BoxRow) -> Result<usize> {
    let select = "SELECT count(*) FROM message WHERE box = ?1 AND seq > 0 AND seq < ?2";
    let of_box = params![row.id, signed(row.next)];
    one(database, select, of_box, |found| found.get(0))
}

/// Writes a message, in place of another one if there is a row to be reused: a box that is full would otherwise have the tree of
/// messages balanced at two places for each message.
fn store(
    database: &Connection,
    id: i64,
    sequence: u64,
    append: &Append,
    replaced: Option<i64>,
) -> Result<()> {
    let draft = &append.draft;
    let body = encoding::encode(draft);
    let insert =
        "INSERT INTO message (row, box, seq, size, due_ns, body, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (row) DO UPDATE SET box = ?2, seq = ?3, size = ?4, due_ns = ?5, body = ?6, crc = ?7";
    let values = params![
        replaced,
        id,
        sequence,
        draft.bytes(),
        draft.deadline.map(nanoseconds),
        body,
        crc_of_message(id, sequence, &body),
    ];
    execute(database, insert, values)?;
    if let Some(key) = &draft.key {
        let insert = "INSERT INTO key (box, key, seq) VALUES (?1, ?2, ?3)";
        execute(database, insert, params![id, key, sequence])?;
    }
    Ok(())
}

/// Drops what exceeds the bounds of a box with one more message, the oldest first: a row that can be reused, and the number of
/// messages. The last message stays, whatever its size.
fn make_room_in(
    database: &Connection,
    row: &mut BoxRow,
    append: &Append,
) -> Result<(Option<i64>, u64)> {
    let (settings, bytes) = (&append.settings, append.draft.bytes());
    let (mut replaced, mut dropped) = (None, 0);
    while !settings.keeps_all
        && row.messages > 0
        && (row.messages >= settings.messages_max || row.bytes + bytes > settings.bytes_max)
    {
        let select =
            "SELECT row, seq, size FROM message WHERE box = ?1 AND seq >= ?2 ORDER BY seq LIMIT 1";
        let first = one(database, select, params![row.id, row.lost], |found| {
            Ok((found.get(0)?, unsigned(found, 1)?, unsigned(found, 2)?))
        });
        let Some((number, sequence, size)) = first.optional()? else {
            // Fewer are left than were counted.
            (row.messages, row.bytes) = (0, 0);
            break;
        };
        match replaced {
            None => replaced = Some(number),
            Some(_) => delete(database, number)?,
        }
        row.messages -= 1;
        row.bytes = row.bytes.saturating_sub(size as usize);
        row.lost = sequence + 1;
        dropped += 1;
    }
    Ok((replaced, dropped))
}

fn delete(database: &Connection, number: i64) -> Result<()> {
    execute(database, "DELETE FROM message WHERE row = ?1", [number]).map(drop)
}

/// Forgets keys of messages that are gone, but not the last [`KEYS_MIN`].
fn forget_keys(database: &Connection, row: &BoxRow) -> Result<()> {
    let select = "SELECT min(seq) FROM message WHERE box = ?1";
    let first = one(database, select, [row.id], |found| unsigned(found, 0))?;
    let end = first.min(row.next.saturating_sub(KEYS_MIN));
    let forget = "DELETE FROM key WHERE box = ?1 AND seq < ?2";
    execute(database, forget, params![row.id, signed(end)]).map(drop)
}

/// Begins the idle time of a box anew, not earlier than it is due, and seldom later; whether the row changes by that.
fn use_until(row: &mut BoxRow, idle: Duration, now: SystemTime) -> bool {
    let idle_ms = idle.as_millis() as u64;
    let (due_ms, latest_ms) = (milliseconds(now) + idle_ms, idle_ms / DUE_DIVISOR);
    let is_new = row.idle_ms != idle_ms || !(due_ms..=due_ms + latest_ms).contains(&row.due_ms);
    if is_new {
        (row.idle_ms, row.due_ms) = (idle_ms, due_ms + latest_ms);
    }
    is_new
}

/// The names of boxes of a set are between these.
pub(super) fn names_of(set: &str) -> (String, String) {
    // The character after the slash.
    (format!("{set}/"), format!("{set}0"))
}

/// Milliseconds since 1970, rounded down.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    since_1970(time).as_millis() as u64
}

/// Nanoseconds since 1970, until 2262.
fn nanoseconds(time: SystemTime) -> i64 {
    since_1970(time).as_nanos().try_into().unwrap_or(i64::MAX)
}
