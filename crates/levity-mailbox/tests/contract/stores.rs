//! The stores that are tested.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use levity_mailbox::disk::{DiskStore, Options};
use levity_mailbox::memory::MemoryStore;
use levity_mailbox::redis::RedisStore;
use levity_mailbox::{Budget, Store, new_epoch};
use tempfile::TempDir;

use crate::harness::{Clock, Local, Subject};
use crate::servers;
use crate::simulated::{Behavior, Server};

/// The memory of the process.
pub struct Memory;

impl Subject for Memory {
    fn is_persistent(&self) -> bool {
        false
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn clock(&self) -> Clock {
        Clock::OfCaller
    }

    fn open(&mut self, now: SystemTime) -> Local<'_, Box<dyn Store>> {
        Box::pin(async move { Box::new(MemoryStore::new(new_epoch(now))) as Box<dyn Store> })
    }
}

pub fn memory() -> Option<Memory> {
    Some(Memory)
}

/// A server that delays, which one process uses, or several.
pub struct OnServer {
    server: Option<Server>,
    is_shared: bool,
}

impl Subject for OnServer {
    fn is_persistent(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn clock(&self) -> Clock {
        Clock::OfCaller
    }

    fn open(&mut self, now: SystemTime) -> Local<'_, Box<dyn Store>> {
        let behavior = Behavior {
            is_instant: false,
            is_shared: self.is_shared,
            works_by_itself: true,
            fails_one_in: 0,
        };
        let server = || Server::new(5, behavior, new_epoch(now));
        let store = self.server.get_or_insert_with(server).connect();
        Box::pin(async move { Box::new(store) as Box<dyn Store> })
    }
}

pub fn simulated() -> Option<OnServer> {
    Some(OnServer {
        server: None,
        is_shared: false,
    })
}

pub fn simulated_shared() -> Option<OnServer> {
    Some(OnServer {
        server: None,
        is_shared: true,
    })
}

/// A Redis server, which several processes share, and which tests may stop and start.
pub struct Redis {
    pub port: u16,
    /// `None` if the test has it.
    pub _server: Option<servers::Server>,
    /// What all processes have reported.
    pub reports: Arc<Mutex<Vec<String>>>,
}

impl Subject for Redis {
    fn is_persistent(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock(&self) -> Clock {
        Clock::OfMachine
    }

    fn open(&mut self, _: SystemTime) -> Local<'_, Box<dyn Store>> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let reports = self.reports.clone();
        let report = move |line: &str| reports.lock().unwrap().push(line.to_owned());
        Box::pin(async move {
            let store = RedisStore::new(&url, Budget::new(usize::MAX), report);
            Box::new(store.expect("a URL")) as Box<dyn Store>
        })
    }
}

pub fn redis() -> Option<Redis> {
    let server = servers::Server::redis("");
    Some(Redis {
        port: server.port(),
        _server: Some(server),
        reports: Arc::default(),
    })
}

/// A folder.
pub struct Disk(TempDir);

impl Subject for Disk {
    fn is_persistent(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn clock(&self) -> Clock {
        Clock::OfCaller
    }

    fn open(&mut self, now: SystemTime) -> Local<'_, Box<dyn Store>> {
        let report = |line: &str| panic!("{line}");
        let options = Options::new(self.0.path(), report).expect("options");
        let store = DiskStore::open(self.0.path(), Budget::new(64 << 20), options, now);
        let store = store.expect("a store");
        Box::pin(async move { Box::new(store) as Box<dyn Store> })
    }
}

pub fn disk() -> Option<Disk> {
    Some(Disk(tempfile::tempdir().expect("a folder")))
}
