//! Where secrets are: a file, or a folder with everything in it.
//!
//! A folder has other names in it only if its change time says so. One that was read before and has not changed is therefore not read
//! again: a look at a folder of state costs one call for each folder and link in it, and not one for each certificate.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::crossing;
use super::super::meta::Meta;
use super::super::mounts::Table;
use crate::thread::lock;

/// A link on the way to a secret may change, or the clock of a file server be wrong, without a new change time here.
pub(super) const LOOK_AGE_MAX: Duration = Duration::from_secs(10);

/// Twice the longest tick of a kernel's clock, by which change times may be late; that of file systems without fractions of a second.
pub(super) const TICK_NS: i128 = 20_000_000;
const COARSE_TICK_NS: i128 = 2_000_000_000;

/// `st_dev` and `st_ino`.
pub(super) type Identity = (u64, u64);

/// When a look began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// The same in nanoseconds since 1970.
    pub(super) since_1970_ns: i128,
}

impl Moment {
    pub(super) fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let since_1970_ns = since_1970.map_or(0, |since| since.as_nanos());
        Self {
            at: Instant::now(),
            since_1970_ns: i128::try_from(since_1970_ns).unwrap_or(0),
        }
    }

    /// Whether a file was certainly changed before, so that the look has found it if it is a secret.
    pub(super) fn is_after(&self, meta: &Meta) -> bool {
        self.is_after_change(meta.ctime_s, meta.ctime_ns.into())
    }

    fn is_after_change(&self, ctime_s: i64, ctime_ns: i64) -> bool {
        let changed_ns = i128::from(ctime_s) * 1_000_000_000 + i128::from(ctime_ns);
        let tick_ns = match ctime_ns {
            0 => COARSE_TICK_NS,
            _ => TICK_NS,
        };
        changed_ns + tick_ns < self.since_1970_ns
    }
}

#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    names_max: usize,
    /// A thread looks there. It hangs if the file system does, and others leave the place out.
    pub(super) is_busy: AtomicBool,
    /// The device that was accessed last, or that was not accessed because it does not respond: as the table of mounts names it.
    pub(super) reached: AtomicU64,
    seen: Mutex<Option<Arc<Seen>>>,
}

/// What the last look at a place has found that came to an end.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) began: Moment,
    /// When everything was read, and not only what had changed.
    read_all: Instant,
    /// The file itself, or those to which links lead.
    files: Vec<Identity>,
    folders: HashMap<PathBuf, Arc<Folder>>,
    /// There are more names than may be kept.
    pub(super) is_overfull: bool,
}

/// The names in a folder.
#[derive(Debug)]
struct Folder {
    identity: Identity,
    /// `st_ctime` and its nanoseconds.
    changed: (i64, i64),
    /// It was read well after its last change: the next change will have another time.
    is_settled: bool,
    files: Vec<Identity>,
    links: Vec<OsString>,
    folders: Vec<OsString>,
}

impl Place {
    pub(super) fn new(path: PathBuf, names_max: usize) -> Self {
        Self {
            path,
            names_max,
            is_busy: AtomicBool::new(false),
            reached: AtomicU64::default(),
            seen: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn seen(&self) -> Option<Arc<Seen>> {
        lock(&self.seen).clone()
    }

    /// Whether a thread is accessing `device` there, or hangs doing so.
    pub(super) fn is_busy_at(&self, device: u64) -> bool {
        self.is_busy.load(Ordering::Acquire) && self.reached.load(Ordering::Relaxed) == device
    }

    /// Looks there, unless a thread does so already or a device on the way is silent. What was found before stays if that fails.
    pub(super) fn look(&self, began: Moment, is_silent: impl Fn(u64) -> bool) {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(seen) = self.approach(is_silent).and_then(|()| self.find(began)) {
            *lock(&self.seen) = Some(Arc::new(seen));
        }
        self.is_busy.store(false, Ordering::Release);
    }

    fn approach(&self, is_silent: impl Fn(u64) -> bool) -> io::Result<()> {
        crossing::along(&path::absolute(&self.path)?, |device| {
            self.reached.store(device, Ordering::Relaxed);
            match is_silent(device) {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => Ok(()),
            }
        })
    }

    fn find(&self, began: Moment) -> io::Result<Seen> {
        // Remote file systems may have folders without change times, and what is not known may be remote.
        let is_remote = Table::now().is_remote(self.reached.load(Ordering::Relaxed));
        let is_young = |seen: &Arc<Seen>| {
            !is_remote && began.at.saturating_duration_since(seen.read_all) < LOOK_AGE_MAX
        };
        let before = self.seen().filter(is_young);
        let mut seen = Seen {
            began,
            read_all: before.as_ref().map_or(began.at, |before| before.read_all),
            files: Vec::new(),
            folders: HashMap::new(),
            is_overfull: false,
        };
        match unless_absent(fs::metadata(&self.path))? {
            Some(there) if there.is_dir() => {
                let known = before.as_ref().map(|before| &before.folders);
                seen.add_folders((self.path.clone(), there), known, self.names_max)?;
            }
            there => seen.files.extend(there.as_ref().map(identity)),
        }
        Ok(seen)
    }
}

impl Seen {
    pub(super) fn identities(&self) -> impl Iterator<Item = Identity> {
        let own = |folder: &'_ Arc<Folder>| folder.identity;
        let folders = self.folders.values();
        let within = folders.clone().flat_map(|folder| &folder.files);
        let files = self.files.iter().chain(within).copied();
        files.chain(folders.map(own))
    }

    /// `st_dev` of the folders, each once.
    pub(super) fn devices(&self) -> Vec<u64> {
        let folders = self.folders.values();
        let mut devices: Vec<_> = folders.map(|folder| folder.identity.0).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Adds `top` and the folders beneath it. Those that are among `known` and have not changed are not read. Links in them count as
    /// the files to which they lead.
    fn add_folders(
        &mut self,
        top: (PathBuf, Metadata),
        known: Option<&HashMap<PathBuf, Arc<Folder>>>,
        names_max: usize,
    ) -> io::Result<()> {
        let device = top.1.dev();
        let mut left = names_max;
        let mut rest = vec![top];
        while let Some((path, there)) = rest.pop() {
            // Another device may be remote.
            let known = known.filter(|_| there.dev() == device);
            let known = known.and_then(|known| known.get(&path));
            let folder = match known.filter(|known| known.is_still(&there)) {
                Some(known) => known.clone(),
                None => Arc::new(Folder::read(&path, &there, self.began, left)?),
            };
            match left.checked_sub(folder.names()) {
                Some(fewer) => left = fewer,
                None => self.is_overfull = true,
            }
            for name in &folder.folders {
                let path = path.join(name);
                let there = unless_absent(fs::symlink_metadata(&path))?;
                let there = there.filter(|there| there.is_dir() && !self.is_overfull);
                rest.extend(there.map(|there| (path, there)));
            }
            for name in &folder.links {
                let target = fs::metadata(path.join(name)).ok();
                let target = target.filter(Metadata::is_file);
                self.files.extend(target.as_ref().map(identity));
            }
            self.folders.insert(path, folder);
        }
        Ok(())
    }
}

impl Folder {
    /// Reads the folder at `path`, up to one name more than `names_max`; `there` is what it was before.
    fn read(path: &Path, there: &Metadata, began: Moment, names_max: usize) -> io::Result<Self> {
        let changed = (there.ctime(), there.ctime_nsec());
        let mut folder = Self {
            identity: identity(there),
            changed,
            is_settled: began.is_after_change(changed.0, changed.1),
            files: Vec::new(),
            links: Vec::new(),
            folders: Vec::new(),
        };
        for entry in unless_absent(fs::read_dir(path))?.into_iter().flatten() {
            if folder.names() > names_max {
                break;
            }
            let entry = entry?;
            match unless_absent(entry.metadata())? {
                Some(own) if own.is_dir() => folder.folders.push(entry.file_name()),
                Some(own) if own.is_symlink() => folder.links.push(entry.file_name()),
                own => folder.files.extend(own.as_ref().map(identity)),
            }
        }
        Ok(folder)
    }

    fn is_still(&self, there: &Metadata) -> bool {
        let changed = (there.ctime(), there.ctime_nsec());
        self.is_settled && self.identity == identity(there) && self.changed == changed
    }

    fn names(&self) -> usize {
        self.files.len() + self.links.len() + self.folders.len()
    }
}

fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

/// `None` where a path leads to nothing, or to nothing for this user. After another error something may be there.
fn unless_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, PermissionDenied};
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
        Err(error) => match error.kind() {
            NotFound | NotADirectory | PermissionDenied | InvalidFilename => Ok(None),
            _ => Err(error),
        },
        Ok(it) => Ok(Some(it)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::*;

    /// Looks at a place until what it has seen is settled.
    fn settle(place: &Place) -> Arc<Seen> {
        loop {
            place.look(Moment::now(), |_| false);
            let seen = place.seen().expect("a look");
            if seen.folders.values().all(|folder| folder.is_settled) {
                return seen;
            }
            thread::yield_now();
        }
    }

    /// The folders of `after` that were read.
    fn read(before: &Seen, after: &Seen) -> Vec<PathBuf> {
        let is_new = |(path, folder): (&PathBuf, &Arc<Folder>)| {
            let known = before.folders.get(path);
            let is_known = known.is_some_and(|known| Arc::ptr_eq(known, folder));
            (!is_known).then(|| path.clone())
        };
        after.folders.iter().filter_map(is_new).collect()
    }

    #[test]
    fn only_folders_that_have_changed_are_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("state/a/b")).expect("folders");
        for name in ["state/one", "state/a/two", "state/a/b/three", "target"] {
            fs::write(at(name), name).expect("a file");
        }
        symlink(at("target"), at("state/link")).expect("a link");
        let place = Place::new(at("state"), 100);
        let first = settle(&place);
        let found = |seen: &Seen, name: &str| {
            let there = identity(&fs::metadata(at(name)).expect("a file"));
            seen.identities().any(|found| found == there)
        };
        // What a link leads to may change without its folder.
        fs::write(at("new"), "new").expect("a file");
        fs::rename(at("new"), at("target")).expect("a name");
        let second = settle(&place);
        assert_eq!(read(&first, &second), [] as [PathBuf; 0]);
        assert!(found(&second, "target") && found(&second, "state/a/b/three"));
        fs::write(at("state/a/b/four"), "four").expect("a file");
        place.look(Moment::now(), |_| false);
        let third = place.seen().expect("a look");
        assert_eq!(read(&second, &third), [at("state/a/b")]);
        assert!(found(&third, "state/a/b/four"));
        // It is read until it is certain that a further change has another time.
        fs::hard_link(at("target"), at("state/a/b/five")).expect("a link");
        fs::remove_file(at("state/a/b/four")).expect("a file");
        let fourth = settle(&place);
        assert!(found(&fourth, "state/a/b/five"));
        assert_eq!(fourth.identities().count(), 3 + 4 + 1);
        let later = Moment {
            at: fourth.began.at + LOOK_AGE_MAX,
            ..Moment::now()
        };
        place.look(later, |_| false);
        assert_eq!(read(&fourth, &place.seen().expect("a look")).len(), 3);
    }

    #[test]
    fn what_was_found_stays_while_the_place_is_left_out() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let place = Place::new(file.path().to_owned(), 100);
        place.look(Moment::now(), |_| true);
        assert!(place.seen().is_none());
        place.look(Moment::now(), |_| false);
        let found = place.seen().expect("a look");
        place.look(Moment::now(), |_| true);
        assert!(Arc::ptr_eq(&found, &place.seen().expect("a look")));
    }
}
