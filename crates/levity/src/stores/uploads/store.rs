//! The uploads beneath one root.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levity_disk::patiently;
use levity_telemetry::diagnostics;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat, unlinkat};
use rustix::io::Errno;
use tokio::sync::{Mutex as Turn, Semaphore};

use super::changes::Changes;
use super::name_locks::NameLocks;
use super::parts::{Kept, Key, Part, Parts, Unusable};
use super::room::{Full, NAME_BYTES, Quota, Room, Taken, of_file};

/// The folder beneath the root for names that files have before they get theirs. It begins with
/// [`TEMPORARY_PREFIX`](levity_disk::TEMPORARY_PREFIX), so no rule of a location shows it.
pub const FOLDER: &str = ".levity-temporary-uploads";

/// A file in that folder that was not written to for so long belongs to no upload: the longest pause that
/// `limits.body_timeout` allows is shorter.
const STALE_AGE: Duration = Duration::from_secs(2 * 3600);

/// How long a count of all files is used.
pub const COUNT_AGE_MAX: Duration = Duration::from_secs(600);

/// How many names beneath a root are changed at a time. On a disk that does not answer, so many tasks wait without end.
pub const CHANGES_MAX: usize = 64;

/// The uploads beneath one root. Locations with that root share it, also across reloads.
pub struct UploadStore {
    /// The root as it was resolved.
    root: PathBuf,
    /// What was changed.
    pub changes: Changes,
    /// The names that are being changed.
    pub names: NameLocks,
    /// A permit is held by each task that changes a name.
    pub changing: Arc<Semaphore>,
    /// Held by whoever counts the files.
    pub counting: Arc<Turn<()>>,
    state: Mutex<State>,
    born: Instant,
    /// When the first part expires, in milliseconds since `born`; the maximum without parts.
    next_expiry_ms: AtomicU64,
}

#[derive(Default)]
struct State {
    parts: Parts,
    room: Room,
    counted: Option<Instant>,
    /// What was added since a count began, which it may have missed.
    added_since: u64,
}

/// Room for a file that is being received. Given back when it is dropped.
pub struct Reservation {
    store: Arc<UploadStore>,
    taken: Taken,
}

/// The use of a key by one request. Ends when it is dropped.
pub struct Claim {
    store: Arc<UploadStore>,
    key: Key,
    is_kept: bool,
}

impl UploadStore {
    /// The uploads beneath `root`, a resolved path.
    pub fn new(root: &Path) -> Arc<Self> {
        Arc::new(Self {
            root: root.to_owned(),
            changes: Changes::default(),
            names: NameLocks::default(),
            changing: Arc::new(Semaphore::new(CHANGES_MAX)),
            counting: Arc::default(),
            state: Mutex::default(),
            born: Instant::now(),
            next_expiry_ms: AtomicU64::new(u64::MAX),
        })
    }

    /// The root as it was resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes the names that a crash has left. Blocks, for seconds at most.
    pub fn remove_stale(&self) {
        let removed = patiently(&self.root.join(FOLDER), remove_stale);
        if let Err(error) = removed.and_then(|removed| removed) {
            let root = self.root.display();
            diagnostics::log(format_args!(
                "cannot remove what uploads to {root} have left: {error}"
            ));
        }
    }

    /// Drops the parts that have expired at `now`. Cheap where there are none.
    pub fn sweep(&self, now: Instant) {
        if self.ms(now) < self.next_expiry_ms.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        let expired = state.parts.expire(now);
        self.give_back(&mut state, &expired);
        drop(state);
    }

    /// Whether all files were counted less than [`COUNT_AGE_MAX`] before `now`; `None` if they never were.
    pub fn has_recent_count(&self, now: Instant) -> Option<bool> {
        let counted = self.state().counted?;
        Some(now.saturating_duration_since(counted) < COUNT_AGE_MAX)
    }

    /// A count of all files begins.
    pub fn count_begins(&self) {
        self.state().added_since = 0;
    }

    /// All names that were found from [`count_begins`](Self::count_begins) to `now` count `bytes`.
    pub fn counted(&self, bytes: u64, now: Instant) {
        let mut state = self.state();
        state.room.used = bytes + state.added_since;
        state.counted = Some(now);
    }

    /// No room yet, for a file that is to get the name `path`. What has the name is to be looked at afterwards.
    pub fn begin_room(self: &Arc<Self>, path: &[u8]) -> Reservation {
        let taken = self.state().room.begin(path);
        self.reserved(taken)
    }

    fn reserved(self: &Arc<Self>, taken: Taken) -> Reservation {
        Reservation {
            store: self.clone(),
            taken,
        }
    }

    /// A folder was made.
    pub fn folder_made(&self, path: &[u8]) {
        let mut state = self.state();
        state.room.changed(path, 0, NAME_BYTES);
        state.added_since += NAME_BYTES;
    }

    /// The folder `path` was removed, which was empty.
    pub fn folder_removed(&self, path: &[u8]) {
        self.state().room.changed(path, NAME_BYTES, 0);
    }

    /// The file `path` of `bytes` was removed.
    pub fn file_removed(&self, path: &[u8], bytes: u64) {
        self.state().room.changed(path, of_file(bytes), 0);
    }

    /// Begins to receive the file of `key`; a part that is kept of it is dropped. `None` if another request receives it, too:
    /// then only that one is kept if it remains incomplete.
    pub fn begin(self: &Arc<Self>, key: Key) -> Option<Claim> {
        let mut state = self.state();
        let (is_claimed, replaced) = state.parts.begin(&key);
        self.give_back(&mut state, replaced.as_slice());
        drop(state);
        is_claimed.then(|| self.claim(key))
    }

    /// Takes the part of `key`, to continue it at `offset`.
    ///
    /// # Errors
    /// It is in use, or has another length.
    pub fn resume(
        self: &Arc<Self>,
        key: Key,
        offset: u64,
    ) -> Result<(Claim, Part, Reservation), Unusable> {
        let mut state = self.state();
        let Kept { part, taken } = state.parts.resume(&key, offset)?;
        drop(state);
        Ok((self.claim(key), part, self.reserved(taken)))
    }

    fn claim(self: &Arc<Self>, key: Key) -> Claim {
        Claim {
            store: self.clone(),
            key,
            is_kept: false,
        }
    }

    /// The bytes of the part of `key`, 0 if there is none; `None` while a request receives it.
    pub fn part_bytes(&self, key: &Key) -> Option<u64> {
        self.state().parts.bytes(key)
    }

    /// Gives back the room of `parts`, and notes when the next one expires.
    fn give_back(&self, state: &mut State, parts: &[Kept]) {
        for kept in parts {
            state.room.end(&kept.taken);
        }
        let next = state.parts.next_expiry().map_or(u64::MAX, |at| self.ms(at));
        self.next_expiry_ms.store(next, Ordering::Relaxed);
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.born).as_millis() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// What has the name, a file of `bytes` or nothing, is to be replaced.
    pub fn replaces(&self, bytes: Option<u64>) {
        let counts = bytes.map_or(0, of_file);
        self.store.state().room.found(&self.taken, counts);
    }

    /// Takes `bytes` more, within `quota` if there is one.
    ///
    /// # Errors
    /// There is less room; what was taken before stays so.
    pub fn take(&mut self, bytes: u64, quota: Option<Quota>) -> Result<(), Full> {
        let mut state = self.store.state();
        state.room.take(&mut self.taken, bytes, quota)
    }

    /// The file of `bytes` has got the name `path`; one of `replaced` bytes has lost it.
    pub fn used(mut self, path: &[u8], bytes: u64, replaced: Option<u64>) {
        let (before, now) = (replaced.map_or(0, of_file), of_file(bytes));
        let taken = std::mem::take(&mut self.taken);
        let mut state = self.store.state();
        state.room.named(path, &taken, before, now);
        state.added_since += now;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.store.state().room.end(&self.taken);
    }
}

impl Claim {
    /// Keeps `part` for `time`, and with it the room that it needs of `reservation`. The oldest parts give way if there are more than
    /// `parts_max`.
    pub fn keep(
        mut self,
        part: Part,
        mut reservation: Reservation,
        time: Duration,
        parts_max: usize,
    ) {
        self.is_kept = true;
        let mut taken = std::mem::take(&mut reservation.taken);
        let expiry = Instant::now() + time;
        let mut state = self.store.state();
        state.room.shrink(&mut taken, of_file(part.bytes));
        let kept = Kept { part, taken };
        let displaced = state.parts.keep(&self.key, kept, expiry, parts_max);
        self.store.give_back(&mut state, &displaced);
        drop(state);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_kept {
            self.store.state().parts.end(&self.key);
        }
    }
}

/// Removes the files in `folder` that no upload writes to any more. Blocks.
fn remove_stale(folder: &Path) -> io::Result<()> {
    // A link could lead to files of somebody else, which the server may remove and the owner of the link may not.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(folder, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        folder => folder?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |since| since.as_secs());
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let stat = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let modified_s = u64::try_from(stat.st_mtime).unwrap_or_default();
        if is_file && now_s.saturating_sub(modified_s) > STALE_AGE.as_secs() {
            unlinkat(&folder, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use levity_disk::{OpenFile, Root, Symlinks, TEMPORARY_PREFIX};

    fn store() -> (tempfile::TempDir, Arc<UploadStore>) {
        let root = tempfile::tempdir().expect("a folder");
        let store = UploadStore::new(root.path());
        (root, store)
    }

    fn part(bytes: u64) -> Part {
        let root = Root::open("/".as_ref(), Symlinks::Beneath);
        let file: io::Result<Arc<OpenFile>> = root.and_then(|root| root.open_cached(c"."));
        let file = file.expect("the root of the file system is in memory");
        Part { file, bytes }
    }

    fn key(path: &str) -> Key {
        Key {
            path: path.into(),
            total: 100,
            user: Vec::new(),
        }
    }

    fn quota(bytes: u64) -> Option<Quota> {
        Some(Quota {
            bytes,
            lent_bytes_max: 0,
        })
    }

    fn reserve(
        store: &Arc<UploadStore>,
        bytes: u64,
        quota: Option<Quota>,
    ) -> Result<Reservation, Full> {
        let mut reservation = store.begin_room(b"a");
        reservation.take(bytes, quota)?;
        Ok(reservation)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_folder_is_hidden() {
        assert!(FOLDER.starts_with(TEMPORARY_PREFIX));
    }

    #[test]
    fn the_quota_counts_files_parts_and_what_is_received() {
        let (_root, store) = store();
        let quota = quota(10_000);
        store.count_begins();
        store.counted(4000, Instant::now());
        let mut first = reserve(&store, 3000, quota).expect("room");
        let second = reserve(&store, 3000, quota).expect("room to the edge");
        assert!(reserve(&store, 1, quota).is_err());
        assert!(first.take(1, quota).is_err());
        assert!(
            reserve(&store, 1, None).is_ok(),
            "another location has no quota"
        );
        drop(second);
        first.used(b"a", 3000 - NAME_BYTES, Some(2000 - NAME_BYTES));
        assert!(reserve(&store, 5001, quota).is_err());
        let most = reserve(&store, 5000, quota);
        drop(most.expect("4000 + 3000 - 2000 are used"));
        store.file_removed(b"a", 3000 - NAME_BYTES);
        store.folder_removed(b"folder");
        store.folder_made(b"folder");
        store.file_removed(b"b", 2000 - NAME_BYTES);
        let whole = reserve(&store, 10_000, quota).expect("nothing is left");
        let claim = store.begin(key("a")).expect("nobody has it");
        claim.keep(part(6000 - NAME_BYTES), whole, HOUR, 9);
        assert!(reserve(&store, 4001, quota).is_err(), "the part has 6000");
        drop(reserve(&store, 4000, quota).expect("its rest was given back"));
        // Files that get their names during a count may be missed by it.
        store.count_begins();
        let added = reserve(&store, 2000, quota).expect("room");
        added.used(b"c", 0, None);
        store.folder_made(b"new");
        store.counted(0, Instant::now());
        assert!(reserve(&store, 4001 - 2 * NAME_BYTES, quota).is_err());
        assert!(reserve(&store, 4000 - 2 * NAME_BYTES, quota).is_ok());
    }

    #[test]
    fn a_part_is_continued_by_one_request_at_its_end() {
        let (_root, store) = store();
        let claim = store.begin(key("a")).expect("nobody has it");
        assert!(store.begin(key("a")).is_none());
        assert_eq!(store.part_bytes(&key("a")), None);
        let in_use = store.resume(key("a"), 0).map(drop);
        assert_eq!(in_use, Err(Unusable::InUse));
        claim.keep(part(7), reserve(&store, 9, None).expect("room"), HOUR, 9);
        assert_eq!(store.part_bytes(&key("a")), Some(7));
        let wrong = store.resume(key("a"), 6).map(drop);
        assert_eq!(wrong, Err(Unusable::Has(7)));
        for (path, total, user) in [("b", 100, ""), ("a", 99, ""), ("a", 100, "u")] {
            let other = Key {
                total,
                user: user.into(),
                ..key(path)
            };
            let found = store.resume(other, 7).map(drop);
            assert_eq!(found, Err(Unusable::Has(0)), "{path} {total} {user}");
        }
        let (claim, part, _) = store.resume(key("a"), 7).expect("a part");
        assert_eq!(part.bytes, 7);
        drop(claim);
        assert_eq!(store.part_bytes(&key("a")), Some(0));
        assert_eq!(store.state().parts.next_expiry(), None);
    }

    #[test]
    fn parts_expire_and_give_way() {
        let (_root, store) = store();
        for (number, path) in ["a", "b", "c"].into_iter().enumerate() {
            let claim = store.begin(key(path)).expect("nobody has it");
            let reservation = reserve(&store, of_file(10), None).expect("room");
            let time = HOUR * (number as u32 + 1);
            claim.keep(part(10), reservation, time, 2);
        }
        assert_eq!(store.part_bytes(&key("a")), Some(0), "the oldest");
        let quota = quota(3 * of_file(10));
        assert!(reserve(&store, of_file(11), quota).is_err());
        assert!(reserve(&store, of_file(10), quota).is_ok());
        let start = Instant::now();
        store.sweep(start + HOUR);
        assert_eq!(store.part_bytes(&key("b")), Some(10));
        store.sweep(start + 2 * HOUR + Duration::from_secs(9));
        assert_eq!(store.part_bytes(&key("b")), Some(0));
        assert_eq!(store.part_bytes(&key("c")), Some(10));
        store.sweep(start + 4 * HOUR);
        assert!(reserve(&store, 3 * of_file(10), quota).is_ok());
    }

    #[test]
    fn only_old_names_are_removed_at_the_start() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(FOLDER);
        fs::create_dir(&folder).expect("a folder");
        for (name, age) in [("old", STALE_AGE + HOUR), ("young", STALE_AGE - HOUR)] {
            let file = fs::File::create(folder.join(name)).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("utimes");
        }
        UploadStore::new(root.path()).remove_stale();
        let names = fs::read_dir(&folder).expect("a folder").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["young"]);
    }

    /// Whoever may write beneath the root need not be able to remove what a link of theirs leads to.
    #[test]
    fn a_link_in_place_of_the_own_folder_is_not_followed() {
        let (root, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (root, other) = (root.expect("a folder"), other.expect("a folder"));
        let precious = other.path().join("precious");
        let file = fs::File::create(&precious).expect("a file");
        let then = SystemTime::now() - STALE_AGE - HOUR;
        file.set_modified(then).expect("utimes");
        std::os::unix::fs::symlink(other.path(), root.path().join(FOLDER)).expect("a link");
        UploadStore::new(root.path()).remove_stale();
        assert!(precious.exists());
    }
}
