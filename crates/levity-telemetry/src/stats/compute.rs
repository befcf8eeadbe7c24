//! Figures of the pool of threads that compute, and of the compression that runs there.

use std::sync::atomic::{AtomicU64, Ordering};

use levity_compute::Stats;
use levity_wire::encoding::Coding;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// The counters of the pool, and of compression.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComputeFigures {
    /// Jobs that a client waits for.
    pub response: Stats,
    /// Jobs that nobody waits for.
    pub idle: Stats,
    /// Memory reserved for encoders at present, in bytes.
    pub encoder_bytes: usize,
    /// Memory reserved for decoders at present, in bytes.
    pub decoder_bytes: usize,
    /// The maximum of each of the two, in bytes.
    pub coder_bytes_max: usize,
    /// Responses that could be compressed.
    pub compressions: Vec<CompressionFigure>,
}

impl ComputeFigures {
    /// The counters of each class, with its label.
    pub fn classes(&self) -> [(&'static str, &Stats); 2] {
        [("response", &self.response), ("idle", &self.idle)]
    }
}

/// Responses with one coding and one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionFigure {
    /// The coding that the client got, or would have got.
    pub coding: &'static str,
    /// The label of a [`Compression`].
    pub outcome: &'static str,
    /// The number of responses.
    pub count: u64,
}

/// The outcome for a response that could be compressed, and whose client accepts a coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Compression {
    /// Compressed at the level of the location.
    Usual,
    /// Compressed at a lower level, because there was too little time or memory.
    Fast,
    /// Not compressed, because jobs wait for too long in the pool.
    PoolBusy,
    /// Not compressed, because encoders use all memory that they may.
    MemoryFull,
}

/// Counts of responses by coding and outcome. All event loops share it: counting is one atomic addition.
#[derive(Debug, Default)]
pub struct Compressions([[AtomicU64; Compression::COUNT]; Coding::ALL.len()]);

impl Compressions {
    /// Counts one response. Does not block.
    pub fn count(&self, coding: Coding, outcome: Compression) {
        self.0[coding as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts at this moment.
    pub fn figures(&self) -> Vec<CompressionFigure> {
        let of = |coding: Coding| {
            let outcomes = Compression::VARIANTS.iter();
            outcomes.map(move |&outcome| CompressionFigure {
                coding: coding.name(),
                outcome: outcome.into(),
                count: self.0[coding as usize][outcome as usize].load(Ordering::Relaxed),
            })
        };
        Coding::ALL.into_iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_coding_and_outcome_has_its_own_count() {
        let compressions = Compressions::default();
        for (times, coding) in (1..).zip(Coding::ALL) {
            for (more, outcome) in Compression::VARIANTS.iter().enumerate() {
                for _ in 0..10 * times + more {
                    compressions.count(coding, *outcome);
                }
            }
        }
        let figures = compressions.figures();
        let counts: Vec<_> = figures.iter().map(|one| one.count).collect();
        assert_eq!(counts, [10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33]);
        let seventh = CompressionFigure {
            coding: "br",
            outcome: "pool_busy",
            count: 22,
        };
        assert_eq!(figures[6], seventh);
    }
}
