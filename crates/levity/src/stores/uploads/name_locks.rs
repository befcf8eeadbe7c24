//! One change of a name at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The names that are being changed, or that someone waits to change.
#[derive(Default)]
pub struct NameLocks(Mutex<HashMap<Vec<u8>, Arc<Turn<()>>>>);

/// The right to change a name.
pub struct NameLock<'l> {
    locks: &'l NameLocks,
    name: Vec<u8>,
    turn: Option<OwnedMutexGuard<()>>,
}

impl NameLocks {
    /// Waits until nobody else changes `name`. First come, first served.
    pub async fn lock(&self, name: &[u8]) -> NameLock<'_> {
        let turn = self.names().entry(name.to_vec()).or_default().clone();
        // Made first: it removes the name even if the wait is given up.
        let mut lock = NameLock {
            locks: self,
            name: name.to_vec(),
            turn: None,
        };
        lock.turn = Some(turn.lock_owned().await);
        lock
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Turn<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameLock<'_> {
    fn drop(&mut self) {
        drop(self.turn.take());
        let mut names = self.locks.names();
        // Whoever waits has a reference too.
        if names
            .get(&self.name)
            .is_some_and(|turn| Arc::strong_count(turn) == 1)
        {
            names.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<'l>(future: Pin<&mut impl Future<Output = NameLock<'l>>>) -> Option<NameLock<'l>> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(lock) => Some(lock),
            Poll::Pending => None,
        }
    }

    #[test]
    fn each_waits_for_those_before_it_and_nothing_stays() {
        let locks = NameLocks::default();
        let first = poll(pin!(locks.lock(b"a"))).expect("free");
        let other = poll(pin!(locks.lock(b"b"))).expect("free");
        assert!(poll(pin!(locks.lock(b"a"))).is_none(), "given up");
        let mut second = pin!(locks.lock(b"a"));
        assert!(poll(second.as_mut()).is_none());
        drop((first, other));
        assert_eq!(locks.names().len(), 1);
        drop(poll(second.as_mut()).expect("free"));
        assert_eq!(locks.names().len(), 0);
    }
}
