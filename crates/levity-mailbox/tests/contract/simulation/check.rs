//! Receivers, what they have got, and whether that is right.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use levity_mailbox::{
    Copies, Cursor, Draft, Feed, Message, MessageId, Name, Next, Opened, Settings,
};

use super::process::{Bell, Process};
use crate::simulated::Random;

/// What a receiver has got.
#[derive(Debug, Clone)]
enum Got {
    /// The first connection was open, with this position.
    Open(Option<MessageId>),
    Message(MessageId, String),
    Gap(MessageId),
}

/// A client that receives from a box, and comes back after a cut with the last id that it knows.
pub struct Receiver {
    pub name: Name,
    settings: Arc<Settings>,
    first: Option<Cursor>,
    last: Option<MessageId>,
    got: Vec<Got>,
    connection: Option<Connection>,
}

struct Connection {
    process: usize,
    copies: Rc<Copies>,
    feed: Feed,
    bell: Arc<Bell>,
    is_open: bool,
}

impl Receiver {
    pub fn new(number: usize, name: Name, settings: Arc<Settings>) -> Self {
        let first = [None, Some(Cursor::Earliest), Some(Cursor::New)][number % 3];
        Self {
            name,
            settings,
            first,
            last: None,
            got: Vec::new(),
            connection: None,
        }
    }

    pub fn is_at(&self, process: &Process) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| process.has(&connection.copies))
    }

    /// The process of that number is gone, and `moved` has taken its number.
    pub fn process_ended(&mut self, number: usize, moved: usize) {
        if let Some(connection) = &mut self.connection {
            match connection.process {
                process if process == number => self.connection = None,
                process if process == moved => connection.process = number,
                _ => {}
            }
        }
    }

    fn connect(&mut self, random: &mut Random, processes: &[Process]) {
        let process = random.below(processes.len());
        let number = random.below(processes[process].loops());
        let copies = processes[process].copies(number).clone();
        let cursor = self.last.map(Cursor::After).or(self.first);
        let feed = copies.subscribe(&self.name, &self.settings, cursor);
        self.connection = Some(Connection {
            process,
            feed: feed.expect("room"),
            copies,
            bell: Bell::new(),
            is_open: false,
        });
    }

    pub fn act(&mut self, random: &mut Random, processes: &mut [Process], now: SystemTime) {
        match &self.connection {
            None => self.connect(random, processes),
            Some(_) if random.one_in(40) => self.connection = None,
            // As for a heartbeat.
            Some(connection) if connection.bell.has_rung() || random.one_in(10) => {
                for _ in 0..=random.below(3) {
                    if !self.poll(now) {
                        return;
                    }
                }
                // A slow one: it goes on later.
                if let Some(connection) = &self.connection {
                    Waker::from(connection.bell.clone()).wake();
                }
            }
            Some(_) => {}
        }
    }

    /// Receives as much as there is, if it was woken; whether there was anything to do.
    pub fn settle(
        &mut self,
        random: &mut Random,
        processes: &mut [Process],
        now: SystemTime,
    ) -> bool {
        match &self.connection {
            None => {
                self.connect(random, processes);
                true
            }
            Some(connection) if connection.bell.has_rung() => {
                while self.poll(now) {}
                true
            }
            Some(_) => false,
        }
    }

    /// Receives one thing; whether there was one.
    fn poll(&mut self, now: SystemTime) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let waker = Waker::from(connection.bell.clone());
        let mut context = Context::from_waker(&waker);
        if !connection.is_open {
            match connection.feed.poll_open(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => {
                    self.connection = None;
                    return false;
                }
                Poll::Ready(Ok(())) => connection.is_open = true,
            }
            // A client is told where it is.
            let position = connection.feed.position();
            if self.last.is_none() {
                self.got.push(Got::Open(position));
                self.last = position;
            }
        }
        let Poll::Ready(next) = connection.feed.poll_next(&mut context, now) else {
            return false;
        };
        match next {
            Next::Message(entry) => {
                let message = &entry.message;
                assert!(!message.has_expired(now), "received after its time");
                self.got
                    .push(Got::Message(message.id, text(&message.draft)));
                self.last = Some(message.id);
                connection.feed.mark_read(message.id);
            }
            Next::Gap(next) => {
                self.got.push(Got::Gap(next));
                let sequence = next.sequence - 1;
                self.last = Some(MessageId { sequence, ..next });
            }
            Next::Removed | Next::Failed(_) => self.connection = None,
        }
        true
    }
}

fn text(draft: &Draft) -> String {
    String::from_utf8(draft.content.to_vec()).unwrap()
}

/// All messages that boxes ever had.
pub struct History(HashMap<Name, BTreeMap<MessageId, Arc<Draft>>>);

/// Where a receiver is.
#[derive(Debug, Clone, Copy)]
enum At {
    /// It was not told.
    Unknown,
    After(MessageId),
    /// It was told that messages before this id may be missing.
    From(MessageId),
}

impl History {
    pub fn new(messages: Vec<(Name, Message)>) -> Self {
        let mut boxes: HashMap<_, BTreeMap<_, _>> = HashMap::new();
        let mut keys = HashMap::new();
        for (name, message) in messages {
            if let Some(key) = message.draft.key.clone() {
                let doubled = keys.insert((name.clone(), message.id.epoch, key), message.id);
                assert!(doubled.is_none(), "appended twice: {}", message.id);
            }
            let of_box = boxes.entry(name).or_default();
            let doubled = of_box.insert(message.id, message.draft);
            assert!(doubled.is_none(), "an id given twice: {}", message.id);
        }
        Self(boxes)
    }

    /// What was acknowledged was appended, to the right box.
    pub fn check_acknowledged(&self, acknowledged: &[(Name, MessageId, Arc<Draft>)]) {
        for (name, id, draft) in acknowledged {
            let appended = self.0.get(name).and_then(|of_box| of_box.get(id));
            let appended = appended.expect("an acknowledged message");
            assert!(Arc::ptr_eq(appended, draft), "another message: {id}");
        }
    }

    /// The messages of a life between two numbers, `start` included, that a receiver has to get.
    fn between(&self, name: &Name, start: MessageId, end: u64) -> Vec<MessageId> {
        let mut due = self.all_between(name, start, end);
        due.retain(|id| self.0[name][id].deadline.is_none());
        due
    }

    fn all_between(&self, name: &Name, start: MessageId, end: u64) -> Vec<MessageId> {
        let end = MessageId {
            sequence: end,
            ..start
        };
        let of_box = self.0.get(name).into_iter();
        let ids = of_box.flat_map(|of_box| of_box.keys());
        ids.filter(|id| (start..end).contains(id))
            .copied()
            .collect()
    }

    /// The receiver has got everything, and `opened` is what its box keeps.
    pub fn check_receiver(&self, receiver: &Receiver, opened: &Opened) {
        let name = &receiver.name;
        let mut at = At::Unknown;
        for (index, got) in receiver.got.iter().enumerate() {
            let so_far = || format!("{name}: {:?}", &receiver.got[..=index]);
            at = match got {
                Got::Open(None) => At::Unknown,
                Got::Open(Some(last)) => At::After(*last),
                Got::Message(id, received) => {
                    self.check_follows(name, at, *id).unwrap_or_else(|missing| {
                        panic!("{missing} before {id}, {}", so_far());
                    });
                    let appended = self.0.get(name).and_then(|of_box| of_box.get(id));
                    let appended = appended.map(|draft| text(draft));
                    assert_eq!(appended.as_ref(), Some(received), "{}", so_far());
                    At::After(*id)
                }
                Got::Gap(next) => {
                    self.check_gap(name, at, *next)
                        .unwrap_or_else(|reason| panic!("{reason}, {}", so_far()));
                    At::From(*next)
                }
            };
        }
        let all = || format!("{name}: {:?}", receiver.got);
        let connection = receiver.connection.as_ref().expect("a connection");
        assert!(connection.is_open, "never open, {}", all());
        let end = MessageId {
            epoch: opened.epoch,
            sequence: opened.next,
        };
        self.check_follows(name, at, end)
            .unwrap_or_else(|missing| panic!("{missing} before the end {end}, {}", all()));
    }

    /// Nothing is missing or doubled if `id` comes at this point.
    fn check_follows(&self, name: &Name, at: At, id: MessageId) -> Result<(), String> {
        let start = match at {
            At::Unknown => return Err("no position".to_owned()),
            At::After(last) => MessageId {
                sequence: last.sequence + 1,
                ..last
            },
            At::From(next) => next,
        };
        if start.epoch != id.epoch {
            return Err(format!("no gap after the life {}", start.epoch));
        }
        if start > id {
            return Err(format!("{start} was expected"));
        }
        let missing = self.between(name, start, id.sequence);
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("missing: {missing:?}")),
        }
    }

    /// There is a reason for a gap.
    fn check_gap(&self, name: &Name, at: At, next: MessageId) -> Result<(), String> {
        let start = match at {
            At::Unknown => return Ok(()),
            At::After(last) => MessageId {
                sequence: last.sequence + 1,
                ..last
            },
            At::From(next) => next,
        };
        if start.epoch != next.epoch {
            let is_later = start.epoch < next.epoch;
            return is_later.then_some(()).ok_or(format!("back to {next}"));
        }
        let lost = self.all_between(name, start, next.sequence);
        match lost.is_empty() {
            true => Err(format!("a gap without a loss before {next}")),
            false => Ok(()),
        }
    }
}
