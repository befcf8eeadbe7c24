//! What arrives on an event loop: by it a task knows whether what it has found out is still up to date for all requests
//! that are here.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    static ARRIVALS: Cell<u64> = const { Cell::new(0) };
}

/// Rises on this thread with each read from a [`Transport`](crate::Transport) that moves bytes or finds their end, and with
/// each [`arrived`]. What was looked up since it last rose was looked up after all requests that this thread has read were
/// sent.
#[must_use]
pub fn arrivals() -> u64 {
    ARRIVALS.get()
}

/// Says that this thread may have learned something by another way than a transport.
pub fn arrived() {
    ARRIVALS.set(ARRIVALS.get() + 1);
}

/// Lets the other tasks run that are ready by now, so that they read what has arrived for them. What is looked up
/// afterwards serves all of them.
pub async fn others_read() {
    let mut has_waited = false;
    poll_fn(|context| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            // To the end of the queue. `yield_now` of the runtime would ask the kernel for events first.
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;
    use crate::Transport;

    #[tokio::test]
    async fn a_read_is_an_arrival() {
        let (mut near, mut far) = Transport::memory(100);
        let before = arrivals();
        assert!(near.try_read(&mut [0; 8]).is_err());
        far.write_all(b"bytes").await.expect("room");
        assert_eq!(arrivals(), before);
        near.read(&mut [0; 2]).await.expect("bytes");
        near.try_read(&mut [0; 2]).expect("bytes");
        assert_eq!(arrivals(), before + 2);
    }

    #[tokio::test]
    async fn whoever_is_ready_runs_before() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks = LocalSet::new();
        for name in [1, 2] {
            let order = order.clone();
            tasks.spawn_local(async move {
                order.borrow_mut().push(name);
                others_read().await;
                order.borrow_mut().push(name);
            });
        }
        tasks.await;
        assert_eq!(order.take(), [1, 2, 1, 2]);
    }
}
