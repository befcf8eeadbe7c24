//! Space on the file system of the store.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::failure::Failure;
use super::syncer::LOG_PAGES_MAX;

/// The file whose space is given back when the disk is full, so that messages can be dropped.
const RESERVE: &str = "reserve";

/// Its size in bytes: that of the longest write-ahead log, for which the database may have to become longer.
const RESERVE_BYTES: u64 = 4096 * LOG_PAGES_MAX as u64;

/// How long space that was given back is left to what frees space. Of a quota nobody says how much of it is free, so without a
/// pause each batch would take the space again.
const RESERVE_PAUSE: Duration = Duration::from_secs(1);

/// What is free, and what is reserved.
pub(super) struct Space {
    reserve: File,
    /// Messages leave as many bytes free.
    free_bytes_min: u64,
    is_reserved: bool,
    /// When the space is reserved again, if there is room.
    again: Instant,
}

impl Space {
    /// Reserves space in `folder`, if there is any.
    pub fn new(folder: &Path, free_bytes_min: u64) -> io::Result<Self> {
        let path = folder.join(RESERVE);
        let reserve = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        let mut space = Self {
            reserve,
            free_bytes_min,
            is_reserved: false,
            again: Instant::now(),
        };
        space.reserve_again();
        Ok(space)
    }

    /// Why no message is taken, if the disk is full.
    pub fn refusal(&mut self) -> Option<Failure> {
        let free = self.free_bytes();
        if free.is_none_or(|free| free >= self.free_bytes_min) {
            let has_room = |free| free >= self.free_bytes_min + RESERVE_BYTES;
            let is_due = !self.is_reserved && Instant::now() >= self.again;
            if is_due && free.is_none_or(has_room) {
                self.reserve_again();
            }
            return None;
        }
        let min = self.free_bytes_min >> 20;
        let reason = format!("the disk of the mailboxes is full: less than {min} MiB are free");
        Some(Failure::Full(reason))
    }

    /// Gives the reserved space back.
    pub fn release(&mut self) {
        self.is_reserved = false;
        self.again = Instant::now() + RESERVE_PAUSE;
        // An error leaves the disk full.
        let _ = self.reserve.set_len(0);
    }

    fn free_bytes(&self) -> Option<u64> {
        let of = fstatvfs(&self.reserve).ok()?;
        Some(of.f_bavail.saturating_mul(of.f_frsize))
    }

    fn reserve_again(&mut self) {
        // Some file systems cannot. There, the space that messages leave free is all.
        let flags = FallocateFlags::empty();
        let reserved = fallocate(&self.reserve, flags, 0, RESERVE_BYTES);
        self.is_reserved = reserved.is_ok();
    }
}
