//! Which roots may be absent while a server runs.

use std::path::{Path, PathBuf};

/// Roots that may be absent: what needs them gets 503.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AbsentRoots {
    /// None of them.
    #[default]
    None,
    /// These, which are absent already.
    These(Vec<PathBuf>),
    /// Any of them.
    Any,
}

impl AbsentRoots {
    /// Whether `root` is one of them.
    #[must_use]
    pub fn permit(&self, root: &Path) -> bool {
        match self {
            Self::None => false,
            Self::These(roots) => roots.iter().any(|one| one == root),
            Self::Any => true,
        }
    }
}
