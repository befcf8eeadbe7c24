//! A bounded channel from threads that must not block to one thread that may.
//!
//! The standard library's `SyncSender::try_send` takes a mutex to wake the receiver. If the receiver
//! loses the processor while it holds that mutex, an event loop sleeps for as long: 1 to 3 ms were seen.
//! This channel is a queue of fixed size without a lock, and a parker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use levity_disk::Parker;

/// A channel that holds `items_max` items, which is at least 1.
pub fn bounded<T>(items_max: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        items: ArrayQueue::new(items_max),
        senders: AtomicUsize::new(1),
        received: AtomicBool::new(true),
        parker: Parker::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

/// Why an item was not sent; it comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// The channel holds as many items as it may.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

struct Shared<T> {
    items: ArrayQueue<T>,
    senders: AtomicUsize,
    /// There is a receiver.
    received: AtomicBool,
    parker: Parker,
}

/// Puts items in. There may be any number.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Sends `item`, or gives it back. Never waits, and makes a system call only if the receiver sleeps.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn try_send(&self, item: T) -> Result<(), Refused<T>> {
        if !self.0.received.load(Ordering::Acquire) {
            return Err(Refused::Closed(item));
        }
        self.0.items.push(item).map_err(Refused::Full)?;
        self.0.parker.unpark();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.parker.unpark();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} waiting)", self.0.items.len())
    }
}

/// Takes items out, in the order in which each sender sent them.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Waits for an item; `None` when there is none and no sender is left. Always from the same thread.
    pub fn recv(&self) -> Option<T> {
        let shared = &self.0;
        loop {
            // Looked at before the queue: what the last sender sent is there by then.
            let ended = shared.senders.load(Ordering::SeqCst) == 0;
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            if ended {
                return None;
            }
            shared.parker.park_unless(|| {
                !shared.items.is_empty() || shared.senders.load(Ordering::SeqCst) == 0
            });
        }
    }

    /// The next item, if it is there. Does not wait.
    pub fn try_recv(&self) -> Option<T> {
        self.0.items.pop()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.received.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    use levity_disk::usage::slept_during;

    #[test]
    fn a_full_channel_and_a_closed_one_give_the_item_back() {
        let (sender, receiver) = bounded(2);
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Ok(()));
        assert_eq!(sender.try_send(3), Err(Refused::Full(3)));
        assert_eq!((receiver.recv(), receiver.try_recv()), (Some(1), Some(2)));
        assert_eq!(receiver.try_recv(), None);
        drop(receiver);
        assert_eq!(sender.try_send(4), Err(Refused::Closed(4)));
    }

    #[test]
    fn the_receiver_ends_with_the_last_sender() {
        let (sender, receiver) = bounded(8);
        let other = sender.clone();
        let thread = thread::spawn(move || std::iter::from_fn(|| receiver.recv()).count());
        drop(sender);
        assert_eq!(other.try_send(()), Ok(()));
        drop(other);
        assert_eq!(thread.join().expect("receiver"), 1);
    }

    /// As two loops do while a third thread writes what they log, and goes to sleep between two items.
    #[test]
    fn no_send_sleeps() {
        const ITEMS: usize = 200_000;
        let (sender, receiver) = bounded(64);
        let slept = thread::scope(|scope| {
            let threads: Vec<_> = [sender.clone(), sender]
                .into_iter()
                .map(|sender| {
                    scope.spawn(move || {
                        let sleeps = |item: &usize| slept_during(|| sender.try_send(*item)).1;
                        (0..ITEMS).filter(sleeps).count()
                    })
                })
                .collect();
            scope.spawn(|| while receiver.recv().is_some() {});
            let counts = threads
                .into_iter()
                .map(|thread| thread.join().expect("sender"));
            counts.sum::<usize>()
        });
        assert_eq!(slept, 0, "of {} sends", 2 * ITEMS);
    }
}
