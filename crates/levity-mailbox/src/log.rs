//! The messages that a box keeps.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use levity_wire::mailbox::MessageId;

use crate::message::{Draft, Message};
use crate::settings::Settings;

/// The maximum of ids of publishers that a box remembers in addition to those of the messages that it keeps.
const KEYS_MAX: usize = 256;

/// A bounded log of messages.
#[derive(Debug)]
pub struct Log {
    epoch: u64,
    /// The number of the next message.
    next: u64,
    /// Messages with smaller numbers were dropped because of a bound.
    lost: u64,
    /// Messages with smaller numbers were read by a receiver.
    read: u64,
    bytes: usize,
    messages: VecDeque<Message>,
    /// The ids of publishers, and which messages they were given to. Those of the last messages are remembered even
    /// if these are gone.
    keys: HashMap<Box<str>, u64>,
    /// The same in their order.
    key_order: VecDeque<(u64, Box<str>)>,
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
            lost: 0,
            read: 0,
            bytes: 0,
            messages: VecDeque::new(),
            keys: HashMap::new(),
            key_order: VecDeque::new(),
        }
    }

    /// The life of the box.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the next message.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Messages with smaller numbers were dropped because of a bound.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Messages with smaller numbers were read by a receiver.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read
    }

    /// The size of the messages that are kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
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
        let id = MessageId {
            epoch: self.epoch,
            sequence: self.next,
        };
        let message = Message { id, draft };
        let trimmed = self.restore(message.clone(), settings);
        (message, trimmed)
    }

    /// Appends a message that has its id already, as when a log is read back. Its number is not smaller than that of the
    /// next one.
    pub fn restore(&mut self, message: Message, settings: &Settings) -> Trimmed {
        debug_assert!(message.id.sequence >= self.next);
        if let Some(key) = &message.draft.key {
            self.remember(key.clone(), message.id.sequence);
        }
        self.next = message.id.sequence + 1;
        self.bytes += message.draft.bytes();
        self.messages.push_back(message);
        self.trim(settings)
    }

    /// Continues after gaps that a store knows of: sets the numbers of the next message, of the first that was not lost, and
    /// of the first that was not read. Numbers never go down.
    pub fn advance(&mut self, next: u64, lost: u64, read: u64) {
        self.next = self.next.max(next);
        self.lost = self.lost.max(lost);
        self.read = self.read.max(read);
    }

    fn remember(&mut self, key: Box<str>, sequence: u64) {
        self.keys.insert(key.clone(), sequence);
        self.key_order.push_back((sequence, key));
    }

    /// Drops what exceeds the bounds. The last message stays, whatever its size.
    pub fn trim(&mut self, settings: &Settings) -> Trimmed {
        let mut trimmed = Trimmed::default();
        while self.messages.len() > settings.messages_max.max(1)
            || self.bytes > settings.bytes_max && self.messages.len() > 1
        {
            let dropped = self.messages.pop_front().expect("there is one");
            self.bytes -= dropped.draft.bytes();
            self.lost = dropped.id.sequence + 1;
            trimmed.lost += 1;
        }
        self.forget_keys();
        trimmed
    }

    /// Drops messages whose time is over.
    pub fn expire(&mut self, now: SystemTime) -> Trimmed {
        let before = self.messages.len();
        let bytes = &mut self.bytes;
        self.messages.retain(|message| {
            let keeps = !message.has_expired(now);
            if !keeps {
                *bytes -= message.draft.bytes();
            }
            keeps
        });
        self.forget_keys();
        Trimmed {
            lost: 0,
            expired: before - self.messages.len(),
        }
    }

    /// Forgets ids of messages that are gone, but not the last [`KEYS_MAX`].
    fn forget_keys(&mut self) {
        let first = self
            .messages
            .front()
            .map_or(self.next, |message| message.id.sequence);
        while self.key_order.len() > KEYS_MAX {
            match self.key_order.front() {
                Some((sequence, _)) if *sequence < first => {
                    let (sequence, key) = self.key_order.pop_front().expect("there is one");
                    if self.keys.get(&key) == Some(&sequence) {
                        self.keys.remove(&key);
                    }
                }
                _ => break,
            }
        }
    }

    /// Notes that a receiver has read all messages with numbers below `end`.
    pub fn mark_read(&mut self, end: u64) {
        self.read = self.read.max(end.min(self.next));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::Content;
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
            is_durable: false,
        }
    }

    pub(crate) fn draft(text: &str, key: Option<&str>) -> Draft {
        Draft {
            key: key.map(Into::into),
            event: Box::default(),
            media_type: "text/plain".into(),
            content: Content::Bytes(text.as_bytes().into()),
            deadline: None,
            reservation: None,
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
        assert_eq!(
            (numbers(&log), log.lost(), log.next()),
            (vec![3, 4, 5], 3, 6)
        );
    }

    #[test]
    fn the_size_is_bounded_but_for_one_message() {
        let one = draft("1234", None).bytes();
        let mut log = Log::new(7);
        let settings = settings(100, 2 * one);
        for _ in 0..3 {
            log.append(draft("1234", None).into(), &settings);
        }
        assert_eq!((numbers(&log), log.bytes()), (vec![2, 3], 2 * one));
        log.append(draft(&"x".repeat(1000), None).into(), &settings);
        assert_eq!((numbers(&log), log.lost()), (vec![4], 4));
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
        assert_eq!((numbers(&log), log.lost()), (vec![2], 0));
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
}
