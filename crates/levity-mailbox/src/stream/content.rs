//! The bytes of a stream.

use std::ops::Range;
use std::sync::Arc;

use crate::budget::{Budget, Reservation};

/// The size at which a chunk is sealed, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// The memory of a chunk beside its bytes, about.
const CHUNK_OVERHEAD_BYTES: usize = 128;

/// The memory of an append beside its bytes.
const APPEND_OVERHEAD_BYTES: usize = size_of::<u32>();

/// There is no memory left for content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoMemory;

/// The bytes that were appended to a stream, and where each append ends. Grows only. A fork shares the chunks of its source.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Chunks that do not change any more, each with the position of its first byte.
    sealed: Vec<(u64, Arc<Chunk>)>,
    /// The position of the first byte of `open`.
    open_start: u64,
    open: Chunk,
}

/// Bytes that were appended in succession.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// The ends of appends within `bytes`.
    ends: Vec<u32>,
    reservation: Option<Reservation>,
}

/// A part of the content of a stream.
#[derive(Debug, Clone)]
pub struct Piece {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

impl Piece {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.chunk.bytes[self.range.clone()]
    }
}

impl Chunk {
    /// Appends `bytes`, whose memory is reserved.
    fn push(&mut self, bytes: Vec<u8>, reservation: Reservation) {
        match self.bytes.is_empty() && bytes.len() >= CHUNK_BYTES {
            // A large one is not copied.
            true => self.bytes = bytes,
            false => self.bytes.extend_from_slice(&bytes),
        }
        self.ends.push(self.bytes.len() as u32);
        match &mut self.reservation {
            Some(reserved) => reserved.merge(reservation),
            none => *none = Some(reservation),
        }
    }

    /// The index of the append that begins at `start`.
    fn append_at(&self, start: usize) -> Option<usize> {
        if start == 0 {
            return Some(0);
        }
        let index = self.ends.binary_search(&(start as u32)).ok()?;
        Some(index + 1)
    }

    /// The end of the last of the appends from `start` on that together have at most `bytes_max` bytes.
    fn end_within(&self, start: usize, bytes_max: usize) -> usize {
        let within = start.saturating_add(bytes_max);
        let count = self.ends.partition_point(|&end| end as usize <= within);
        let last = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        (last as usize).max(start)
    }
}

impl Content {
    /// The position after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.open_start + self.open.bytes.len() as u64
    }

    /// The memory of an append, in bytes.
    pub(super) fn cost(bytes: usize) -> usize {
        bytes + APPEND_OVERHEAD_BYTES
    }

    /// Appends `bytes`, which are less than 4 GiB.
    pub(super) fn append(&mut self, bytes: Vec<u8>, budget: &Arc<Budget>) -> Result<(), NoMemory> {
        if self.open.bytes.len() + bytes.len() > CHUNK_BYTES {
            self.seal();
        }
        let overhead = match self.open.bytes.is_empty() {
            true => CHUNK_OVERHEAD_BYTES,
            false => 0,
        };
        let reservation = budget.try_reserve(Self::cost(bytes.len()) + overhead);
        self.open.push(bytes, reservation.ok_or(NoMemory)?);
        // Readers share it instead of copying it.
        if self.open.bytes.len() >= CHUNK_BYTES {
            self.seal();
        }
        Ok(())
    }

    fn seal(&mut self) {
        if self.open.bytes.is_empty() {
            return;
        }
        let mut chunk = std::mem::take(&mut self.open);
        chunk.bytes.shrink_to_fit();
        chunk.ends.shrink_to_fit();
        let start = self.open_start;
        self.open_start += chunk.bytes.len() as u64;
        self.sealed.push((start, Arc::new(chunk)));
    }

    /// The chunk with the byte at `position`, and the position of its first byte. The last chunk for the end.
    fn chunk_at(&self, position: u64) -> (u64, &Chunk, Option<&Arc<Chunk>>) {
        if position >= self.open_start {
            return (self.open_start, &self.open, None);
        }
        let after = self.sealed.partition_point(|(start, _)| *start <= position);
        let (start, chunk) = &self.sealed[after - 1];
        (*start, chunk, Some(chunk))
    }

    /// Whether an append begins or could begin at `position`.
    pub(super) fn is_boundary(&self, position: u64) -> bool {
        if position > self.end() {
            return false;
        }
        let (start, chunk, _) = self.chunk_at(position);
        chunk.append_at((position - start) as usize).is_some()
    }

    /// Whole appends from `position` on, which [is a boundary](Self::is_boundary): those that have at most `bytes_max` bytes
    /// together, but at least one if there is one. Also the position after them.
    pub(super) fn read(&self, position: u64, bytes_max: usize) -> (Vec<Piece>, u64) {
        let (mut pieces, mut position, mut rest) = (Vec::new(), position, bytes_max);
        while position < self.end() {
            let (start, chunk, shared) = self.chunk_at(position);
            let from = (position - start) as usize;
            let mut to = chunk.end_within(from, rest);
            if to == from {
                if !pieces.is_empty() {
                    break;
                }
                let first = chunk.append_at(from).unwrap_or(0);
                to = chunk.ends[first] as usize;
            }
            pieces.push(match shared {
                Some(chunk) => Piece {
                    chunk: chunk.clone(),
                    range: from..to,
                },
                // It is about to grow.
                None => Piece::copied(&chunk.bytes[from..to]),
            });
            position = start + to as u64;
            rest = rest.saturating_sub(to - from);
            if to < chunk.bytes.len() {
                break;
            }
        }
        (pieces, position)
    }

    /// The append that begins at `position`; `None` if there is none.
    pub(super) fn append_at(&self, position: u64) -> Option<&[u8]> {
        if position >= self.end() {
            return None;
        }
        let (start, chunk, _) = self.chunk_at(position);
        let from = (position - start) as usize;
        let index = chunk.append_at(from)?;
        Some(&chunk.bytes[from..chunk.ends[index] as usize])
    }

    /// The content before `position`, which may be within an append. Copies at most one chunk.
    pub(super) fn prefix(&self, position: u64, budget: &Arc<Budget>) -> Result<Self, NoMemory> {
        let (start, chunk, _) = self.chunk_at(position);
        let whole = self.sealed.partition_point(|(first, _)| *first < start);
        let mut prefix = Self {
            sealed: self.sealed[..whole].to_vec(),
            open_start: start,
            open: Chunk::default(),
        };
        let (end, mut from) = ((position - start) as usize, 0);
        for &to in &chunk.ends {
            let to = (to as usize).min(end);
            if to > from {
                prefix.append(chunk.bytes[from..to].to_vec(), budget)?;
            }
            from = to;
        }
        Ok(prefix)
    }
}

impl Piece {
    fn copied(bytes: &[u8]) -> Self {
        let chunk = Chunk {
            bytes: bytes.to_vec(),
            ..Chunk::default()
        };
        Self {
            range: 0..chunk.bytes.len(),
            chunk: Arc::new(chunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[Piece]) -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|piece| piece.bytes().to_vec())
            .collect()
    }

    /// Appends of all kinds of sizes, and their ends.
    fn sample(budget: &Arc<Budget>) -> (Content, Vec<u8>, Vec<u64>) {
        let (mut content, mut all, mut ends) = (Content::default(), Vec::new(), vec![0]);
        let sizes = [
            1,
            2,
            100,
            CHUNK_BYTES - 103,
            1,
            CHUNK_BYTES,
            7,
            CHUNK_BYTES + 1,
            3,
            3,
        ];
        for (index, size) in sizes.into_iter().enumerate() {
            let bytes = vec![b'a' + index as u8; size];
            content.append(bytes.clone(), budget).expect("room");
            all.extend(bytes);
            ends.push(all.len() as u64);
        }
        (content, all, ends)
    }

    #[test]
    fn all_that_was_appended_is_read_from_any_boundary() {
        let (content, all, ends) = sample(&Budget::new(usize::MAX));
        for bytes_max in [0, 1, 5, CHUNK_BYTES, usize::MAX] {
            for &first in &ends {
                let (mut position, mut read) = (first, Vec::new());
                while position < content.end() {
                    let (pieces, next) = content.read(position, bytes_max);
                    let text = text(&pieces);
                    let is_one =
                        ends.binary_search(&next) == ends.binary_search(&position).map(|at| at + 1);
                    assert!(next > position && (text.len() <= bytes_max || is_one));
                    read.extend(text);
                    position = next;
                }
                assert_eq!(read, all[first as usize..]);
            }
        }
        assert_eq!(content.read(content.end(), 10).1, content.end());
    }

    #[test]
    fn reads_are_as_large_as_they_may_be() {
        let (content, all, ends) = sample(&Budget::new(usize::MAX));
        assert_eq!(content.read(0, usize::MAX).1, all.len() as u64);
        assert_eq!(content.read(0, 103).1, ends[3]);
        assert_eq!(content.read(0, 102).1, ends[2]);
        let across = CHUNK_BYTES + 1;
        assert_eq!(content.read(0, across).1, ends[5]);
    }

    #[test]
    fn boundaries_are_the_ends_of_appends() {
        let (content, all, ends) = sample(&Budget::new(usize::MAX));
        let found: Vec<_> = (0..=all.len() as u64 + 1)
            .filter(|&position| content.is_boundary(position))
            .collect();
        assert_eq!(found, ends);
        for pair in ends.windows(2) {
            let append = &all[pair[0] as usize..pair[1] as usize];
            assert_eq!(content.append_at(pair[0]), Some(append));
        }
        assert_eq!(content.append_at(content.end()), None);
    }

    #[test]
    fn a_prefix_is_the_content_before_a_position() {
        let budget = Budget::new(usize::MAX);
        let (content, all, ends) = sample(&budget);
        let near = ends
            .iter()
            .flat_map(|&end| [end.saturating_sub(1), end, end + 1]);
        for position in near.filter(|&position| position <= content.end()) {
            let used = budget.used();
            let mut prefix = content.prefix(position, &budget).expect("room");
            // No more than a chunk, or a single large append, is copied.
            assert!(budget.used() - used <= 2 * CHUNK_BYTES + 512);
            assert_eq!(prefix.end(), position);
            assert_eq!(
                text(&prefix.read(0, usize::MAX).0),
                all[..position as usize]
            );
            let boundaries = ends.iter().copied().filter(|&end| end < position);
            assert!(
                boundaries
                    .chain([position])
                    .all(|end| prefix.is_boundary(end))
            );
            prefix.append(b"own".to_vec(), &budget).expect("room");
            assert_eq!(text(&prefix.read(position, 3).0), b"own");
        }
        assert_eq!(text(&content.read(0, usize::MAX).0), all);
    }

    #[test]
    fn memory_is_reserved_until_nobody_has_it() {
        let budget = Budget::new(3 * CHUNK_BYTES);
        let mut content = Content::default();
        let bytes = [b'x'; CHUNK_BYTES];
        assert_eq!(content.append(bytes.to_vec(), &budget), Ok(()));
        assert_eq!(content.append(bytes.to_vec(), &budget), Ok(()));
        assert_eq!(content.append(bytes.to_vec(), &budget), Err(NoMemory));
        assert_eq!(content.end(), 2 * CHUNK_BYTES as u64);
        let fork = content.prefix(CHUNK_BYTES as u64, &budget).expect("room");
        drop(content);
        let one = CHUNK_BYTES + APPEND_OVERHEAD_BYTES + CHUNK_OVERHEAD_BYTES;
        assert_eq!(budget.used(), one);
        let (pieces, _) = fork.read(0, usize::MAX);
        drop(fork);
        assert_eq!(budget.used(), one);
        drop(pieces);
        assert_eq!(budget.used(), 0);
    }
}
