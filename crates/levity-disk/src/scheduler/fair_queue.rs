//! A queue that is fair in cost between connections: in bytes for a disk, in time for other work.
//!
//! First come, first served would give a connection that reads large chunks many times the throughput of one
//! that reads small ones. Deficit round robin, the usual answer, forgets a connection that has nothing queued,
//! and most connections have one job at a time. So this is start-time fair queueing (Goyal, Vin and Cheng,
//! 1996): each connection has a virtual clock that advances by the cost of each of its jobs, and the job with
//! the earliest start goes first. A connection that has had much is still behind when it returns; one that was
//! idle gains nothing by it.

use std::collections::{BTreeMap, HashMap};

/// Lower bound on the cost of a job, in bytes or nanoseconds: a job that reads nothing is work too.
const COST_MIN: u64 = 4096;

/// Clocks that are kept in addition to those of queued jobs before obsolete ones are dropped.
const CLOCKS_SPARE: usize = 64;

/// A queue that is fair between connections by the cost of their jobs (start-time fair queueing).
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Each with its cost; by virtual start time, then by arrival.
    jobs: BTreeMap<(u64, u64), (T, u64)>,
    /// The virtual start time of the next job of each connection, unless it has passed.
    clocks: HashMap<u64, u64>,
    /// The virtual time: where an idle connection starts.
    now: u64,
    arrivals: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            jobs: BTreeMap::new(),
            clocks: HashMap::new(),
            now: 0,
            arrivals: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds a job of the connection `stream` that costs so many bytes, or so many nanoseconds.
    pub fn push(&mut self, stream: u64, cost: usize, job: T) {
        let clock = self.clocks.entry(stream).or_insert(0);
        let start = self.now.max(*clock);
        let cost = COST_MIN.max(cost as u64);
        *clock = start + cost;
        self.arrivals += 1;
        self.jobs.insert((start, self.arrivals), (job, cost));
        if self.clocks.len() > 2 * self.jobs.len() + CLOCKS_SPARE {
            self.clocks.retain(|_, clock| *clock > self.now);
        }
    }

    /// Charges `stream` for `bytes` more than were known when its job was pushed.
    pub(super) fn charge(&mut self, stream: u64, bytes: usize) {
        if self.jobs.is_empty() {
            return;
        }
        let clock = self.clocks.entry(stream).or_insert(0);
        *clock = self.now.max(*clock) + bytes as u64;
        // As in `pop`: a stream with a single job never pays, and others must not fall behind it.
        self.now += bytes as u64 / (2 * self.jobs.len() as u64);
    }

    /// The job whose turn it is.
    pub(super) fn front(&self) -> Option<&T> {
        self.jobs.first_key_value().map(|(_, (job, _))| job)
    }

    /// Takes the job whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let sharing = self.jobs.len() as u64;
        let ((start, _), (job, cost)) = self.jobs.pop_first()?;
        // Half of each stream's share: rather late than early, or streams with small jobs would lose their
        // claim.
        let worked = self.now + cost / (2 * sharing);
        self.now = start.max(worked);
        if self.jobs.is_empty() {
            self.now += cost;
            self.clocks.clear();
        }
        Some(job)
    }

    /// Whether there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Takes all jobs, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().map(|(job, _)| job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<T>(queue: &mut FairQueue<T>) -> Vec<T> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn equals_take_turns() {
        let mut queue = FairQueue::default();
        for stream in [1, 1, 1, 2, 2, 2] {
            queue.push(stream, 100_000, stream);
        }
        assert_eq!(queue.front(), Some(&1));
        assert_eq!(order(&mut queue), [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn one_stream_is_served_in_order() {
        let mut queue = FairQueue::default();
        (0..10).for_each(|n| queue.push(7, 1 << (20 - n), n));
        assert_eq!(order(&mut queue), (0..10).collect::<Vec<_>>());
    }

    /// Each stream has one job at a time, and pushes the next when it is served.
    #[test]
    fn bytes_are_shared_and_not_turns() {
        let mut queue = FairQueue::default();
        let sizes = [64 << 10, 128 << 10, 512 << 10, 512 << 10];
        let mut bytes = [0; 4];
        (0..4).for_each(|stream| queue.push(stream as u64, sizes[stream], stream));
        for _ in 0..2000 {
            let stream = queue.pop().unwrap();
            bytes[stream] += sizes[stream];
            queue.push(stream as u64, sizes[stream], stream);
        }
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert!(*least * 10 > *most * 9, "{bytes:?}");
    }

    /// As above, but most of the cost of one stream is known only afterwards.
    #[test]
    fn a_cost_may_be_charged_late() {
        let mut queue = FairQueue::default();
        let mut bytes = [0; 3];
        (0..3).for_each(|stream| queue.push(stream, 1 << 17, stream));
        for _ in 0..2000 {
            let stream = queue.pop().unwrap();
            bytes[stream as usize] += 1 << 17;
            if stream == 0 {
                bytes[0] += 7 << 17;
                queue.charge(stream, 7 << 17);
            }
            queue.push(stream, 1 << 17, stream);
        }
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert!(*least * 10 > *most * 9, "{bytes:?}");
        order(&mut queue);
        queue.charge(1, 1 << 20);
        assert!(queue.clocks.is_empty(), "there is no other stream");
    }

    /// As many new connections as the disk can serve, each with one job, do not stop the others.
    #[test]
    fn newcomers_do_not_starve_anyone() {
        let mut queue = FairQueue::default();
        (0..3).for_each(|_| queue.push(0, 1 << 19, 0));
        (1..10).for_each(|stream| queue.push(stream, 1 << 16, stream));
        let mut turns = 0;
        for stream in 10..2000 {
            turns += u32::from(queue.pop() == Some(0));
            queue.push(stream, 1 << 16, stream);
        }
        assert_eq!(turns, 3);
        assert!(queue.clocks.len() < 200);
    }

    /// The same if most of the cost is known only afterwards: the long-lived stream gets about as much as if it
    /// were known before.
    #[test]
    fn newcomers_that_cost_more_than_they_said_do_not_starve_anyone() {
        let turns = |said: usize, surplus: usize| {
            let mut queue = FairQueue::default();
            (0..11).for_each(|stream| queue.push(stream, said, stream));
            let mut turns = 0;
            for newcomer in 11..2000 {
                let stream = queue.pop().unwrap();
                queue.charge(stream, surplus);
                let next = if stream == 0 { 0 } else { newcomer };
                turns += u32::from(stream == 0);
                queue.push(next, said, next);
            }
            turns
        };
        let (known, late) = (turns(1 << 20, 0), turns(1 << 17, 7 << 17));
        assert!(late * 3 > known * 2, "{late} turns instead of {known}");
    }

    /// An idle connection accumulates no claim.
    #[test]
    fn absence_earns_nothing() {
        let mut queue = FairQueue::default();
        (0..200).for_each(|turn| queue.push(turn % 2, 1 << 20, turn % 2));
        assert_eq!((0..100).filter_map(|_| queue.pop()).count(), 100);
        (0..100).for_each(|_| queue.push(2, 1 << 20, 2));
        let next: Vec<_> = (0..30).filter_map(|_| queue.pop()).collect();
        let of = |stream| next.iter().filter(|next| **next == stream).count();
        assert!((9..=11).contains(&of(2)), "{next:?}");
        assert!((9..=11).contains(&of(0)) && (9..=11).contains(&of(1)));
    }

    #[test]
    fn connections_that_are_gone_are_forgotten() {
        let mut queue = FairQueue::default();
        for stream in 0..100_000 {
            queue.push(stream, 4096, ());
            queue.pop();
        }
        assert!(queue.clocks.len() <= CLOCKS_SPARE + 2);
        queue.push(1, 1, ());
        assert_eq!(queue.drain().count(), 1);
        assert_eq!(queue.len(), 0);
    }
}
