//! The bound on the jobs in flight per device: fixed, or adapted by trial.
//!
//! Too few jobs leave the disk idle between two reads, and give its elevator no choice. Too many do not raise
//! the throughput and make urgent jobs wait inside the device, which knows no classes. The right number
//! differs by a factor of ten between disks, and attributes such as `rotational` are often wrong. So the bound
//! is doubled on trial. It is kept if the throughput rises, and restored if only the latency does.
//!
//! Latency alone is no reason to lower the bound: jobs in flight wait for each other, also where the disk gets
//! faster with more to choose from. So a lower bound is a trial too, kept only if the throughput stays the
//! same. Both trials are repeated from time to time, because disks and workloads change.
//!
//! The time is passed by the caller.

use std::array;
use std::time::{Duration, Instant};

/// The first bound.
pub(super) const DEPTH_START: usize = 4;

/// The largest bound. Beyond it even a disk with many heads gains little.
pub(crate) const DEPTH_MAX: usize = 32;

/// The smallest bound: with one job the device would be idle while the next is prepared.
const DEPTH_MIN: usize = 2;

/// Bound on the bytes in flight, except for a single job. The bytes that opens read beyond their first ones are
/// not included, because their number is not known before.
const BYTES_MAX: usize = 16 << 20;

/// A window lasts at least this long...
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// ...until this many jobs have completed...
const WINDOW_JOBS: usize = 96;

/// ...or this many during the first climb...
const WINDOW_JOBS_AT_START: usize = 40;

/// ...but at most this long, for slow devices.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// Fewer jobs than this are not significant.
const WINDOW_JOBS_MIN: usize = 16;

/// Each job counts as this many bytes in addition to its own: small reads are limited by their number, large
/// ones by their bytes.
const JOB_BYTES: f64 = 65_536.0;

/// A rate higher by this factor is a gain and not chance.
const GAIN: f64 = 1.04;

/// A rate down to this factor counts as unchanged.
const LOSS: f64 = 0.98;

/// A median latency of this many times the best one is long.
const LONG: u32 = 3;

/// The best latency rises by this part with each window, because a disk may have become slower.
const BEST_FADES: u32 = 4096;

/// Windows between two trials.
const REST: u32 = 8;

/// Classes of sizes within which latencies are compared: up to these bytes, and above.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// The bound of one device.
#[derive(Debug)]
pub(super) struct Depth {
    limit: usize,
    max: usize,
    /// `None` if the bound is fixed.
    search: Option<Search>,
}

#[derive(Debug)]
struct Search {
    step: Step,
    /// The first climb, in shorter windows: a disk with many heads would else be idle for a second or two. A step
    /// that was kept by chance is tried again later.
    starting: bool,
    /// Windows until the next trial.
    rest: u32,
    /// Work per second at the bound before the trial.
    usual: f64,
    lower_next: bool,
    /// Jobs that were started under another bound and have not completed.
    settling: usize,
    window: Window,
    best: [Option<Duration>; SIZES.len() + 1],
}

/// The trial in the current window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    Raised { from: usize },
    Lowered { from: usize },
}

/// The jobs completed since a point in time.
#[derive(Debug)]
struct Window {
    since: Option<Instant>,
    jobs: usize,
    /// Jobs that completed while others were queued.
    limited: usize,
    bytes: u64,
    latencies: [Latencies; SIZES.len() + 1],
}

/// A completed job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Time in the engine.
    pub(super) latency: Duration,
    /// Bytes read or written.
    pub(super) bytes: usize,
    /// Whether other jobs waited for a slot.
    pub(super) limited: bool,
}

impl Depth {
    /// A fixed bound.
    pub(super) fn fixed(limit: usize) -> Depth {
        Depth {
            limit,
            max: limit,
            search: None,
        }
    }

    /// An adaptive bound of at most `max`.
    pub(super) fn adaptive(max: usize) -> Depth {
        Depth {
            limit: DEPTH_START.min(max),
            max,
            search: Some(Search::new()),
        }
    }

    /// The present bound.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a job of `len` bytes may start in addition to `jobs` jobs of `bytes` bytes.
    pub(super) fn admits(&self, jobs: usize, bytes: usize, len: usize) -> bool {
        jobs == 0 || jobs < self.limit && bytes.saturating_add(len) <= BYTES_MAX
    }

    /// Records a completed job.
    pub(super) fn completed(&mut self, now: Instant, sample: Sample) {
        let Some(search) = &mut self.search else {
            return;
        };
        if search.settling > 0 {
            search.settling -= 1;
            search.window = Window::new();
            return;
        }
        search.window.add(now, sample);
        let jobs = match search.starting {
            true => WINDOW_JOBS_AT_START,
            false => WINDOW_JOBS,
        };
        let Some(seconds) = search.window.is_over(now, jobs) else {
            return;
        };
        let window = std::mem::replace(&mut search.window, Window::new());
        search.window.since = Some(now);
        let long = search.took_long(&window);
        if window.is_limited() {
            let limit = search.judge(self.limit, self.max, window.work() / seconds, long);
            search.settling = if limit == self.limit { 0 } else { self.limit };
            self.limit = limit;
        }
    }
}

impl Search {
    fn new() -> Search {
        Search {
            step: Step::Nothing,
            starting: true,
            rest: 0,
            usual: 0.0,
            lower_next: false,
            settling: 0,
            window: Window::new(),
            best: [None; SIZES.len() + 1],
        }
    }

    /// The next bound, after a window at `limit` with `rate` work per second.
    fn judge(&mut self, limit: usize, max: usize, rate: f64, long: bool) -> usize {
        match self.step {
            Step::Nothing => {
                self.usual = match self.usual {
                    0.0 => rate,
                    usual => usual + (rate - usual) / 4.0,
                };
                self.rest = self.rest.saturating_sub(1);
                match self.rest {
                    0 => self.try_another(limit, max, long),
                    _ => limit,
                }
            }
            Step::Raised { from } if rate > self.usual * GAIN => {
                debug_assert!(from < limit);
                self.usual = rate;
                match limit < max {
                    true => self.raise(limit, max),
                    false => self.keep(limit),
                }
            }
            Step::Raised { from } if long => self.keep(from),
            Step::Raised { .. } => self.keep(limit),
            Step::Lowered { from } if rate < self.usual * LOSS => self.keep(from),
            Step::Lowered { .. } if long => self.lower(limit),
            Step::Lowered { .. } => self.keep(limit),
        }
    }

    fn try_another(&mut self, limit: usize, max: usize, long: bool) -> usize {
        let lower = self.lower_next && long && limit > DEPTH_MIN;
        self.lower_next = !self.lower_next;
        match lower {
            true => self.lower(limit),
            false if limit < max => self.raise(limit, max),
            false => self.keep(limit),
        }
    }

    fn raise(&mut self, limit: usize, max: usize) -> usize {
        self.step = Step::Raised { from: limit };
        (limit * 2).min(max)
    }

    fn lower(&mut self, limit: usize) -> usize {
        self.step = Step::Lowered { from: limit };
        (limit - (limit / 4).max(1)).max(DEPTH_MIN.min(limit))
    }

    fn keep(&mut self, limit: usize) -> usize {
        self.step = Step::Nothing;
        self.starting = false;
        self.rest = REST;
        limit
    }

    /// Whether the latency was much longer than the best one. Updates the best of each size.
    fn took_long(&mut self, window: &Window) -> bool {
        let mut long = false;
        for (best, latencies) in self.best.iter_mut().zip(&window.latencies) {
            let Some(median) = latencies.median() else {
                continue;
            };
            let known = best.map_or(median, |best| best + best / BEST_FADES);
            *best = Some(known.min(median));
            long |= median > known * LONG;
        }
        long
    }
}

impl Window {
    fn new() -> Window {
        Window {
            since: None,
            jobs: 0,
            limited: 0,
            bytes: 0,
            latencies: array::from_fn(|_| Latencies::default()),
        }
    }

    fn add(&mut self, now: Instant, sample: Sample) {
        // The job that opens a window is not counted: most of its time was before the window.
        if self.since.is_none() {
            self.since = Some(now);
            return;
        }
        self.jobs += 1;
        self.limited += usize::from(sample.limited);
        self.bytes += sample.bytes as u64;
        let size = SIZES.partition_point(|size| *size < sample.bytes);
        self.latencies[size].add(sample.latency);
    }

    /// The duration in seconds, if the window is over, as it is after `jobs` jobs.
    fn is_over(&self, now: Instant, jobs: usize) -> Option<f64> {
        let lasted = now.saturating_duration_since(self.since?);
        let over = lasted >= WINDOW_MAX || (lasted >= WINDOW_MIN && self.jobs >= jobs);
        over.then_some(lasted.as_secs_f64())
    }

    /// Whether the bound held jobs back nearly all the time. Only then it can be judged.
    fn is_limited(&self) -> bool {
        self.jobs >= WINDOW_JOBS_MIN && self.limited >= self.jobs - self.jobs / 8
    }

    fn work(&self) -> f64 {
        self.bytes as f64 + self.jobs as f64 * JOB_BYTES
    }
}

/// A histogram of latencies with powers of two as bounds, in microseconds. Precise enough for [`LONG`].
#[derive(Debug, Default)]
struct Latencies {
    counts: [u32; Latencies::STEPS],
    sums: [Duration; Latencies::STEPS],
}

impl Latencies {
    const STEPS: usize = 26;

    fn add(&mut self, latency: Duration) {
        let us = latency.as_micros().max(1);
        let step = (us.ilog2() as usize).min(Latencies::STEPS - 1);
        self.counts[step] += 1;
        self.sums[step] += latency;
    }

    /// The mean of the bucket that contains the median. `None` if there are too few values.
    fn median(&self) -> Option<Duration> {
        let all: u32 = self.counts.iter().sum();
        if (all as usize) < WINDOW_JOBS_MIN {
            return None;
        }
        let mut below = 0;
        let step = self.counts.iter().position(|count| {
            below += count;
            below * 2 >= all
        })?;
        Some(self.sums[step] / self.counts[step])
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// A device with units that work in parallel, and always enough jobs.
    #[derive(Debug, Clone, Copy)]
    struct Device {
        /// Heads, or channels of flash.
        units: usize,
        /// Each file belongs to one unit, as on striped disks; else any free unit takes a job.
        striped: bool,
        access_us: u64,
        bytes_per_us: u64,
        /// An elevator shortens the access time when many jobs are queued.
        elevator: bool,
    }

    struct Run {
        bytes_per_second: f64,
        depth: usize,
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    impl Device {
        /// Runs the device under `depth` for `seconds`. The result is from after the first two seconds.
        fn run(self, depth: &mut Depth, bytes: usize, seconds: u64, seed: u64) -> Run {
            let mut random = Random(seed * 0x9E37_79B9 + 1);
            // A run with a greater seed is later.
            let start = Instant::now() + Duration::from_secs(1000 * seed);
            let mut free_at = vec![0_u64; self.units];
            let mut queued = vec![0_usize; self.units];
            let mut ends: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
            let (mut now, mut done) = (0, 0);
            while now < seconds * 1_000_000 {
                while depth.admits(ends.len(), ends.len() * bytes, bytes) {
                    let unit = match self.striped {
                        true => random.below(self.units as u64) as usize,
                        false => (0..self.units).min_by_key(|at| free_at[*at]).unwrap(),
                    };
                    // Half to one and a half times the access time.
                    let mut access = self.access_us / 2 + random.below(self.access_us + 1);
                    if self.elevator {
                        let choice = (queued[unit] as f64 + 1.0).log2();
                        access = (access as f64 / (1.0 + choice / 4.0)) as u64;
                    }
                    queued[unit] += 1;
                    let end = free_at[unit].max(now) + access + bytes as u64 / self.bytes_per_us;
                    free_at[unit] = end;
                    ends.push(Reverse((end, now, unit)));
                }
                let Reverse((end, began, unit)) = ends.pop().unwrap();
                now = end;
                queued[unit] -= 1;
                done += u64::from(now > 2_000_000);
                depth.completed(
                    start + Duration::from_micros(now),
                    Sample {
                        latency: Duration::from_micros(now - began),
                        bytes,
                        limited: true,
                    },
                );
            }
            Run {
                bytes_per_second: (done * bytes as u64) as f64 / seconds.saturating_sub(2) as f64,
                depth: depth.limit(),
            }
        }

        fn best(self, bytes: usize) -> f64 {
            let run = |depth| {
                self.run(&mut Depth::fixed(depth), bytes, 12, 1)
                    .bytes_per_second
            };
            (1..=DEPTH_MAX).map(run).fold(0.0, f64::max)
        }

        /// The worst result of the search, as a share of that of the best fixed depth.
        fn share(self, bytes: usize) -> (f64, Vec<usize>) {
            let best = self.best(bytes);
            let runs =
                (1..=8).map(|seed| self.run(&mut Depth::adaptive(DEPTH_MAX), bytes, 12, seed));
            let runs: Vec<_> = runs.collect();
            let worst = runs.iter().map(|run| run.bytes_per_second / best);
            let worst = worst.fold(f64::INFINITY, f64::min);
            (worst, runs.iter().map(|run| run.depth).collect())
        }
    }

    const SPINDLE: Device = Device {
        units: 2,
        striped: false,
        access_us: 6_000,
        bytes_per_us: 100,
        elevator: false,
    };

    const FLASH: Device = Device {
        units: 2,
        striped: false,
        access_us: 80,
        bytes_per_us: 800,
        elevator: false,
    };

    fn every_kind_of(device: Device) -> impl Iterator<Item = Device> {
        let kinds = [1, 2, 4].into_iter().flat_map(|units| {
            [(false, false), (false, true), (true, false), (true, true)].map(|kind| (units, kind))
        });
        kinds.map(move |(units, (striped, elevator))| Device {
            units,
            striped,
            elevator,
            ..device
        })
    }

    #[test]
    fn spindles_are_kept_busy() {
        for device in every_kind_of(SPINDLE) {
            for bytes in [4096, 100_000] {
                let (share, depths) = device.share(bytes);
                let what = format!("{device:?} reading {bytes}: {share} at {depths:?}");
                assert!(share > 0.93, "{what}");
                assert!(depths.iter().all(|depth| *depth >= 4), "{what}");
            }
        }
    }

    #[test]
    fn flash_is_kept_busy_with_little() {
        for units in [1, 2, 4] {
            for bytes in [4096, 100_000, 512_000] {
                let (share, depths) = Device { units, ..FLASH }.share(bytes);
                let what = format!("{units} units reading {bytes}: {share} at {depths:?}");
                assert!(share > 0.98, "{what}");
                assert!(depths.iter().all(|depth| *depth <= 16), "{what}");
            }
        }
    }

    /// The first seconds count as well.
    #[test]
    fn the_first_climb_is_quick() {
        let device = Device {
            units: 4,
            striped: true,
            ..SPINDLE
        };
        for seed in 1..=8 {
            let mut depth = Depth::adaptive(DEPTH_MAX);
            device.run(&mut depth, 100_000, 1, seed);
            assert!(depth.limit() >= 16, "at {} after a second", depth.limit());
        }
    }

    /// Jobs wait for those before them: that must not lower the bound step by step.
    #[test]
    fn latency_of_its_own_making_does_not_wear_it_down() {
        let device = Device {
            units: 4,
            striped: true,
            ..SPINDLE
        };
        let mut depth = Depth::adaptive(DEPTH_MAX);
        device.run(&mut depth, 100_000, 120, 3);
        let late = device.run(&mut depth, 100_000, 12, 4).bytes_per_second;
        assert!(late > 0.95 * device.best(100_000), "{late} at {depth:?}");
    }

    #[test]
    fn it_follows_a_device_that_changes() {
        let mut depth = Depth::adaptive(DEPTH_MAX);
        let wide = Device {
            units: 16,
            ..SPINDLE
        };
        FLASH.run(&mut depth, 100_000, 4, 1);
        let grown = wide.run(&mut depth, 100_000, 12, 2);
        assert!(grown.depth >= 16, "at {}", grown.depth);
        let shrunk = FLASH.run(&mut depth, 100_000, 12, 3);
        assert!(shrunk.depth <= 16, "at {}", shrunk.depth);
    }

    /// A bound that holds no job back says nothing.
    #[test]
    fn it_is_judged_only_where_it_was_the_limit() {
        let mut depth = Depth::adaptive(DEPTH_MAX);
        let start = Instant::now();
        for ms in 1..10_000 {
            let sample = Sample {
                latency: Duration::from_millis(ms),
                bytes: 4096,
                limited: ms % 2 == 0,
            };
            depth.completed(start + Duration::from_millis(ms), sample);
        }
        assert_eq!(depth.limit(), DEPTH_START);
    }

    #[test]
    fn a_fixed_bound_stays() {
        let mut depth = Depth::fixed(3);
        SPINDLE.run(&mut depth, 4096, 5, 1);
        assert_eq!(depth.limit(), 3);
    }

    #[test]
    fn bytes_are_bounded_but_never_to_nothing() {
        let depth = Depth::fixed(8);
        assert!(depth.admits(0, 0, BYTES_MAX + 1));
        assert!(depth.admits(1, BYTES_MAX - 1, 1));
        assert!(!depth.admits(1, BYTES_MAX, 1));
        assert!(depth.admits(7, 0, 0) && !depth.admits(8, 0, 0));
        assert_eq!(Depth::adaptive(2).limit(), 2);
        assert_eq!(Depth::adaptive(1).limit(), 1);
    }
}
