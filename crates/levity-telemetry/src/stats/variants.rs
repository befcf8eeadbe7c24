//! Figures of the store of compressed files.

/// What the store keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VariantFigures {
    /// The number of variants.
    pub kept: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// The maximum of that size in bytes.
    pub bytes_max: u64,
}
