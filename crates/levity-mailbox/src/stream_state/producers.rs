//! Who has appended to a stream, and what: retries are recognised by it (section 5.2.1).

use std::collections::HashMap;

use levity_wire::durable_streams::Producer;
use serde::{Deserialize, Serialize};

use super::Refused;

/// The maximum number of producers that a stream remembers. Beyond it, the one that was quiet for the longest time is
/// forgotten: its next append has to be the first of an epoch.
const PRODUCERS_MAX: usize = 1024;

/// The producers of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Producers(HashMap<Box<str>, Known>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    epoch: u64,
    /// The number of the last append of that epoch.
    sequence: u64,
    /// The number of its message.
    last: u64,
}

impl Producers {
    /// Whether an append is the next one of its producer.
    ///
    /// # Errors
    /// What it is otherwise.
    pub(super) fn check(&self, producer: &Producer) -> Result<(), Refused> {
        let sequence = producer.sequence;
        let gap = |expected| Refused::Gap {
            expected,
            received: sequence,
        };
        let Some(known) = self.0.get(&producer.id) else {
            return match sequence {
                0 => Ok(()),
                _ => Err(gap(0)),
            };
        };
        if producer.epoch < known.epoch {
            return Err(Refused::StaleEpoch(known.epoch));
        }
        if producer.epoch > known.epoch {
            return match sequence {
                0 => Ok(()),
                _ => Err(Refused::EpochWithoutStart),
            };
        }
        let expected = known.sequence + 1;
        match sequence {
            _ if sequence < expected => Err(Refused::Duplicate(Some(known.sequence))),
            _ if sequence > expected => Err(gap(expected)),
            _ => Ok(()),
        }
    }

    /// Notes that the stream has this append, as the message of that number.
    pub(super) fn note(&mut self, producer: &Producer, number: u64) {
        let known = Known {
            epoch: producer.epoch,
            sequence: producer.sequence,
            last: number,
        };
        let is_new = self.0.insert(producer.id.clone(), known).is_none();
        if is_new && self.0.len() > PRODUCERS_MAX {
            let quietest = self.0.iter().min_by_key(|(_, known)| known.last);
            if let Some(id) = quietest.map(|(id, _)| id.clone()) {
                self.0.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(id: &str, epoch: u64, sequence: u64) -> Producer {
        Producer {
            id: id.into(),
            epoch,
            sequence,
        }
    }

    #[test]
    fn appends_of_a_producer_come_in_their_order() {
        let mut producers = Producers::default();
        let check = |producers: &Producers, epoch, sequence| {
            producers.check(&producer("p", epoch, sequence))
        };
        let gap = |expected, received| Err(Refused::Gap { expected, received });
        assert_eq!(check(&producers, 5, 1), gap(0, 1));
        assert_eq!(check(&producers, 5, 0), Ok(()));
        for sequence in 0..3 {
            producers.note(&producer("p", 5, sequence), sequence);
        }
        assert_eq!(check(&producers, 5, 0), Err(Refused::Duplicate(Some(2))));
        assert_eq!(check(&producers, 5, 2), Err(Refused::Duplicate(Some(2))));
        assert_eq!(check(&producers, 5, 3), Ok(()));
        assert_eq!(check(&producers, 5, 4), gap(3, 4));
        assert_eq!(check(&producers, 4, 3), Err(Refused::StaleEpoch(5)));
        assert_eq!(check(&producers, 6, 3), Err(Refused::EpochWithoutStart));
        assert_eq!(check(&producers, 6, 0), Ok(()));
        producers.note(&producer("p", 6, 0), 3);
        assert_eq!(check(&producers, 5, 3), Err(Refused::StaleEpoch(6)));
        assert_eq!(producers.check(&producer("q", 0, 0)), Ok(()));
    }

    #[test]
    fn the_quietest_one_is_forgotten() {
        let mut producers = Producers::default();
        for number in 0..=PRODUCERS_MAX as u64 {
            producers.note(&producer(&format!("p{number}"), 0, 0), 2 * number);
            // The first one stays busy.
            producers.note(&producer("p0", 0, number), 2 * number + 1);
        }
        assert_eq!(producers.0.len(), PRODUCERS_MAX);
        assert_eq!(producers.check(&producer("p1", 0, 0)), Ok(()));
        for kept in ["p0", "p2"] {
            let check = producers.check(&producer(kept, 0, 0));
            assert!(matches!(check, Err(Refused::Duplicate(_))), "{kept}");
        }
    }
}
