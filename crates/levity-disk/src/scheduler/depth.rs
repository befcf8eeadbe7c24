//! The depth of a device, which is the maximum number of its jobs in flight: fixed, or adapted by trial.
//!
//! Too few jobs leave the disk idle between two reads, and give its elevator no choice. Too many do not raise
//! the throughput and make urgent jobs wait inside the device, which knows no classes. The right number
//! differs by a factor of ten between disks, and attributes such as `rotational` are often wrong. So the depth
//! is doubled on trial. It is kept if the throughput rises, and restored if only the latency does.
//!
//! The throughput is the number of completed jobs, weighted by bytes. Little's law (jobs in flight / mean latency) spreads
//! more on a disk that serves the nearest request first, and is too high there: the slowest jobs of a window are missing.
//!
//! Latency alone is no reason to reduce the depth: queued jobs wait for each other even on a disk that gains
//! throughput from a deeper queue. So a lower depth is a trial too, kept only if the throughput stays the
//! same. Both trials are repeated from time to time, because disks and workloads change.
//!
//! Where the processor is the limit and not the disk, a deeper queue means more threads that are ready to run,
//! and together they take the processor from the event loops. So if the loops have other work, and jobs wait for
//! a processor most of their time, the depth is at most that of the start.
//!
//! The time is passed by the caller.

#[cfg(test)]
mod simulation;

use std::array;
use std::mem;
use std::time::{Duration, Instant};

/// The depth before the first trial, and the maximum while jobs wait for a processor.
pub(super) const DEPTH_START: usize = 8;

/// The largest depth. Beyond it even a disk with many heads gains little.
pub(crate) const DEPTH_MAX: usize = 32;

/// The smallest depth: with one job the device would be idle while the next is prepared.
const DEPTH_MIN: usize = 2;

/// The maximum number of bytes in flight, except for a single job. The bytes that an open reads beyond its first ones
/// are not included, because their number is not known before.
const BYTES_MAX: usize = 16 << 20;

/// The minimum duration of a window.
const WINDOW_TIME_MIN: Duration = Duration::from_millis(100);

/// The maximum duration of a window, for slow devices.
const WINDOW_TIME_MAX: Duration = Duration::from_secs(1);

/// The completed jobs after which a window ends, unless it is shorter than [`WINDOW_TIME_MIN`].
const WINDOW_JOBS: usize = 96;

/// The same during the first climb.
const WINDOW_JOBS_AT_START: usize = 40;

/// The minimum of jobs for a significant throughput or median.
const SAMPLES_MIN: usize = 16;

/// Each job counts as this many bytes in addition to its own: small reads are limited by their number, large
/// ones by their bytes.
const JOB_BYTES: f64 = 65_536.0;

/// A rate above the baseline by more than this factor is a gain and not chance.
const GAIN_FACTOR: f64 = 1.04;

/// The first climb continues above this factor. The rates of its windows spread by 5 to 10 %. A climb that ends
/// too early costs throughput until the next trial; one that goes too far costs latency until a lower depth is tried.
const CLIMB_FACTOR: f64 = 0.9;

/// A rate of at least this factor of the baseline counts as unchanged.
const LOSS_FACTOR: f64 = 0.98;

/// A median latency above this many times the best one is long.
const LONG_LATENCY_FACTOR: u32 = 2;

/// The best latency is raised by 1/4096 per window, because a disk may have become slower.
const BEST_LATENCY_DECAY: u32 = 4096;

/// Windows between two trials.
const TRIAL_INTERVAL_WINDOWS: u32 = 8;

/// The upper bounds of the size classes in bytes; the last class has none. Latencies are compared within a
/// class.
const SIZE_CLASS_BOUNDS: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// The depth of one device.
#[derive(Debug)]
pub(super) struct Depth {
    current: usize,
    max: usize,
    /// `None` if the depth is fixed.
    search: Option<Search>,
}

#[derive(Debug)]
struct Search {
    /// The depth that was found, or that is tried.
    found: usize,
    /// The depth in use is at most [`DEPTH_START`].
    is_capped: bool,
    /// The trial in the current window; `None` between trials.
    trial: Option<Trial>,
    /// The first climb, in shorter windows: a disk with many heads would otherwise be idle for a second or two.
    /// A depth that was kept by chance is tried again later.
    first_climb: bool,
    windows_to_trial: u32,
    /// Work per second at the depth before the trial.
    baseline_rate: f64,
    lower_next: bool,
    /// Jobs that were started at another depth and have not completed.
    settling: usize,
    window: Window,
    /// The best median latency of each size class.
    best_latencies: [Option<Duration>; SIZE_CLASS_BOUNDS.len() + 1],
}

/// A change of the depth that is kept or undone after its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Raised { from: usize },
    Lowered { from: usize },
}

/// The jobs that were completed in a period.
#[derive(Debug)]
struct Window {
    /// `None` before the first job.
    start: Option<Instant>,
    jobs: usize,
    /// Jobs that completed while others were queued.
    saturated_jobs: usize,
    bytes: u64,
    /// Of the jobs with a [`Sample::run_queue_wait`]: the sums of those and of the latencies.
    run_queue_wait: Duration,
    latency: Duration,
    /// By size class.
    latencies: [LatencyHistogram; SIZE_CLASS_BOUNDS.len() + 1],
}

/// A completed job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Time in the engine.
    pub(super) latency: Duration,
    /// Bytes read or written.
    pub(super) bytes: usize,
    /// All slots were taken: other jobs waited for one.
    pub(super) saturated: bool,
    /// Its part of the time for which the engine's thread waited for a processor. Only some samples have it, and
    /// none while the loops have no other work.
    pub(super) run_queue_wait: Option<Duration>,
}

impl Depth {
    /// A fixed depth.
    pub(super) fn fixed(depth: usize) -> Depth {
        Depth {
            current: depth,
            max: depth,
            search: None,
        }
    }

    /// An adaptive depth of at most `max`.
    pub(super) fn adaptive(max: usize) -> Depth {
        let start = DEPTH_START.min(max);
        Depth {
            current: start,
            max,
            search: Some(Search::new(start)),
        }
    }

    /// The maximum number of jobs in flight at present.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// Whether a job of `len` bytes may start in addition to `jobs` jobs of `bytes` bytes.
    pub(super) fn admits(&self, jobs: usize, bytes: usize, len: usize) -> bool {
        jobs == 0 || jobs < self.current && bytes.saturating_add(len) <= BYTES_MAX
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
        let jobs_max = match search.first_climb {
            true => WINDOW_JOBS_AT_START,
            false => WINDOW_JOBS,
        };
        let Some(seconds) = search.window.ended(now, jobs_max) else {
            return;
        };
        let window = mem::replace(&mut search.window, Window::new());
        search.window.start = Some(now);
        let is_slow = search.note_latencies(&window);
        // Also if the depth holds no job back: the loops that would submit more may be waiting for a processor.
        let was_capped = search.is_capped;
        search.is_capped = window.waits_for_processor(was_capped);
        // The rate at the cap says nothing about the depths above it.
        if window.is_saturated() && !was_capped && !search.is_capped {
            let rate = window.work() / seconds;
            search.found = search.next_depth(search.found, self.max, rate, is_slow);
        }
        let depth = match search.is_capped {
            true => search.found.min(DEPTH_START),
            false => search.found,
        };
        if depth != self.current {
            search.settling = self.current;
            self.current = depth;
        }
    }
}

impl Search {
    fn new(start: usize) -> Search {
        Search {
            found: start,
            is_capped: false,
            trial: None,
            first_climb: true,
            windows_to_trial: 0,
            baseline_rate: 0.0,
            lower_next: false,
            settling: 0,
            window: Window::new(),
            best_latencies: [None; SIZE_CLASS_BOUNDS.len() + 1],
        }
    }

    /// The next depth, after a window at `depth` with `rate` work per second; `is_slow` if its latency was long.
    fn next_depth(&mut self, depth: usize, max: usize, rate: f64, is_slow: bool) -> usize {
        match self.trial {
            None => {
                self.baseline_rate = match self.baseline_rate {
                    0.0 => rate,
                    baseline => baseline + (rate - baseline) / 4.0,
                };
                self.windows_to_trial = self.windows_to_trial.saturating_sub(1);
                match self.windows_to_trial {
                    0 => self.try_another(depth, max, is_slow),
                    _ => depth,
                }
            }
            Some(Trial::Raised { from }) if rate > self.baseline_rate * self.raise_factor() => {
                debug_assert!(from < depth);
                self.baseline_rate = rate;
                match depth < max {
                    true => self.raise(depth, max),
                    false => self.end_trial(depth),
                }
            }
            Some(Trial::Raised { from }) if is_slow => self.end_trial(from),
            Some(Trial::Raised { .. }) => self.end_trial(depth),
            Some(Trial::Lowered { from }) if rate < self.baseline_rate * LOSS_FACTOR => {
                self.end_trial(from)
            }
            Some(Trial::Lowered { .. }) if is_slow => self.lower(depth),
            Some(Trial::Lowered { .. }) => self.end_trial(depth),
        }
    }

    /// The factor of the baseline above which a raised depth is kept.
    fn raise_factor(&self) -> f64 {
        match self.first_climb {
            true => CLIMB_FACTOR,
            false => GAIN_FACTOR,
        }
    }

    fn try_another(&mut self, depth: usize, max: usize, is_slow: bool) -> usize {
        let lower = self.lower_next && is_slow && depth > DEPTH_MIN;
        self.lower_next = !self.lower_next;
        match lower {
            true => self.lower(depth),
            false if depth < max => self.raise(depth, max),
            false => self.end_trial(depth),
        }
    }

    fn raise(&mut self, depth: usize, max: usize) -> usize {
        self.trial = Some(Trial::Raised { from: depth });
        (depth * 2).min(max)
    }

    fn lower(&mut self, depth: usize) -> usize {
        self.trial = Some(Trial::Lowered { from: depth });
        (depth - (depth / 4).max(1)).max(DEPTH_MIN.min(depth))
    }

    fn end_trial(&mut self, depth: usize) -> usize {
        self.trial = None;
        self.first_climb = false;
        self.windows_to_trial = TRIAL_INTERVAL_WINDOWS;
        depth
    }

    /// Notes the latency of each size class. Returns whether any was much longer than its best one.
    fn note_latencies(&mut self, window: &Window) -> bool {
        let mut is_slow = false;
        for (best, latencies) in self.best_latencies.iter_mut().zip(&window.latencies) {
            let Some(median) = latencies.median() else {
                continue;
            };
            let decayed = best.map_or(median, |best| best + best / BEST_LATENCY_DECAY);
            *best = Some(decayed.min(median));
            is_slow |= median > decayed * LONG_LATENCY_FACTOR;
        }
        is_slow
    }
}

impl Window {
    fn new() -> Window {
        Window {
            start: None,
            jobs: 0,
            saturated_jobs: 0,
            bytes: 0,
            run_queue_wait: Duration::ZERO,
            latency: Duration::ZERO,
            latencies: array::from_fn(|_| LatencyHistogram::default()),
        }
    }

    fn add(&mut self, now: Instant, sample: Sample) {
        // The job that opens a window is not counted: most of its time was before the window.
        if self.start.is_none() {
            self.start = Some(now);
            return;
        }
        self.jobs += 1;
        self.saturated_jobs += usize::from(sample.saturated);
        self.bytes += sample.bytes as u64;
        if let Some(wait) = sample.run_queue_wait {
            self.run_queue_wait += wait;
            self.latency += sample.latency;
        }
        let class = SIZE_CLASS_BOUNDS.partition_point(|bound| *bound < sample.bytes);
        self.latencies[class].add(sample.latency);
    }

    /// The duration in seconds, if the window has ended: after `jobs_max` jobs, within the bounds on its time.
    fn ended(&self, now: Instant, jobs_max: usize) -> Option<f64> {
        let duration = now.saturating_duration_since(self.start?);
        let has_ended =
            duration >= WINDOW_TIME_MAX || (duration >= WINDOW_TIME_MIN && self.jobs >= jobs_max);
        has_ended.then_some(duration.as_secs_f64())
    }

    /// Whether the depth held jobs back nearly all the time. Otherwise the rate does not depend on it.
    fn is_saturated(&self) -> bool {
        self.jobs >= SAMPLES_MIN && self.saturated_jobs >= self.jobs - self.jobs / 8
    }

    /// Whether the jobs waited for a processor for most of their time; at the cap, where fewer threads are ready to run,
    /// for a quarter.
    fn waits_for_processor(&self, is_capped: bool) -> bool {
        let factor = match is_capped {
            true => 4,
            false => 2,
        };
        self.run_queue_wait * factor > self.latency
    }

    /// In bytes, with [`JOB_BYTES`] for each job.
    fn work(&self) -> f64 {
        self.bytes as f64 + self.jobs as f64 * JOB_BYTES
    }
}

/// A histogram of latencies with powers of two as bounds, in microseconds. Precise enough for
/// [`LONG_LATENCY_FACTOR`].
#[derive(Debug, Default)]
struct LatencyHistogram {
    counts: [u32; LatencyHistogram::BUCKETS],
    sums: [Duration; LatencyHistogram::BUCKETS],
}

impl LatencyHistogram {
    const BUCKETS: usize = 26;

    fn add(&mut self, latency: Duration) {
        let us = latency.as_micros().max(1);
        let bucket = (us.ilog2() as usize).min(LatencyHistogram::BUCKETS - 1);
        self.counts[bucket] += 1;
        self.sums[bucket] += latency;
    }

    /// The mean of the bucket that contains the median. `None` if there are too few values.
    fn median(&self) -> Option<Duration> {
        let all: u32 = self.counts.iter().sum();
        if (all as usize) < SAMPLES_MIN {
            return None;
        }
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below * 2 >= all
        })?;
        Some(self.sums[bucket] / self.counts[bucket])
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
        /// Each file belongs to one unit, as on striped disks; otherwise any free unit takes a job.
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
                        saturated: true,
                        run_queue_wait: None,
                    },
                );
            }
            Run {
                bytes_per_second: (done * bytes as u64) as f64 / seconds.saturating_sub(2) as f64,
                depth: depth.current(),
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
            assert!(
                depth.current() >= 16,
                "at {} after a second",
                depth.current()
            );
        }
    }

    /// Jobs wait for those before them: that must not reduce the depth step by step.
    #[test]
    fn queueing_latency_does_not_reduce_the_depth() {
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
    fn the_depth_follows_a_device_that_changes() {
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

    /// A depth that holds no job back does not determine the throughput.
    #[test]
    fn the_depth_stays_while_it_limits_nothing() {
        let mut depth = Depth::adaptive(DEPTH_MAX);
        let start = Instant::now();
        for ms in 1..10_000 {
            let sample = Sample {
                latency: Duration::from_millis(ms),
                bytes: 4096,
                saturated: ms % 2 == 0,
                run_queue_wait: None,
            };
            depth.completed(start + Duration::from_millis(ms), sample);
        }
        assert_eq!(depth.current(), DEPTH_START);
    }

    /// With one sample in eight, as the scheduler takes them.
    #[test]
    fn the_depth_falls_while_jobs_wait_for_a_processor() {
        const LATENCY: Duration = Duration::from_millis(16);
        let mut depth = Depth::adaptive(DEPTH_MAX);
        let mut now = Instant::now();
        let mut run = |run_queue_wait: Duration, saturated: bool| {
            for n in 0..10_000 {
                // A deeper queue has a higher throughput.
                now += LATENCY / depth.current() as u32;
                let sample = Sample {
                    latency: LATENCY,
                    bytes: 4096,
                    saturated,
                    run_queue_wait: (n % 8 == 0).then_some(run_queue_wait),
                };
                depth.completed(now, sample);
            }
            depth.current()
        };
        assert_eq!(run(LATENCY / 2, true), DEPTH_MAX);
        for saturated in [true, false] {
            assert_eq!(run(LATENCY * 5 / 8, saturated), DEPTH_START);
            assert_eq!(run(LATENCY * 3 / 8, saturated), DEPTH_START);
            assert_eq!(run(Duration::ZERO, saturated), DEPTH_MAX);
        }
    }

    #[test]
    fn a_fixed_depth_stays() {
        let mut depth = Depth::fixed(3);
        SPINDLE.run(&mut depth, 4096, 5, 1);
        assert_eq!(depth.current(), 3);
    }

    #[test]
    fn bytes_are_bounded_but_never_to_nothing() {
        let depth = Depth::fixed(8);
        assert!(depth.admits(0, 0, BYTES_MAX + 1));
        assert!(depth.admits(1, BYTES_MAX - 1, 1));
        assert!(!depth.admits(1, BYTES_MAX, 1));
        assert!(depth.admits(7, 0, 0) && !depth.admits(8, 0, 0));
        assert_eq!(Depth::adaptive(2).current(), 2);
        assert_eq!(Depth::adaptive(1).current(), 1);
    }
}
