//! The clock of an event loop: read at each sweep, because reading it costs as much as parsing a header.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_wire::date;

/// The time as of the last sweep.
pub struct Clock(Cell<Time>);

impl Default for Clock {
    /// The time now.
    fn default() -> Self {
        Self(Cell::new(Time::now()))
    }
}

impl Clock {
    /// Reads both clocks.
    pub fn read(&self) {
        self.0.set(Time::now());
    }

    /// The date as of the last sweep.
    pub fn date(&self) -> [u8; date::LEN] {
        self.0.get().date
    }

    /// The wall clock at `instant`, computed from the last sweep.
    pub fn wall_time(&self, instant: Instant) -> SystemTime {
        let time = self.0.get();
        match instant.checked_duration_since(time.instant) {
            Some(since) => time.wall + since,
            None => time.wall - (time.instant - instant),
        }
    }
}

/// One moment on both clocks, and as an HTTP date.
#[derive(Clone, Copy)]
struct Time {
    instant: Instant,
    wall: SystemTime,
    date: [u8; date::LEN],
}

impl Time {
    fn now() -> Self {
        let (wall, instant) = clocks();
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            instant,
            wall,
            date: date::format(since.as_secs()),
        }
    }
}

/// Both clocks at one moment. A thread that loses its processor between two reads gets two moments; it reads them again.
fn clocks() -> (SystemTime, Instant) {
    const APART_MAX: Duration = Duration::from_micros(10);
    const READS_MAX: usize = 8;
    let read = || {
        let before = Instant::now();
        let wall = SystemTime::now();
        let instant = Instant::now();
        (instant - before, wall, instant)
    };
    let mut closest = read();
    for _ in 1..READS_MAX {
        if closest.0 <= APART_MAX {
            break;
        }
        closest = closest.min(read());
    }
    (closest.1, closest.2)
}
