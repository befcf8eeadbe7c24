//! Files that are sent to nobody, whatever path leads to them.
//!
//! They are told by device and inode, so that hard links, symbolic links and other roots lead nowhere. These change when a file is
//! replaced, as by the renewal of a certificate. What was changed last before the secrets were looked at is therefore compared at once,
//! also by event loops; for anything newer, which may have become one since, a thread of the disk has them looked at again. Naming,
//! renaming and linking a file set its change time.
//!
//! What cannot be told is not sent: a file on the device of a place that could not be looked at, and changed since it was.

mod place;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use self::place::{Identity, LOOK_AGE_MAX, Moment, Place, Seen};
use super::meta::Meta;
use super::mounts::Table;
use crate::thread::{lock, priority};

/// How long opens wait for one look. One that takes longer hangs on a dead mount; the next leaves out what is there.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);

/// How long opens wait for looks: for one that hangs, and for the next.
const WAIT_MAX: Duration = LOOK_TIME_MAX.saturating_mul(2);

/// After each look there is none for as long as it took, and no longer than this: files that change all the time cost half a thread.
const REST_MAX: Duration = Duration::from_millis(100);

/// Names beneath a folder that are kept. A folder of state has a few for each certificate.
const NAMES_MAX: usize = 1_000_000;

/// Files, and folders with everything in them, that are absent from the roots that are opened with them.
#[derive(Debug, Default)]
pub struct Secrets {
    places: Vec<Place>,
    /// What the last look has found.
    known: ArcSwapOption<Known>,
    /// Only threads that may block take the lock.
    looking: Mutex<Looking>,
    looked: Condvar,
    overfull: Overfull,
}

#[derive(Debug, Default)]
struct Looking {
    /// When the look began that is in progress.
    began: Option<Instant>,
    /// When the next one may begin.
    rested: Option<Instant>,
}

/// Reports a folder with too many names, once.
#[derive(Debug, Default)]
struct Overfull {
    report: Option<fn(&str)>,
    reported: OnceLock<()>,
}

#[derive(Debug)]
struct Known {
    identities: HashSet<Identity>,
    began: Moment,
    unseen: Vec<Unseen>,
    mounts: Arc<Table>,
}

/// A device with secrets that the look has not seen.
#[derive(Debug)]
struct Unseen {
    device: u64,
    /// The last look that has seen them.
    last: Option<Moment>,
}

impl Known {
    /// Whether the look began after the last change of a file that was opened then, and not too long before.
    fn covers(&self, meta: &Meta, opened: Instant) -> bool {
        let age = opened.saturating_duration_since(self.began.at);
        self.began.at >= opened || age < LOOK_AGE_MAX && self.began.is_after(meta)
    }

    /// Whether the file is a secret; `None` if it may be one that the look has not seen.
    fn tells(&self, meta: &Meta) -> Option<bool> {
        if self.identities.contains(&(meta.device, meta.inode)) {
            return Some(true);
        }
        let hides = |unseen: &Unseen| {
            let is_older = unseen.last.is_some_and(|last| last.is_after(meta));
            !is_older && self.mounts.may_hold(unseen.device, meta.device)
        };
        (!self.unseen.iter().any(hides)).then_some(false)
    }
}

impl Secrets {
    /// The files at `paths`, and everything in the folders there. They need not exist. Starts a thread that looks at them, and does
    /// not wait for it. `report` is called at most once, if a folder has more names than are kept.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, report: fn(&str)) -> Arc<Secrets> {
        let mut secrets = Secrets::with(paths, NAMES_MAX);
        secrets.overfull.report = Some(report);
        let secrets = Arc::new(secrets);
        // Without this look the first opens have to wait for one.
        let _ = secrets.begin(&mut lock(&secrets.looking));
        secrets
    }

    fn with(paths: impl IntoIterator<Item = PathBuf>, names_max: usize) -> Secrets {
        let places = paths.into_iter().map(|path| Place::new(path, names_max));
        Secrets {
            places: places.collect(),
            ..Secrets::default()
        }
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
        let known = known.as_ref().filter(|known| known.covers(meta, opened));
        known.and_then(|known| known.tells(meta))
    }

    /// Whether a file that was just opened or found is one. Blocks, for two seconds at most.
    ///
    /// # Errors
    /// `TimedOut` if that cannot be told.
    pub fn has(self: &Arc<Self>, meta: &Meta) -> io::Result<bool> {
        let opened = Instant::now();
        let has = self.is_known_at(meta, opened).or_else(|| {
            if !self.has_just_looked(meta, opened) {
                self.look_after(opened);
            }
            let known = self.known.load();
            // One that is older counts for what has not changed since: nothing better is to be had.
            let known = known
                .as_ref()
                .filter(|known| known.began.at >= opened || known.began.is_after(meta));
            known.and_then(|known| known.tells(meta))
        });
        has.ok_or_else(|| {
            let unseen = "keys and passwords on the device of this file cannot be looked at";
            io::Error::new(io::ErrorKind::TimedOut, unseen)
        })
    }

    /// Whether a look has ended that should have told of the file, so soon ago that another one would not tell more. A folder with many
    /// files that cannot be told apart would have as many looks.
    fn has_just_looked(&self, meta: &Meta, opened: Instant) -> bool {
        let known = self.known.load();
        known.as_ref().is_some_and(|known| {
            let age = opened.saturating_duration_since(known.began.at);
            age < LOOK_TIME_MAX && known.covers(meta, opened)
        })
    }

    /// Waits for a look that began after `opened`, at most for [`WAIT_MAX`].
    fn look_after(self: &Arc<Self>, opened: Instant) {
        let last = opened + WAIT_MAX;
        let mut looking = lock(&self.looking);
        while self.has_to_look(opened) {
            let now = Instant::now();
            // One that hangs is not waited for: the next one leaves out where it does.
            let hangs = looking.began.map(|began| began + LOOK_TIME_MAX);
            let until = hangs.filter(|hangs| *hangs > now).or(looking.rested);
            let until = match until.filter(|until| *until > now) {
                Some(until) => until,
                None if self.begin(&mut looking).is_err() => return,
                None => now + LOOK_TIME_MAX,
            };
            let left = until.min(last).saturating_duration_since(now);
            if left.is_zero() {
                return;
            }
            let waited = self.looked.wait_timeout(looking, left);
            looking = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn has_to_look(&self, opened: Instant) -> bool {
        let known = self.known.load();
        known.as_ref().is_none_or(|known| known.began.at < opened)
    }

    /// Begins a look in a thread of its own: a mount that does not respond holds up that one and none of the pool.
    fn begin(self: &Arc<Self>, looking: &mut Looking) -> io::Result<()> {
        let secrets = self.clone();
        let now = Moment::now();
        let look = move || {
            priority::set_for_disk();
            secrets.look(now);
        };
        thread::Builder::new()
            .name("secrets".to_owned())
            .spawn(look)?;
        looking.began = Some(now.at);
        Ok(())
    }

    fn look(&self, began: Moment) {
        for place in &self.places {
            let is_other = |other: &&Place| !ptr::eq(*other, place);
            place.look(began, |device| {
                let mut others = self.places.iter().filter(is_other);
                others.any(|other| other.is_busy_at(device))
            });
            // The next look has left out what held up this one, and would leave out where this one goes on.
            if lock(&self.looking).began != Some(began.at) {
                return;
            }
        }
        let known = self.found(began);
        let mut looking = lock(&self.looking);
        if looking.began == Some(began.at) {
            self.known.store(Some(Arc::new(known)));
            let now = Instant::now();
            *looking = Looking {
                began: None,
                rested: Some(now + (now - began.at).min(REST_MAX)),
            };
        }
        self.looked.notify_all();
    }

    fn found(&self, began: Moment) -> Known {
        let mut known = Known {
            identities: HashSet::new(),
            began,
            unseen: Vec::new(),
            mounts: Table::now(),
        };
        for place in &self.places {
            let seen = place.seen();
            if let Some(seen) = &seen {
                known.identities.extend(seen.identities());
            }
            let last = seen.as_ref().map(|seen| seen.began);
            if last.is_none_or(|last| last.at < began.at) {
                let device = place.reached.load(Ordering::Relaxed);
                known.unseen.push(Unseen { device, last });
            }
            if let Some(seen) = seen.filter(|seen| seen.is_overfull) {
                known.unseen.extend(self.overfull(place, &seen));
            }
        }
        known
    }

    /// Any file on the devices of such a folder may be in it.
    fn overfull(&self, place: &Place, seen: &Seen) -> impl Iterator<Item = Unseen> {
        if let Some(report) = self.overfull.report {
            let path = place.path().display();
            self.overfull.reported.get_or_init(|| {
                report(&format!(
                    "{path} has more names than can be kept apart from what is served, {NAMES_MAX}: other files on its device get 503"
                ));
            });
        }
        let unseen = |device| Unseen { device, last: None };
        seen.devices().into_iter().map(unseen)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::place::TICK_NS;
    use super::*;

    fn made(paths: impl IntoIterator<Item = PathBuf>) -> Arc<Secrets> {
        Secrets::new(paths, |line| panic!("{line}"))
    }

    fn has(secrets: &Arc<Secrets>, meta: &Meta) -> bool {
        secrets.has(meta).expect("it is known")
    }

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
        let secrets = made(["key", "state", "absent"].map(at));
        for name in [
            "key",
            "state",
            "state/acme",
            "state/acme/a",
            "hard",
            "linked",
        ] {
            assert!(has(&secrets, &meta(&at(name))), "{name}");
        }
        assert!(!has(&secrets, &meta(&at("other"))));
        assert!(!has(&secrets, &meta(folder.path())));
    }

    #[test]
    fn what_replaces_a_secret_is_one_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let secrets = made(["key", "state"].map(at));
        fs::create_dir(at("state")).expect("a folder");
        for number in 0..50 {
            fs::write(at("new"), "x").expect("a file");
            assert!(!has(&secrets, &meta(&at("new"))), "{number}");
            fs::rename(at("new"), at("key")).expect("a name");
            assert!(has(&secrets, &meta(&at("key"))), "{number}");
            fs::hard_link(at("key"), at("state/a")).expect("a link");
            fs::rename(at("key"), at("old")).expect("a name");
            assert!(has(&secrets, &meta(&at("old"))), "{number}");
            fs::remove_file(at("state/a")).expect("a file");
            assert!(!has(&secrets, &meta(&at("old"))), "{number}");
        }
    }

    /// Event loops may compare what was changed long before the last look, and nothing else.
    #[test]
    fn what_is_newer_than_the_last_look_is_not_known() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut meta = meta(file.path());
        let secrets = made([file.path().to_owned()]);
        assert!(has(&secrets, &meta));
        let known = secrets.known.load_full().expect("a look");
        let at = |meta: &mut Meta, ns: i128| {
            meta.ctime_s = i64::try_from(ns.div_euclid(1_000_000_000)).expect("a time");
            meta.ctime_ns = u32::try_from(ns.rem_euclid(1_000_000_000)).expect("a time");
        };
        at(&mut meta, known.began.since_1970_ns - TICK_NS);
        assert_eq!(secrets.is_known(&meta), None);
        at(&mut meta, known.began.since_1970_ns - TICK_NS - 1);
        assert_eq!(secrets.is_known(&meta), Some(true));
        let later = known.began.at + LOOK_AGE_MAX;
        assert_eq!(secrets.is_known_at(&meta, later), None);
        meta.inode += 1;
        assert_eq!(secrets.is_known(&meta), Some(false));
        at(
            &mut meta,
            known.began.since_1970_ns / 1_000_000_000 * 1_000_000_000,
        );
        assert_eq!(secrets.is_known(&meta), None);
        assert_eq!(Secrets::default().is_known(&meta), Some(false));
    }

    /// The same file, changed after all looks.
    fn changed(meta: &Meta) -> Meta {
        Meta {
            ctime_s: i64::MAX / 2,
            ..*meta
        }
    }

    /// Another device than that of temporary files.
    fn elsewhere() -> Meta {
        meta("/proc/version".as_ref())
    }

    #[test]
    fn a_place_that_does_not_respond_holds_up_one_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["key", "hangs", "other"] {
            fs::write(at(name), name).expect("a file");
        }
        let [key, hangs, other] = ["key", "hangs", "other"].map(|name| meta(&at(name)));
        let secrets = made(["key", "hangs"].map(at));
        while secrets.is_known(&other) != Some(false) {
            let _ = has(&secrets, &changed(&other));
        }
        let hanging = &secrets.places[1];
        hanging.is_busy.store(true, Ordering::Relaxed);
        // A look that has begun and does not end.
        lock(&secrets.looking).began = Some(Instant::now());
        let start = Instant::now();
        let far = changed(&elsewhere());
        assert!(!has(&secrets, &far));
        assert!(start.elapsed() >= LOOK_TIME_MAX);
        let start = Instant::now();
        assert!(!has(&secrets, &far));
        // What was found there stays.
        for secret in [&key, &hangs, &changed(&hangs)] {
            assert!(has(&secrets, secret));
        }
        // Nor was the other one one when it was last changed, but it may be one since.
        assert!(!has(&secrets, &other));
        for meta in [
            &changed(&other),
            &Meta {
                inode: 1,
                ..changed(&other)
            },
        ] {
            let error = secrets.has(meta).expect_err("it may be one");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(secrets.is_known(meta), None);
        }
        assert!(start.elapsed() < LOOK_TIME_MAX);
        hanging.is_busy.store(false, Ordering::Relaxed);
        assert!(!has(&secrets, &changed(&other)));
    }

    /// The first look of a server hangs.
    #[test]
    fn what_was_never_seen_is_not_sent() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let own = meta(file.path());
        let paths = [file.path().to_owned(), file.path().join("beneath")];
        let secrets = Arc::new(Secrets::with(paths, NAMES_MAX));
        let hanging = &secrets.places[0];
        hanging.is_busy.store(true, Ordering::Relaxed);
        hanging.reached.store(own.device, Ordering::Relaxed);
        lock(&secrets.looking).began = Some(Instant::now());
        assert_eq!(secrets.is_known(&elsewhere()), None);
        let start = Instant::now();
        let error = secrets.has(&own).expect_err("it may be one");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() < WAIT_MAX);
        assert!(!has(&secrets, &elsewhere()));
        // Another look would not tell more.
        let known = secrets.known.load_full();
        secrets
            .has(&Meta { inode: 1, ..own })
            .expect_err("it may be one");
        let same = |now: &Arc<Known>| known.as_ref().is_some_and(|known| Arc::ptr_eq(known, now));
        assert!(secrets.known.load().as_ref().is_some_and(same));
        hanging.is_busy.store(false, Ordering::Relaxed);
        assert!(has(&secrets, &changed(&own)));
    }

    #[test]
    fn what_is_beside_a_folder_with_too_many_names_is_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("state/deep")).expect("folders");
        for name in ["state/a", "state/deep/b", "other"] {
            fs::write(at(name), name).expect("a file");
        }
        for (names_max, is_known) in [(3, true), (2, false), (1, false), (0, false)] {
            let secrets = Arc::new(Secrets::with([at("state")], names_max));
            let other = secrets.has(&meta(&at("other")));
            assert_eq!(other.ok(), is_known.then_some(false), "{names_max}");
            let deep = secrets.has(&meta(&at("state/deep/b")));
            assert_ne!(deep.ok(), Some(false), "{names_max}");
            assert!(!has(&secrets, &elsewhere()));
        }
    }
}
