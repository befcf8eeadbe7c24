use std::sync::Arc;

use super::*;
use crate::log::tests::{draft, settings};
use crate::memory::MemoryStore;
use crate::name::Name;
use crate::store::{Append, Store as _};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// A clock on a machine whose time is simulated.
struct Machine {
    clock: Clock,
    now: Instant,
    wall: SystemTime,
}

impl Machine {
    /// Two years before the clock begins, nothing is before the time of the machine.
    fn new() -> Self {
        let (now, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + 2 * YEAR);
        Self {
            clock: Clock::new(now, wall),
            now,
            wall,
        }
    }

    /// Lets `time` pass; the clock follows that on the wall at each tick.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            self.wall += TICK;
            self.clock.follow(self.now, self.wall);
        }
    }

    fn time(&self) -> SystemTime {
        self.clock.at(self.now)
    }
}

#[test]
fn it_follows_the_wall_clock_by_one_percent_of_the_time() {
    let mut machine = Machine::new();
    machine.pass(10 * SECOND);
    assert_eq!(machine.time(), machine.wall);
    let start = machine.time();
    machine.wall += YEAR;
    machine.pass(100 * SECOND);
    assert_eq!(machine.time(), start + 101 * SECOND);
    machine.wall -= 2 * YEAR;
    machine.pass(100 * SECOND);
    assert_eq!(machine.time(), start + 200 * SECOND);
}

#[test]
fn it_reaches_a_wall_clock_that_is_near() {
    let mut machine = Machine::new();
    for change in [SystemTime::checked_add, SystemTime::checked_sub] {
        machine.wall = change(&machine.wall, SECOND).expect("a time");
        machine.pass(99 * SECOND);
        assert_ne!(machine.time(), machine.wall);
        machine.pass(2 * SECOND);
        assert_eq!(machine.time(), machine.wall);
    }
}

#[test]
fn more_threads_do_not_follow_faster() {
    let mut machine = Machine::new();
    let start = machine.time();
    machine.wall += YEAR;
    for _ in 0..1000 {
        machine.pass(TICK);
        // Others read their clocks a little earlier.
        for early in [Duration::ZERO, TICK / 2, 2 * TICK] {
            machine
                .clock
                .follow(machine.now - early, machine.wall - early);
        }
    }
    assert_eq!(machine.time(), start + 101 * SECOND);
}

#[test]
fn a_time_before_the_first_is_the_first() {
    let machine = Machine::new();
    assert_eq!(machine.clock.at(machine.now - SECOND), machine.wall);
}

/// Whether a store has the box of a message after each second. The wall clock is set to `change` of it at first.
fn lives(change: impl Fn(SystemTime) -> SystemTime) -> Vec<bool> {
    let (mut machine, mut store) = (Machine::new(), MemoryStore::new(7));
    let append = Append {
        update: None,
        name: Name::new("s", b"a").expect("a name"),
        settings: Arc::new(settings(10, usize::MAX)),
        draft: Arc::new(draft("acknowledged", None)),
    };
    drop(store.append(vec![append], machine.time()));
    machine.wall = change(machine.wall);
    let has_box = (1..70).map(|_| {
        machine.pass(SECOND);
        store.sweep(machine.time());
        store.figures().boxes == 1
    });
    has_box.collect()
}

#[test]
fn a_jump_of_the_wall_clock_neither_drops_a_box_nor_keeps_it() {
    for change in [|wall| wall + YEAR, |wall| wall - YEAR, |wall| wall] {
        let lives = lives(change);
        let seconds = lives.iter().filter(|lives| **lives).count();
        assert!((58..=61).contains(&seconds), "{seconds} s of 60 s");
    }
}
