//! The stores that are tested.

use std::time::SystemTime;

use levity_mailbox::memory::MemoryStore;
use levity_mailbox::{Store, new_epoch};

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
