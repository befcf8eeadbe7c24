//! What the records of a box amount to.

use std::sync::Arc;

use super::ledger::Ledger;
use super::record::{Kind, Record};
use crate::encoding;
use crate::message::Draft;

/// A record that was read.
pub(super) struct Read {
    pub(super) number: u64,
    pub(super) payload: Vec<u8>,
}

/// What the records of a box amount to. Their messages have no memory of their own.
pub(super) fn replay(base: u64, records: &[Read], keeps: bool) -> Ledger {
    let mut ledger = Ledger::new(base);
    let decode = |read: &Read| -> Option<Arc<Draft>> {
        match Record::decode(&read.payload)?.kind {
            Kind::Message { encoded, .. } => encoding::decode(encoded).map(Arc::new),
            _ => None,
        }
    };
    let summaries = records.iter().rev();
    let summary = summaries
        .filter_map(|read| Record::decode(&read.payload))
        .find_map(|record| match record.kind {
            Kind::Summary(summary) => Some(summary),
            _ => None,
        });
    let upto = summary.as_ref().map_or(0, |summary| summary.upto);
    if let Some(summary) = &summary {
        ledger.begin(summary);
    }
    let (before, after) = records.split_at(records.partition_point(|read| read.number <= upto));
    for read in before {
        ledger.note(read.number, read.payload.len());
        if let (Some(record), Some(draft)) = (Record::decode(&read.payload), decode(read)) {
            ledger.restore(read.number, &record, draft, keeps);
        }
    }
    if let Some(summary) = &summary {
        ledger.begun(summary);
    }
    for read in after {
        ledger.note(read.number, read.payload.len());
        if let Some(record) = Record::decode(&read.payload) {
            ledger.apply(read.number, &record, decode(read), keeps);
        }
    }
    ledger
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::super::record::Author;
    use super::*;

    /// A stream of one box, of which a process has applied all records.
    struct Stream {
        random: u64,
        records: Vec<Read>,
        number: u64,
        time: SystemTime,
        ledger: Ledger,
        messages_max: usize,
    }

    impl Stream {
        fn new(seed: u64) -> Self {
            Self {
                random: seed * 2 + 1,
                records: Vec::new(),
                number: 0,
                time: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
                ledger: Ledger::new(1000),
                messages_max: 1 + seed as usize % 7,
            }
        }

        /// A number below `end`.
        fn random(&mut self, end: u64) -> u64 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % end
        }

        fn write(&mut self, kind: Kind<'_>) {
            self.number += 1 + self.random(3);
            self.time += Duration::from_secs(1);
            let author = Author {
                process: self.random(2),
                number: self.number,
            };
            let time = self.time;
            let draft = match kind {
                Kind::Message { encoded, .. } => encoding::decode(encoded),
                _ => None,
            };
            let record = Record { author, time, kind };
            let payload = record.encode();
            self.ledger.note(self.number, payload.len());
            let draft = draft.map(Arc::new);
            self.ledger.apply(self.number, &record, draft, true);
            self.records.push(Read {
                number: self.number,
                payload,
            });
        }

        fn write_message(&mut self) {
            let key = self.random(40);
            let lives = Duration::from_secs(self.random(10));
            let draft = Draft {
                key: (key < 30).then(|| format!("k{key}").into()),
                event: Box::default(),
                media_type: Box::default(),
                content: vec![0; self.random(50) as usize].into(),
                deadline: key.is_multiple_of(3).then(|| self.time + lives),
                reservation: None,
            };
            let encoded = encoding::encode(&draft);
            self.write(Kind::Message {
                messages_max: self.messages_max,
                bytes_max: 1000,
                encoded: &encoded,
            });
        }

        fn step(&mut self) {
            match self.random(100) {
                0..60 => self.write_message(),
                60..75 => self.write(Kind::Used),
                75..90 => {
                    let epoch = self.ledger.epoch().unwrap_or(0).wrapping_sub(1000);
                    let end = self.random(self.number + 2);
                    self.write(Kind::Read { epoch, end });
                }
                90 => self.write(Kind::Removed),
                91 => self.write(Kind::Renewed),
                _ => self.summarize(),
            }
        }

        /// Other records may come before the summary is in the stream, and before it is applied.
        fn summarize(&mut self) {
            let Some(summary) = self.ledger.summary() else {
                return;
            };
            let superfluous = self.ledger.superfluous_records();
            for _ in 0..self.random(4) {
                self.write_message();
            }
            self.write(Kind::Summary(summary.clone()));
            if self.random(2) == 0 {
                self.write_message();
            }
            assert!(self.ledger.is_of_life(&summary));
            self.ledger.deleted(&superfluous);
            self.records
                .retain(|record| superfluous.binary_search(&record.number).is_err());
        }

        /// What a process reads that knew nothing.
        fn check(&self) {
            let read = replay(1000, &self.records, true);
            let state = |ledger: &Ledger| {
                let opened = ledger.opened()?;
                let ids: Vec<_> = opened.messages.iter().map(|message| message.id).collect();
                Some((opened.epoch, opened.next, opened.lost, opened.read, ids))
            };
            assert_eq!(state(&read), state(&self.ledger));
            for key in 0..30 {
                let key = format!("k{key}");
                assert_eq!(read.find(&key), self.ledger.find(&key), "{key}");
            }
            assert!(self.records.len() <= self.messages_max + self.ledger.superfluous().0);
        }
    }

    #[test]
    fn what_is_left_in_the_stream_says_the_same_as_all_that_was_in_it() {
        for seed in 0..40 {
            let mut stream = Stream::new(seed);
            for _ in 0..200 {
                stream.step();
                stream.check();
            }
        }
    }
}
