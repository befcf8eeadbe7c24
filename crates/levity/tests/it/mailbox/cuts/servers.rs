//! The servers to which it happens.

use std::fs;
use std::time::Instant;

use rustix::process::Signal;

use super::super::KEY;
use super::super::stores::LASTING;
use super::Cut;
use super::check::Loss;
use super::clients::{Random, World};
use crate::faults::Faults;
use crate::servers::{Server as Redis, Switch};
use crate::support::{Launch, Server, Tree, wait_until};

/// The maximum number of messages that are published or refused while a state lasts.
const WHILE_MAX: usize = 40;

/// Faults of a disk, as `fault.c` names them. A call of several fails at places that the first one of all does not reach.
const FAULTS: [&str; 10] = [
    "write eio",
    "write eio 5",
    "write enospc",
    "write enospc 7",
    "write torn",
    "write torn 3",
    "sync eio",
    "sync eio 2",
    "sync enospc",
    "sync enospc 3",
];

/// Servers, and what keeps their messages.
pub struct Rig {
    tree: Tree,
    /// Keys of the store.
    store: String,
    /// A key of each set.
    sets: &'static [&'static str],
    servers: Vec<Server>,
    faults: Option<Faults>,
    replicated: Option<Replicated>,
}

/// A Redis server, its replica, and the address of either.
struct Replicated {
    primary: Redis,
    replica: Redis,
    switch: Switch,
}

impl Replicated {
    /// Kills the primary and starts it again. Nobody meets it before its replica has, with which it begins another history: a
    /// server that had not noted that before the next cut would have to announce a loss.
    fn restart(&mut self) {
        self.switch.set_target(0);
        self.primary.stop();
        self.primary.start();
        self.primary.wait_for(&self.replica);
        self.switch.set_target(self.primary.port());
    }
}

impl Rig {
    /// A server that keeps messages on a disk that fails at times.
    pub fn disk() -> Self {
        let tree = Tree::new();
        let folder = tree.folder("messages").display().to_string();
        tree.chmod("messages", 0o777);
        let faults = Faults::new(tree.path());
        let rig = Self {
            tree,
            store: format!("store = \"disk\"\nfolder = \"{folder}\""),
            sets: &["durable = true", "durable = false"],
            servers: Vec::new(),
            faults: Some(faults),
            replicated: None,
        };
        rig.start(1)
    }

    /// Two servers that keep messages on a Redis server, which has a replica.
    pub fn redis() -> Self {
        let arguments = format!("{LASTING} --repl-diskless-sync-delay 0");
        let [primary, replica] = [&arguments, &arguments].map(|it| Redis::redis(it));
        let switch = Switch::new(primary.port());
        replica.follow(&primary);
        primary.wait_for(&replica);
        let rig = Self {
            tree: Tree::new(),
            store: format!(
                "store = \"redis\"\nurl = \"redis://127.0.0.1:{}\"",
                switch.port()
            ),
            sets: &[""],
            servers: Vec::new(),
            faults: None,
            replicated: Some(Replicated {
                primary,
                replica,
                switch,
            }),
        };
        rig.start(2)
    }

    fn start(mut self, count: usize) -> Self {
        self.tree.file("key", KEY);
        self.servers = (0..count).map(|_| self.server()).collect();
        self
    }

    /// One more server.
    fn server(&self) -> Server {
        let key = self.tree.at("key").display().to_string();
        let sets = self.sets.iter().enumerate().map(|(number, keys)| {
            format!(
                "[[mailbox]]\nname = \"m{number}\"\npublish_key_file = \"{key}\"\n\
                 messages = 10000\nbytes = \"16MiB\"\npublishes_per_second = 100000\n{keys}\n\
                 [[site.route]]\npath = \"/m{number}/*\"\nmailbox = \"m{number}\"\n"
            )
        });
        let durable = if self.faults.is_some() {
            "durable = true\n"
        } else {
            ""
        };
        let of_streams = format!(
            "[[mailbox]]\nname = \"s\"\nprotocol = \"durable-streams\"\npublish_key_file = \"{key}\"\n\
             bytes = \"64MiB\"\npublishes_per_second = 100000\n{durable}\
             [[site.route]]\npath = \"/s/*\"\nmailbox = \"s\"\n"
        );
        let sets = sets.chain([of_streams]);
        let launch = Launch::run(&format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[mailbox_store]\n{}\n\
             [limits]\ndrain_timeout = \"200ms\"\n[[site]]\nrespond = {{}}\n{}",
            self.store,
            sets.collect::<String>()
        ));
        let variables = self.faults.iter().flat_map(Faults::environment);
        let launch = variables.fold(launch, |launch, (name, value)| {
            launch.environment(name, value.to_str().expect("a path in UTF-8"))
        });
        launch.start()
    }

    /// What clients of a new box have in common.
    pub fn world(&self, round: usize) -> World {
        self.world_at(format!("/m{}/{round}", round % self.sets.len()))
    }

    /// What clients of a new stream have in common.
    pub fn world_of_stream(&self, round: usize) -> World {
        self.world_at(format!("/s/{round}"))
    }

    fn world_at(&self, path: String) -> World {
        let addresses = self.servers.iter().map(Server::address).collect();
        World::new(path, addresses)
    }

    pub fn any(&self) -> &Server {
        &self.servers[0]
    }

    pub fn cut(&mut self, cut: Cut, world: &World, random: &mut Random) {
        match cut {
            Cut::Kill => self.replace(world, random, killed),
            Cut::Restart => self.replace(world, random, |server| {
                server.signal(Signal::TERM);
                server.wait();
            }),
            Cut::Reload => self.servers[random.below(self.servers.len())].reload(&[], &[]),
            Cut::Fault => {
                self.begin_fault(world, random);
                self.set_fault("");
                world.wait_for_new();
            }
            Cut::KillInFault => {
                self.begin_fault(world, random);
                let fault = self.faults.as_ref().expect("faults").fault.clone();
                self.replace(world, random, |server| {
                    killed(server);
                    fs::write(fault, "").expect("written");
                });
            }
            Cut::RestartRedis => {
                self.wait_for_one();
                self.replicated().restart();
                self.settle();
            }
            Cut::RestartAll => {
                // Nobody is left who has seen that Redis had everything.
                let now = Instant::now();
                note_loss(world, now, now);
                let mut addresses = world.addresses.write().expect("addresses");
                self.servers.drain(..).for_each(|mut it| killed(&mut it));
                self.replicated().restart();
                self.servers = addresses.iter().map(|_| self.server()).collect();
                *addresses = self.servers.iter().map(Server::address).collect();
                drop(addresses);
                self.settle();
            }
            Cut::FailOver | Cut::FailOverAtOnce | Cut::FailOverLate => {
                self.fail_over(cut, world, random);
            }
        }
    }

    /// Ends a server, and starts another one.
    fn replace(&mut self, world: &World, random: &mut Random, end: impl FnOnce(&mut Server)) {
        let number = random.below(self.servers.len());
        let mut addresses = world.addresses.write().expect("addresses");
        end(&mut self.servers[number]);
        self.servers[number] = self.server();
        addresses[number] = self.servers[number].address();
    }

    fn begin_fault(&self, world: &World, random: &mut Random) {
        let fault = random.choose(&FAULTS);
        eprintln!("{fault}");
        self.set_fault(fault);
        world.wait_for_refusals(1 + random.below(WHILE_MAX));
    }

    fn set_fault(&self, fault: &str) {
        let faults = self.faults.as_ref().expect("faults");
        fs::write(&faults.fault, fault).expect("written");
    }

    fn replicated(&mut self) -> &mut Replicated {
        self.replicated.as_mut().expect("a Redis server")
    }

    /// Has the replica take over, and the other one become its replica.
    fn fail_over(&mut self, cut: Cut, world: &World, random: &mut Random) {
        self.wait_for_one();
        let Replicated {
            primary,
            replica,
            switch,
        } = self.replicated();
        let from = Instant::now();
        match cut {
            Cut::FailOverAtOnce => primary.wait_for(replica),
            Cut::FailOverLate => {
                primary.wait_for(replica);
                replica.promote();
                world.wait_for(random.below(WHILE_MAX));
            }
            _ => {
                assert_eq!(primary.ask("CLIENT PAUSE 60000 WRITE"), "OK");
                let all = offset(primary);
                wait_until("the replica has all", || offset(replica) >= all);
            }
        }
        primary.stop();
        if cut != Cut::FailOver {
            note_loss(world, from, Instant::now());
        }
        replica.promote();
        switch.set_target(replica.port());
        primary.start();
        primary.follow(replica);
        std::mem::swap(primary, replica);
        self.settle();
        world.wait_for_new();
    }

    /// Waits until a server has seen the history of Redis. If none has, a loss is announced after the next cut.
    fn wait_for_one(&self) {
        wait_until("a server is connected", || {
            self.servers.iter().any(is_connected)
        });
    }

    /// Waits until Redis has its replica, and all servers have seen its history.
    fn settle(&self) {
        let redis = self.replicated.as_ref().expect("a Redis server");
        redis.primary.wait_for(&redis.replica);
        wait_until("all servers are connected", || {
            self.servers.iter().all(is_connected)
        });
    }
}

fn is_connected(server: &Server) -> bool {
    server.get("/m0/no?info").status == 404
}

fn killed(server: &mut Server) {
    server.signal(Signal::KILL);
    server.wait();
}

fn note_loss(world: &World, from: Instant, to: Instant) {
    let mut losses = world.losses.lock().expect("no other failed");
    losses.push(Loss { from, to });
}

/// How many bytes of its history a Redis server has.
fn offset(redis: &Redis) -> u64 {
    let info = redis.ask("INFO replication");
    let mut lines = info.lines();
    let own = lines.find_map(|line| line.strip_prefix("master_repl_offset:"));
    own.expect("an offset").parse().expect("a number")
}
