//! Counts the files beneath a root, for its quota.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::{DirectoryReader, Kind, Listing, Lookup, Root};
use rustix::io::Errno;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{Instant as Deadline, timeout_at};

use super::name::{FOLDERS_MAX, SharedName, c_path};
use crate::files::disk_client::DetachedDisk;
use crate::http::error::error;
use crate::http::response::Response;
use crate::stores::uploads::room::{NAME_BYTES, of_file};
use crate::stores::uploads::store::FOLDER;

/// Makes sure that the files are counted, if there is a quota. Waits for the first count only, for `limits.io_timeout` at most; later
/// ones are made while the last one is used. A count may take minutes, so each is made by a task of its own.
///
/// # Errors
/// The response if there is no count yet.
pub async fn ensure_counted(name: &SharedName) -> Result<(), Response> {
    let store = &name.upload.store;
    if name.quota().is_none() {
        return Ok(());
    }
    match store.has_recent_count(Instant::now()) {
        Some(true) => Ok(()),
        Some(false) => {
            // Before a task is started: on a slow disk there would be one of each upload that comes during a count.
            if let Ok(turn) = store.counting.clone().try_lock_owned() {
                // Without it the last count stays, and the next upload tries again.
                drop(start(name, turn));
            }
            Ok(())
        }
        None => first_count(name).await,
    }
}

async fn first_count(name: &SharedName) -> Result<(), Response> {
    let (store, core) = (&name.upload.store, name.disk.core());
    let deadline = Deadline::now() + core.config().config.limits.io_timeout;
    let turn = timeout_at(deadline, store.counting.clone().lock_owned()).await;
    let counted = match turn {
        // Somebody else has done it meanwhile.
        Ok(_) if store.has_recent_count(Instant::now()).is_some() => return Ok(()),
        Ok(turn) => timeout_at(deadline, start(name, turn)).await,
        Err(late) => Err(late),
    };
    match counted {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(reason))) => Err(name.refusal(&reason)),
        _ => Err(error(503, "the files are being counted for the quota")),
    }
}

/// Counts the files in its `turn`. A server that ends waits for that only as long as somebody else does.
fn start(name: &SharedName, turn: OwnedMutexGuard<()>) -> oneshot::Receiver<io::Result<()>> {
    let (sender, receiver) = oneshot::channel();
    let name = name.clone();
    let core = name.disk.core().clone();
    core.clone().spawn_background(async move {
        let is_over = || core.is_draining() && sender.is_closed();
        let counted = count(&name, is_over).await;
        drop(turn);
        // An error means that nobody waits for it.
        let _ = sender.send(counted);
    });
    receiver
}

async fn count(name: &SharedName, is_over: impl Fn() -> bool) -> io::Result<()> {
    let store = &name.upload.store;
    store.count_begins();
    let bytes = counted_beneath(&name.disk, &name.root, is_over).await?;
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

/// What all names beneath `root` count. Not those in other file systems, in what links lead to, in folders that cannot be read, and in
/// folders that are too deep to be written to.
async fn counted_beneath(
    disk: &DetachedDisk,
    root: &Arc<Root>,
    is_over: impl Fn() -> bool,
) -> io::Result<u64> {
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
            if is_over() {
                return Err(Errno::INTR.into());
            }
            if level.piece.is_last {
                levels.pop();
                continue;
            }
            let before = mem::take(&mut level.piece);
            level.piece = disk.entries_after(before, &level.reader).await?;
            level.next = 0;
            continue;
        }
        let entry = level.piece.entry(level.next);
        level.next += 1;
        if depth == 1 && entry.name == FOLDER.as_bytes() {
            continue;
        }
        let stat = entry.stat.filter(|_| !entry.is_link);
        bytes += match (entry.kind, stat) {
            (Kind::Regular, Some(stat)) => of_file(stat.size),
            _ => NAME_BYTES,
        };
        if entry.kind == Kind::Directory && stat.is_some() && depth <= FOLDERS_MAX {
            let path = [&level.path, entry.name, b"/"].concat();
            levels.extend(enter(disk, root, path).await?);
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
