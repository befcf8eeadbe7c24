//! What is read from the stream.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::boxes::{Phase, What};
use super::ledger::Ledger;
use super::record::{Kind, Record};
use super::replay::{Read, replay};
use super::serving::{Broken, Call, Serving, late};
use super::session::{STREAM, subject_of};
use super::waiting::{Load, Purpose};
use crate::name::Name;
use crate::store::{Opened, StoreError};

/// The maximum of consumers at a time.
const LOADS_MAX: usize = 64;

/// How long the server keeps a consumer that this process has not deleted, in nanoseconds.
const CONSUMER_TIME_MAX: u64 = 10_000_000_000;

/// A load that gets nothing for this time has stopped.
const STOPPED_TIME: Duration = Duration::from_millis(500);

/// How often it begins again.
const RESTARTS_MAX: usize = 3;

impl Serving<'_> {
    /// Reads all records of a box, or does so when others were read.
    pub(super) fn load(&mut self, name: Name, purpose: Purpose) {
        if self.loads.len() >= LOADS_MAX {
            self.to_load.push_back((name, purpose));
        } else {
            self.begin_load(name, purpose, 0);
        }
    }

    fn begin_load(&mut self, name: Name, purpose: Purpose, restarts: usize) {
        let number = self.link.next_number();
        let consumer = format!("levity-{}-{number}", self.link.process);
        let mut config = json!({
            "name": consumer,
            "deliver_subject": self.delivery(),
            "filter_subject": subject_of(&name),
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": CONSUMER_TIME_MAX,
            "mem_storage": true,
            "num_replicas": 1,
        });
        if let Purpose::Ledger(first @ 1..) = purpose {
            config["deliver_policy"] = json!("by_start_sequence");
            config["opt_start_seq"] = json!(first);
        }
        let parameters = json!({"stream_name": STREAM, "config": config}).to_string();
        let filter = subject_of(&name);
        let load = Load {
            name,
            purpose,
            records: Vec::new(),
            consumer: consumer.clone(),
            is_made: false,
            restarts,
            is_complete: false,
            progress: Instant::now(),
        };
        self.loads.insert(number, load);
        let subject = format!("$JS.API.CONSUMER.CREATE.{STREAM}.{consumer}.{filter}");
        self.call_as(
            number,
            subject,
            None,
            parameters.into_bytes(),
            Call::Consumer,
        );
    }

    /// Begins loads again that have stopped: records that a consumer was about to deliver were deleted.
    pub(super) fn restart_loads(&mut self) -> Result<(), Broken> {
        let has_stopped = |load: &Load| load.is_made && load.progress.elapsed() >= STOPPED_TIME;
        let stopped = self.loads.iter().filter(|(_, load)| has_stopped(load));
        let stopped: Vec<_> = stopped.map(|(number, _)| *number).collect();
        for number in stopped {
            let Some(load) = self.loads.remove(&number) else {
                continue;
            };
            if load.restarts >= RESTARTS_MAX {
                load.purpose.fail(&StoreError::Unavailable(late()));
                return Err(late());
            }
            let subject = format!("$JS.API.CONSUMER.DELETE.{STREAM}.{}", load.consumer);
            self.add_chore(subject, String::new());
            self.begin_load(load.name, load.purpose, load.restarts + 1);
        }
        Ok(())
    }

    /// Reads the records of a box that its ledger lacks.
    pub(super) fn resume(&mut self, name: &Name) {
        let used = self.link.boxes.get(name, Instant::now());
        let witness = used.ledger.as_ref().and_then(Ledger::witness);
        let first = witness.map_or(0, |(number, _)| number);
        self.load(name.clone(), Purpose::Ledger(first));
    }

    /// The server has made a consumer.
    pub(super) fn consumed(&mut self, number: u64, answer: &Value) {
        let Some(load) = self.loads.get_mut(&number) else {
            return;
        };
        load.is_made = true;
        load.progress = Instant::now();
        if load.is_complete || answer["num_pending"] == 0 {
            self.loaded(number);
        }
    }

    /// A record was delivered. The words of `reply` say by which consumer, and what it is:
    /// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.RECORD.NUMBER.TIME.LEFT`; of later servers there are two more words before the
    /// stream.
    pub(super) fn delivered(&mut self, reply: &str, payload: &[u8]) {
        let words: Vec<_> = reply.split('.').collect();
        let consumer = if words.len() > 9 { 5 } else { 3 };
        let number = words
            .get(consumer)
            .and_then(|name| name.rsplit('-').next()?.parse().ok());
        let word = |index: usize| words.get(consumer + index)?.parse().ok();
        let (Some(number), Some(record), Some(left)) = (number, word(2), word(5)) else {
            return;
        };
        let Some(load) = self.loads.get_mut(&number) else {
            return;
        };
        self.link.last = self.link.last.max(record);
        load.progress = Instant::now();
        load.records.push(Read {
            number: record,
            payload: payload.to_vec(),
        });
        if left == 0_u64 {
            load.is_complete = true;
            if load.is_made {
                self.loaded(number);
            }
        }
    }

    /// All records of a load are there.
    fn loaded(&mut self, number: u64) {
        let Some(load) = self.loads.remove(&number) else {
            return;
        };
        let subject = format!("$JS.API.CONSUMER.DELETE.{STREAM}.{}", load.consumer);
        self.add_chore(subject, String::new());
        if let Some((name, purpose)) = self.to_load.pop_front() {
            self.load(name, purpose);
        }
        let (base, budget) = (self.session.base, self.link.budget.clone());
        let reserve = |opened: Opened| opened.reserve(&budget);
        let Load { name, records, .. } = load;
        match load.purpose {
            Purpose::Ledger(first) => self.ledger_loaded(&name, first, &records),
            Purpose::Open(reply, upto) => {
                let upto: Vec<_> = records
                    .into_iter()
                    .filter(|one| one.number <= upto)
                    .collect();
                let removed = || StoreError::Unavailable("the box was removed just now".to_owned());
                let opened = replay(base, &upto, true).opened();
                let _ = reply.send(opened.ok_or_else(removed).and_then(reserve));
            }
            Purpose::Look(reply) => {
                let opened = replay(base, &records, true).opened();
                let _ = reply.send(opened.map(reserve).transpose());
            }
            Purpose::List(list) => {
                if let Some(listing) = self.listings.get_mut(&list) {
                    listing.loading -= 1;
                    listing.add(name, &replay(base, &records, false));
                    self.go_on_with(list);
                }
            }
        }
    }

    fn ledger_loaded(&mut self, name: &Name, first: u64, records: &[Read]) {
        let Some(used) = self.link.boxes.boxes.get_mut(name) else {
            return;
        };
        match &used.ledger {
            Some(ledger) if first > 0 && !continues(ledger, records) => {
                return self.load(name.clone(), Purpose::Ledger(0));
            }
            Some(ledger) if first > 0 => {
                let last = ledger.last();
                used.phase = Phase::Current;
                let new = records.iter().filter(|record| record.number > last);
                new.for_each(|record| self.apply(name, record.number, &record.payload));
            }
            _ => self.begin_ledger(name, records),
        }
        if let Some(used) = self.link.boxes.boxes.get_mut(name) {
            for repeated in std::mem::take(&mut used.held) {
                self.arrived(name, repeated);
            }
        }
        self.pump(name);
    }

    /// Makes a new ledger of all records of a box.
    fn begin_ledger(&mut self, name: &Name, records: &[Read]) {
        let ledger = replay(self.session.base, records, false);
        let Some(used) = self.link.boxes.boxes.get_mut(name) else {
            return;
        };
        used.used_at = last_use(records);
        used.phase = Phase::Current;
        let Some(before) = used.ledger.replace(ledger) else {
            return;
        };
        // What has become of them is in the records, but not which came back.
        for pending in used.pending.drain(..) {
            let unknown = "the NATS server has lost records".to_owned();
            pending.what.fail(StoreError::Unavailable(unknown));
        }
        let Some(after) = &used.ledger else {
            return;
        };
        let has_lost = before.is_lost_in(after, SystemTime::now());
        let is_same = (after.epoch(), after.last()) == (before.epoch(), before.last());
        if has_lost || !is_same {
            self.outdated(name);
        }
        if has_lost {
            self.write(name, Kind::Renewed, What::Nobody);
        }
    }
}

/// Whether records that were read from the last message on begin with that message.
fn continues(ledger: &Ledger, records: &[Read]) -> bool {
    records.first().is_some_and(|first| {
        let author = Record::decode(&first.payload).map(|record| record.author);
        author.map(|author| (first.number, author)) == ledger.witness()
    })
}

/// When the box was used last.
fn last_use(records: &[Read]) -> Instant {
    let uses = records.iter().rev().find_map(|record| {
        let record = Record::decode(&record.payload)?;
        matches!(record.kind, Kind::Message { .. } | Kind::Used).then_some(record.time)
    });
    let age = uses.and_then(|time| SystemTime::now().duration_since(time).ok());
    let now = Instant::now();
    now.checked_sub(age.unwrap_or_default()).unwrap_or(now)
}
