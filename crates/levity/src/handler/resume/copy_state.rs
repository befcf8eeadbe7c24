//! What a box keeps of a stream, counted by the task that fills it: it has to know which events an append drops.

use std::collections::VecDeque;

use levity_mailbox::Settings;

/// The events of a box: their numbers, which have no holes in memory, and their sizes.
pub struct Kept {
    /// The number of the first one.
    first: u64,
    /// Their sizes in bytes.
    sizes: VecDeque<usize>,
    bytes: usize,
    /// The receiver has got those with smaller numbers.
    untaken: u64,
    /// The size of what the receiver has got.
    taken_bytes: usize,
}

impl Kept {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            first: 1,
            sizes: VecDeque::new(),
            bytes: 0,
            untaken: 1,
            taken_bytes: 0,
        }
    }

    /// The number of the first event.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next event.
    pub fn next(&self) -> u64 {
        self.first + self.sizes.len() as u64
    }

    /// Notes that the receiver has got the events up to the number `taken`, and no more: one that comes back may have got less
    /// than the one before.
    pub fn take(&mut self, taken: u64) {
        let untaken = taken.saturating_add(1).clamp(self.first, self.next());
        while self.untaken < untaken {
            self.taken_bytes += self.size(self.untaken);
            self.untaken += 1;
        }
        while self.untaken > untaken {
            self.untaken -= 1;
            self.taken_bytes -= self.size(self.untaken);
        }
    }

    fn size(&self, number: u64) -> usize {
        self.sizes[(number - self.first) as usize]
    }

    /// Whether one more event of `bytes` drops none at all.
    pub fn fits(&self, bytes: usize, settings: &Settings) -> bool {
        self.sizes.len() < settings.messages_max && self.bytes + bytes <= settings.bytes_max
    }

    /// Whether one more event of `bytes` drops none that the receiver has not got.
    pub fn has_room(&self, bytes: usize, settings: &Settings) -> bool {
        let untaken = (self.next() - self.untaken) as usize;
        let untaken_bytes = self.bytes - self.taken_bytes;
        untaken == 0
            || untaken < settings.messages_max && untaken_bytes + bytes <= settings.bytes_max
    }

    /// The bound by which an event of `bytes` drops as many that the receiver has got; `None` if there are not as many.
    pub fn bound_to_replace(&self, bytes: usize) -> Option<usize> {
        (bytes <= self.taken_bytes).then_some(self.bytes)
    }

    /// Notes an event that is appended with these `settings`, and what the box drops for it.
    pub fn push(&mut self, bytes: usize, settings: &Settings) {
        self.sizes.push_back(bytes);
        self.bytes += bytes;
        while self.sizes.len() > settings.messages_max
            || self.bytes > settings.bytes_max && self.sizes.len() > 1
        {
            let dropped = self.sizes.pop_front().expect("there is one");
            self.bytes -= dropped;
            match self.untaken > self.first {
                true => self.taken_bytes -= dropped,
                false => self.untaken += 1,
            }
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levity_mailbox::Mode;

    use super::*;

    fn settings(messages_max: usize, bytes_max: usize) -> Settings {
        Settings {
            set: "s".to_owned(),
            mode: Mode::Topic,
            messages_max,
            bytes_max,
            lifetime: None,
            idle: Duration::from_secs(60),
            boxes_max: 1,
            receivers_max: 1,
            keeps_all: false,
            is_durable: false,
        }
    }

    #[test]
    fn what_the_receiver_has_not_got_has_no_room_beyond_the_bounds() {
        let settings = settings(3, 100);
        let mut kept = Kept::new();
        assert!(kept.has_room(1000, &settings), "an only event always has");
        kept.push(60, &settings);
        assert!(kept.has_room(40, &settings) && !kept.has_room(41, &settings));
        assert!(kept.fits(40, &settings) && !kept.fits(41, &settings));
        kept.take(1);
        assert!(kept.has_room(1000, &settings));
        kept.push(40, &settings);
        assert!(kept.has_room(60, &settings) && !kept.has_room(61, &settings));
        kept.push(60, &settings);
        assert_eq!((kept.first(), kept.next()), (2, 4));
        kept.take(3);
        for _ in 0..3 {
            assert!(kept.has_room(1, &settings));
            kept.push(1, &settings);
        }
        assert!(!kept.has_room(1, &settings) && !kept.fits(1, &settings));
        assert_eq!((kept.first(), kept.next()), (4, 7));
    }

    #[test]
    fn what_the_receiver_has_got_gives_way() {
        let wide = settings(100, 1000);
        let mut kept = Kept::new();
        (0..5).for_each(|_| kept.push(10, &wide));
        assert_eq!(kept.bound_to_replace(1), None);
        kept.take(2);
        assert_eq!(kept.bound_to_replace(21), None);
        let bound = kept.bound_to_replace(15).expect("two of 10");
        kept.push(15, &settings(100, bound));
        assert_eq!((kept.first(), kept.next()), (3, 7));
        // It was on its way to a connection that was lost.
        kept.take(4);
        kept.take(3);
        assert_eq!(kept.bound_to_replace(11), None);
        assert!(kept.bound_to_replace(10).is_some());
        // No number is too small or too large.
        kept.take(0);
        assert_eq!(kept.bound_to_replace(1), None);
        kept.take(u64::MAX);
        assert!(kept.bound_to_replace(45).is_some());
    }

    #[test]
    fn the_oldest_events_give_way_while_nobody_is_there() {
        let settings = settings(100, 30);
        let mut kept = Kept::new();
        (0..5).for_each(|_| kept.push(10, &settings));
        assert_eq!((kept.first(), kept.next()), (3, 6));
        kept.take(3);
        assert!(kept.bound_to_replace(10).is_some() && kept.bound_to_replace(11).is_none());
    }
}
