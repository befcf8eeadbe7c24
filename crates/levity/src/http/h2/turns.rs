//! Streams that wait to write: for their turn, or for the windows of the client.

use std::task::Waker;

use levity_wire::http2::{Priority, StreamId};

/// The streams that wait: at most as many as a client may have open.
#[derive(Default)]
pub struct Turns {
    waiting: Vec<Turn>,
    /// The number of waits so far.
    count: u64,
    /// The streams that have sent nothing since they waited for the windows of the client.
    blocked: Vec<Turn>,
}

struct Turn {
    stream: StreamId,
    /// The smallest goes first: by urgency, then streams that are not incremental by their numbers, then the others as they came.
    rank: (u8, bool, u64),
    waker: Waker,
}

/// Adds a wait of `stream` to `turns`, the `count`th of all. If it waits already, it keeps its place.
fn queue(turns: &mut Vec<Turn>, stream: StreamId, priority: Priority, waker: &Waker, count: u64) {
    match turns.iter_mut().find(|turn| turn.stream == stream) {
        Some(turn) => turn.waker.clone_from(waker),
        None => turns.push(Turn {
            stream,
            rank: rank(stream, priority, count),
            waker: waker.clone(),
        }),
    }
}

/// The rank of `stream`, which has waited for the `count`th time of all.
fn rank(stream: StreamId, priority: Priority, count: u64) -> (u8, bool, u64) {
    let place = match priority.is_incremental {
        true => count,
        false => stream.into(),
    };
    (priority.urgency, priority.is_incremental, place)
}

impl Turns {
    /// `stream` waits for its turn. If it waits already, it keeps its place.
    pub fn wait(&mut self, stream: StreamId, priority: Priority, waker: &Waker) {
        self.count += 1;
        queue(&mut self.waiting, stream, priority, waker, self.count);
    }

    /// `stream` has another priority.
    pub fn change(&mut self, stream: StreamId, priority: Priority) {
        self.count += 1;
        let turns = self.waiting.iter_mut().chain(&mut self.blocked);
        for turn in turns.filter(|turn| turn.stream == stream) {
            turn.rank = rank(stream, priority, self.count);
        }
    }

    /// Wakes the stream whose turn it is, and removes it.
    pub fn wake_next(&mut self) {
        let turns = self.waiting.iter().enumerate();
        if let Some((first, _)) = turns.min_by_key(|(_, turn)| turn.rank) {
            self.waiting.swap_remove(first).waker.wake();
        }
    }

    /// `stream` writes now, without a turn.
    pub fn leave(&mut self, stream: StreamId) {
        self.waiting.retain(|turn| turn.stream != stream);
    }

    /// `stream` waits for the windows of the client. If it has sent nothing since it last waited, it keeps its place.
    pub fn block(&mut self, stream: StreamId, priority: Priority, waker: &Waker) {
        self.count += 1;
        queue(&mut self.blocked, stream, priority, waker, self.count);
    }

    /// `stream` has sent something.
    pub fn unblock(&mut self, stream: StreamId) {
        self.blocked.retain(|turn| turn.stream != stream);
    }

    /// Wakes `stream`, or all, if it waits for windows. All are woken in the order of their turns, because the first may fill the
    /// window again.
    pub fn wake_blocked(&mut self, stream: Option<StreamId>) {
        self.blocked.sort_unstable_by_key(|turn| turn.rank);
        let is_meant = |turn: &&Turn| stream.is_none_or(|stream| stream == turn.stream);
        for turn in self.blocked.iter().filter(is_meant) {
            turn.waker.wake_by_ref();
        }
    }

    /// Wakes `stream` and removes it.
    pub fn remove(&mut self, stream: StreamId) {
        for turn in self.waiting.extract_if(.., |turn| turn.stream == stream) {
            turn.waker.wake();
        }
        for turn in self.blocked.extract_if(.., |turn| turn.stream == stream) {
            turn.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::task::Wake;

    use super::*;

    /// Writes down which streams are woken.
    #[derive(Clone, Default)]
    struct Woken(Arc<Mutex<Vec<StreamId>>>);

    struct Mark(StreamId, Woken);

    impl Wake for Mark {
        fn wake(self: Arc<Self>) {
            self.1.0.lock().expect("no panic").push(self.0);
        }
    }

    impl Woken {
        fn waker(&self, stream: StreamId) -> Waker {
            Arc::new(Mark(stream, self.clone())).into()
        }

        fn take(&self) -> Vec<StreamId> {
            std::mem::take(&mut self.0.lock().expect("no panic"))
        }
    }

    #[test]
    fn urgent_streams_go_first_and_equal_ones_take_turns() {
        let (mut turns, woken) = (Turns::default(), Woken::default());
        let wait = |turns: &mut Turns, stream, urgency, is_incremental| {
            let priority = Priority {
                urgency,
                is_incremental,
            };
            turns.wait(stream, priority, &woken.waker(stream));
        };
        for (stream, urgency, is_incremental) in [
            (1, 3, true),
            (3, 3, true),
            (7, 3, false),
            (5, 3, false),
            (9, 0, true),
            (11, 7, false),
            (1, 3, true),
        ] {
            wait(&mut turns, stream, urgency, is_incremental);
        }
        turns.remove(11);
        assert_eq!(woken.take(), [11]);
        wait(&mut turns, 13, 0, true);
        turns.leave(13);
        for _ in 0..4 {
            turns.wake_next();
        }
        // Stream 1 has written, and has more.
        wait(&mut turns, 1, 3, true);
        for _ in 0..3 {
            turns.wake_next();
        }
        assert_eq!(woken.take(), [9, 5, 7, 1, 3, 1]);
    }

    #[test]
    fn a_stream_that_goes_before_others_keeps_its_place_and_one_that_changes_gets_its_own() {
        let (mut turns, woken) = (Turns::default(), Woken::default());
        let wait = |turns: &mut Turns, stream, is_incremental| {
            let priority = Priority {
                urgency: 3,
                is_incremental,
            };
            turns.wait(stream, priority, &woken.waker(stream));
        };
        wait(&mut turns, 3, false);
        wait(&mut turns, 1, false);
        for _ in 0..3 {
            turns.wake_next();
            // It has written, and has more.
            wait(&mut turns, 1, false);
        }
        assert_eq!(woken.take(), [1, 1, 1]);
        wait(&mut turns, 5, true);
        let change = |turns: &mut Turns, stream, urgency, is_incremental| {
            let priority = Priority {
                urgency,
                is_incremental,
            };
            turns.change(stream, priority);
        };
        change(&mut turns, 1, 3, true);
        change(&mut turns, 5, 0, true);
        change(&mut turns, 7, 0, true);
        for _ in 0..4 {
            turns.wake_next();
        }
        assert_eq!(woken.take(), [5, 3, 1]);
    }

    #[test]
    fn windows_are_waited_for_apart() {
        let (mut turns, woken) = (Turns::default(), Woken::default());
        for stream in [1, 3, 1, 5] {
            turns.block(stream, Priority::default(), &woken.waker(stream));
        }
        turns.wake_next();
        assert!(woken.take().is_empty());
        turns.remove(3);
        turns.wake_blocked(Some(5));
        turns.unblock(5);
        turns.wake_blocked(None);
        turns.unblock(1);
        turns.wake_blocked(None);
        assert_eq!(woken.take(), [3, 5, 1]);
    }

    #[test]
    fn more_room_in_the_window_of_all_goes_to_urgent_streams_and_then_around() {
        let (mut turns, woken) = (Turns::default(), Woken::default());
        let block = |turns: &mut Turns, stream, urgency| {
            let priority = Priority {
                urgency,
                is_incremental: true,
            };
            turns.block(stream, priority, &woken.waker(stream));
        };
        for (stream, urgency) in [(1, 3), (3, 3), (5, 7), (7, 0)] {
            block(&mut turns, stream, urgency);
        }
        turns.wake_blocked(None);
        assert_eq!(woken.take(), [7, 1, 3, 5]);
        turns.unblock(7);
        // Stream 1 has filled the window, and has more; the others could not send.
        turns.unblock(1);
        block(&mut turns, 1, 3);
        block(&mut turns, 3, 3);
        turns.wake_blocked(None);
        assert_eq!(woken.take(), [3, 1, 5]);
    }
}
