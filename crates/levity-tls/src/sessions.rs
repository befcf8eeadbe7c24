//! Sessions of sites with early data, by which a client resumes one at any event loop, once.
//!
//! Tickets, which need no memory, could be used twice: whoever has recorded a client's early data could send it again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::server::StoresServerSessions;

/// The maximum number of sessions. A client gets two at each handshake.
const SESSIONS_MAX: usize = 10_000;

/// The maximum size of all sessions with their ids, in bytes. One has about 200.
const BYTES_MAX: usize = 4 << 20;

/// The parts of the store. Each has an equal share of the maxima.
const SHARDS: usize = 64;

/// The sessions. Of too many, the oldest ones go first.
///
/// It has locks although event loops use it: that a session is taken only once has to hold for all loops together. A lock is held
/// for a few accesses to memory, once or twice per handshake, and the ids, which are random, spread over the shards.
pub struct Sessions {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    by_id: HashMap<Vec<u8>, Session>,
    /// The ids by the numbers of their sessions.
    ids: BTreeMap<u64, Vec<u8>>,
    /// The number of the next session.
    next: u64,
    /// The size of all, with their ids.
    bytes: usize,
}

struct Session {
    number: u64,
    content: Vec<u8>,
}

impl Shard {
    fn put(&mut self, id: Vec<u8>, content: Vec<u8>) {
        self.take(&id);
        let number = self.next;
        self.next += 1;
        self.bytes += id.len() + content.len();
        self.ids.insert(number, id.clone());
        self.by_id.insert(id, Session { number, content });
        while self.by_id.len() > SESSIONS_MAX / SHARDS || self.bytes > BYTES_MAX / SHARDS {
            let Some((_, oldest)) = self.ids.first_key_value() else {
                return;
            };
            let oldest = oldest.clone();
            self.take(&oldest);
        }
    }

    fn take(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let Session { number, content } = self.by_id.remove(id)?;
        self.ids.remove(&number);
        self.bytes -= id.len() + content.len();
        Some(content)
    }
}

impl Sessions {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, id: &[u8]) -> MutexGuard<'_, Shard> {
        let number = usize::from(id.first().copied().unwrap_or(0)) % SHARDS;
        // Whoever panicked there has left a store that is still bounded, and no session twice.
        self.shards[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sessions")
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, id: Vec<u8>, content: Vec<u8>) -> bool {
        self.shard(&id).put(id, content);
        true
    }

    /// For TLS 1.2, which has no early data.
    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let shard = self.shard(id);
        Some(shard.by_id.get(id)?.content.clone())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.shard(id).take(id)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of one shard.
    fn id(number: u32) -> Vec<u8> {
        [&[7][..], &number.to_be_bytes()].concat()
    }

    #[test]
    fn a_session_is_taken_once() {
        let sessions = Sessions::new();
        sessions.put(id(1), b"one".to_vec());
        sessions.put(id(2), b"two".to_vec());
        assert_eq!(sessions.get(&id(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(sessions.take(&id(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(sessions.take(&id(1)), None);
        assert_eq!(sessions.get(&id(1)), None);
        assert_eq!(sessions.take(&id(2)).as_deref(), Some(&b"two"[..]));
        let shard = sessions.shard(&id(1));
        assert_eq!((shard.bytes, shard.ids.len()), (0, 0));
    }

    #[test]
    fn one_of_many_threads_gets_it() {
        let sessions = Sessions::new();
        for number in 0..100 {
            sessions.put(id(number), vec![1]);
        }
        let take_all = || {
            let taken = (0..100).filter(|&number| sessions.take(&id(number)).is_some());
            taken.count()
        };
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            let joined = threads.into_iter().map(|one| one.join().expect("no panic"));
            joined.sum()
        });
        assert_eq!(taken, 100);
    }

    #[test]
    fn the_oldest_ones_go_first() {
        let sessions = Sessions::new();
        let max = (SESSIONS_MAX / SHARDS) as u32;
        for number in 0..max + 10 {
            sessions.put(id(number), vec![1]);
        }
        assert_eq!(sessions.get(&id(9)), None);
        assert!(sessions.get(&id(10)).is_some() && sessions.get(&id(max + 9)).is_some());
    }

    #[test]
    fn their_bytes_are_bounded() {
        let sessions = Sessions::new();
        let third = vec![0; BYTES_MAX / SHARDS / 3];
        for number in 0..3 {
            sessions.put(id(number), third.clone());
        }
        // With the ids these are more than fit.
        assert_eq!(sessions.get(&id(0)), None);
        assert!(sessions.get(&id(1)).is_some() && sessions.get(&id(2)).is_some());
        sessions.put(id(3), vec![0; BYTES_MAX / SHARDS]);
        let shard = sessions.shard(&id(0));
        assert_eq!((shard.bytes, shard.by_id.len(), shard.ids.len()), (0, 0, 0));
    }
}
