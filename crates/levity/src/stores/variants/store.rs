//! The folder of the store, and the index of what is in it.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use levity_disk::{Root, Symlinks};

use super::index::Index;
use super::name::Name;

/// Files that are compressed at a time, over all workers. Each takes an idle thread and the memory of an encoder.
pub(super) const MAKING_MAX: usize = 2;

/// After a failure of its disk the store makes nothing for this time.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// The maximum size of an original relative to the store: a few large files must not displace all others.
pub(super) const STORE_SHARE: u64 = 8;

/// The folder and what is in it.
pub struct VariantStore {
    pub(super) root: Arc<Root>,
    /// The maximum of all variants in bytes.
    bytes_max: u64,
    pub(super) index: Index,
    /// Variants that are being made. Taken when one begins or ends, which is rare.
    pub(super) making: Mutex<HashSet<Name>>,
    /// The start of the present minute of copying, and the bytes copied in it. Taken when a copy begins, which is rare.
    pub(super) copied: Mutex<(Instant, u64)>,
    pub(super) started: Instant,
    /// When variants may be made again, in milliseconds since `started`.
    pub(super) paused_until_ms: AtomicU64,
}

impl VariantStore {
    /// Opens the store in `folder`. Removes what a crash has left, and the oldest variants beyond `bytes_max`. Blocks.
    ///
    /// # Errors
    /// Those of opening and reading the folder.
    pub fn open(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let root = Root::open(folder, Symlinks::Beneath)?;
        Ok(Self {
            index: Index::read(folder, bytes_max)?,
            root,
            bytes_max,
            making: Mutex::default(),
            copied: Mutex::new((Instant::now(), 0)),
            started: Instant::now(),
            paused_until_ms: AtomicU64::new(0),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.root.named()
    }

    /// The maximum of all variants in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The number of variants, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        self.index.size()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
