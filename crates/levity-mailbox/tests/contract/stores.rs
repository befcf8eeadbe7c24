//! The stores that are tested.

use std::sync::Arc;
use std::time::SystemTime;

use levity_disk::Disk;
use levity_mailbox::journal::{JournalStore, Options};
use levity_mailbox::memory::MemoryStore;
use levity_mailbox::{Budget, Store, new_epoch};
use tempfile::TempDir;

use crate::harness::{Clock, Local, Subject};

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
