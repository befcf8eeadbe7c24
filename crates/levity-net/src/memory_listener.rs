//! A listening socket in memory, for tests of what connects.
//!
//! [`connect`](crate::connect) finds it by its address, on the thread that made it only. Nothing happens by itself: a
//! connection is made when it is accepted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use levity_config::address::Address;
use tokio::sync::{Notify, oneshot};

use crate::transport::Transport;

thread_local! {
    static LISTENERS: RefCell<Vec<(Address, Weak<Backlog>)>> = const { RefCell::new(Vec::new()) };
}

/// Listens at an address until it is dropped; that refuses those who wait.
#[derive(Debug)]
pub struct MemoryListener {
    backlog: Rc<Backlog>,
}

/// Those who wait to be accepted; some may have given up.
#[derive(Debug, Default)]
struct Backlog {
    waiting: RefCell<VecDeque<oneshot::Sender<Transport>>>,
    arrived: Notify,
}

impl MemoryListener {
    /// Listens at `address`, in place of whoever did before.
    #[must_use]
    pub fn bind(address: Address) -> Self {
        let backlog = Rc::<Backlog>::default();
        LISTENERS.with_borrow_mut(|listeners| {
            listeners.retain(|(known, backlog)| *known != address && backlog.strong_count() > 0);
            listeners.push((address, Rc::downgrade(&backlog)));
        });
        Self { backlog }
    }

    /// Waits for a connection; `bytes_max` is the size of its buffer in each direction.
    pub async fn accept(&self, bytes_max: usize) -> Transport {
        let waiting = self.next().await;
        let (ours, theirs) = Transport::memory(bytes_max);
        // Who has given up meanwhile leaves a connection that is closed at its other end.
        let _ = waiting.send(theirs);
        ours
    }

    /// Waits for an attempt to connect, and refuses it.
    pub async fn refuse(&self) {
        drop(self.next().await);
    }

    /// Those who wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waiting = self.backlog.waiting.borrow();
        waiting.iter().filter(|one| !one.is_closed()).count()
    }

    async fn next(&self) -> oneshot::Sender<Transport> {
        loop {
            let next = self.backlog.waiting.borrow_mut().pop_front();
            match next {
                Some(one) if one.is_closed() => {}
                Some(one) => return one,
                None => self.backlog.arrived.notified().await,
            }
        }
    }
}

/// Joins those who wait to be accepted at `address`; `None` when nobody in memory listens there. An error is a refusal.
pub(crate) fn join(address: &Address) -> Option<oneshot::Receiver<Transport>> {
    let backlog = LISTENERS.with_borrow(|listeners| {
        let mut at = listeners.iter().filter(|(known, _)| known == address);
        at.find_map(|(_, backlog)| backlog.upgrade())
    })?;
    let (accepts, accepted) = oneshot::channel();
    backlog.waiting.borrow_mut().push_back(accepts);
    backlog.arrived.notify_one();
    Some(accepted)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn address() -> Address {
        Address::Unix("/memory".into())
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_connection_waits_until_it_is_accepted() {
        let (listener, address) = (MemoryListener::bind(address()), address());
        let mut accepting = pin!(listener.accept(8));
        assert!(poll(accepting.as_mut()).is_pending());
        let mut connecting = pin!(crate::connect(&address));
        assert!(poll(connecting.as_mut()).is_pending());
        let Poll::Ready(mut ours) = poll(accepting.as_mut()) else {
            panic!("nobody is accepted");
        };
        let Poll::Ready(Ok(mut theirs)) = poll(connecting.as_mut()) else {
            panic!("nobody is connected");
        };
        let context = &mut Context::from_waker(Waker::noop());
        assert!(ours.poll_write(context, b"a").is_ready());
        assert_eq!(theirs.try_read(&mut [0; 2]).expect("a byte"), 1);
    }

    #[test]
    fn a_connection_may_be_refused() {
        let (listener, address) = (MemoryListener::bind(address()), address());
        let mut connecting = pin!(crate::connect(&address));
        assert!(poll(connecting.as_mut()).is_pending());
        assert!(poll(pin!(listener.refuse())).is_ready());
        let Poll::Ready(Err(error)) = poll(connecting) else {
            panic!("it is connected");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn who_has_given_up_is_passed_over() {
        let (listener, address) = (MemoryListener::bind(address()), address());
        {
            let connecting = pin!(crate::connect(&address));
            assert!(poll(connecting).is_pending());
            assert_eq!(listener.waiting(), 1);
        }
        assert_eq!(listener.waiting(), 0);
        assert!(poll(pin!(listener.accept(8))).is_pending());
    }
}
