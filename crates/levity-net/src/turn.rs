//! Turns: a bound on the bytes that a connection moves before its event loop serves others.

use std::cell::Cell;

use tokio::task;

/// Bytes that one connection may move in a turn: about 50 microseconds.
pub const TURN_BYTES_MAX: usize = 256 * 1024;

/// The turn of one connection.
#[derive(Debug, Default)]
pub struct Turn {
    /// Moved since the turn began.
    bytes: Cell<usize>,
}

impl Turn {
    /// Begins a new turn, because the connection has waited and the others were served meanwhile.
    pub fn restart(&self) {
        self.bytes.set(0);
    }

    /// Bytes that may be moved before it is used up.
    pub fn left(&self) -> usize {
        TURN_BYTES_MAX.saturating_sub(self.bytes.get())
    }

    /// Counts bytes that were moved, about as many as are [left](Self::left) at most. If they use it up, the next
    /// [`spend`](Self::spend) yields.
    pub fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Counts bytes that were moved. Yields to the other tasks of the loop when the turn is used up.
    pub async fn spend(&self, bytes: usize) {
        self.count(bytes);
        if self.bytes.get() >= TURN_BYTES_MAX {
            self.bytes.set(0);
            task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn yields(turn: &Turn, bytes: usize) -> bool {
        let spent = pin!(turn.spend(bytes));
        spent
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }

    #[test]
    fn a_used_up_turn_yields_once() {
        let turn = Turn::default();
        assert!(!yields(&turn, TURN_BYTES_MAX - 1));
        assert!(yields(&turn, 1));
        assert!(!yields(&turn, TURN_BYTES_MAX - 1));
    }

    #[test]
    fn bytes_that_are_only_counted_use_it_up() {
        let turn = Turn::default();
        turn.count(TURN_BYTES_MAX - 1);
        assert_eq!(turn.left(), 1);
        turn.count(2);
        assert_eq!(turn.left(), 0);
        assert!(yields(&turn, 0));
        assert_eq!(turn.left(), TURN_BYTES_MAX);
    }

    #[test]
    fn a_wait_begins_a_new_turn() {
        let turn = Turn::default();
        assert!(!yields(&turn, TURN_BYTES_MAX - 1));
        turn.restart();
        assert!(!yields(&turn, TURN_BYTES_MAX - 1));
    }
}
