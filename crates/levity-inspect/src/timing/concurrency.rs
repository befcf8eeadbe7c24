//! The time of reads by the number in flight, which shows whether more concurrent reads give more throughput.

use super::run::{Interval, Run};

/// A level with fewer reads is not significant.
const READS_MIN: u64 = 20;

/// The share of the highest rate that counts as nearly as much.
const NEARLY: f64 = 0.8;

/// The reads that had about as many in flight, themselves included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// The fewest in flight.
    pub(super) from: u64,
    /// The most in flight.
    pub(super) to: u64,
    pub(super) reads: u64,
    pub(super) mean_in_flight: f64,
    pub(super) mean_read_us: f64,
}

impl Level {
    /// Reads per second of a device that always has so many in flight (Little's law).
    pub(super) fn per_second(&self) -> f64 {
        self.mean_in_flight / self.mean_read_us.max(1e-3) * 1e6
    }
}

/// The sums of a level.
#[derive(Clone, Default)]
struct Sums {
    reads: u64,
    in_flight: f64,
    read_us: f64,
}

impl Sums {
    /// Level 0 is one read in flight, each further one doubles: 2, 3 to 4, 5 to 8.
    fn level(&self, power: usize, stride: u64) -> Level {
        Level {
            from: if power == 0 {
                1
            } else {
                (1 << (power - 1)) + 1
            },
            to: 1 << power,
            reads: self.reads * stride,
            mean_in_flight: self.in_flight / self.reads as f64,
            mean_read_us: self.read_us / self.reads as f64,
        }
    }
}

/// The levels that have reads, from calm to busy. Empty when the log has no single reads.
pub(super) fn levels(run: &Run) -> Vec<Level> {
    if !run.has_single_reads() {
        return Vec::new();
    }
    let reads = run.read_sample.kept();
    let stride = run.read_sample.stride() as u64;
    let all = InFlight::of(reads);
    let mut sums: Vec<Sums> = Vec::new();
    for read in reads {
        let in_flight = all.mean_during(read).max(1.0) * stride as f64;
        let power = (in_flight.round() as u64).next_power_of_two().ilog2() as usize;
        if power >= sums.len() {
            sums.resize(power + 1, Sums::default());
        }
        let sums = &mut sums[power];
        sums.reads += 1;
        sums.in_flight += in_flight;
        sums.read_us += read.length_us as f64;
    }
    let levels = sums.iter().enumerate().filter(|(_, sums)| sums.reads > 0);
    levels
        .map(|(power, sums)| sums.level(power, stride))
        .collect()
}

/// How many reads were in flight at any time.
struct InFlight {
    starts: Moments,
    ends: Moments,
}

impl InFlight {
    fn of(reads: &[Interval]) -> Self {
        Self {
            starts: Moments::new(reads.iter().map(|read| read.start_us)),
            ends: Moments::new(reads.iter().map(Interval::end_us)),
        }
    }

    /// The mean during `read`, itself included. The number at its start would not do: reads that start later
    /// slow it down too.
    fn mean_during(&self, read: &Interval) -> f64 {
        let until = |us| self.starts.area(us) - self.ends.area(us);
        let area = until(read.end_us()) - until(read.start_us);
        area as f64 / read.length_us.max(1) as f64
    }
}

/// Sorted moments and their prefix sums.
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

    /// The sum of the distances from each earlier moment to `us`.
    fn area(&self, us: i64) -> i128 {
        let before = self.sorted.partition_point(|moment| *moment < us);
        before as i128 * i128::from(us) - self.sums[before]
    }
}

/// Where a device is saturated: the calmest level that reads nearly as much as any, and the busiest level, if
/// that has at least twice as many readers.
pub(super) fn saturation(levels: &[Level]) -> Option<(Level, Level)> {
    let mut significant = levels.iter().filter(|level| level.reads >= READS_MIN);
    let highest = significant
        .clone()
        .map(Level::per_second)
        .fold(0.0, f64::max);
    let enough = *significant
        .clone()
        .find(|level| level.per_second() >= highest * NEARLY)?;
    let busiest = *significant.next_back()?;
    (busiest.mean_in_flight >= 2.0 * enough.mean_in_flight).then_some((enough, busiest))
}

#[cfg(test)]
mod tests {
    use super::super::tests::add_reads;
    use super::*;

    #[test]
    fn reads_are_counted_at_their_level() {
        let mut run = Run::default();
        add_reads(&mut run, 1, 50, 0, 1_000);
        add_reads(&mut run, 8, 50, 0, 2_000);
        let levels = levels(&run);
        let [calm, busy] = levels[..] else {
            panic!("two levels: {levels:?}")
        };
        assert_eq!((calm.from, calm.to, calm.mean_read_us), (1, 1, 1_000.0));
        assert_eq!((busy.from, busy.to, busy.mean_read_us), (5, 8, 2_000.0));
        assert!((7.9..=8.0).contains(&busy.mean_in_flight), "{busy:?}");
        assert!((calm.per_second() - 1_000.0).abs() < 1.0);
        assert!((3_950.0..=4_000.0).contains(&busy.per_second()), "{busy:?}");
        assert_eq!(saturation(&levels), None, "more readers read more");
        let counted: u64 = levels.iter().map(|level| level.reads).sum();
        assert_eq!(counted, 50 + 8 * 50);
    }

    #[test]
    fn a_device_is_saturated_where_more_readers_read_no_more() {
        let mut run = Run::default();
        for (lanes, read_us) in [(1, 10_000), (4, 16_000), (16, 60_000)] {
            add_reads(&mut run, lanes, 30, 0, read_us);
        }
        let (enough, busiest) = saturation(&levels(&run)).expect("saturated");
        assert_eq!((enough.to, busiest.to), (4, 16));
    }

    #[test]
    fn levels_that_lie_near_are_no_saturation() {
        let mut run = Run::default();
        add_reads(&mut run, 1, 50, 0, 1_000);
        assert_eq!(saturation(&levels(&run)), None);
        assert_eq!(saturation(&[]), None);
    }
}
