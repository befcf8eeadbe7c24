//! The search on simulated disks, compared with a walker, which has as many jobs in flight as there are clients.
//!
//! As in the benchmark of cold files (`w3`), clients read each file of a list once. A job opens and reads a file:
//! one small request for its inode, then one for its content. Accesses vary by 30 %, and some take far longer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use super::{DEPTH_MAX, Depth, Sample};

const CLIENTS: usize = 64;
/// From the end of a job to the next one of its client.
const CLIENT_US: u64 = 300;
const FILE_BYTES: u64 = 100_000;
const INODE_BYTES: u64 = 4_096;

/// Accesses are shorter or longer by up to this share.
const NOISE: f64 = 0.3;
/// The share of accesses with a hiccup.
const HICCUPS: f64 = 0.0015;

/// The greatest distance between an inode and its content, as a share of the surface.
const GROUP: f64 = 0.06;
const TRAVEL_MIN_US: f64 = 1_000.0;
const TRAVEL_MAX_US: f64 = 12_000.0;
const ROTATION_US: f64 = 8_300.0;
const SPINDLE_BYTES_PER_US: f64 = 30.0;
const SPINDLE_HICCUP_US: f64 = 30_000.0;
/// A request that has waited for this long is served first.
const AGED_US: u64 = 500_000;

const FLASH_MIN_US: f64 = 60.0;
const FLASH_MAX_US: f64 = 150.0;
const FLASH_BYTES_PER_US: f64 = 1_000.0;
const FLASH_HICCUP_US: f64 = 2_000.0;
/// The time of the one processor for a job: what limits a disk that is fast enough.
const PROCESSOR_US: u64 = 60;

#[derive(Debug, Clone, Copy)]
enum Disk {
    /// This many heads over the same content. A free one takes the nearest request.
    Spindles(usize),
    /// An SSD of 1 GB/s.
    Flash,
}

const DISKS: [Disk; 4] = [
    Disk::Spindles(1),
    Disk::Spindles(2),
    Disk::Spindles(4),
    Disk::Flash,
];

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.unit()
    }
}

struct Job {
    /// The position of the content, from 0 to 1.
    position: f64,
    start_us: u64,
    is_open: bool,
}

#[derive(Clone, Copy)]
struct Request {
    job: usize,
    position: f64,
    bytes: u64,
    arrival_us: u64,
}

struct Head {
    position: f64,
    is_busy: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ClientIsReady,
    Read { job: usize, head: Option<usize> },
    JobEnds { job: usize },
}

/// A completed job.
struct Completion {
    at_us: u64,
    latency_us: u64,
}

struct Simulation<'d> {
    disk: Disk,
    depth: &'d mut Depth,
    random: Random,
    start: Instant,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    files: usize,
    jobs: Vec<Job>,
    /// Jobs without a slot.
    queue: VecDeque<usize>,
    in_flight: usize,
    /// Requests without a head, the oldest first.
    waiting: Vec<Request>,
    heads: Vec<Head>,
    flash_free_us: u64,
    processor_free_us: u64,
    completions: Vec<Completion>,
}

impl Disk {
    /// Reads `files` files.
    fn read(self, depth: &mut Depth, files: usize, seed: u64) -> Vec<Completion> {
        let heads = match self {
            Disk::Spindles(heads) => heads,
            Disk::Flash => 0,
        };
        let head = |number| Head {
            position: number as f64 / heads as f64,
            is_busy: false,
        };
        let simulation = Simulation {
            disk: self,
            depth,
            random: Random::new(seed),
            start: Instant::now(),
            now_us: 0,
            events: BinaryHeap::new(),
            files,
            jobs: Vec::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            waiting: Vec::new(),
            heads: (0..heads).map(head).collect(),
            flash_free_us: 0,
            processor_free_us: 0,
            completions: Vec::new(),
        };
        simulation.run()
    }

    /// The files that the benchmark reads in a pass of 3 s.
    fn files(self) -> usize {
        match self {
            Disk::Spindles(_) => 780,
            Disk::Flash => 12_000,
        }
    }

    /// The throughput relative to the walker's.
    fn e(self, mut depth: Depth, files: usize, seed: u64) -> f64 {
        let end_us = |depth: &mut Depth| self.read(depth, files, seed).last().unwrap().at_us;
        end_us(&mut Depth::fixed(CLIENTS)) as f64 / end_us(&mut depth) as f64
    }

    fn mean_e(self, depth: impl Fn() -> Depth, files: usize, seeds: u64) -> f64 {
        let all = (0..seeds).map(|seed| self.e(depth(), files, seed));
        all.sum::<f64>() / seeds as f64
    }
}

impl Simulation<'_> {
    fn run(mut self) -> Vec<Completion> {
        (0..CLIENTS).for_each(|_| self.after(0, Event::ClientIsReady));
        while self.completions.len() < self.files {
            let Reverse((at_us, event)) = self.events.pop().expect("jobs are left");
            self.now_us = at_us;
            match event {
                Event::ClientIsReady => self.add_job(),
                Event::Read { job, head } => self.read(job, head),
                Event::JobEnds { job } => self.job_ends(job),
            }
            self.start_jobs();
            self.start_heads();
        }
        self.completions
    }

    fn after(&mut self, us: u64, event: Event) {
        self.events.push(Reverse((self.now_us + us, event)));
    }

    fn add_job(&mut self) {
        if self.jobs.len() < self.files {
            self.queue.push_back(self.jobs.len());
            self.jobs.push(Job {
                position: self.random.unit(),
                start_us: 0,
                is_open: false,
            });
        }
    }

    fn start_jobs(&mut self) {
        while self.depth.admits(self.in_flight, 0, 0)
            && let Some(job) = self.queue.pop_front()
        {
            self.in_flight += 1;
            self.jobs[job].start_us = self.now_us;
            let distance = self.random.between(0.0, GROUP);
            let inode = (self.jobs[job].position - distance).max(0.0);
            self.submit(job, inode, INODE_BYTES);
        }
    }

    fn submit(&mut self, job: usize, position: f64, bytes: u64) {
        match self.disk {
            Disk::Spindles(_) => self.waiting.push(Request {
                job,
                position,
                bytes,
                arrival_us: self.now_us,
            }),
            Disk::Flash => {
                let access = self.random.between(FLASH_MIN_US, FLASH_MAX_US);
                let ready_us = self.now_us + self.noisy(access, FLASH_HICCUP_US);
                let transfer = (bytes as f64 / FLASH_BYTES_PER_US) as u64;
                self.flash_free_us = self.flash_free_us.max(ready_us) + transfer;
                let head = None;
                self.after(self.flash_free_us - self.now_us, Event::Read { job, head });
            }
        }
    }

    fn noisy(&mut self, us: f64, hiccup_us: f64) -> u64 {
        let factor = self.random.between(1.0 - NOISE, 1.0 + NOISE);
        let hiccup_us = match self.random.unit() < HICCUPS {
            true => hiccup_us,
            false => 0.0,
        };
        (us * factor + hiccup_us) as u64
    }

    fn start_heads(&mut self) {
        for head in 0..self.heads.len() {
            if self.heads[head].is_busy || self.waiting.is_empty() {
                continue;
            }
            let from = self.heads[head].position;
            let request = self.waiting.remove(self.nearest(from));
            let distance = (request.position - from).abs();
            let travel = TRAVEL_MIN_US + distance.sqrt() * (TRAVEL_MAX_US - TRAVEL_MIN_US);
            let rotation = self.random.between(0.0, ROTATION_US);
            let transfer = request.bytes as f64 / SPINDLE_BYTES_PER_US;
            let us = self.noisy(travel + rotation + transfer, SPINDLE_HICCUP_US);
            self.heads[head] = Head {
                position: request.position,
                is_busy: true,
            };
            let (job, head) = (request.job, Some(head));
            self.after(us, Event::Read { job, head });
        }
    }

    /// The index of the request that a head at `from` takes.
    fn nearest(&self, from: f64) -> usize {
        let distance = |at: &usize| (self.waiting[*at].position - from).abs();
        let nearest = (0..self.waiting.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        match self.now_us - self.waiting[0].arrival_us < AGED_US {
            true => nearest.expect("a request waits"),
            false => 0,
        }
    }

    /// The inode or the content has been read.
    fn read(&mut self, job: usize, head: Option<usize>) {
        if let Some(head) = head {
            self.heads[head].is_busy = false;
        }
        if !self.jobs[job].is_open {
            self.jobs[job].is_open = true;
            return self.submit(job, self.jobs[job].position, FILE_BYTES);
        }
        self.processor_free_us = self.processor_free_us.max(self.now_us) + PROCESSOR_US;
        self.after(self.processor_free_us - self.now_us, Event::JobEnds { job });
    }

    fn job_ends(&mut self, job: usize) {
        self.in_flight -= 1;
        let latency_us = self.now_us - self.jobs[job].start_us;
        let sample = Sample {
            latency: Duration::from_micros(latency_us),
            bytes: FILE_BYTES as usize,
            saturated: !self.queue.is_empty(),
            run_queue_wait: None,
        };
        let now = self.start + Duration::from_micros(self.now_us);
        self.depth.completed(now, sample);
        self.completions.push(Completion {
            at_us: self.now_us,
            latency_us,
        });
        self.after(CLIENT_US, Event::ClientIsReady);
    }
}

fn adaptive() -> Depth {
    Depth::adaptive(DEPTH_MAX)
}

/// A pass of 3 s, the first climb included.
#[test]
fn cold_files_are_read_as_fast_as_by_a_walker() {
    let all = DISKS.map(|disk| disk.mean_e(adaptive, disk.files(), 30));
    assert!(all.iter().all(|e| *e > 0.93), "{all:?}");
    assert!(all.iter().sum::<f64>() / all.len() as f64 > 0.98, "{all:?}");
}

#[test]
fn the_search_stays_near_the_best_depth() {
    for disk in DISKS {
        let files = disk.files() * 10;
        let e = |depth| disk.mean_e(|| Depth::fixed(depth), files, 3);
        let best = [8, 16, 24, 32].map(e).into_iter().fold(0.0, f64::max);
        let found = disk.mean_e(adaptive, files, 3);
        assert!(found > 0.97 * best, "{disk:?}: {found} of {best}");
    }
}

/// The spread of the rates of windows of 40 jobs at a fixed depth, as shares of their mean: by their number, and by
/// Little's law, jobs in flight / mean latency.
fn spreads(disk: Disk, depth: usize) -> [f64; 2] {
    const JOBS: usize = 40;
    let completions = disk.read(&mut Depth::fixed(depth), 10_000, 1);
    let windows = completions.chunks_exact(JOBS).skip(2);
    let by_number = windows.clone().map(|window| {
        let us = window[JOBS - 1].at_us - window[0].at_us;
        (JOBS - 1) as f64 / us as f64
    });
    let by_latency = windows.map(|window| {
        let sum_us = window.iter().map(|job| job.latency_us).sum::<u64>();
        (depth * JOBS) as f64 / sum_us as f64
    });
    [spread(by_number.collect()), spread(by_latency.collect())]
}

fn spread(rates: Vec<f64>) -> f64 {
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let center = mean(&rates);
    let squares: Vec<_> = rates.iter().map(|rate| (rate - center).powi(2)).collect();
    mean(&squares).sqrt() / center
}

/// Why completed jobs are counted. On a disk that serves the nearest request first, the latency of a job says little
/// about the throughput: some jobs are served at once, and others pass many windows in the queue.
#[test]
fn counting_is_steadier_than_littles_law() {
    let mut sums = [0.0; 2];
    for disk in DISKS {
        for depth in [8, 16, 32] {
            let spreads = spreads(disk, depth);
            sums = [sums[0] + spreads[0], sums[1] + spreads[1]];
        }
    }
    assert!(sums[0] < 0.8 * sums[1], "{sums:?}");
}
