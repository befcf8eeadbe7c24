//! The digests that are known, and those that are being made.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use levity_disk::Meta;
use levity_wire::digest::Algorithm;
use quick_cache::sync::Cache;

/// The maximum number of digests that are kept: about 4 MiB.
const KEPT_MAX: usize = 16 * 1024;

/// The length of the longest digest in bytes.
const DIGEST_BYTES_MAX: usize = 64;

/// The version of a file, and an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    pub(super) algorithm: Algorithm,
}

impl Key {
    pub(super) fn new(meta: &Meta, algorithm: Algorithm) -> Self {
        Self {
            device: meta.device,
            inode: meta.inode,
            size: meta.size,
            modified: (meta.mtime_s, meta.mtime_ns),
            changed: (meta.ctime_s, meta.ctime_ns),
            algorithm,
        }
    }
}

/// A digest of any algorithm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digest {
    bytes: [u8; DIGEST_BYTES_MAX],
    length: usize,
}

impl Digest {
    pub(super) fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes[..digest.len()].copy_from_slice(digest);
        Self {
            bytes,
            length: digest.len(),
        }
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The digests of files. Only event loops take its locks, for one look-up.
pub struct DigestStore {
    pub(super) kept: Cache<Key, Digest>,
    /// Digests that are being made.
    pub(super) making: Mutex<HashSet<Key>>,
}

impl Default for DigestStore {
    fn default() -> Self {
        Self {
            kept: Cache::new(KEPT_MAX),
            making: Mutex::default(),
        }
    }
}

impl DigestStore {
    pub(super) fn making(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
