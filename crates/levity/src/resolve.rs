//! Resolve: from a path to a file, a directory, or the reason why there is neither.
//!
//! What is known and fresh costs no system call. What the kernel knows costs an open that cannot
//! block. Only the rest travels to a disk engine, in one trip for open, `fstat` and first bytes.

use std::ffi::CString;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_disk::{Class, Kind, Meta, OpenFile, Ready};
use levity_wire::http1::Method;
use levity_wire::range::{self, Range};
use rustix::io::Errno;

use crate::cache::{BODY_BYTES_MAX, Content, Entry, Hot};
use crate::request::Request;
use crate::respond::file;
use crate::route::Place;
use crate::trip::{Opened, Trips};
use crate::worker::Worker;

/// Bytes that come along with a cold open: all of a small file, the start of a large one.
pub const FIRST_BYTES: usize = 128 * 1024;

/// A file written more recently may change again without its time changing: file systems keep time
/// in ticks, and clients compare seconds.
const SETTLED_AGE: Duration = Duration::from_secs(2);

/// What a path leads to.
pub enum Found {
    /// A regular file, and bytes of it that were read on the way, with their offset.
    File(Rc<Hot>, Option<(u64, Ready)>),
    /// A directory without an index.
    Directory(Arc<OpenFile>),
}

/// Finds what `request` asks for in `place`.
///
/// # Errors
/// Those of open, `fstat` and read; `TimedOut` when the disk does not answer; `ECANCELED` when its
/// queue is full.
pub async fn resolve(
    worker: &Worker,
    place: &Place,
    request: &Request,
    now: Instant,
    trips: &mut Trips<'_>,
) -> io::Result<Found> {
    let ttl = worker.service().config.disk.entry_ttl;
    let needs_body = request.head.method == Method::Get;
    if let Some(hot) = worker.cache.fresh(&request.key, needs_body, now, ttl)
        && still_names(&hot, place)
    {
        return Ok(Found::File(hot, None));
    }
    let search = Search {
        worker,
        place,
        key: &request.key,
        now,
        first: needs_body.then(|| (likely_offset(request), FIRST_BYTES)),
    };
    let path = place.beneath(&request.path);
    let mut found = search.find(path, trips).await;
    if found.as_ref().is_err_and(is_torn) {
        found = search.find(path, trips).await;
    }
    if found.is_err() {
        worker.cache.forget(&request.key);
    }
    found
}

/// Whether a file that is kept open still has the version that its entry speaks of. A body in memory
/// is of that version; a file is read as it is now. Remote files are taken at their entry's word: their
/// `fstat` may wait.
fn still_names(hot: &Hot, place: &Place) -> bool {
    match &hot.entry.content {
        Content::File(file) if !place.root.file_system().remote => file
            .refresh()
            .is_ok_and(|meta| meta.same_version(&hot.entry.meta)),
        _ => true,
    }
}

/// The file became shorter while it was read: another look may find it whole.
fn is_torn(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Where the answer will probably start: a cold open reads from there. How a range from the end of
/// the file begins cannot be known yet.
fn likely_offset(request: &Request) -> u64 {
    let any_size = u64::MAX;
    match request
        .header("range")
        .map(|value| range::parse(value, any_size))
    {
        Some(Range::Part { first, .. }) if i64::try_from(first).is_ok() => first,
        _ => 0,
    }
}

/// One look at the file system.
struct Search<'a> {
    worker: &'a Worker,
    place: &'a Place,
    key: &'a [u8],
    now: Instant,
    /// Offset and bytes to bring along; `None` when the answer has no body.
    first: Option<(u64, usize)>,
}

impl Search<'_> {
    async fn find(&self, path: &[u8], trips: &mut Trips<'_>) -> io::Result<Found> {
        let (name, opened) = self.open_named(path, trips).await?;
        match opened.file.meta().kind {
            Kind::Regular => self.regular(&name, opened, trips).await,
            Kind::Directory => Ok(Found::Directory(opened.file)),
            Kind::Other => Err(Errno::ACCESS.into()),
        }
    }

    /// Opens `path`; for a directory's path the first index that exists, or else the directory.
    async fn open_named(
        &self,
        path: &[u8],
        trips: &mut Trips<'_>,
    ) -> io::Result<(Vec<u8>, Opened)> {
        if !path.is_empty() && !path.ends_with(b"/") {
            return Ok((path.to_vec(), self.open(path, self.first, trips).await?));
        }
        for index in &self.place.index {
            let name = [path, index.as_slice()].concat();
            match self.open(&name, self.first, trips).await {
                Ok(opened) if opened.file.meta().kind != Kind::Directory => {
                    return Ok((name, opened));
                }
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        let directory = path.strip_suffix(b"/").unwrap_or(b".");
        let opened = self.open(directory, None, trips).await?;
        if opened.file.meta().kind != Kind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok((path.to_vec(), opened))
    }

    /// Opens inline what the kernel has in memory; the rest in an engine.
    async fn open(
        &self,
        path: &[u8],
        first: Option<(u64, usize)>,
        trips: &mut Trips<'_>,
    ) -> io::Result<Opened> {
        let path = CString::new(path).map_err(|_| io::Error::from(Errno::NOENT))?;
        match self.place.root.open_cached(&path) {
            Ok(file) => Ok(Opened {
                file,
                first: None,
                stable: true,
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                trips.open(&self.place.root, path, first).await
            }
            Err(error) => Err(error),
        }
    }

    /// Makes an entry of an open file, with its content if that is small.
    async fn regular(
        &self,
        name: &[u8],
        opened: Opened,
        trips: &mut Trips<'_>,
    ) -> io::Result<Found> {
        let meta = opened.file.meta();
        if let Some(entry) = self.worker.cache.stale(self.key)
            && self.still_true(&entry, &meta)
        {
            return Ok(Found::File(self.keep(entry), None));
        }
        if self.first.is_some() && meta.size <= BODY_BYTES_MAX {
            return self.small(name, opened, trips).await;
        }
        let settled = opened.stable && is_settled(&meta);
        let content = Content::File(opened.file);
        let entry = Arc::new(file::entry(name, meta, settled, content));
        let ready = self.first.map(|(offset, _)| offset).zip(opened.first);
        Ok(Found::File(self.keep(entry), ready))
    }

    fn still_true(&self, entry: &Entry, meta: &Meta) -> bool {
        entry.strong && entry.meta.same_version(meta) && entry.suffices(self.first.is_some())
    }

    fn keep(&self, entry: Arc<Entry>) -> Rc<Hot> {
        self.worker.cache.keep(self.key, entry, self.now)
    }

    /// Reads all of a small file and keeps it if it is settled.
    async fn small(&self, name: &[u8], opened: Opened, trips: &mut Trips<'_>) -> io::Result<Found> {
        let meta = opened.file.meta();
        let (ready, stable) = match opened.first {
            Some(ready) if self.first.is_some_and(|(offset, _)| offset == 0) => {
                (ready, opened.stable)
            }
            _ => self.read_whole(&opened.file, trips).await?,
        };
        if (ready.len() as u64) < meta.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let settled = stable && is_settled(&meta);
        if !settled || matches!(ready, Ready::PageCache { .. }) {
            let entry = file::entry(name, meta, settled, Content::File(opened.file));
            let hot = Hot::new(Arc::new(entry), self.now);
            return Ok(Found::File(hot, Some((0, ready))));
        }
        if !matches!(ready, Ready::Bytes(_)) {
            self.worker.stats.copied(ready.len());
        }
        let bytes = ready.into_bytes(self.worker.disk.budget())?;
        self.worker.stats.copied(bytes.len());
        let body = Box::from(&bytes[..]);
        let content = Content::Memory(body, opened.file);
        let entry = Arc::new(file::entry(name, meta, true, content));
        Ok(Found::File(self.keep(entry), None))
    }

    /// From the page cache when that cannot block, else by an engine; and whether the file was the
    /// same before and after.
    async fn read_whole(
        &self,
        file: &Arc<OpenFile>,
        trips: &mut Trips<'_>,
    ) -> io::Result<(Ready, bool)> {
        let meta = file.meta();
        let size = usize::try_from(meta.size).expect("small");
        let mut bytes = Vec::with_capacity(size);
        let file_system = self.place.root.file_system();
        let hit = size == 0
            || file_system.nowait
                && self.worker.disk.has_room(meta.device)
                && file
                    .read_cached(&mut bytes, size, 0)
                    .is_ok_and(|read| read == size);
        let ready = if hit {
            Ready::Bytes(bytes.into())
        } else {
            trips.read(file, 0, size, Class::First).await?.ready
        };
        // On a remote file system even `fstat` may wait.
        let stable = !file_system.remote && file.refresh()?.same_version(&meta);
        Ok((ready, stable))
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

fn is_settled(meta: &Meta) -> bool {
    let Ok(seconds) = u64::try_from(meta.mtime_s) else {
        return true;
    };
    let written = UNIX_EPOCH + Duration::new(seconds, meta.mtime_ns);
    SystemTime::now()
        .duration_since(written)
        .is_ok_and(|age| age > SETTLED_AGE)
}
