//! How long reads took, by how many were under way: whether more readers read more.

use super::run::{Mark, Run};

/// With fewer reads a level says nothing.
const READS_MIN: u64 = 20;

/// The share of the most reads per second that is nearly all of them.
const NEARLY: f64 = 0.8;

/// Reads that began while about as many were in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// In flight, the read itself included: from this many to as many as `to`.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) reads: u64,
    pub(super) mean_in_flight: f64,
    pub(super) mean_read_us: f64,
}

impl Level {
    /// Reads per second that a device finishes which always has so many (Little's law).
    pub(super) fn per_second(&self) -> f64 {
        self.mean_in_flight / self.mean_read_us.max(1e-3) * 1e6
    }
}

/// Levels that double: 1, 2, 3 to 4, 5 to 8. Empty when the log does not tell of single reads.
pub(super) fn levels(run: &Run) -> Vec<Level> {
    if !run.knows_reads() {
        return Vec::new();
    }
    let reads = run.read_marks.kept();
    let stride = run.read_marks.stride() as u64;
    let flight = Flight::of(reads);
    let mut sums: Vec<(u64, f64, f64)> = Vec::new();
    for read in reads {
        let in_flight = flight.mean_during(read).max(1.0) * stride as f64;
        let place = (in_flight.round() as u64).next_power_of_two().ilog2() as usize;
        if place >= sums.len() {
            sums.resize(place + 1, (0, 0.0, 0.0));
        }
        let (count, flight, took) = &mut sums[place];
        *count += 1;
        *flight += in_flight;
        *took += read.took_us as f64;
    }
    let level = |(place, (count, flight, took)): (usize, (u64, f64, f64))| Level {
        from: if place == 0 {
            1
        } else {
            (1 << (place - 1)) + 1
        },
        to: 1 << place,
        reads: count * stride,
        mean_in_flight: flight / count.max(1) as f64,
        mean_read_us: took / count.max(1) as f64,
    };
    let all = sums.into_iter().enumerate().map(level);
    all.filter(|level| level.reads > 0).collect()
}

/// How many reads were in flight at any time.
struct Flight {
    starts: Moments,
    ends: Moments,
}

impl Flight {
    fn of(reads: &[Mark]) -> Self {
        Self {
            starts: Moments::new(reads.iter().map(|read| read.at_us)),
            ends: Moments::new(reads.iter().map(end_us)),
        }
    }

    /// On average while `read` was, itself included. The number at its start would not do: those that
    /// join later slow it down too.
    fn mean_during(&self, read: &Mark) -> f64 {
        let until = |us| self.starts.area(us) - self.ends.area(us);
        let area = until(end_us(read)) - until(read.at_us);
        area as f64 / read.took_us.max(1) as f64
    }
}

fn end_us(read: &Mark) -> i64 {
    read.at_us + read.took_us as i64
}

/// Moments in order, and the sum of each and all before it.
struct Moments {
    sorted: Vec<i64>,
    sums: Vec<i128>,
}

impl Moments {
    fn new(moments: impl Iterator<Item = i64>) -> Self {
        let mut sorted: Vec<_> = moments.collect();
        sorted.sort_unstable();
        let add = |sum: &mut i128, moment: &i64| {
            *sum += i128::from(*moment);
            Some(*sum)
        };
        let sums = std::iter::once(0).chain(sorted.iter().scan(0, add));
        Self {
            sums: sums.collect(),
            sorted,
        }
    }

    /// Of all moments before `us`, the distances to it added up.
    fn area(&self, us: i64) -> i128 {
        let before = self.sorted.partition_point(|moment| *moment < us);
        before as i128 * i128::from(us) - self.sums[before]
    }
}

/// Where more readers stop to read more: the calmest level that reads nearly as much as any, and the
/// busiest, if that has twice as many readers at least.
pub(super) fn crowd(levels: &[Level]) -> Option<(Level, Level)> {
    let mut telling = levels.iter().filter(|level| level.reads >= READS_MIN);
    let most = telling.clone().map(Level::per_second).fold(0.0, f64::max);
    let enough = *telling
        .clone()
        .find(|level| level.per_second() >= most * NEARLY)?;
    let busiest = *telling.next_back()?;
    (busiest.mean_in_flight >= 2.0 * enough.mean_in_flight).then_some((enough, busiest))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::timing::lines::{Request, Timing};
    use levity_telemetry::chunks::Chunk;

    /// A run of `count` reads one after the other in each of `lanes` lanes, each read taking `read_us` and
    /// having waited for `queue_us`.
    pub(in super::super) fn reads(
        run: &mut Run,
        lanes: u64,
        count: u64,
        queue_us: u64,
        read_us: u64,
    ) {
        let began_us = run.began_us() + (run.length_s() * 1e6) as i64 + 1_000_000;
        for number in 0..count {
            for lane in 0..lanes {
                let start = queue_us;
                let end = start + read_us;
                run.add(&Request {
                    arrived_us: began_us + (number * read_us + lane) as i64 - queue_us as i64,
                    duration_us: end as f64 + 20.0,
                    io_wait_us: end as f64,
                    timing: Some(Timing {
                        queue: queue_us as f64,
                        read: read_us as f64,
                        write: 10.0,
                        trips: 1,
                        ..Timing::default()
                    }),
                    chunks: vec![Chunk {
                        disk: Some([0, start, end]),
                        write: Some([end, end + 10]),
                        bytes: 1,
                    }],
                    source: "disk".to_owned(),
                    engine: "threads".to_owned(),
                    ..Request::default()
                });
            }
        }
    }

    #[test]
    fn reads_are_counted_at_their_level() {
        let mut run = Run::default();
        reads(&mut run, 1, 50, 0, 1_000);
        reads(&mut run, 8, 50, 0, 2_000);
        let levels = levels(&run);
        let [calm, busy] = levels[..] else {
            panic!("two levels: {levels:?}")
        };
        assert_eq!((calm.from, calm.to, calm.mean_read_us), (1, 1, 1_000.0));
        assert_eq!((busy.from, busy.to, busy.mean_read_us), (5, 8, 2_000.0));
        assert!((7.9..=8.0).contains(&busy.mean_in_flight), "{busy:?}");
        assert!((calm.per_second() - 1_000.0).abs() < 1.0);
        assert!((3_950.0..=4_000.0).contains(&busy.per_second()), "{busy:?}");
        assert_eq!(crowd(&levels), None, "more readers read more");
        let counted: u64 = levels.iter().map(|level| level.reads).sum();
        assert_eq!(counted, 50 + 8 * 50);
    }

    #[test]
    fn a_crowd_begins_where_more_readers_read_no_more() {
        let mut run = Run::default();
        for (lanes, read_us) in [(1, 10_000), (4, 16_000), (16, 60_000)] {
            reads(&mut run, lanes, 30, 0, read_us);
        }
        let (enough, busiest) = crowd(&levels(&run)).expect("a crowd");
        assert_eq!((enough.to, busiest.to), (4, 16));
    }

    #[test]
    fn levels_that_lie_near_are_no_crowd() {
        let mut run = Run::default();
        reads(&mut run, 1, 50, 0, 1_000);
        assert_eq!(crowd(&levels(&run)), None);
        assert_eq!(crowd(&[]), None);
    }
}
