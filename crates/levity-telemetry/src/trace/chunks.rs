//! The chunks of one response: when each was requested, read and written.

use std::time::{Duration, Instant};

/// Chunks that are kept of one request; further ones are counted. With 512 KiB each, the first 64 MiB of a file.
const CHUNKS_MAX: usize = 128;

/// One disk trip and the write of its bytes, or a write alone. Moments are in microseconds since the arrival of
/// the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Request, start and end of the read; `None` when no engine was involved.
    pub disk: Option<[u64; 3]>,
    /// Start and end of the write to the client; `None` when nothing was written.
    pub write: Option<[u64; 2]>,
    /// Bytes written to the client; bytes read, as long as nothing was written.
    pub bytes: u64,
}

/// A completed disk trip.
#[derive(Debug, Clone, Copy)]
pub struct DiskTrip {
    /// When the request submitted it.
    pub requested: Instant,
    /// When a thread of the engine, or the kernel, started on it.
    pub read_start: Instant,
    /// When the engine was done with it.
    pub read_end: Instant,
    /// Bytes read.
    pub bytes: u64,
}

/// The chunks of one request, in the order in which they were requested.
#[derive(Debug)]
pub(crate) struct Chunks {
    arrived: Instant,
    /// At most `CHUNKS_MAX`.
    pub(crate) kept: Vec<Chunk>,
    /// The number of further chunks.
    pub(crate) omitted: u64,
}

impl Chunks {
    /// No chunks, of a request that arrived at `arrived`.
    pub(super) fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            kept: Vec::new(),
            omitted: 0,
        }
    }

    /// Adds a trip; returns the index of its chunk.
    pub(super) fn read(&mut self, trip: &DiskTrip) -> Option<usize> {
        let moments = [trip.requested, trip.read_start, trip.read_end];
        self.add(Chunk {
            disk: Some(moments.map(|moment| self.us(moment))),
            write: None,
            bytes: trip.bytes,
        })
    }

    /// Adds the write of the chunk at `index`, or of one that no engine read.
    pub(super) fn wrote(&mut self, index: Option<usize>, from: Instant, to: Instant, bytes: u64) {
        let write = Some([self.us(from), self.us(to)]);
        match index.and_then(|index| self.kept.get_mut(index)) {
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
        if self.kept.len() == CHUNKS_MAX {
            self.omitted += 1;
            return None;
        }
        self.kept.push(chunk);
        Some(self.kept.len() - 1)
    }

    fn us(&self, moment: Instant) -> u64 {
        let since: Duration = moment - self.arrived;
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(arrived: Instant, ms: [u64; 3]) -> DiskTrip {
        let [requested, read_start, read_end] = ms.map(|ms| arrived + Duration::from_millis(ms));
        DiskTrip {
            requested,
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
        let kept = chunks.kept.iter().map(|c| (c.disk, c.write, c.bytes));
        assert_eq!(kept.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn chunks_are_bounded_and_the_rest_is_counted() {
        let arrived = Instant::now();
        let mut chunks = Chunks::new(arrived);
        for _ in 0..CHUNKS_MAX + 3 {
            chunks.read(&trip(arrived, [0, 0, 0]));
        }
        assert_eq!((chunks.kept.len(), chunks.omitted), (CHUNKS_MAX, 3));
    }
}
