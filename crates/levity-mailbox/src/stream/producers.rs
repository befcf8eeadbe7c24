//! Who has appended to a stream, and what: retries are recognised by it (section 5.2.1).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::durable_streams::Producer;

use super::content::NoMemory;
use crate::budget::{Budget, Reservation};

/// The maximum of producers that a stream remembers. Beyond it, the one that was quiet for the longest time is forgotten: its
/// next append has to be the first of an epoch.
const PRODUCERS_MAX: usize = 1024;

/// The memory of a producer beside its id, about.
const OVERHEAD_BYTES: usize = 128;

/// The producers of a stream.
#[derive(Debug, Default)]
pub(super) struct Producers {
    known: HashMap<Box<str>, Known>,
}

#[derive(Debug)]
struct Known {
    epoch: u64,
    /// The number of the last append of that epoch.
    sequence: u64,
    used_at: SystemTime,
    /// Its memory.
    _memory: Reservation,
}

/// What an append of a producer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The next one.
    New,
    /// One that the stream has. `last` is the number of the last one.
    Duplicate { last: u64 },
    /// One of a producer that was replaced by another with this epoch.
    Stale { epoch: u64 },
    /// One before which others are missing.
    Gap { expected: u64 },
    /// An epoch begins with another number than 0.
    EpochWithoutStart,
}

impl Producers {
    pub(super) fn check(&self, producer: &Producer) -> Check {
        let sequence = producer.sequence;
        let Some(known) = self.known.get(&producer.id) else {
            return match sequence {
                0 => Check::New,
                _ => Check::Gap { expected: 0 },
            };
        };
        if producer.epoch < known.epoch {
            return Check::Stale { epoch: known.epoch };
        }
        if producer.epoch > known.epoch {
            return match sequence {
                0 => Check::New,
                _ => Check::EpochWithoutStart,
            };
        }
        let expected = known.sequence + 1;
        if sequence < expected {
            let last = known.sequence;
            return Check::Duplicate { last };
        }
        match sequence == expected {
            true => Check::New,
            false => Check::Gap { expected },
        }
    }

    /// Reserves the memory to remember a producer: none for one that is known.
    pub(super) fn reserve(
        &self,
        producer: &Producer,
        budget: &Arc<Budget>,
    ) -> Result<Reservation, NoMemory> {
        let bytes = match self.known.contains_key(&producer.id) {
            true => 0,
            false => OVERHEAD_BYTES + producer.id.len(),
        };
        budget.try_reserve(bytes).ok_or(NoMemory)
    }

    /// Notes that the stream has this append.
    pub(super) fn note(&mut self, producer: &Producer, memory: Reservation, now: SystemTime) {
        let Producer {
            id,
            epoch,
            sequence,
        } = producer;
        if let Some(known) = self.known.get_mut(id) {
            (known.epoch, known.sequence, known.used_at) = (*epoch, *sequence, now);
            return;
        }
        if self.known.len() >= PRODUCERS_MAX {
            let quietest = self.known.iter().min_by_key(|(_, known)| known.used_at);
            if let Some(id) = quietest.map(|(id, _)| id.clone()) {
                self.known.remove(&id);
            }
        }
        let known = Known {
            epoch: *epoch,
            sequence: *sequence,
            used_at: now,
            _memory: memory,
        };
        self.known.insert(id.clone(), known);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn producer(id: &str, epoch: u64, sequence: u64) -> Producer {
        Producer {
            id: id.into(),
            epoch,
            sequence,
        }
    }

    fn note(producers: &mut Producers, producer: &Producer, now: SystemTime) {
        let budget = Budget::new(usize::MAX);
        let memory = producers.reserve(producer, &budget).expect("room");
        producers.note(producer, memory, now);
    }

    #[test]
    fn appends_of_an_epoch_are_numbered_without_gaps() {
        let mut producers = Producers::default();
        let check = |producers: &Producers, epoch, sequence| {
            producers.check(&producer("p", epoch, sequence))
        };
        assert_eq!(check(&producers, 5, 1), Check::Gap { expected: 0 });
        assert_eq!(check(&producers, 5, 0), Check::New);
        for sequence in 0..3 {
            note(&mut producers, &producer("p", 5, sequence), UNIX_EPOCH);
        }
        assert_eq!(check(&producers, 5, 0), Check::Duplicate { last: 2 });
        assert_eq!(check(&producers, 5, 2), Check::Duplicate { last: 2 });
        assert_eq!(check(&producers, 5, 3), Check::New);
        assert_eq!(check(&producers, 5, 4), Check::Gap { expected: 3 });
        assert_eq!(check(&producers, 4, 3), Check::Stale { epoch: 5 });
        assert_eq!(check(&producers, 6, 3), Check::EpochWithoutStart);
        assert_eq!(check(&producers, 6, 0), Check::New);
        note(&mut producers, &producer("p", 6, 0), UNIX_EPOCH);
        assert_eq!(check(&producers, 5, 3), Check::Stale { epoch: 6 });
        assert_eq!(producers.check(&producer("q", 0, 0)), Check::New);
    }

    #[test]
    fn the_quietest_one_is_forgotten() {
        let mut producers = Producers::default();
        for number in 0..=PRODUCERS_MAX as u64 {
            let now = UNIX_EPOCH + Duration::from_secs(number);
            note(&mut producers, &producer(&format!("p{number}"), 0, 0), now);
            // The first one stays busy.
            note(&mut producers, &producer("p0", 0, number), now);
        }
        assert_eq!(producers.known.len(), PRODUCERS_MAX);
        assert_eq!(producers.check(&producer("p1", 0, 0)), Check::New);
        for kept in ["p0", "p2"] {
            let check = producers.check(&producer(kept, 0, 0));
            assert!(matches!(check, Check::Duplicate { .. }), "{kept}");
        }
    }

    #[test]
    fn each_producer_takes_memory_once() {
        let budget = Budget::new(2 * (OVERHEAD_BYTES + 2));
        let mut producers = Producers::default();
        for number in 0..4 {
            let known = producer(&format!("p{}", number % 2), 0, number / 2);
            let memory = producers.reserve(&known, &budget).expect("room");
            producers.note(&known, memory, UNIX_EPOCH);
        }
        let third = producers.reserve(&producer("p2", 0, 0), &budget);
        assert_eq!(third.map(drop), Err(NoMemory));
        drop(producers);
        assert_eq!(budget.used(), 0);
    }
}
