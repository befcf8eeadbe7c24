//! The stores that are tested.

use std::sync::Arc;
use std::time::SystemTime;

use levity_disk::Disk;
use levity_mailbox::journal::{JournalStore, Options};
use levity_mailbox::memory::MemoryStore;
#[cfg(feature = "nats")]
use levity_mailbox::nats::NatsStore;
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

/// A server of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Redis,
    #[cfg(feature = "nats")]
    Nats,
}

/// A server that several processes share, and that tests may stop and start.
pub struct Shared {
    pub kind: Kind,
    pub port: u16,
    /// `None` if the test has it.
    pub _server: Option<servers::Server>,
}

impl Subject for Shared {
    fn is_persistent(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock(&self) -> Clock {
        Clock::OfMachine
    }

    fn content_bytes_max(&self) -> usize {
        match self.kind {
            Kind::Redis => 1 << 20,
            // The server takes 1 MiB, including what is said of the content.
            #[cfg(feature = "nats")]
            Kind::Nats => (1 << 20) - 1024,
        }
    }

    fn open(&mut self, _: SystemTime) -> Local<'_, Box<dyn Store>> {
        let (kind, port) = (self.kind, self.port);
        let budget = Budget::new(usize::MAX);
        Box::pin(async move {
            match kind {
                Kind::Redis => {
                    let store = RedisStore::new(&format!("redis://127.0.0.1:{port}"), budget);
                    Box::new(store.expect("a URL")) as Box<dyn Store>
                }
                #[cfg(feature = "nats")]
                Kind::Nats => {
                    let store = NatsStore::new(&format!("nats://127.0.0.1:{port}"), budget);
                    Box::new(store.expect("a URL"))
                }
            }
        })
    }
}

fn shared(kind: Kind, server: servers::Server) -> Option<Shared> {
    Some(Shared {
        kind,
        port: server.port(),
        _server: Some(server),
    })
}

pub fn redis() -> Option<Shared> {
    shared(Kind::Redis, servers::Server::redis(""))
}

#[cfg(feature = "nats")]
pub fn nats() -> Option<Shared> {
    shared(Kind::Nats, servers::Server::nats())
}

/// A folder.
pub struct Journal {
    folder: TempDir,
    disk: Arc<Disk>,
}

impl Subject for Journal {
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
        let options = Options::new(report).expect("the kernel says which boot this is");
        let budget = Budget::new(64 << 20);
        let store = JournalStore::open(self.folder.path(), self.disk.clone(), budget, options, now);
        let store = store.expect("a journal");
        Box::pin(async move { Box::new(store) as Box<dyn Store> })
    }
}

pub fn journal() -> Option<Journal> {
    Some(Journal {
        folder: tempfile::tempdir().expect("a folder"),
        disk: Disk::start(levity_disk::Settings::default()).expect("a disk"),
    })
}
