//! Files that are sent to nobody, whatever path leads to them.
//!
//! They are told by device and inode, so that hard links, symbolic links and other roots lead nowhere. These change when a file is
//! replaced, as by the renewal of a certificate. What was changed last before the secrets were looked at is therefore compared at once,
//! also by event loops; for anything newer, which may have become one since, a thread of the disk has them looked at again. Naming,
//! renaming and linking a file set its change time.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;

use super::meta::Meta;
use crate::thread::{lock, priority};

/// A link on the way to a secret may change, or the clock of a file server be wrong, without a new change time here.
const LOOK_AGE_MAX: Duration = Duration::from_secs(10);

/// How long opens wait for a look. One that takes longer hangs on a dead mount; what was found there before counts.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);

/// Twice the longest tick of a kernel's clock, by which change times may be late; that of file systems without fractions of a second.
const TICK_NS: i128 = 20_000_000;
const COARSE_TICK_NS: i128 = 2_000_000_000;

/// Names beneath a folder that are looked at, and folders on the way to one. A folder of state has a few for each certificate.
const NAMES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 8;

/// `st_dev` and `st_ino`.
type Identity = (u64, u64);

/// Files, and folders with everything in them, that are absent from the roots that are opened with them.
#[derive(Debug, Default)]
pub struct Secrets {
    places: Vec<Place>,
    /// What the last look has found.
    known: ArcSwapOption<Known>,
    /// When the look began that is in progress. Only threads that may block take the lock.
    looking: Mutex<Option<Instant>>,
    looked: Condvar,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// A thread looks there. It hangs if the file system does, and others leave the place out.
    is_busy: AtomicBool,
    found: Mutex<Vec<Identity>>,
}

#[derive(Debug)]
struct Known {
    identities: HashSet<Identity>,
    began: Instant,
    /// The same in nanoseconds since 1970.
    began_ns: i128,
}

impl Known {
    fn has(&self, meta: &Meta) -> bool {
        self.identities.contains(&(meta.device, meta.inode))
    }

    /// Whether the file was certainly changed before the look, so that it has found it if it is a secret.
    fn is_after(&self, meta: &Meta) -> bool {
        let changed_ns = i128::from(meta.ctime_s) * 1_000_000_000 + i128::from(meta.ctime_ns);
        let tick_ns = match meta.ctime_ns {
            0 => COARSE_TICK_NS,
            _ => TICK_NS,
        };
        changed_ns + tick_ns < self.began_ns
    }
}

impl Secrets {
    /// The files at `paths`, and everything in the folders there. They need not exist. Starts a thread that looks at them, and does
    /// not wait for it.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Arc<Secrets> {
        let place = |path| Place {
            path,
            is_busy: AtomicBool::new(false),
            found: Mutex::default(),
        };
        let secrets = Arc::new(Secrets {
            places: paths.into_iter().map(place).collect(),
            ..Secrets::default()
        });
        // Without this look the first opens have to wait for one.
        let _ = secrets.begin(&mut lock(&secrets.looking), Instant::now());
        secrets
    }

    /// Whether a file that was just opened is one; `None` if they have to be looked at first. Does not block.
    pub(super) fn is_known(&self, meta: &Meta) -> Option<bool> {
        self.is_known_at(meta, Instant::now())
    }

    fn is_known_at(&self, meta: &Meta, opened: Instant) -> Option<bool> {
        if self.places.is_empty() {
            return Some(false);
        }
        let known = self.known.load();
        let known = known.as_ref()?;
        let is_young = opened.saturating_duration_since(known.began) < LOOK_AGE_MAX;
        let is_current = known.began >= opened || is_young && known.is_after(meta);
        is_current.then(|| known.has(meta))
    }

    /// Whether a file that was just opened is one. Blocks.
    pub(super) fn has(self: &Arc<Self>, meta: &Meta) -> bool {
        let opened = Instant::now();
        self.is_known_at(meta, opened).unwrap_or_else(|| {
            self.look_after(opened);
            let known = self.known.load();
            known.as_ref().is_some_and(|known| known.has(meta))
        })
    }

    /// Waits for a look that began after `opened`, at most for [`LOOK_TIME_MAX`].
    fn look_after(self: &Arc<Self>, opened: Instant) {
        let mut looking = lock(&self.looking);
        while self
            .known
            .load()
            .as_ref()
            .is_none_or(|known| known.began < opened)
        {
            let now = Instant::now();
            let left = LOOK_TIME_MAX.saturating_sub(now - opened);
            if left.is_zero() {
                return;
            }
            // One that hangs is not waited for: the next one leaves out where it does.
            let is_due = looking.is_none_or(|began| now - began >= LOOK_TIME_MAX);
            if is_due && self.begin(&mut looking, now).is_err() {
                return;
            }
            let waited = self.looked.wait_timeout(looking, left);
            looking = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Begins a look in a thread of its own: a mount that does not respond holds up that one and none of the pool.
    fn begin(self: &Arc<Self>, looking: &mut Option<Instant>, now: Instant) -> io::Result<()> {
        let secrets = self.clone();
        let look = move || {
            priority::set_for_disk();
            secrets.look(now);
        };
        thread::Builder::new()
            .name("secrets".to_owned())
            .spawn(look)?;
        *looking = Some(now);
        Ok(())
    }

    fn look(&self, began: Instant) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let began_ns = since_1970.map_or(0, |since| since.as_nanos());
        let began_ns = i128::try_from(began_ns).unwrap_or(0);
        self.places.iter().for_each(Place::look);
        let found = self
            .places
            .iter()
            .flat_map(|place| lock(&place.found).clone());
        let identities = found.collect();
        let mut looking = lock(&self.looking);
        let is_newest = self
            .known
            .load()
            .as_ref()
            .is_none_or(|known| known.began < began);
        if is_newest {
            self.known.store(Some(Arc::new(Known {
                identities,
                began,
                began_ns,
            })));
        }
        looking.take_if(|last| *last == began);
        self.looked.notify_all();
    }
}

impl Place {
    fn look(&self) {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let mut found = Vec::new();
        if let Ok(there) = fs::metadata(&self.path) {
            add(&self.path, &there, 0, &mut found);
        }
        *lock(&self.found) = found;
        self.is_busy.store(false, Ordering::Release);
    }
}

/// Adds a file, or a folder with everything in it. Links in it count as the files to which they lead.
fn add(path: &Path, there: &Metadata, depth: usize, found: &mut Vec<Identity>) {
    found.push((there.dev(), there.ino()));
    if !there.is_dir() || depth >= DEPTH_MAX {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if found.len() >= NAMES_MAX {
            return;
        }
        let path = entry.path();
        let Ok(own) = entry.metadata() else {
            continue;
        };
        match own.is_symlink().then(|| fs::metadata(&path)) {
            None => add(&path, &own, depth + 1, found),
            Some(Ok(target)) if target.is_file() => found.push((target.dev(), target.ino())),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn meta(path: &Path) -> Meta {
        Meta::from(rustix::fs::stat(path).expect("a file"))
    }

    #[test]
    fn files_and_what_is_in_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("state/acme")).expect("folders");
        for name in ["key", "state/acme/a", "other", "linked"] {
            fs::write(at(name), name).expect("a file");
        }
        symlink(at("linked"), at("state/link")).expect("a link");
        symlink(folder.path(), at("state/out")).expect("a link");
        fs::hard_link(at("state/acme/a"), at("hard")).expect("a link");
        let secrets = Secrets::new(["key", "state", "absent"].map(at));
        for name in [
            "key",
            "state",
            "state/acme",
            "state/acme/a",
            "hard",
            "linked",
        ] {
            assert!(secrets.has(&meta(&at(name))), "{name}");
        }
        assert!(!secrets.has(&meta(&at("other"))));
        assert!(!secrets.has(&meta(folder.path())));
    }

    #[test]
    fn what_replaces_a_secret_is_one_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let secrets = Secrets::new(["key", "state"].map(at));
        fs::create_dir(at("state")).expect("a folder");
        for number in 0..50 {
            fs::write(at("new"), "x").expect("a file");
            assert!(!secrets.has(&meta(&at("new"))), "{number}");
            fs::rename(at("new"), at("key")).expect("a name");
            assert!(secrets.has(&meta(&at("key"))), "{number}");
            fs::hard_link(at("key"), at("state/a")).expect("a link");
            fs::rename(at("key"), at("old")).expect("a name");
            assert!(secrets.has(&meta(&at("old"))), "{number}");
            fs::remove_file(at("state/a")).expect("a file");
            assert!(!secrets.has(&meta(&at("old"))), "{number}");
        }
    }

    /// Event loops may compare what was changed long before the last look, and nothing else.
    #[test]
    fn what_is_newer_than_the_last_look_is_not_known() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut meta = meta(file.path());
        let secrets = Secrets::new([file.path().to_owned()]);
        assert!(secrets.has(&meta));
        let known = secrets.known.load_full().expect("a look");
        let at = |meta: &mut Meta, ns: i128| {
            meta.ctime_s = i64::try_from(ns.div_euclid(1_000_000_000)).expect("a time");
            meta.ctime_ns = u32::try_from(ns.rem_euclid(1_000_000_000)).expect("a time");
        };
        at(&mut meta, known.began_ns - TICK_NS);
        assert_eq!(secrets.is_known(&meta), None);
        at(&mut meta, known.began_ns - TICK_NS - 1);
        assert_eq!(secrets.is_known(&meta), Some(true));
        let later = known.began + LOOK_AGE_MAX;
        assert_eq!(secrets.is_known_at(&meta, later), None);
        meta.inode += 1;
        assert_eq!(secrets.is_known(&meta), Some(false));
        at(&mut meta, known.began_ns / 1_000_000_000 * 1_000_000_000);
        assert_eq!(secrets.is_known(&meta), None);
        assert_eq!(Secrets::default().is_known(&meta), Some(false));
    }

    #[test]
    fn a_place_that_does_not_respond_holds_up_one_open() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let meta = meta(file.path());
        let secrets = Secrets::new([file.path().to_owned(), "/absent".into()]);
        assert!(secrets.has(&meta));
        let hanging = &secrets.places[1].is_busy;
        hanging.store(true, Ordering::Relaxed);
        assert!(secrets.has(&meta));
        // A look that has begun and does not end.
        *lock(&secrets.looking) = Some(Instant::now());
        let start = Instant::now();
        let mut changed = meta;
        changed.ctime_s += 60;
        assert!(secrets.has(&changed));
        assert!(start.elapsed() >= LOOK_TIME_MAX);
        let start = Instant::now();
        assert!(secrets.has(&changed));
        assert!(start.elapsed() < LOOK_TIME_MAX);
    }
}
