//! Incomplete files, which wait for their rest.
//!
//! They have no names: each is held by its descriptor only, so nothing of them is left when the server ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::OpenFile;

use super::room::Taken;

/// Which rest continues a part. What one user has sent is continued by nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// The length of the whole in bytes.
    pub total: u64,
    /// The name of the user, if a gate has asked for it; else empty.
    pub user: Vec<u8>,
}

/// The start of a file.
#[derive(Debug)]
pub struct Part {
    /// Without a name.
    pub file: Arc<OpenFile>,
    /// The bytes that have arrived.
    pub bytes: u64,
}

/// A part that is kept, and the room that it takes.
pub(super) struct Kept {
    pub(super) part: Part,
    pub(super) taken: Taken,
}

/// What is known of a key.
enum Slot {
    /// A request receives it.
    InUse,
    /// Until then.
    Kept(Kept, Instant),
}

/// The parts beneath a root.
#[derive(Default)]
pub(super) struct Parts(HashMap<Key, Slot>);

/// Why a part cannot be continued.
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Another request receives it.
    InUse,
    /// It has this number of bytes; 0 if there is none.
    Has(u64),
}

impl Parts {
    /// Marks `key` as in use, unless it is. Returns whether it was not, and the part that this replaces.
    pub(super) fn begin(&mut self, key: &Key) -> (bool, Option<Kept>) {
        match self.0.insert(key.clone(), Slot::InUse) {
            Some(Slot::InUse) => (false, None),
            Some(Slot::Kept(kept, _)) => (true, Some(kept)),
            None => (true, None),
        }
    }

    /// Takes the part of `key` to continue it at `offset`.
    pub(super) fn resume(&mut self, key: &Key, offset: u64) -> Result<Kept, Unusable> {
        match self.0.get_mut(key) {
            None => Err(Unusable::Has(0)),
            Some(Slot::InUse) => Err(Unusable::InUse),
            Some(Slot::Kept(kept, _)) if kept.part.bytes != offset => {
                Err(Unusable::Has(kept.part.bytes))
            }
            Some(slot) => match std::mem::replace(slot, Slot::InUse) {
                Slot::Kept(kept, _) => Ok(kept),
                Slot::InUse => Err(Unusable::InUse),
            },
        }
    }

    /// The bytes of the part of `key`; `None` while it is in use.
    pub(super) fn bytes(&self, key: &Key) -> Option<u64> {
        match self.0.get(key) {
            None => Some(0),
            Some(Slot::Kept(kept, _)) => Some(kept.part.bytes),
            Some(Slot::InUse) => None,
        }
    }

    /// `key` is not in use any more.
    pub(super) fn end(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Keeps a part, whose key was in use, until `expiry`. Returns the parts that give way, so that there are at most
    /// `parts_max`.
    pub(super) fn keep(
        &mut self,
        key: &Key,
        kept: Kept,
        expiry: Instant,
        parts_max: usize,
    ) -> Vec<Kept> {
        let mut displaced = Vec::new();
        while self.kept().count() >= parts_max {
            let first = self.kept().min_by_key(|(_, expiry)| *expiry);
            let Some(first) = first.map(|(key, _)| key.clone()) else {
                break;
            };
            displaced.extend(self.remove(&first));
        }
        self.0.insert(key.clone(), Slot::Kept(kept, expiry));
        displaced
    }

    /// Removes the parts that have expired at `now`.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Kept> {
        let expired = self.kept().filter(|(_, expiry)| *expiry <= now);
        let expired: Vec<_> = expired.map(|(key, _)| key.clone()).collect();
        expired.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// When the first of them expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.kept().map(|(_, expiry)| expiry).min()
    }

    fn kept(&self) -> impl Iterator<Item = (&Key, Instant)> {
        self.0.iter().filter_map(|(key, slot)| match slot {
            Slot::Kept(_, expiry) => Some((key, *expiry)),
            Slot::InUse => None,
        })
    }

    fn remove(&mut self, key: &Key) -> Option<Kept> {
        match self.0.remove(key)? {
            Slot::Kept(kept, _) => Some(kept),
            Slot::InUse => None,
        }
    }
}
