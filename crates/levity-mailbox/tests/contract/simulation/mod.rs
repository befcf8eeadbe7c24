//! Owners, event loops, publishers and receivers in an order that a seed chooses, on servers that fail. Whatever happens, a
//! receiver gets every message once and in order, or is told of a gap before the next one.
//!
//! `MAILBOX_SEEDS=7..8 cargo test -p levity-mailbox --test contract simulation` runs one seed.

mod check;
mod process;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use levity_mailbox::{Append, Command, Delivery, Draft, MessageId, Mode, Name, Settings};
use tokio::sync::oneshot;

use self::check::Receiver;
use self::process::Process;
use crate::simulated::{Behavior, Random, Server};

/// Things that happen before everything is brought to an end.
const ACTIONS: usize = 600;

/// Rounds of a world in which nothing is left to do, at the end.
const ROUNDS_MAX: usize = 20_000;

const SET: &str = "set";

/// The boxes, and what they keep.
const BOXES: [(&str, Mode, usize, usize); 4] = [
    ("few", Mode::Topic, 2, usize::MAX),
    ("inbox", Mode::Inbox, 6, usize::MAX),
    ("small", Mode::Topic, 100, 900),
    ("many", Mode::Topic, 1000, usize::MAX),
];

/// Where messages are kept, and how many processes and owners there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As in memory: each event loop has an owner, and nothing fails but the process.
    Memory,
    /// As in a journal: one process with one owner.
    Exclusive,
    /// As on a server beyond the machine: two processes with an owner each.
    Shared,
}

struct World {
    random: Random,
    kind: Kind,
    now: SystemTime,
    /// One per owner in memory, otherwise one.
    servers: Vec<Server>,
    /// The servers of processes that have ended with all their messages.
    ended_servers: Vec<Server>,
    epochs: u64,
    processes: Vec<Process>,
    publishers: Vec<Publisher>,
    receivers: Vec<Receiver>,
    /// Messages that a publisher knows to be taken.
    acknowledged: Vec<(Name, MessageId, Arc<Draft>)>,
}

/// Publishes one thing after the other, and tries again until it is taken.
struct Publisher {
    number: usize,
    count: usize,
    appends: Vec<Append>,
    results: Option<oneshot::Receiver<Vec<Delivery>>>,
}

fn settings_of(index: usize) -> Arc<Settings> {
    let (_, mode, messages_max, bytes_max) = BOXES[index];
    Arc::new(Settings {
        set: SET.to_owned(),
        mode,
        messages_max,
        bytes_max,
        lifetime: None,
        idle: Duration::from_secs(20),
        boxes_max: BOXES.len(),
        receivers_max: 100,
        keeps_all: false,
        is_durable: false,
    })
}

fn name_of(index: usize) -> Name {
    Name::new(SET, BOXES[index].0.as_bytes()).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let kind = *random.of(&[Kind::Memory, Kind::Exclusive, Kind::Shared]);
        let mut world = Self {
            kind,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30),
            servers: Vec::new(),
            ended_servers: Vec::new(),
            epochs: 1,
            processes: Vec::new(),
            publishers: (0..3).map(Publisher::new).collect(),
            receivers: Vec::new(),
            acknowledged: Vec::new(),
            random,
        };
        let fails_one_in = *world.random.of(&[0, 5, 50]);
        world.start_servers(fails_one_in);
        let count = if kind == Kind::Shared { 2 } else { 1 };
        for _ in 0..count {
            let process = world.start_process();
            world.processes.push(process);
        }
        for number in 0..8 {
            let index = world.random.below(BOXES.len());
            let receiver = Receiver::new(number, name_of(index), settings_of(index));
            world.receivers.push(receiver);
        }
        world
    }

    fn start_servers(&mut self, fails_one_in: usize) {
        let is_memory = self.kind == Kind::Memory;
        let behavior = Behavior {
            is_instant: is_memory,
            is_shared: self.kind == Kind::Shared,
            works_by_itself: false,
            fails_one_in: if is_memory { 0 } else { fails_one_in },
        };
        for _ in 0..if is_memory { 3 } else { 1 } {
            self.epochs += 1 << 40;
            let seed = self.random.below(usize::MAX) as u64;
            self.servers.push(Server::new(seed, behavior, self.epochs));
        }
    }

    fn start_process(&mut self) -> Process {
        let loops = if self.kind == Kind::Shared { 2 } else { 3 };
        let stores = self.servers.iter().map(Server::connect).collect();
        Process::new(stores, loops)
    }

    /// One thing that happens.
    fn act(&mut self) {
        match self.random.below(100) {
            0..15 => self.publish(),
            15..30 => self.serve(),
            30..45 => {
                let process = self.a_process();
                self.processes[process].run_owner(&mut self.random, self.now);
            }
            45..60 => {
                let process = self.a_process();
                self.processes[process].run_loop(&mut self.random, self.now);
            }
            60..96 => {
                let index = self.random.below(self.receivers.len());
                let receiver = &mut self.receivers[index];
                receiver.act(&mut self.random, &mut self.processes, self.now);
            }
            96..98 => self.now += Duration::from_millis(self.random.below(4000) as u64),
            _ => self.disturb(),
        }
    }

    fn a_process(&mut self) -> usize {
        self.random.below(self.processes.len())
    }

    fn serve(&mut self) {
        let index = self.random.below(self.servers.len());
        for _ in 0..=self.random.below(4) {
            self.servers[index].step();
        }
    }

    fn publish(&mut self) {
        let (index, process) = (self.random.below(self.publishers.len()), self.a_process());
        let publisher = &mut self.publishers[index];
        if publisher.is_waiting(&mut self.acknowledged) {
            return;
        }
        if publisher.appends.is_empty() {
            publisher.begin(&mut self.random, self.now);
        }
        publisher.send(&mut self.random, &self.processes[process]);
    }

    /// Something that does not happen every day.
    fn disturb(&mut self) {
        match self.random.below(7) {
            6 => self.flood(),
            0 => {
                let (process, index) = (self.a_process(), self.random.below(BOXES.len()));
                let (reply, _) = oneshot::channel();
                let name = name_of(index);
                let command = Command::Remove {
                    epoch: None,
                    name: name.clone(),
                    reply,
                };
                self.processes[process].send(&mut self.random, &name, command);
            }
            1 => self.restart(),
            2 if self.kind == Kind::Shared => self.servers[0].fail_over(self.now),
            2..4 if self.kind == Kind::Shared => self.servers[0].cut(),
            _ => {}
        }
    }

    /// Has receivers come and go, one for each of more boxes than the set may have. The copies are of no event loop.
    fn flood(&mut self) {
        let process = self.a_process();
        for number in 0..=BOXES.len() {
            let name = Name::new(SET, format!("flood{number}").as_bytes()).unwrap();
            let (worker, copy) = (0, u64::MAX);
            let open = Command::Open {
                name: name.clone(),
                settings: settings_of(0),
                worker,
                copy,
            };
            let leave = Command::Receivers {
                name: name.clone(),
                worker,
                receivers: 0,
            };
            for command in [open, leave] {
                self.processes[process].send(&mut self.random, &name, command);
            }
        }
    }

    fn restart(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let index = self.a_process();
        let ended = self.processes.swap_remove(index);
        for receiver in &mut self.receivers {
            receiver.process_ended(index, self.processes.len());
        }
        drop(ended);
        match self.kind {
            Kind::Memory => {
                let servers = std::mem::take(&mut self.servers);
                self.ended_servers.extend(servers);
                self.start_servers(0);
            }
            // It may not have written everything.
            Kind::Exclusive if self.random.one_in(2) => self.servers[0].fail_over(self.now),
            Kind::Exclusive | Kind::Shared => {}
        }
        let process = self.start_process();
        self.processes.push(process);
    }

    /// Lets everything that has begun come to its end, without faults, and without a poll of anybody who was not woken.
    fn settle(&mut self) {
        self.servers.iter().for_each(Server::recover);
        for _ in 0..ROUNDS_MAX {
            let mut is_quiet = true;
            for index in 0..self.publishers.len() {
                let publisher = &mut self.publishers[index];
                let is_waiting = publisher.is_waiting(&mut self.acknowledged);
                if !is_waiting && !publisher.appends.is_empty() {
                    publisher.send(&mut self.random, &self.processes[0]);
                }
                is_quiet &= !is_waiting && publisher.appends.is_empty();
            }
            is_quiet &= !self.servers.iter().any(Server::step);
            for process in &mut self.processes {
                is_quiet &= !process.run_all(self.now);
            }
            for receiver in &mut self.receivers {
                is_quiet &= !receiver.settle(&mut self.random, &mut self.processes, self.now);
            }
            if is_quiet {
                return;
            }
        }
        panic!("it does not settle");
    }

    fn histories(&self) -> Vec<(Name, levity_mailbox::Message)> {
        let servers = self.ended_servers.iter().chain(&self.servers);
        servers.flat_map(Server::history).collect()
    }

    fn check(&mut self) {
        let history = check::History::new(self.histories());
        history.check_acknowledged(&self.acknowledged);
        for receiver in &self.receivers {
            let servers = &self.servers;
            let opened = servers
                .iter()
                .find_map(|server| server.look(&receiver.name));
            let opened = opened.expect("a box that is received from");
            history.check_receiver(receiver, &opened);
        }
        self.check_receivers();
        // Nothing is left behind.
        self.receivers.clear();
        self.settle();
        for process in &mut self.processes {
            process.check_is_empty(self.now);
        }
    }
}

impl World {
    /// Owners know who receives.
    fn check_receivers(&mut self) {
        for receiver in &self.receivers {
            let name = &receiver.name;
            for process in &mut self.processes {
                let server = &self.servers[process.owner_of(name)];
                let known = process.receivers(name, server, self.now);
                let here = |one: &&Receiver| one.name == *name && one.is_at(process);
                assert_eq!(known, self.receivers.iter().filter(here).count());
            }
        }
    }
}

impl Publisher {
    fn new(number: usize) -> Self {
        Self {
            number,
            count: 0,
            appends: Vec::new(),
            results: None,
        }
    }

    /// Takes results. What was not taken is tried again, if that does no harm.
    fn is_waiting(&mut self, acknowledged: &mut Vec<(Name, MessageId, Arc<Draft>)>) -> bool {
        let Some(results) = &mut self.results else {
            return false;
        };
        let results = match results.try_recv() {
            Ok(deliveries) => deliveries
                .into_iter()
                .map(|(_, result)| result.ok())
                .collect(),
            Err(oneshot::error::TryRecvError::Empty) => return true,
            // The process has ended.
            Err(oneshot::error::TryRecvError::Closed) => vec![None; self.appends.len()],
        };
        self.results = None;
        let appends = std::mem::take(&mut self.appends);
        assert_eq!(results.len(), appends.len());
        for (append, result) in appends.into_iter().zip(results) {
            match result {
                Some(published) => {
                    acknowledged.push((append.name, published.id, append.draft));
                }
                None if append.draft.key.is_some() => self.appends.push(append),
                None => {}
            }
        }
        false
    }

    fn begin(&mut self, random: &mut Random, now: SystemTime) {
        for _ in 0..=random.below(2) {
            self.count += 1;
            let text = format!("{}-{}", self.number, self.count);
            let index = random.below(BOXES.len());
            let deadline = now + Duration::from_millis(random.below(3000) as u64);
            let draft = Draft {
                key: (!random.one_in(5)).then(|| text.as_str().into()),
                event: Box::default(),
                media_type: "text/plain".into(),
                content: text.into_bytes().into(),
                deadline: random.one_in(6).then_some(deadline),
                reservation: None,
                is_damaged: false,
            };
            self.appends.push(Append {
                update: None,
                name: name_of(index),
                settings: settings_of(index),
                draft: Arc::new(draft),
            });
        }
    }

    /// Sends what belongs to one owner; the rest has to wait.
    fn send(&mut self, random: &mut Random, process: &Process) {
        let owner = process.owner_of(&self.appends[0].name);
        let is_same = |append: &Append| process.owner_of(&append.name) == owner;
        // One after the other, so that the order of the messages is that of the publisher.
        let count = self.appends.iter().take_while(|one| is_same(one)).count();
        self.appends.truncate(count);
        let (reply, results) = oneshot::channel();
        let command = Command::Publish {
            appends: self.appends.clone(),
            reply,
        };
        process.send(random, &self.appends[0].name, command);
        self.results = Some(results);
    }
}

/// The seeds to run.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MAILBOX_SEEDS") else {
        return 0..2000;
    };
    let (start, end) = text.split_once("..").expect("MAILBOX_SEEDS=0..2000");
    start.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn simulation() {
    for seed in seeds() {
        let run = || {
            let mut world = World::new(seed);
            for _ in 0..ACTIONS {
                world.act();
            }
            world.settle();
            world.check();
        };
        let result = std::panic::catch_unwind(run);
        assert!(result.is_ok(), "MAILBOX_SEEDS={seed}..{}", seed + 1);
    }
}
