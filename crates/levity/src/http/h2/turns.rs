//! Streams that wait to write: for their turn, or for the windows of the client.

use std::task::Waker;

use levity_wire::http2::{Priority, StreamId};

/// The streams that wait: at most as many as a client may have open.
#[derive(Default)]
pub struct Turns {
    waiting: Vec<Turn>,
    /// The number of waits so far.
    count: u64,
    /// The streams that wait for the windows of the client.
    blocked: Vec<(StreamId, Waker)>,
}

struct Turn {
    stream: StreamId,
    /// The smallest goes first: by urgency, then streams that are not incremental by their numbers, then the others as they came.
    rank: (u8, bool, u64),
    waker: Waker,
}

impl Turns {
    /// `stream` waits for its turn. If it waits already, it keeps its place.
    pub fn wait(&mut self, stream: StreamId, priority: Priority, waker: &Waker) {
        let mut waiting = self.waiting.iter_mut();
        let turn = waiting.find(|turn| turn.stream == stream);
        if let Some(turn) = turn.filter(|turn| turn.rank.1 == priority.is_incremental) {
            turn.waker.clone_from(waker);
            turn.rank.0 = priority.urgency;
            return;
        }
        self.leave(stream);
        self.count += 1;
        let place = match priority.is_incremental {
            true => self.count,
            false => stream.into(),
        };
        self.waiting.push(Turn {
            stream,
            rank: (priority.urgency, priority.is_incremental, place),
            waker: waker.clone(),
        });
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

    /// `stream` waits for the windows of the client.
    pub fn block(&mut self, stream: StreamId, waker: &Waker) {
        let mut blocked = self.blocked.iter_mut();
        match blocked.find(|(other, _)| *other == stream) {
            Some((_, known)) => known.clone_from(waker),
            None => self.blocked.push((stream, waker.clone())),
        }
    }

    /// Wakes `stream`, or all, if it waits for windows.
    pub fn wake_blocked(&mut self, stream: Option<StreamId>) {
        let is_meant =
            |(other, _): &mut (StreamId, Waker)| stream.is_none_or(|stream| stream == *other);
        for (_, waker) in self.blocked.extract_if(.., is_meant) {
            waker.wake();
        }
    }

    /// Wakes `stream` and removes it.
    pub fn remove(&mut self, stream: StreamId) {
        for turn in self.waiting.extract_if(.., |turn| turn.stream == stream) {
            turn.waker.wake();
        }
        for (_, waker) in self.blocked.extract_if(.., |(other, _)| *other == stream) {
            waker.wake();
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
    fn a_stream_that_goes_before_others_keeps_its_place_and_one_that_changes_finds_its_own() {
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
        // The client changes its mind.
        wait(&mut turns, 1, true);
        wait(&mut turns, 5, true);
        wait(&mut turns, 5, false);
        for _ in 0..3 {
            turns.wake_next();
        }
        assert_eq!(woken.take(), [3, 5, 1]);
    }

    #[test]
    fn windows_are_waited_for_apart() {
        let (mut turns, woken) = (Turns::default(), Woken::default());
        for stream in [1, 3, 1, 5] {
            turns.block(stream, &woken.waker(stream));
        }
        turns.wake_next();
        assert!(woken.take().is_empty());
        turns.remove(3);
        turns.wake_blocked(Some(5));
        turns.wake_blocked(None);
        turns.wake_blocked(None);
        assert_eq!(woken.take(), [3, 5, 1]);
    }
}
