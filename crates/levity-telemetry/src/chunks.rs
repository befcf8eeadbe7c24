//! What became of each chunk of one response: when it was asked for, read and written.

use std::time::{Duration, Instant};

/// Chunks noted of one request at most; those after them are counted. With 512 KiB each, the first 64
/// MiB of a file.
pub const CHUNKS_MAX: usize = 128;

/// One trip to the disk, and the write of what it brought; or a write alone. Moments are in microseconds
/// from the arrival of the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Asked for, read from and to; `None` when no engine was asked.
    pub disk: Option<[u64; 3]>,
    /// Given to the client from and to; `None` when nothing was.
    pub write: Option<[u64; 2]>,
    /// Written to the client; before that, read.
    pub bytes: u64,
}

/// A trip to the disk that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    /// The request asked for it.
    pub asked: Instant,
    /// A thread of the engine, or the kernel, took it up.
    pub read_start: Instant,
    /// The engine was done with it.
    pub read_end: Instant,
    /// What it brought.
    pub bytes: u64,
}

/// The chunks of one request, in the order in which they were asked for.
#[derive(Debug)]
pub struct Chunks {
    arrived: Instant,
    noted: Vec<Chunk>,
    omitted: u64,
}

impl Chunks {
    /// None yet, of a request that came at `arrived`.
    pub fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            noted: Vec::new(),
            omitted: 0,
        }
    }

    /// Notes a trip, and gives its place.
    pub fn read(&mut self, trip: &Trip) -> Option<usize> {
        let moments = [trip.asked, trip.read_start, trip.read_end];
        self.add(Chunk {
            disk: Some(moments.map(|moment| self.us(moment))),
            write: None,
            bytes: trip.bytes,
        })
    }

    /// Notes that the chunk at `place`, or one that no engine brought, was written. The bytes are those
    /// that left.
    pub fn wrote(&mut self, place: Option<usize>, from: Instant, to: Instant, bytes: u64) {
        let write = Some([self.us(from), self.us(to)]);
        match place.and_then(|place| self.noted.get_mut(place)) {
            Some(chunk) => {
                chunk.write = write;
                chunk.bytes = bytes;
            }
            None => {
                let disk = None;
                self.add(Chunk { disk, write, bytes });
            }
        }
    }

    fn add(&mut self, chunk: Chunk) -> Option<usize> {
        if self.noted.len() == CHUNKS_MAX {
            self.omitted += 1;
            return None;
        }
        self.noted.push(chunk);
        Some(self.noted.len() - 1)
    }

    /// Those that were noted.
    pub fn noted(&self) -> &[Chunk] {
        &self.noted
    }

    /// How many were not.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn us(&self, moment: Instant) -> u64 {
        let since: Duration = moment - self.arrived;
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(arrived: Instant, ms: [u64; 3]) -> Trip {
        let [asked, read_start, read_end] = ms.map(|ms| arrived + Duration::from_millis(ms));
        Trip {
            asked,
            read_start,
            read_end,
            bytes: 4096,
        }
    }

    #[test]
    fn a_write_belongs_to_its_chunk() {
        let arrived = Instant::now();
        let at = |ms| arrived + Duration::from_millis(ms);
        let mut chunks = Chunks::new(arrived);
        let first = chunks.read(&trip(arrived, [1, 2, 5]));
        let second = chunks.read(&trip(arrived, [5, 6, 7]));
        chunks.wrote(second, at(9), at(10), 4096);
        chunks.wrote(first, at(8), at(9), 100);
        chunks.wrote(None, at(10), at(11), 7);
        let expected = [
            (Some([1000, 2000, 5000]), Some([8000, 9000]), 100),
            (Some([5000, 6000, 7000]), Some([9000, 10_000]), 4096),
            (None, Some([10_000, 11_000]), 7),
        ];
        let noted = chunks.noted().iter().map(|c| (c.disk, c.write, c.bytes));
        assert_eq!(noted.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn chunks_are_bounded_and_the_rest_is_counted() {
        let arrived = Instant::now();
        let mut chunks = Chunks::new(arrived);
        for _ in 0..CHUNKS_MAX + 3 {
            chunks.read(&trip(arrived, [0, 0, 0]));
        }
        assert_eq!((chunks.noted().len(), chunks.omitted()), (CHUNKS_MAX, 3));
    }
}
