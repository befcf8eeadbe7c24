//! How fast one device is: what its jobs took, and since when the one in flight for longest has been.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Completion, Done, Ready};
use crate::stats::{self, Histogram, Timer};

/// Jobs in flight whose start is known, per device. One that finds no place is younger than those that
/// have one, so the oldest is missed only until they are through.
const BEGUN_MAX: usize = 64;

/// Written by the threads of an engine and by the scheduler's, read by anyone. Takes no lock: those who
/// ask must not keep the ones from waiting who work.
#[derive(Debug)]
pub(crate) struct Pace {
    epoch: Instant,
    /// When jobs in flight were begun, in nanoseconds since `epoch` and never 0; 0 is a free place.
    began_ns: [AtomicU64; BEGUN_MAX],
    bytes_read: AtomicU64,
    queue_time: Timer,
    service_time: Timer,
}

/// One job in flight; it has come back when this is dropped.
pub(crate) struct Begun {
    pace: Arc<Pace>,
    place: Option<usize>,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            epoch: Instant::now(),
            began_ns: array::from_fn(|_| AtomicU64::new(0)),
            bytes_read: AtomicU64::new(0),
            queue_time: Timer::default(),
            service_time: Timer::default(),
        }
    }

    /// A job has been given to the engine.
    pub(crate) fn begin(self: Arc<Pace>) -> Begun {
        let now = self.now_ns();
        let free = |place: &AtomicU64| {
            let taken = place.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        let place = self.began_ns.iter().position(free);
        Begun { pace: self, place }
    }

    /// How long the job has been in flight that was begun first.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let began = self.began_ns.iter().map(stats::get);
        let first = began.filter(|began| *began > 0).min()?;
        Some(Duration::from_nanos(self.now_ns().saturating_sub(first)))
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        stats::get(&self.bytes_read)
    }

    pub(crate) fn queue_time(&self) -> Histogram {
        self.queue_time.snapshot()
    }

    pub(crate) fn service_time(&self) -> Histogram {
        self.service_time.snapshot()
    }

    fn now_ns(&self) -> u64 {
        let since = u64::try_from(self.epoch.elapsed().as_nanos());
        since.unwrap_or(u64::MAX).max(1)
    }
}

impl Begun {
    /// What came of it.
    pub(crate) fn count(&self, completion: &Completion) {
        self.pace.queue_time.add(completion.queued);
        self.pace.service_time.add(completion.service);
        stats::add(&self.pace.bytes_read, bytes_read(completion));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.pace.began_ns[place].store(0, Ordering::Relaxed);
        }
    }
}

fn bytes_read(completion: &Completion) -> u64 {
    let ready = match &completion.result {
        Ok(Done::Read(ready, _)) => Some(ready),
        Ok(Done::Opened { first, .. }) => first.as_ref(),
        _ => None,
    };
    ready.map_or(0, |ready: &Ready| ready.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_oldest_is_the_one_begun_first() {
        let pace = Arc::new(Pace::new());
        assert_eq!(pace.oldest(), None);
        let first = Arc::clone(&pace).begin();
        let while_alone = pace.oldest().unwrap();
        let second = Arc::clone(&pace).begin();
        let with_both = pace.oldest().unwrap();
        assert!(with_both >= while_alone);
        drop(first);
        let third = Arc::clone(&pace).begin();
        drop(second);
        assert!(pace.oldest().is_some());
        drop(third);
        assert_eq!(pace.oldest(), None);
    }

    #[test]
    fn more_than_have_a_place_do_no_harm() {
        let pace = Arc::new(Pace::new());
        let flights: Vec<_> = (0..BEGUN_MAX + 3)
            .map(|_| Arc::clone(&pace).begin())
            .collect();
        assert!(pace.oldest().is_some());
        drop(flights);
        assert_eq!(pace.oldest(), None);
    }

    #[test]
    fn what_came_of_it_is_counted() {
        let pace = Arc::new(Pace::new());
        let completion = Completion {
            result: Err(io::ErrorKind::NotFound.into()),
            queued: Duration::from_micros(40),
            service: Duration::from_millis(3),
            direct: false,
        };
        Arc::clone(&pace).begin().count(&completion);
        assert_eq!(pace.bytes_read(), 0);
        assert_eq!(pace.queue_time().counts[0], 1);
        assert_eq!(pace.service_time().sum, Duration::from_millis(3));
    }
}
