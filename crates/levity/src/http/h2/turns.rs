//! The order in which streams write that have to wait for the connection.

use levity_wire::http2::{Priority, StreamId};

/// The streams that wait. There are at most as many as a client may have open.
#[derive(Default)]
pub struct Turns {
    waiting: Vec<Turn>,
    /// How many have waited so far.
    count: u64,
}

struct Turn {
    stream: StreamId,
    /// The smallest goes first: by urgency, then those that a client wants one after the other, then the others as they came.
    rank: (u8, bool, u64),
}

impl Turns {
    /// Puts `stream` into the queue, unless it waits already.
    pub fn wait(&mut self, stream: StreamId, priority: Priority) {
        if self.waiting.iter().any(|turn| turn.stream == stream) {
            return;
        }
        self.count += 1;
        let place = match priority.is_incremental {
            true => self.count,
            false => stream.into(),
        };
        let rank = (priority.urgency, priority.is_incremental, place);
        self.waiting.push(Turn { stream, rank });
    }

    /// The stream whose turn it is, which waits no more.
    pub fn next(&mut self) -> Option<StreamId> {
        let turns = self.waiting.iter().enumerate();
        let (first, _) = turns.min_by_key(|(_, turn)| turn.rank)?;
        Some(self.waiting.swap_remove(first).stream)
    }

    /// Removes a stream that has ended.
    pub fn remove(&mut self, stream: StreamId) {
        self.waiting.retain(|turn| turn.stream != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_streams_go_first_and_equal_ones_take_turns() {
        let mut turns = Turns::default();
        let priority = |urgency, is_incremental| Priority {
            urgency,
            is_incremental,
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
            turns.wait(stream, priority(urgency, is_incremental));
        }
        turns.remove(11);
        let mut order = Vec::new();
        while let Some(stream) = turns.next() {
            order.push(stream);
            if order.len() == 4 {
                // It has written, and has more.
                turns.wait(stream, priority(3, true));
            }
        }
        assert_eq!(order, [9, 5, 7, 1, 3, 1]);
    }
}
