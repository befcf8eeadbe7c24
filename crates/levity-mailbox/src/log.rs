//! The messages that a box keeps.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use crate::message::{Draft, Message};
use crate::name::Name;
use crate::settings::Settings;
use crate::store::{Limit, Opened, Summary};
use crate::stream_state::StreamState;

/// The maximum number of ids of publishers that a box remembers in addition to those of the messages that it keeps.
const KEYS_MAX: usize = 256;

/// The maximum number of messages that [`Log::expire`] drops.
const EXPIRED_MAX: usize = 256;

/// A bounded log of messages. Their numbers begin with 1, so that there is an id before the first one.
#[derive(Debug, Default)]
pub struct Log {
    /// The life of the box.
    pub epoch: u64,
    /// The number of the next message.
    pub next: u64,
    /// Messages with smaller numbers were dropped because of a bound.
    pub lost: u64,
    /// Messages with smaller numbers were read by a receiver.
    read: u64,
    bytes: usize,
    messages: VecDeque<Message>,
    /// When messages are over, and their numbers.
    deadlines: BTreeSet<(SystemTime, u64)>,
    /// The ids of publishers, and which messages they were given to. Those of the last messages are remembered even
    /// if these are gone.
    keys: HashMap<Arc<str>, u64>,
    /// The same in their order.
    key_order: VecDeque<(u64, Arc<str>)>,
}

/// What a log has dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Messages dropped because of a bound.
    pub lost: usize,
    /// Messages whose time was over.
    pub expired: usize,
}

impl Log {
    /// An empty log in its life `epoch`. Its first message has the number 1: the number 0 is that before all messages.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            next: 1,
            lost: 1,
            read: 1,
            ..Self::default()
        }
    }

    /// What is known of the box `name` with the state `state`.
    #[must_use]
    pub fn summary(&self, name: &Name, state: Option<Arc<StreamState>>) -> Summary {
        Summary {
            name: name.clone(),
            epoch: self.epoch,
            next: self.next,
            lost: self.lost,
            read: self.read,
            messages: self.messages.len(),
            bytes: self.bytes,
            state,
        }
    }

    /// What is kept, but of the messages only those that [`Store::read`](crate::Store::read) says.
    pub fn opened(
        &self,
        after: Option<MessageId>,
        mut limit: Limit,
        state: Option<Arc<StreamState>>,
    ) -> Opened {
        let after = after.filter(|after| after.epoch == self.epoch);
        let first = after.map_or(0, |after| after.sequence.saturating_add(1));
        let messages = self.messages.range(self.index_of(first)..);
        let messages = messages.take_while(|message| limit.take(message.draft.bytes()));
        Opened {
            epoch: self.epoch,
            next: self.next,
            first: self.next,
            lost: self.lost,
            read: self.read,
            messages: messages.cloned().collect(),
            state,
        }
    }

    /// The messages that are kept, the oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> + ExactSizeIterator {
        self.messages.iter()
    }

    /// The message to which a publisher has given the id `key`, if it is remembered.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<MessageId> {
        self.keys.get(key).map(|&sequence| MessageId {
            epoch: self.epoch,
            sequence,
        })
    }

    /// Appends a message, and drops old ones beyond the bounds of `settings`. The caller has looked for
    /// [its key](Self::find).
    pub fn append(&mut self, draft: Arc<Draft>, settings: &Settings) -> (Message, Trimmed) {
        let sequence = self.next;
        if let Some(key) = &draft.key {
            let key = Arc::<str>::from(&**key);
            self.keys.insert(key.clone(), sequence);
            self.key_order.push_back((sequence, key));
        }
        if let Some(deadline) = draft.deadline {
            self.deadlines.insert((deadline, sequence));
        }
        self.next += 1;
        self.bytes += draft.bytes();
        let epoch = self.epoch;
        let id = MessageId { epoch, sequence };
        let message = Message { id, draft };
        self.messages.push_back(message.clone());
        (message, self.trim(settings))
    }

    /// Drops what exceeds the bounds. The last message stays, whatever its size.
    fn trim(&mut self, settings: &Settings) -> Trimmed {
        let mut trimmed = Trimmed::default();
        if settings.keeps_all {
            return trimmed;
        }
        while self.messages.len() > settings.messages_max.max(1)
            || self.bytes > settings.bytes_max && self.messages.len() > 1
        {
            let Message { id, draft } = self.messages.pop_front().expect("there is one");
            self.bytes -= draft.bytes();
            if let Some(deadline) = draft.deadline {
                self.deadlines.remove(&(deadline, id.sequence));
            }
            self.lost = id.sequence + 1;
            trimmed.lost += 1;
        }
        self.forget_keys();
        trimmed
    }

    /// When the next message is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Drops messages whose time is over, at most 256. [`next_deadline`](Self::next_deadline) tells whether there are more.
    pub fn expire(&mut self, now: SystemTime) -> Trimmed {
        let mut trimmed = Trimmed::default();
        while trimmed.expired < EXPIRED_MAX
            && let Some((_, number)) = self.deadlines.first().filter(|(due, _)| *due <= now)
        {
            let index = self.index_of(*number);
            let expired = self.messages.remove(index).expect("there is one");
            self.bytes -= expired.draft.bytes();
            self.deadlines.pop_first();
            trimmed.expired += 1;
        }
        self.forget_keys();
        trimmed
    }

    /// Where the first message is whose number is not smaller.
    fn index_of(&self, number: u64) -> usize {
        self.messages
            .partition_point(|message| message.id.sequence < number)
    }

    /// Whether the message of that number is kept.
    fn has(&self, number: u64) -> bool {
        let found = self.messages.get(self.index_of(number));
        found.is_some_and(|message| message.id.sequence == number)
    }

    /// Forgets ids of messages that are gone, but not the last [`KEYS_MAX`].
    fn forget_keys(&mut self) {
        while self.key_order.len() > KEYS_MAX && !self.has(self.key_order[0].0) {
            let (number, key) = self.key_order.pop_front().expect("there is one");
            self.forget(number, &key);
        }
        // Many may have gone behind one that stays.
        if self.key_order.len() > 2 * (KEYS_MAX + self.messages.len()) {
            let mut order = std::mem::take(&mut self.key_order);
            let last = order.split_off(order.len() - KEYS_MAX);
            for (number, key) in order {
                match self.has(number) {
                    true => self.key_order.push_back((number, key)),
                    false => self.forget(number, &key),
                }
            }
            self.key_order.extend(last);
        }
    }

    fn forget(&mut self, number: u64, key: &str) {
        // A later message may have got the same.
        if self.keys.get(key) == Some(&number) {
            self.keys.remove(key);
        }
    }

    /// Notes that a receiver has read all messages up to `last`. One of another life of the box is ignored.
    pub fn mark_read(&mut self, last: MessageId) {
        if last.epoch == self.epoch {
            let end = last.sequence.saturating_add(1);
            self.read = self.read.max(end.min(self.next));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::Mode;

    pub(crate) fn settings(messages_max: usize, bytes_max: usize) -> Settings {
        Settings {
            set: "s".to_owned(),
            mode: Mode::Topic,
            messages_max,
            bytes_max,
            lifetime: None,
            idle: Duration::from_secs(60),
            boxes_max: 1000,
            receivers_max: 1000,
            keeps_all: false,
            is_durable: false,
        }
    }

    pub(crate) fn draft(text: &str, key: Option<&str>) -> Draft {
        Draft {
            key: key.map(Into::into),
            media_type: "text/plain".into(),
            content: text.as_bytes().into(),
            ..Draft::default()
        }
    }

    fn numbers(log: &Log) -> Vec<u64> {
        log.messages().map(|message| message.id.sequence).collect()
    }

    #[test]
    fn the_oldest_messages_give_way() {
        let mut log = Log::new(7);
        let settings = settings(3, usize::MAX);
        for _ in 0..5 {
            log.append(draft("x", None).into(), &settings);
        }
        assert_eq!((numbers(&log), log.lost, log.next), (vec![3, 4, 5], 3, 6));
    }

    #[test]
    fn the_size_is_bounded_but_for_one_message() {
        let one = draft("1234", None).bytes();
        let mut log = Log::new(7);
        let settings = settings(100, 2 * one);
        for _ in 0..3 {
            log.append(draft("1234", None).into(), &settings);
        }
        assert_eq!((numbers(&log), log.bytes), (vec![2, 3], 2 * one));
        log.append(draft(&"x".repeat(1000), None).into(), &settings);
        assert_eq!((numbers(&log), log.lost), (vec![4], 4));
    }

    #[test]
    fn expired_messages_are_no_loss() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let mut log = Log::new(7);
        let settings = settings(100, usize::MAX);
        for seconds in [90, 110, 100] {
            let mut draft = draft("x", None);
            draft.deadline = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            log.append(draft.into(), &settings);
        }
        assert_eq!(log.expire(now).expired, 2);
        assert_eq!((numbers(&log), log.lost), (vec![2], 1));
    }

    #[test]
    fn keys_outlive_their_messages_in_bounds() {
        let mut log = Log::new(7);
        let settings = settings(1, usize::MAX);
        for number in 0..1000 {
            let key = format!("k{number}");
            assert!(log.find(&key).is_none());
            log.append(draft("x", Some(&key)).into(), &settings);
        }
        let first_kept = 1000 - KEYS_MAX;
        assert!(log.find(&format!("k{}", first_kept - 1)).is_none());
        let found = log.find(&format!("k{first_kept}")).expect("remembered");
        assert_eq!(found.sequence, first_kept as u64 + 1);
        assert_eq!(log.keys.len(), KEYS_MAX);
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn keys_are_bounded_behind_a_message_that_stays() {
        let mut log = Log::new(7);
        let settings = settings(10, usize::MAX);
        log.append(draft("stays", Some("stays")).into(), &settings);
        for number in 0..10_000 {
            let mut draft = draft("x", Some(&format!("k{number}")));
            draft.deadline = Some(at(number));
            log.append(draft.into(), &settings);
            log.expire(at(number));
        }
        assert_eq!(numbers(&log), [1]);
        assert!(log.key_order.len() <= 2 * (KEYS_MAX + 2));
        assert_eq!(log.keys.len(), log.key_order.len());
        let found = |key: &str| log.find(key).is_some();
        assert!(found("stays") && found("k9999") && found(&format!("k{}", 10_000 - KEYS_MAX)));
        assert!(!found("k0"));
    }

    #[test]
    fn a_call_expires_a_bounded_number_in_the_order_of_their_deadlines() {
        let mut log = Log::new(7);
        let settings = settings(1000, usize::MAX);
        for number in 0..600 {
            let mut draft = draft("x", None);
            draft.deadline = Some(at(1000 - number));
            log.append(draft.into(), &settings);
        }
        assert_eq!(log.next_deadline(), Some(at(401)));
        assert_eq!(log.expire(at(400)).expired, 0);
        assert_eq!(log.expire(at(2000)).expired, EXPIRED_MAX);
        assert_eq!(numbers(&log).last(), Some(&(600 - EXPIRED_MAX as u64)));
        log.expire(at(2000));
        log.expire(at(2000));
        assert_eq!((numbers(&log), log.bytes), (Vec::new(), 0));
        assert_eq!((log.next_deadline(), log.lost), (None, 1));
    }

    #[test]
    fn a_dropped_message_has_no_deadline_any_more() {
        let mut log = Log::new(7);
        let settings = settings(1, usize::MAX);
        for _ in 0..10 {
            let mut draft = draft("x", None);
            draft.deadline = Some(at(5));
            log.append(draft.into(), &settings);
        }
        assert_eq!(log.deadlines.len(), 1);
        assert_eq!(log.expire(at(5)).expired, 1);
    }

    #[test]
    fn another_life_is_not_read() {
        let mut log = Log::new(7);
        log.append(draft("x", None).into(), &settings(1, usize::MAX));
        let last = |epoch, sequence| MessageId { epoch, sequence };
        log.mark_read(last(6, 1));
        assert_eq!(log.read, 1);
        log.mark_read(last(7, u64::MAX));
        assert_eq!(log.read, 2);
    }
}
