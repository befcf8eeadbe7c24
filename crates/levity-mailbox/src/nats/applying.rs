//! Records that come from the stream, also those of this process.

use std::sync::Arc;

use async_nats::Message as Received;
use tokio::time::Instant;

use super::boxes::{Pending, Phase, Repeated, What};
use super::ledger::Outcome;
use super::record::{Kind, Record};
use super::serving::{Serving, late};
use super::session::box_of;
use super::waiting::Purpose;
use crate::encoding;
use crate::message::Message;
use crate::name::Name;
use crate::shared::TaskFigures;
use crate::store::{Append, Appended, Change, StoreError};

impl Serving<'_> {
    /// The server has repeated a record.
    pub(super) fn repeated(&mut self, received: Received) {
        let header = |key: &str| {
            let value = received.headers.as_ref()?.get(key)?;
            value.as_str().parse().ok()
        };
        let (Some(name), Some(number)) = (box_of(&received.subject), header("Nats-Sequence"))
        else {
            return;
        };
        self.link.last = self.link.last.max(number);
        let repeated = Repeated {
            number,
            previous: header("Nats-Last-Sequence").unwrap_or(0),
            payload: received.payload.to_vec(),
        };
        self.arrived(&name, repeated);
    }

    /// Applies a record if it follows the last one.
    pub(super) fn arrived(&mut self, name: &Name, repeated: Repeated) {
        let Some(used) = self.link.boxes.boxes.get_mut(name) else {
            return;
        };
        match (used.phase, &used.ledger) {
            (Phase::Left, _) => {}
            (Phase::Current, Some(ledger)) if repeated.previous <= ledger.last() => {
                if repeated.number > ledger.last() {
                    self.apply(name, repeated.number, &repeated.payload);
                    self.pump(name);
                }
            }
            (Phase::Current, _) => {
                used.phase = Phase::Loading;
                used.held.push(repeated);
                self.resume(name);
            }
            (Phase::Loading, _) => used.held.push(repeated),
        }
    }

    /// Applies a record of a box whose ledger is current up to it.
    pub(super) fn apply(&mut self, name: &Name, number: u64, payload: &[u8]) {
        let Some(used) = self.link.boxes.boxes.get_mut(name) else {
            return;
        };
        let Some(ledger) = &mut used.ledger else {
            return;
        };
        ledger.note(number, payload.len());
        let Some(record) = Record::decode(payload) else {
            return;
        };
        let draft = match record.kind {
            Kind::Message { encoded, .. } => encoding::decode(encoded),
            _ => None,
        };
        let draft = draft.map(|mut draft| {
            draft.reservation = Some(self.link.budget.reserve(draft.bytes()));
            Arc::new(draft)
        });
        let is_reported = used.watch == Some(true);
        let outcome = ledger.apply(number, &record, draft.clone(), false);
        let is_own = record.author.process == self.link.process;
        if let (Kind::Summary(summary), false) = (&record.kind, is_own) {
            ledger.summarized(summary);
        }
        if matches!(record.kind, Kind::Message { .. } | Kind::Used) {
            used.used_at = Instant::now();
        }
        if used.renewal == Some(record.author) {
            used.renewal = None;
        }
        match (&outcome, draft) {
            (&Outcome::New { id, lost, .. }, Some(draft)) if is_reported => {
                let message = Message { id, draft };
                let name = name.clone();
                let _ = self.link.changes.send(Change::Appended {
                    name,
                    message,
                    lost,
                });
            }
            (Outcome::Removed(true), _) => {
                if let Some(is_reported) = &mut used.watch {
                    *is_reported = false;
                }
                if is_reported && !is_own {
                    let _ = self.link.changes.send(Change::Removed(name.clone()));
                }
                if let Some(set) = self.link.boxes.sets.get_mut(name.set()) {
                    set.count = set.count.map(|count| count.saturating_sub(1));
                }
            }
            (Outcome::Renewed, _) => self.outdated(name),
            _ => {}
        }
        if is_own {
            self.came_back(name, record.author.number, number, outcome);
        }
    }

    /// Has the owner open a watched box again.
    pub(super) fn outdated(&mut self, name: &Name) {
        if let Some(used) = self.link.boxes.boxes.get_mut(name)
            && used.watch == Some(true)
        {
            used.watch = Some(false);
            let _ = self.link.changes.send(Change::Outdated(name.clone()));
        }
    }

    /// A record of this process has come back, as record `sequence` of the stream.
    fn came_back(&mut self, name: &Name, number: u64, sequence: u64, outcome: Outcome) {
        self.calls.remove(&number);
        let used = self.link.boxes.get(name, Instant::now());
        let is_before = |pending: &Pending| pending.number < number;
        while used.pending.front().is_some_and(is_before) {
            let missed = used.pending.pop_front().expect("there is one");
            missed.what.fail(StoreError::Unavailable(late()));
        }
        if used
            .pending
            .front()
            .is_none_or(|first| first.number != number)
        {
            return;
        }
        let pending = used.pending.pop_front().expect("there is one");
        match pending.what {
            What::Append(append, reply) => {
                reply.send(self.appended(append, outcome));
                self.summarize(name);
            }
            What::Open(reply) => {
                if let Some(is_reported) = &mut used.watch {
                    *is_reported = true;
                }
                self.load(name.clone(), Purpose::Open(reply, sequence));
                self.summarize(name);
            }
            What::Remove(reply) => {
                self.purge(name, sequence);
                let _ = reply.send(Ok(outcome == Outcome::Removed(true)));
            }
            What::End => {
                self.purge(name, sequence);
                TaskFigures::add(&self.link.figures.idle_boxes, 1);
            }
            What::Summary(summary, superfluous) => {
                self.summarized(name, sequence, &summary, &superfluous);
            }
            What::Look(_) | What::Nobody => self.summarize(name),
        }
        self.look_next(name);
    }

    /// Looks at the box if that is what comes next.
    pub(super) fn look_next(&mut self, name: &Name) {
        loop {
            let used = self.link.boxes.get(name, Instant::now());
            let is_look = |pending: &Pending| matches!(pending.what, What::Look(_));
            if !used.pending.front().is_some_and(is_look) {
                return;
            }
            let next = used.pending.pop_front().expect("there is one");
            if let What::Look(reply) = next.what {
                self.load(name.clone(), Purpose::Look(reply));
            }
        }
    }

    fn appended(&self, append: Append, outcome: Outcome) -> Result<Appended, StoreError> {
        match outcome {
            Outcome::New {
                id,
                lost,
                dropped,
                expired,
            } => {
                let figures = &self.link.figures;
                TaskFigures::add(&figures.lost, dropped as u64);
                TaskFigures::add(&figures.expired, expired as u64);
                let draft = append.draft;
                let message = Message { id, draft };
                Ok(Appended::New { message, lost })
            }
            Outcome::Duplicate(id) => Ok(Appended::Duplicate(id)),
            _ => Err(StoreError::Unavailable(
                "the message is not readable".to_owned(),
            )),
        }
    }
}
