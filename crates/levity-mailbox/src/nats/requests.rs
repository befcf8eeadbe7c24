//! What the store asks for.

use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use levity_wire::mailbox::MessageId;
use serde_json::Value;
use tokio::time::Instant;

use super::boxes::{Pending, Phase, What};
use super::record::{Author, Kind, Record};
use super::serving::{Call, Outgoing, Serving, names_in};
use super::session::{Failure, subject_of};
use super::waiting::Listing;
use super::waiting::Purpose;
use crate::encoding;
use crate::name::Name;
use crate::shared::Request;
use crate::store::StoreError;

/// How old the known number of boxes of a set may be when a box is refused.
const COUNT_AGE_MAX: Duration = Duration::from_secs(1);

impl Serving<'_> {
    /// Begins what is asked for.
    pub(super) fn begin(&mut self, request: Request) {
        let now = Instant::now();
        let boxes = &mut self.link.boxes;
        let request = match request {
            // It is not used for that.
            Request::Look(name, reply) if !boxes.boxes.contains_key(&name) => {
                return self.load(name, Purpose::Look(reply));
            }
            other => other,
        };
        let name = match &request {
            Request::Append(append, _, _) => {
                boxes.get_with(&append.name, &append.settings, now);
                append.name.clone()
            }
            Request::Open(name, settings, _) => {
                boxes.get_with(name, settings, now);
                name.clone()
            }
            Request::Look(name, _) | Request::Remove(name, _) => {
                boxes.get(name, now);
                name.clone()
            }
            _ => return self.begin_other(request),
        };
        let used = boxes.get(&name, now);
        used.waiting.push_back(request);
        self.follow(&name);
        self.pump(&name);
    }

    fn begin_other(&mut self, request: Request) {
        match request {
            Request::List(set, after, count_max, reply) => {
                let listing = Listing::new(set, after, count_max, reply);
                self.list(listing);
            }
            Request::Read(name, last) => self.link.mark_read(name, last),
            Request::Watch(name, is_read) => {
                self.link.set_watched(&name, is_read);
                let used = self.link.boxes.get(&name, Instant::now());
                if !is_read && used.phase == Phase::Current && used.will_live() {
                    self.write(&name, Kind::Used, What::Nobody);
                }
            }
            Request::Sweep(_) => self.sweep(),
            _ => {}
        }
    }

    /// Subscribes to a box and reads its records, unless that was begun.
    pub(super) fn follow(&mut self, name: &Name) {
        let used = self.link.boxes.get(name, Instant::now());
        if used.phase == Phase::Left {
            used.phase = Phase::Loading;
            self.outgoing.push_back(Outgoing::Subscribe(name.clone()));
            self.resume(name);
        }
    }

    /// Does what waits for the box, as far as it can.
    pub(super) fn pump(&mut self, name: &Name) {
        loop {
            let Some(used) = self.link.boxes.boxes.get_mut(name) else {
                return;
            };
            if used.phase != Phase::Current || used.renewal.is_some() {
                return;
            }
            let Some(request) = used.waiting.pop_front() else {
                return;
            };
            if let Some(blocked) = self.execute(name, request) {
                let used = self.link.boxes.get(name, Instant::now());
                used.waiting.push_front(blocked);
                return;
            }
        }
    }

    /// Does what is asked for; gives it back if it has to wait.
    fn execute(&mut self, name: &Name, request: Request) -> Option<Request> {
        if matches!(request, Request::Append(..) | Request::Open(..)) {
            match self.admits(name) {
                Some(true) => {}
                Some(false) => return request.fail(&StoreError::TooManyBoxes),
                None => return Some(request),
            }
        }
        self.write_read(name);
        match request {
            Request::Append(append, now, reply) => {
                let bytes = encoding::encode(&append.draft);
                let kind = Kind::Message {
                    messages_max: append.settings.messages_max,
                    bytes_max: append.settings.bytes_max,
                    encoded: &bytes,
                };
                let max = self.session.client.max_payload();
                if bytes.len() + 256 > max {
                    let text = format!("the NATS server takes no more than {max} bytes at once");
                    reply.send(Err(StoreError::Full(text)));
                    return None;
                }
                self.write_at(name, kind, now, What::Append(append, reply));
            }
            Request::Open(_, _, reply) => self.write(name, Kind::Used, What::Open(reply)),
            Request::Remove(_, reply) => self.write(name, Kind::Removed, What::Remove(reply)),
            Request::Look(_, reply) => {
                let used = self.link.boxes.get(name, Instant::now());
                match used.pending.back().map(|last| last.number) {
                    Some(number) => {
                        let what = What::Look(reply);
                        used.pending.push_back(Pending { number, what });
                    }
                    None => self.load(name.clone(), Purpose::Look(reply)),
                }
            }
            _ => {}
        }
        None
    }

    /// Whether a box may be made, if there is none; `None` if the number of boxes is not known yet.
    fn admits(&mut self, name: &Name) -> Option<bool> {
        let used = self.link.boxes.get(name, Instant::now());
        if used.will_live() {
            return Some(true);
        }
        let boxes_max = used.boxes_max;
        let set = self.link.boxes.sets.get_mut(name.set())?;
        match &mut set.count {
            Some(count) if *count < boxes_max => {
                *count += 1;
                return Some(true);
            }
            Some(_) if set.counted_at.elapsed() < COUNT_AGE_MAX => return Some(false),
            _ => {}
        }
        set.blocked.push(name.clone());
        if !std::mem::replace(&mut set.is_asked, true) {
            self.ask_for_boxes(Call::Count(name.set().to_owned()), name.set());
        }
        None
    }
    pub(super) fn counted(&mut self, set: &str, info: &Value) {
        let count = names_in(info).count();
        let Some(set) = self.link.boxes.sets.get_mut(set) else {
            return;
        };
        (set.count, set.counted_at, set.is_asked) = (Some(count), Instant::now(), false);
        for name in std::mem::take(&mut set.blocked) {
            self.pump(&name);
        }
    }

    /// Tells others what was read of the box.
    pub(super) fn write_read(&mut self, name: &Name) {
        if let Some(MessageId { epoch, sequence }) = self.link.reads.remove(name) {
            let epoch = epoch.wrapping_sub(self.session.base);
            let end = sequence.saturating_add(1);
            self.write(name, Kind::Read { epoch, end }, What::Nobody);
        }
    }

    pub(super) fn write(&mut self, name: &Name, kind: Kind<'_>, what: What) {
        self.write_at(name, kind, SystemTime::now(), what);
    }

    /// Writes a record, which is applied when it comes back.
    fn write_at(&mut self, name: &Name, kind: Kind<'_>, time: SystemTime, what: What) {
        let number = self.link.next_number();
        let author = Author {
            process: self.link.process,
            number,
        };
        let mut headers = None;
        let used = self.link.boxes.get(name, Instant::now());
        if let (What::End, Some(ledger)) = (&what, &used.ledger) {
            headers = Some(only_after(ledger.last()));
        }
        if matches!(kind, Kind::Renewed) {
            used.renewal = Some(author);
        }
        used.pending.push_back(Pending { number, what });
        let payload = Record { author, time, kind }.encode();
        let call = Call::Record(name.clone());
        self.call_as(number, subject_of(name), headers, payload, call);
    }

    /// The server has not taken a record.
    pub(super) fn refused(&mut self, name: &Name, number: u64, failure: &Failure) {
        let used = self.link.boxes.get(name, Instant::now());
        let is_it =
            |pending: &Pending| pending.number == number && !matches!(pending.what, What::Look(_));
        if let Some(index) = used.pending.iter().position(is_it) {
            let pending = used.pending.remove(index).expect("it was found");
            pending.what.fail(error_of(failure));
        }
        self.look_next(name);
    }
}

/// The headers of a record that is refused if others have followed that one.
pub(super) fn only_after(last: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", last.to_string());
    headers
}

fn error_of(failure: &Failure) -> StoreError {
    let text = failure.text.clone();
    let is_full = ["maximum", "insufficient", "resource", "exceed"]
        .iter()
        .any(|word| text.contains(word));
    match is_full {
        true => StoreError::Full(text),
        false => StoreError::Unavailable(text),
    }
}
