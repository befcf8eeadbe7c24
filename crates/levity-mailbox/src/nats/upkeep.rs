//! What has to be done for boxes from time to time.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use async_nats::Message as Received;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::boxes::{Phase, What};
use super::record::{Author, Kind, Record, Summary};
use super::requests::only_after;
use super::serving::{Call, Serving, names_in, parse_ack};
use super::session::{STREAM, subject_of};
use crate::name::Name;
use crate::shared::TaskFigures;

/// The part of the idle time after which a watched box is used.
const USE_DIVISOR: u32 = 4;

/// A sweep looks at this part of all boxes, but at [`SWEPT_MIN`] at least: ten sweeps a second look at each box at least
/// every four seconds.
const SWEPT_DIVISOR: usize = 32;
const SWEPT_MIN: usize = 64;

/// The maximum of boxes of others that a sweep asks for.
const ORPHANS_MAX: usize = 16;

/// The pause between two looks at the boxes of others, at least.
const SCAN_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The maximum of calls at a time that delete something.
const CHORES_MAX: usize = 4;

/// A summary is written when so many records are not needed, or so many bytes and more than are.
const SUPERFLUOUS_MAX: usize = 64;
const SUPERFLUOUS_BYTES: usize = 256 << 10;

impl Serving<'_> {
    /// Maintains a part of all boxes.
    pub(super) fn sweep(&mut self) {
        let read: Vec<_> = self.link.reads.keys().cloned().collect();
        for name in read {
            match self.link.boxes.boxes.get(&name) {
                Some(used) if used.phase == Phase::Current => self.write_read(&name),
                Some(_) => {}
                None => drop(self.link.reads.remove(&name)),
            }
        }
        let all = self.link.boxes.order.len();
        for _ in 0..SWEPT_MIN.max(all / SWEPT_DIVISOR).min(all) {
            if let Some(name) = self.link.boxes.order.pop_front() {
                self.sweep_box(name);
            }
        }
        self.sweep_orphans();
        let boxes = self.link.boxes.boxes.len();
        self.link.figures.boxes.store(boxes, Ordering::Relaxed);
    }

    fn sweep_box(&mut self, name: Name) {
        let Some(used) = self.link.boxes.boxes.get_mut(&name) else {
            return;
        };
        let is_busy = !used.pending.is_empty() || !used.waiting.is_empty();
        let is_current = used.phase == Phase::Current && !is_busy;
        let lives = used.will_live();
        let (asked, unused) = (used.asked_at.elapsed(), used.used_at.elapsed());
        let idle = used.idle;
        match used.watch {
            Some(_) if is_current && lives && unused >= idle / USE_DIVISOR => {
                self.write(&name, Kind::Used, What::Nobody);
            }
            None if is_current && lives && unused >= idle => {
                self.write(&name, Kind::Removed, What::End);
            }
            None if !is_busy && used.phase != Phase::Loading && asked >= idle => {
                // Others use it, or there is none.
                if let Some(feed) = used.feed.take() {
                    feed.abort();
                }
                self.link.boxes.boxes.remove(&name);
                return;
            }
            _ => {}
        }
        self.link.boxes.order.push_back(name);
    }

    /// Removes boxes that no process has used for long.
    fn sweep_orphans(&mut self) {
        for _ in 0..ORPHANS_MAX {
            let Some(name) = self.orphans.pop_front() else {
                break;
            };
            let last = json!({"last_by_subj": subject_of(&name)});
            let subject = format!("$JS.API.DIRECT.GET.{STREAM}");
            self.call(subject, last.to_string(), Call::Last(name));
        }
        let sets = self.link.boxes.sets.iter_mut();
        let due = sets.filter(|(_, set)| {
            let pause = (set.idle / 2).max(SCAN_INTERVAL_MIN);
            set.scanned_at.elapsed() >= pause && !set.is_asked
        });
        let due: Vec<_> = due
            .map(|(name, set)| {
                set.scanned_at = Instant::now();
                name.clone()
            })
            .collect();
        for set in due {
            self.ask_for_boxes(Call::Scan(set.clone()), &set);
        }
    }

    /// The server has said the boxes of a set.
    pub(super) fn scanned(&mut self, set: &str, info: &Value) {
        let names: Vec<_> = names_in(info).collect();
        if let Some(set) = self.link.boxes.sets.get_mut(set) {
            (set.count, set.counted_at) = (Some(names.len()), Instant::now());
        }
        if self.orphans.is_empty() {
            let boxes = &self.link.boxes.boxes;
            let unknown = names.into_iter().filter(|name| !boxes.contains_key(name));
            self.orphans.extend(unknown);
        }
    }

    /// The server has said the last record of a box that is not used here.
    pub(super) fn last_of_orphan(&mut self, name: &Name, answer: &Received) {
        let headers = answer.headers.as_ref();
        let number =
            headers.and_then(|headers| headers.get("Nats-Sequence")?.as_str().parse().ok());
        let (Some(number), Some(record)) = (number, Record::decode(&answer.payload)) else {
            return;
        };
        let Some(set) = self.link.boxes.sets.get(name.set()) else {
            return;
        };
        let age = SystemTime::now()
            .duration_since(record.time)
            .unwrap_or_default();
        // Whoever uses it has more time.
        if age < set.idle + set.idle / USE_DIVISOR || self.link.boxes.boxes.contains_key(name) {
            return;
        }
        let author = Author {
            process: self.link.process,
            number: self.link.next_number(),
        };
        let removed = Record {
            author,
            time: SystemTime::now(),
            kind: Kind::Removed,
        };
        self.call_as(
            author.number,
            subject_of(name),
            Some(only_after(number)),
            removed.encode(),
            Call::End(name.clone()),
        );
    }

    /// The server has taken the record that removes such a box, or not.
    pub(super) fn ended_orphan(&mut self, name: &Name, answer: &Received) {
        if let Ok(taken) = parse_ack(answer)
            && let Some(number) = taken["seq"].as_u64()
        {
            self.purge(name, number);
            TaskFigures::add(&self.link.figures.idle_boxes, 1);
        }
    }

    /// Deletes all records of a box up to that one.
    pub(super) fn purge(&mut self, name: &Name, upto: u64) {
        self.delete_below(name, upto + 1);
        let used = self.link.boxes.boxes.get_mut(name);
        if let Some(ledger) = used.and_then(|used| used.ledger.as_mut()) {
            ledger.purged(upto);
        }
    }

    fn delete_below(&mut self, name: &Name, first: u64) {
        if first <= 1 {
            // The server would delete all.
            return;
        }
        let what = json!({"filter": subject_of(name), "seq": first});
        let subject = format!("$JS.API.STREAM.PURGE.{STREAM}");
        self.add_chore(subject, what.to_string());
    }

    /// Deletes something when its turn has come.
    pub(super) fn add_chore(&mut self, subject: String, parameters: String) {
        self.chores.push_back((subject, parameters));
        self.do_chores();
    }

    pub(super) fn do_chores(&mut self) {
        while self.chores_under_way < CHORES_MAX
            && let Some((subject, parameters)) = self.chores.pop_front()
        {
            self.chores_under_way += 1;
            self.call(subject, parameters, Call::Chore);
        }
    }

    /// Writes a summary of a box if many of its records are not needed.
    pub(super) fn summarize(&mut self, name: &Name) {
        let Some(used) = self.link.boxes.boxes.get(name) else {
            return;
        };
        let Some(ledger) = &used.ledger else {
            return;
        };
        let is_summary = |what: &What| matches!(what, What::Summary(..));
        let (count, bytes) = ledger.superfluous();
        let needed = ledger.size().map_or(0, |(_, bytes)| bytes);
        let is_due = count >= SUPERFLUOUS_MAX || bytes >= SUPERFLUOUS_BYTES.max(needed);
        if !is_due || used.pending.iter().any(|pending| is_summary(&pending.what)) {
            return;
        }
        if let Some(summary) = ledger.summary() {
            let superfluous = ledger.superfluous_records();
            let kind = Kind::Summary(summary.clone());
            self.write(name, kind, What::Summary(summary, superfluous));
        }
    }

    /// A summary is in the stream: the records that it replaces are deleted.
    pub(super) fn summarized(
        &mut self,
        name: &Name,
        number: u64,
        summary: &Summary,
        superfluous: &[u64],
    ) {
        let used = self.link.boxes.boxes.get_mut(name);
        let Some(ledger) = used.and_then(|used| used.ledger.as_mut()) else {
            return;
        };
        if !ledger.is_of_life(summary) {
            return self.delete(number);
        }
        let first = ledger.deleted(superfluous);
        self.delete_below(name, first);
        let single = superfluous.iter().filter(|&&one| one > first);
        single.for_each(|one| self.delete(*one));
    }

    fn delete(&mut self, number: u64) {
        let what = json!({"seq": number, "no_erase": true});
        let subject = format!("$JS.API.STREAM.MSG.DELETE.{STREAM}");
        self.add_chore(subject, what.to_string());
    }
}
