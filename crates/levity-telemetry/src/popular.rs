//! The most requested files of the last minutes, in memory of fixed size and without a lock.
//!
//! Each worker keeps `Sketch`es of its own, after the Space-Saving algorithm (Metwally, Agrawal, El
//! Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005): a file that is not listed
//! replaces the one with the lowest count, and inherits that count as an upper bound of its own earlier count. So a
//! file with more than 1 / `FILES_MAX` of all requests is always listed, with a lower and an upper bound of its
//! count.
//!
//! A busy worker samples: per sweep the first `EXACT_MAX` requests are counted, and of those after them one in
//! `SAMPLE` at random, which counts for that many. Two windows of `WINDOW` are kept, so that a snapshot covers one
//! to two minutes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::{Duration, Instant};

/// Files in a sketch.
const FILES_MAX: usize = 128;

/// Bytes of host and path that are kept; files that differ only after them count as one.
const NAME_BYTES_MAX: usize = 512;

/// Requests per sweep that are all counted: 1000 per second and worker.
const EXACT_MAX: u32 = 100;

/// Of the requests after those, one in this many is counted. A power of two.
const SAMPLE: u64 = 16;

/// How long a window is filled before it gives way to the next.
const WINDOW: Duration = Duration::from_secs(60);

/// The requested files of one worker, used by its own thread only.
pub struct Popular {
    now: Window,
    before: Window,
    hasher: RandomState,
    random: u64,
    exact_left: u32,
    /// Host and path of the current request.
    name: Vec<u8>,
}

/// The requests in one span of time.
struct Window {
    began: Instant,
    requests: Sketch,
    bytes: Sketch,
}

/// The files with the highest counts.
#[derive(Default)]
struct Sketch {
    /// Apart from the files, because a look-up reads all hashes.
    hashes: Vec<u64>,
    files: Vec<FileCount>,
}

/// A file and its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCount {
    /// Host and path, as a client sent them.
    pub name: Vec<u8>,
    /// Upper bound of the count.
    pub most: u64,
    /// Lower bound of the count.
    pub least: u64,
}

/// The counts of one worker at one moment, for [`merge`].
#[derive(Debug)]
pub struct Snapshot {
    /// The time that the counts cover.
    pub time: Duration,
    /// By requests.
    pub requests: Vec<SketchCounts>,
    /// By bytes of body.
    pub bytes: Vec<SketchCounts>,
}

/// The counts of one sketch.
#[derive(Debug)]
pub struct SketchCounts {
    files: Vec<FileCount>,
    /// Upper bound of the count of a file that is not listed.
    unlisted_most: u64,
}

impl Popular {
    /// No requests.
    pub fn new(now: Instant) -> Self {
        let hasher = RandomState::new();
        // Never 0, where the generator would stay.
        let random = hasher.hash_one(0) | 1;
        Self {
            now: Window::new(now),
            before: Window::new(now),
            hasher,
            random,
            exact_left: EXACT_MAX,
            name: Vec::with_capacity(NAME_BYTES_MAX),
        }
    }

    /// Counts a request for a file, of which `bytes` were sent.
    pub fn count(&mut self, host: &[u8], path: &[u8], bytes: u64) {
        let Some(weight) = self.weight() else { return };
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.make_ascii_lowercase();
        self.name.extend_from_slice(path);
        self.name.truncate(NAME_BYTES_MAX);
        let hash = self.hasher.hash_one(&self.name);
        self.now.requests.add(hash, &self.name, weight);
        if bytes > 0 {
            let bytes = bytes.saturating_mul(weight);
            self.now.bytes.add(hash, &self.name, bytes);
        }
    }

    /// The number of requests that this one counts for; `None` when it is not counted.
    fn weight(&mut self) -> Option<u64> {
        if let Some(left) = self.exact_left.checked_sub(1) {
            self.exact_left = left;
            return Some(1);
        }
        // Xorshift (Marsaglia, 2003). Random, because requests come in patterns.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32).is_multiple_of(SAMPLE).then_some(SAMPLE)
    }

    /// To be called in each sweep.
    pub fn sweep(&mut self, now: Instant) {
        self.exact_left = EXACT_MAX;
        if now.duration_since(self.now.began) >= WINDOW {
            self.before = mem::replace(&mut self.now, Window::new(now));
        }
    }

    /// The counts of this window and the one before.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let windows = [&self.before, &self.now];
        Snapshot {
            time: now.duration_since(self.before.began),
            requests: windows.map(|window| window.requests.listed()).into(),
            bytes: windows.map(|window| window.bytes.listed()).into(),
        }
    }
}

impl Window {
    fn new(began: Instant) -> Self {
        Self {
            began,
            requests: Sketch::default(),
            bytes: Sketch::default(),
        }
    }
}

impl Sketch {
    fn add(&mut self, hash: u64, name: &[u8], weight: u64) {
        let listed = self.hashes.iter().position(|known| *known == hash);
        match listed {
            Some(at) if self.files[at].name == name => self.files[at].add(weight),
            _ if self.files.len() < FILES_MAX => self.list(hash, name, weight),
            _ => self.replace(hash, name, weight),
        }
    }

    fn list(&mut self, hash: u64, name: &[u8], weight: u64) {
        self.hashes.push(hash);
        self.files.push(FileCount {
            name: name.to_owned(),
            most: weight,
            least: weight,
        });
    }

    fn replace(&mut self, hash: u64, name: &[u8], weight: u64) {
        let lowest = (0..self.files.len()).min_by_key(|&at| self.files[at].most);
        let Some(at) = lowest else { return };
        self.hashes[at] = hash;
        let file = &mut self.files[at];
        // The memory of the old name is used again.
        file.name.clear();
        file.name.extend_from_slice(name);
        file.most = file.most.saturating_add(weight);
        file.least = weight;
    }

    fn listed(&self) -> SketchCounts {
        let lowest = self.files.iter().map(|file| file.most).min();
        let is_full = self.files.len() == FILES_MAX;
        SketchCounts {
            files: self.files.clone(),
            unlisted_most: lowest.filter(|_| is_full).unwrap_or(0),
        }
    }
}

impl FileCount {
    fn add(&mut self, weight: u64) {
        self.most = self.most.saturating_add(weight);
        self.least = self.least.saturating_add(weight);
    }
}

/// The `count` files with the highest lower bounds over all of these, in descending order.
pub fn merge<'l>(
    lists: impl Iterator<Item = &'l SketchCounts> + Clone,
    count: usize,
) -> Vec<FileCount> {
    let anywhere: u64 = lists.clone().map(|list| list.unlisted_most).sum();
    let mut sums = HashMap::<&[u8], (u64, u64)>::new();
    for list in lists {
        for file in &list.files {
            let (most, least) = sums.entry(&file.name).or_insert((anywhere, 0));
            *most = most.saturating_add(file.most - list.unlisted_most);
            *least = least.saturating_add(file.least);
        }
    }
    let counted = |(name, (most, least)): (&[u8], (u64, u64))| FileCount {
        name: name.to_owned(),
        most,
        least,
    };
    let mut files: Vec<_> = sums.into_iter().map(counted).collect();
    files.sort_unstable_by(|a, b| (b.least, b.most, &a.name).cmp(&(a.least, a.most, &b.name)));
    files.truncate(count);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(popular: &Popular, now: Instant) -> Vec<(String, u64, u64)> {
        let snapshot = popular.snapshot(now);
        let files = merge(snapshot.requests.iter(), 3).into_iter();
        files
            .map(|file| (String::from_utf8(file.name).unwrap(), file.least, file.most))
            .collect()
    }

    #[test]
    fn few_requests_are_counted_exactly() {
        let now = Instant::now();
        let mut popular = Popular::new(now);
        for (path, bytes) in [("/a", 1), ("/b", 70), ("/a", 2), ("/c", 0)] {
            popular.count(b"Example.ORG", path.as_bytes(), bytes);
        }
        let snapshot = popular.snapshot(now);
        let named = |files: Vec<FileCount>| {
            let count = |file: FileCount| (String::from_utf8(file.name).unwrap(), file.least);
            files.into_iter().map(count).collect::<Vec<_>>()
        };
        let by_requests = named(merge(snapshot.requests.iter(), 9));
        assert_eq!(by_requests[0], ("example.org/a".to_owned(), 2));
        assert_eq!(by_requests.len(), 3);
        let by_bytes = named(merge(snapshot.bytes.iter(), 9));
        assert_eq!(by_bytes[0], ("example.org/b".to_owned(), 70));
        assert_eq!(by_bytes.len(), 2);
    }

    #[test]
    fn what_is_asked_for_often_is_found_among_many() {
        let mut sketch = Sketch::default();
        let hasher = RandomState::new();
        // One in ten for each of two files; the rest are asked for once each.
        let names: Vec<_> = (0..20_000)
            .map(|n| match n % 10 {
                0 => "hot".to_owned(),
                5 => "warm".to_owned(),
                _ => format!("cold{n}"),
            })
            .collect();
        for name in &names {
            sketch.add(hasher.hash_one(name), name.as_bytes(), 1);
        }
        assert_eq!(
            (sketch.files.len(), sketch.hashes.len()),
            (FILES_MAX, FILES_MAX)
        );
        let top = merge([sketch.listed()].iter(), 2);
        let mut found: Vec<_> = top.iter().map(|file| file.name.as_slice()).collect();
        found.sort_unstable();
        assert_eq!(found, [&b"hot"[..], b"warm"]);
        for file in top {
            assert!((file.least..=file.most).contains(&2_000), "{file:?}");
            assert!(file.most - file.least <= 20_000 / FILES_MAX as u64);
        }
    }

    #[test]
    fn a_busy_worker_samples_without_bias() {
        let now = Instant::now();
        let mut popular = Popular::new(now);
        for _ in 0..20 {
            popular.sweep(now);
            // A pattern with the period of the sample.
            for n in 0..16_000 {
                popular.count(b"h", if n % 16 == 0 { b"/one" } else { b"/rest" }, 1);
            }
        }
        let found = top(&popular, now);
        let of = |name: &str| found.iter().find(|file| file.0 == name).unwrap().1 as f64;
        // 20 000 and 300 000; the standard deviation of the first is about 550.
        assert!((of("h/one") - 20_000.0).abs() < 5_000.0, "{found:?}");
        assert!((of("h/rest") - 300_000.0).abs() < 20_000.0, "{found:?}");
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let start = Instant::now();
        let mut popular = Popular::new(start);
        popular.count(b"", b"/old", 1);
        popular.sweep(start + WINDOW);
        popular.count(b"", b"/new", 1);
        assert_eq!(top(&popular, start + WINDOW).len(), 2);
        popular.sweep(start + 2 * WINDOW);
        let found = top(&popular, start + 2 * WINDOW);
        assert_eq!(found, [("/new".to_owned(), 1, 1)]);
        let time = popular.snapshot(start + 2 * WINDOW).time;
        assert_eq!(time, WINDOW);
    }

    #[test]
    fn long_names_are_cut() {
        let now = Instant::now();
        let mut popular = Popular::new(now);
        for end in ["x", "y"] {
            let path = format!("/{}{end}", "p".repeat(NAME_BYTES_MAX));
            popular.count(b"", path.as_bytes(), 1);
        }
        let found = top(&popular, now);
        assert_eq!(
            (found.len(), found[0].0.len(), found[0].1),
            (1, NAME_BYTES_MAX, 2)
        );
    }

    /// A file that one worker has forgotten may have been counted there.
    #[test]
    fn workers_are_added_up() {
        let file = |name: &str, least, most| FileCount {
            name: name.into(),
            least,
            most,
        };
        let one = SketchCounts {
            files: vec![file("a", 5, 7), file("b", 3, 3)],
            unlisted_most: 3,
        };
        let two = SketchCounts {
            files: vec![file("a", 1, 1)],
            unlisted_most: 0,
        };
        let merged = merge([one, two].iter(), 2);
        assert_eq!(merged, [file("a", 6, 8), file("b", 3, 3)]);
    }
}
