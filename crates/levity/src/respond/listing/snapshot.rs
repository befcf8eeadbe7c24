//! All entries of a directory in memory, in order, which many clients may read at a time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use levity_compute::Class;
use levity_disk::{Clients, DirectoryReader, Entry, Kind, Listing};
use tokio::sync::watch;

use super::READER_FILES;
use super::order::{Merge, sorted};
use crate::files::cache::Recency;
use crate::files::disk_client::DetachedDisk;
use crate::loop_core::compute::{Compute, DroppedInPool, Panicked};
use crate::shares::claim::Claims;
use crate::shares::common::Common;
use crate::shares::{Held, Portion, Resource, Shortage, Used};

/// So many entries are sorted on the event loop: it takes about 100 us.
const SORTED_HERE_MAX: usize = 256;

/// How many entries one job merges.
const MERGED_PER_JOB: usize = 8192;

/// The estimated processor time of a job that sorts or merges.
const JOB_TIME: Duration = Duration::from_millis(2);

/// The names of files that are shown below a listing, by preference; in any case.
const READMES: [&[u8]; 3] = [b"readme.md", b"readme.txt", b"readme"];

/// The entries of a directory.
pub struct Snapshot {
    parts: DroppedInPool<Parts>,
    /// There are more names than were asked for.
    pub is_cut: bool,
    /// The name of the file that explains the directory.
    pub readme: Option<Vec<u8>>,
    /// See [`Common::holders`].
    clients: Clients,
}

struct Parts {
    runs: Vec<Listing>,
    /// The run that has the next entry; empty if there is one run.
    order: Vec<u16>,
    /// Given back after the memory.
    memory: Used,
}

/// Whoever asked first may leave before others, and whoever reads it keeps all of it.
impl Common for Snapshot {
    fn resource(&self) -> Resource {
        Resource::Listings
    }

    fn amount(&self) -> usize {
        self.parts().memory.amount()
    }

    fn holders(&self) -> &Clients {
        &self.clients
    }

    fn is_used_by_holders(&self) -> bool {
        false
    }
}

/// The place of a client in a [`Snapshot`].
pub struct Cursor {
    place: usize,
    /// The next entry of each run.
    next: Vec<u16>,
}

/// Why there is no [`Snapshot`].
#[derive(Debug, Clone)]
pub enum Failure {
    /// Other listings have the memory, or other requests the descriptors.
    NoMemory,
    /// The directory could not be read.
    Unreadable(Arc<io::Error>),
}

impl From<Shortage> for Failure {
    fn from(_: Shortage) -> Self {
        Self::NoMemory
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(Arc::new(error))
    }
}

impl From<Panicked> for Failure {
    fn from(_: Panicked) -> Self {
        io::Error::other("the listing could not be sorted").into()
    }
}

impl Snapshot {
    /// Before the first entry.
    pub fn start(&self) -> Cursor {
        Cursor {
            place: 0,
            next: vec![0; self.parts().runs.len()],
        }
    }

    /// The entry at `cursor`, which moves to the next one.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Entry<'_>> {
        let Parts { runs, order, .. } = self.parts();
        let run = match runs.as_slice() {
            [_] => 0,
            _ => usize::from(*order.get(cursor.place)?),
        };
        cursor.place += 1;
        let next = &mut cursor.next[run];
        let index = usize::from(*next);
        *next += 1;
        (index < runs[run].len()).then(|| runs[run].entry(index))
    }

    fn parts(&self) -> &Parts {
        self.parts.value.as_ref().expect("it is taken by the drop")
    }

    /// A snapshot of a directory of one piece, for which there is memory in `held`.
    ///
    /// # Errors
    /// As [`Failure`].
    pub async fn of_one_piece(
        disk: &DetachedDisk,
        mut piece: Listing,
        entries_max: usize,
        held: Held,
    ) -> Result<Self, Failure> {
        let is_cut = cut(&mut piece, entries_max);
        let readme = readme(&piece).map(|(_, name)| name);
        let run = match piece.len() <= SORTED_HERE_MAX {
            true => sorted(&piece),
            false => in_pool(disk, move || sorted(&piece)).await?,
        };
        let compute = &disk.core().compute;
        Ok(Self::new(
            compute,
            (vec![run], Vec::new()),
            held,
            is_cut,
            readme,
        ))
    }

    /// Reads a directory, or the rest of it after `piece`. Each piece is sorted while the next one is read. It counts to the client
    /// behind `claims`, but waits for nothing: there are listings that take less.
    async fn of_many(
        disk: &DetachedDisk,
        claims: &Claims,
        reader: &Arc<DirectoryReader>,
        piece: Option<Listing>,
        entries_max: usize,
    ) -> Result<Self, Failure> {
        // It lasts as long as any client reads it, and that of `claims` may leave before.
        let mut files = claims.nothing_lasting(Resource::Files, Portion::Whole);
        files.try_grow(READER_FILES)?;
        // Long directories leave some for the others.
        let mut held = claims.nothing_lasting(Resource::Listings, Portion::Most);
        let mut piece = match piece {
            Some(piece) => piece,
            None => disk.next_entries(reader).await?,
        };
        let (mut runs, mut readmes) = (Vec::new(), Vec::new());
        let mut names_left = entries_max;
        let is_cut = loop {
            // Two bytes for its place in the order.
            let more = piece.bytes() + 2 * piece.len();
            held.try_grow(more)
                .inspect_err(|_| held.count_missed(more))?;
            let (is_last, is_cut) = (piece.is_last, cut(&mut piece, names_left));
            names_left -= piece.len();
            readmes.extend(readme(&piece));
            let sorting = in_pool(disk, move || sorted(&piece));
            if is_last || is_cut {
                runs.push(sorting.await?);
                break is_cut;
            }
            let (run, next) = tokio::join!(sorting, disk.next_entries(reader));
            runs.push(run?);
            piece = next?;
        };
        let merged = merged(disk, runs).await?;
        let readme = readmes.into_iter().min().map(|(_, name)| name);
        let compute = &disk.core().compute;
        Ok(Self::new(compute, merged, held, is_cut, readme))
    }

    fn new(
        compute: &Arc<Compute>,
        (runs, order): (Vec<Listing>, Vec<u16>),
        held: Held,
        is_cut: bool,
        readme: Option<Vec<u8>>,
    ) -> Self {
        let parts = Parts {
            runs,
            order,
            memory: held.without_client(),
        };
        Self {
            parts: DroppedInPool::new(Some(parts), compute),
            is_cut,
            readme,
            clients: Clients::default(),
        }
    }
}

/// Removes the entries after the first `entries_max`; returns whether there are any.
pub fn cut(piece: &mut Listing, entries_max: usize) -> bool {
    let is_cut = piece.len() > entries_max;
    piece.truncate(entries_max);
    is_cut
}

/// The file that explains the directory, with its rank.
fn readme(piece: &Listing) -> Option<(usize, Vec<u8>)> {
    let files = piece.entries().filter(|entry| entry.kind == Kind::Regular);
    let ranked = files.filter_map(|entry| {
        let is_name = |name: &&[u8]| name.eq_ignore_ascii_case(entry.name);
        Some((READMES.iter().position(is_name)?, entry.name.to_vec()))
    });
    ranked.min()
}

async fn merged(
    disk: &DetachedDisk,
    runs: Vec<Listing>,
) -> Result<(Vec<Listing>, Vec<u16>), Failure> {
    let (mut merge, mut is_done) = in_pool(disk, || (Merge::new(runs), false)).await?;
    while !is_done {
        (merge, is_done) = in_pool(disk, || {
            let is_done = merge.advance(MERGED_PER_JOB);
            (merge, is_done)
        })
        .await?;
    }
    Ok(merge.finish())
}

async fn in_pool<T: Send + 'static>(
    disk: &DetachedDisk,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let compute = &disk.core().compute;
    let computed = compute.run(Class::Response, disk.connection(), JOB_TIME, work);
    Ok(computed.await?.value)
}

/// A directory, and the rules by which its entries are examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Device and inode.
    pub directory: (u64, u64),
    /// The address of the root.
    pub root: usize,
    /// The maximum number of entries.
    pub entries_max: usize,
}

/// A snapshot for all clients that ask for it at about the same time: one of a large directory takes megabytes.
pub struct SharedSnapshot {
    key: Key,
    began: Instant,
    made: watch::Receiver<Option<Result<Arc<Snapshot>, Failure>>>,
}

/// The snapshots that are being made or in use. Event loops take the lock for one look-up.
static SHARED: Mutex<Vec<Weak<SharedSnapshot>>> = Mutex::new(Vec::new());

impl SharedSnapshot {
    /// The snapshot of `key` that is being made, or was begun recently, if there is one. Many clients may ask within the
    /// seconds that one takes to be made, and there is no memory for one each.
    pub fn find(key: Key, recency: Recency) -> Option<Arc<Self>> {
        let all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usable = all.iter().filter_map(Weak::upgrade);
        usable.find(|shared| {
            shared.key == key
                && recency.is_after_change(shared.began)
                && (shared.is_being_made() || shared.began.elapsed() < recency.ttl)
        })
    }

    fn is_being_made(&self) -> bool {
        self.made.has_changed().is_ok() && self.made.borrow().is_none()
    }

    /// The snapshot that [`find`](Self::find) finds, or a new one of the directory that `reader` reads, from which `piece`
    /// was read already. It is made by a task of its own, because the client that asked first may leave before others; until
    /// it is made, it counts to that client.
    pub fn find_or_make(
        disk: &DetachedDisk,
        claims: &Claims,
        key: Key,
        recency: Recency,
        reader: Arc<DirectoryReader>,
        piece: Option<Listing>,
    ) -> Arc<Self> {
        if let Some(found) = Self::find(key, recency) {
            return found;
        }
        let (sender, made) = watch::channel(None);
        // The piece was read since then.
        let began = recency.now;
        let shared = Arc::new(Self { key, began, made });
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|shared| shared.strong_count() > 0);
        all.push(Arc::downgrade(&shared));
        drop(all);
        let (disk, claims) = (disk.clone(), claims.clone());
        let core = disk.core().clone();
        core.spawn_background(async move {
            let making = Snapshot::of_many(&disk, &claims, &reader, piece, key.entries_max);
            let made = tokio::select! {
                () = sender.closed() => return,
                made = making => made,
            };
            sender.send_replace(Some(made.map(Arc::new)));
        });
        shared
    }

    /// Waits until it is made.
    ///
    /// # Errors
    /// As [`Failure`].
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Failure> {
        let mut made = self.made.clone();
        let ended = || io::Error::other("the listing was abandoned");
        let made = made.wait_for(Option::is_some).await.map_err(|_| ended())?;
        made.clone().expect("it is there")
    }
}
