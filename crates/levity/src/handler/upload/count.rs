//! Counts the files beneath a root, for its quota.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{DirectoryReader, Kind, Listing, Lookup, Root};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

use super::name::{FOLDERS_MAX, SharedName, c_path};
use crate::disk_client::DetachedDisk;
use crate::upload_store::store::FOLDER;

/// Makes sure that the files are counted, if there is a quota. Waits for the first count only; later ones are made while
/// the last one is used.
///
/// # Errors
/// Those of the disk.
pub async fn ensure_counted(name: &SharedName) -> io::Result<()> {
    let store = &name.upload.store;
    if name.upload.settings.quota_bytes.is_none() {
        return Ok(());
    }
    match store.has_recent_count(Instant::now()) {
        Some(true) => Ok(()),
        Some(false) => {
            // Before a task is started: on a slow disk there would be one of each upload that comes during a count.
            if let Ok(turn) = store.counting.clone().try_lock_owned() {
                let again = name.clone();
                let worker = name.disk.worker();
                worker.spawn_background(async move {
                    // Without it the last count stays, and the next upload tries again.
                    let _ = count(&again, turn).await;
                });
            }
            Ok(())
        }
        None => count(name, store.counting.clone().lock_owned().await).await,
    }
}

/// Counts the files in its `turn`, unless somebody else has done it meanwhile.
async fn count(name: &SharedName, _turn: OwnedMutexGuard<()>) -> io::Result<()> {
    let store = &name.upload.store;
    if store.has_recent_count(Instant::now()) == Some(true) {
        return Ok(());
    }
    store.count_begins();
    let bytes = bytes_beneath(&name.disk, &name.root).await?;
    store.counted(bytes, Instant::now());
    Ok(())
}

/// A folder that is being read.
struct Level {
    path: Vec<u8>,
    reader: Arc<DirectoryReader>,
    piece: Listing,
    /// The index of its next entry.
    next: usize,
}

/// The bytes of all regular files beneath `root`. Not those of other file systems, of what links lead to, of folders that
/// cannot be read, and of folders that are too deep to be written to.
async fn bytes_beneath(disk: &DetachedDisk, root: &Arc<Root>) -> io::Result<u64> {
    let mut bytes = 0;
    // Each has a descriptor.
    let mut levels: Vec<Level> = enter(disk, root, Vec::new()).await?.into_iter().collect();
    loop {
        // That of the root is 1.
        let depth = levels.len();
        let Some(level) = levels.last_mut() else {
            return Ok(bytes);
        };
        if level.next == level.piece.len() {
            if level.piece.is_last {
                levels.pop();
                continue;
            }
            level.piece = disk.next_entries(&level.reader).await?;
            level.next = 0;
            continue;
        }
        let entry = level.piece.entry(level.next);
        level.next += 1;
        let Some(stat) = entry.stat.filter(|_| !entry.is_link) else {
            continue;
        };
        match entry.kind {
            Kind::Regular => bytes += stat.size,
            Kind::Directory
                if depth <= FOLDERS_MAX && (depth > 1 || entry.name != FOLDER.as_bytes()) =>
            {
                let path = [&level.path, entry.name, b"/"].concat();
                levels.extend(enter(disk, root, path).await?);
            }
            Kind::Directory | Kind::Other => {}
        }
    }
}

/// Begins to read the folder `path`, which ends with a slash; `None` if it is gone or may not be read.
async fn enter(disk: &DetachedDisk, root: &Arc<Root>, path: Vec<u8>) -> io::Result<Option<Level>> {
    let of_root = if path.is_empty() { &b"."[..] } else { &path };
    let opened = disk.open(root, c_path(of_root)?, None, Lookup::Fresh).await;
    let reader = match opened {
        Ok(opened) => DirectoryReader::new(opened.file),
        Err(error) if is_passed_over(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let piece = disk.next_entries(&reader).await?;
    Ok(Some(Level {
        path,
        reader,
        piece,
        next: 0,
    }))
}

fn is_passed_over(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::PERM
                | Errno::LOOP
                | Errno::NAMETOOLONG
        )
    )
}
