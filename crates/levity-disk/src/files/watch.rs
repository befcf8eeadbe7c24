//! Change notification: inotify on the directories of files that are kept open.
//!
//! One thread owns the inotify instance. It does not access a disk (directories are opened from memory, or
//! not at all), so a frozen file system cannot delay the events of others. The owner of an open file holds a
//! [`Watch`] and compares two numbers, without a lock.
//!
//! A directory is watched together with all directories above it, up to the root: when one of them is
//! renamed or removed, the paths of everything beneath lead elsewhere. They are watched from the root down,
//! each before the next is opened, so that no rename in between is missed.
//!
//! inotify does not report changes made by other machines (remote roots are not watched), stores to mapped
//! memory, and changes of a file by another of its names. Users of a watch must also check the file itself
//! from time to time.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use slab::Slab;

use super::root::Root;
use crate::thread::lock;

/// Bound on watched directories. The kernel has another one per user, `fs.inotify.max_user_watches`; each
/// watch takes about 1 KiB of kernel memory.
const WATCHES_MAX: usize = 8192;

/// Bound on the requests that wait for the thread; further ones are refused.
const REQUESTS_MAX: usize = 4096;

/// Interval between two releases of unused directories.
const RELEASE_INTERVAL: Duration = Duration::from_secs(30);

/// In bytes, per read: about 200 events.
const EVENTS_BYTES: usize = 16 * 1024;

/// The generation of a directory that is not watched any more.
const OVER: u64 = u64::MAX;

const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// A directory to watch, and the generation of its content.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set once the watch is in place; shared by all watches of the same directory.
    generation: OnceLock<Arc<AtomicU64>>,
    /// The request was refused for a transient reason.
    again: AtomicBool,
}

impl Watch {
    /// A number that changes with every change in the directory or on the path to it from the root; `None`
    /// while it is not watched. Facts about a file that were established after a call hold as long as later
    /// calls return the same number, apart from the milliseconds that an event takes to arrive.
    pub fn generation(&self) -> Option<u64> {
        let generation = self.generation.get()?.load(Ordering::Acquire);
        (generation != OVER).then_some(generation)
    }

    /// Whether the watch has ended: it will not return a number again, a new one has to be requested.
    pub fn is_over(&self) -> bool {
        let is_over = |generation: &Arc<AtomicU64>| generation.load(Ordering::Acquire) == OVER;
        self.again.load(Ordering::Relaxed) || self.generation.get().is_some_and(is_over)
    }
}

/// The counters of a watcher.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchStats {
    /// Directories watched now.
    pub watches: u64,
    /// Events read.
    pub events: u64,
    /// Overflows of the kernel's event queue, after each of which all watches are ended.
    pub overflows: u64,
    /// Refused requests: no watch is left, or a symbolic link or a mount is on the way.
    pub refused: u64,
}

#[derive(Default)]
struct Counters {
    watches: AtomicU64,
    events: AtomicU64,
    overflows: AtomicU64,
    refused: AtomicU64,
}

/// The thread that receives change events.
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Shared by the thread and its users.
struct Shared {
    requests: SegQueue<Request>,
    /// An eventfd.
    wake: OwnedFd,
    stop: AtomicBool,
    counters: Counters,
}

struct Request {
    root: Arc<Root>,
    directory: Vec<u8>,
    watch: Arc<Watch>,
}

impl Watcher {
    /// Starts the thread. It calls `report` at most once, when no watch is left. Call it before a guard is
    /// installed, because threads inherit it.
    ///
    /// # Errors
    /// The errors of `inotify_init1`: EMFILE if the user has too many instances
    /// (`fs.inotify.max_user_instances`); and those of starting a thread.
    pub fn start(report: impl Fn(&str) + Send + 'static) -> io::Result<Watcher> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            requests: SegQueue::new(),
            wake: rustix::event::eventfd(0, flags)?,
            stop: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let tree = Tree::new(inotify, Arc::clone(&shared), Box::new(report));
        let builder = thread::Builder::new().name("disk-watch".to_owned());
        let thread = builder.spawn(move || tree.run())?;
        Ok(Watcher {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Requests a watch on `directory`, relative to a root that [can be watched](Root::can_be_watched). Does
    /// not block: the [`Watch`] gets a generation once it is in place, or never if the request is refused.
    pub fn watch(&self, root: &Arc<Root>, directory: &[u8]) -> Arc<Watch> {
        let watch = Arc::new(Watch::default());
        if self.shared.requests.len() >= REQUESTS_MAX {
            watch.again.store(true, Ordering::Relaxed);
            return watch;
        }
        self.shared.requests.push(Request {
            root: Arc::clone(root),
            directory: directory.to_vec(),
            watch: Arc::clone(&watch),
        });
        self.shared.wake();
        watch
    }

    /// The counters. Takes no lock.
    pub fn stats(&self) -> WatchStats {
        let counters = &self.shared.counters;
        WatchStats {
            watches: counters.watches.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            overflows: counters.overflows.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = lock(&self.thread).take() {
            thread.join().expect("the watcher does not panic");
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher({:?})", self.stats())
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only if the counter is at its maximum: then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Reports a line to the operator.
type Report = Box<dyn Fn(&str) + Send>;

/// The watched directories, as trees beneath roots. Owned by the thread.
struct Tree {
    inotify: Arc<OwnedFd>,
    nodes: Slab<Node>,
    roots: Vec<(Weak<Root>, usize)>,
    /// The kernel has one watch per directory, and a directory may be beneath several roots.
    by_watch: HashMap<i32, Vec<usize>>,
    shared: Arc<Shared>,
    /// Taken by its only call.
    report: Option<Report>,
}

struct Node {
    watch: i32,
    /// Its parent and its name there; `None` for a root.
    parent: Option<(usize, Vec<u8>)>,
    children: HashMap<Vec<u8>, usize>,
    generation: Arc<AtomicU64>,
}

impl Tree {
    fn new(inotify: OwnedFd, shared: Arc<Shared>, report: Report) -> Tree {
        Tree {
            inotify: Arc::new(inotify),
            nodes: Slab::new(),
            roots: Vec::new(),
            by_watch: HashMap::new(),
            shared,
            report: Some(report),
        }
    }

    fn run(mut self) {
        let mut released = Instant::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.wait();
            self.read_events();
            self.answer_requests();
            if released.elapsed() >= RELEASE_INTERVAL {
                self.release();
                released = Instant::now();
            }
            let watches = self.by_watch.len() as u64;
            let counters = &self.shared.counters;
            counters.watches.store(watches, Ordering::Relaxed);
        }
    }

    fn wait(&self) {
        let mut fds = [
            PollFd::new(&*self.inotify, PollFlags::IN),
            PollFd::new(&self.shared.wake, PollFlags::IN),
        ];
        let interval = Timespec::try_from(RELEASE_INTERVAL).expect("less than a minute");
        // A signal may end it early.
        let _ = rustix::event::poll(&mut fds, Some(&interval));
        // Fails if it was not written to.
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    /// Handles the events of one read, so that requests get their turn.
    fn read_events(&mut self) {
        let inotify = Arc::clone(&self.inotify);
        let mut memory = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(&*inotify, &mut memory);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            self.happened(event.wd(), event.events(), name);
            if reader.is_buffer_empty() {
                break;
            }
        }
    }

    fn happened(&mut self, watch: i32, events: ReadFlags, name: Option<&[u8]>) {
        let counters = &self.shared.counters;
        counters.events.fetch_add(1, Ordering::Relaxed);
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            counters.overflows.fetch_add(1, Ordering::Relaxed);
            return self.end_all();
        }
        for id in self.by_watch.get(&watch).cloned().unwrap_or_default() {
            let Some(name) = name else {
                // The directory was moved, removed or unmounted, or its permissions have changed.
                self.end(id);
                continue;
            };
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            node.generation.fetch_add(1, Ordering::Release);
            let child = node.children.get(name).copied();
            if let Some(child) = child.filter(|_| events.contains(ReadFlags::ISDIR)) {
                self.end(child);
            }
        }
    }

    fn answer_requests(&mut self) {
        while let Some(request) = self.shared.requests.pop() {
            let Request {
                root,
                directory,
                watch,
            } = request;
            match self.directory(&root, &directory) {
                Ok(generation) => {
                    watch.generation.get_or_init(|| generation);
                }
                Err(Errno::AGAIN) => watch.again.store(true, Ordering::Relaxed),
                Err(errno) => self.refuse(errno),
            }
        }
    }

    fn refuse(&mut self, errno: Errno) {
        let counters = &self.shared.counters;
        counters.refused.fetch_add(1, Ordering::Relaxed);
        if errno == Errno::NOSPC
            && let Some(report) = self.report.take()
        {
            report(&format!(
                "no watch is left: {} directories are watched, of {WATCHES_MAX} and the sysctl \
                 fs.inotify.max_user_watches; other files stay on disk.entry_ttl",
                self.by_watch.len()
            ));
        }
    }

    /// The generation of a directory. Adds a watch if there is none. `path` contains no `..`.
    fn directory(&mut self, root: &Arc<Root>, path: &[u8]) -> Result<Arc<AtomicU64>, Errno> {
        let names = || {
            path.split(|&byte| byte == b'/')
                .filter(|name| !name.is_empty())
        };
        // Before the walk, which would lose a directory that has no child yet.
        if self.nodes.len() + names().count() >= WATCHES_MAX {
            self.release();
        }
        let mut id = self.root(root)?;
        let mut walked = Vec::new();
        for name in names() {
            if !walked.is_empty() {
                walked.push(b'/');
            }
            walked.extend_from_slice(name);
            id = match self.nodes[id].children.get(name) {
                Some(&child) => child,
                None => self.add(root, &walked, Some((id, name.to_vec())))?,
            };
        }
        Ok(Arc::clone(&self.nodes[id].generation))
    }

    fn root(&mut self, root: &Arc<Root>) -> Result<usize, Errno> {
        let is_it = |known: &Weak<Root>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(root));
        if let Some((_, id)) = self.roots.iter().find(|(known, _)| is_it(known)) {
            return Ok(*id);
        }
        let id = self.add(root, b".", None)?;
        self.roots.push((Arc::downgrade(root), id));
        Ok(id)
    }

    fn add(
        &mut self,
        root: &Root,
        path: &[u8],
        parent: Option<(usize, Vec<u8>)>,
    ) -> Result<usize, Errno> {
        if self.nodes.len() >= WATCHES_MAX {
            return Err(Errno::NOSPC);
        }
        let path = CString::new(path).map_err(|_| Errno::NOENT)?;
        let directory = root.open_directory_cached(&path)?;
        // A magic link to the open directory: its path is not resolved again.
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&*self.inotify, link, EVENTS)?;
        let id = self.nodes.insert(Node {
            watch,
            parent: parent.clone(),
            children: HashMap::new(),
            generation: Arc::new(AtomicU64::new(0)),
        });
        if let Some((parent, name)) = parent {
            self.nodes[parent].children.insert(name, id);
        }
        self.by_watch.entry(watch).or_default().push(id);
        Ok(id)
    }

    /// Stops watching a directory and everything beneath it.
    fn end(&mut self, id: usize) {
        let Some(node) = self.nodes.try_remove(id) else {
            return;
        };
        node.generation.store(OVER, Ordering::Release);
        for child in node.children.into_values() {
            self.end(child);
        }
        match node.parent {
            None => self.roots.retain(|(_, root)| *root != id),
            Some((parent, name)) => {
                if let Some(parent) = self.nodes.get_mut(parent) {
                    parent.children.remove(&name);
                }
            }
        }
        if let Some(users) = self.by_watch.get_mut(&node.watch) {
            users.retain(|user| *user != id);
            if users.is_empty() {
                self.by_watch.remove(&node.watch);
                // Fails if the kernel has removed the watch itself.
                let _ = inotify::remove_watch(&*self.inotify, node.watch);
            }
        }
    }

    fn end_all(&mut self) {
        let roots: Vec<usize> = self.roots.iter().map(|(_, id)| *id).collect();
        roots.into_iter().for_each(|id| self.end(id));
    }

    /// Stops watching directories that are no longer used, the deepest first.
    fn release(&mut self) {
        loop {
            let is_unused =
                |node: &Node| node.children.is_empty() && Arc::strong_count(&node.generation) == 1;
            let unused = self.nodes.iter().filter(|(_, node)| is_unused(node));
            let unused: Vec<usize> = unused.map(|(id, _)| id).collect();
            if unused.is_empty() {
                return;
            }
            unused.into_iter().for_each(|id| self.end(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    use super::*;
    use crate::files::Symlinks;

    fn root(path: &Path) -> Arc<Root> {
        Root::open(path, Symlinks::Beneath).unwrap()
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            thread::yield_now();
        }
    }

    /// A tree with `a/b/file`, and a watch on `a/b`.
    struct Rig {
        tree: tempfile::TempDir,
        root: Arc<Root>,
        watcher: Watcher,
        watch: Arc<Watch>,
    }

    impl Rig {
        fn new() -> Rig {
            let tree = tempfile::tempdir().unwrap();
            fs::create_dir_all(tree.path().join("a/b")).unwrap();
            fs::write(tree.path().join("a/b/file"), "x").unwrap();
            let watcher = Watcher::start(|line| panic!("{line}")).unwrap();
            let root = root(tree.path());
            let watch = watched(&watcher, &root, "a/b");
            Rig {
                tree,
                root,
                watcher,
                watch,
            }
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.tree.path().join(name)
        }

        fn changes(&self, what: &str, change: impl FnOnce()) {
            let before = self.watch.generation().expect(what);
            change();
            until(what, || {
                self.watch.generation().is_some_and(|now| now != before)
            });
        }

        fn ends(&self, what: &str, change: impl FnOnce()) {
            assert!(self.watch.generation().is_some());
            change();
            until(what, || self.watch.is_over());
            assert_eq!(self.watch.generation(), None);
        }
    }

    /// Repeats the request as the server does: an event from before the request may end the new watch.
    fn watched(watcher: &Watcher, root: &Arc<Root>, directory: &str) -> Arc<Watch> {
        let mut watch = watcher.watch(root, directory.as_bytes());
        until("it is watched", || {
            if watch.is_over() {
                watch = watcher.watch(root, directory.as_bytes());
            }
            watch.generation().is_some()
        });
        watch
    }

    #[test]
    fn every_kind_of_change_shows() {
        let rig = Rig::new();
        let file = rig.at("a/b/file");
        rig.changes("a write", || {
            let mut file = File::options().append(true).open(&file).unwrap();
            file.write_all(b"y").unwrap();
        });
        rig.changes("a truncation", || {
            let file = File::options().write(true).open(&file).unwrap();
            file.set_len(0).unwrap();
        });
        rig.changes("other times", || {
            let file = File::options().write(true).open(&file).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        });
        rig.changes("a new name", || fs::write(rig.at("a/b/new"), "x").unwrap());
        rig.changes("a rename over", || {
            fs::rename(rig.at("a/b/new"), &file).unwrap();
        });
        rig.changes("a name moved in", || {
            fs::write(rig.at("other"), "x").unwrap();
            fs::rename(rig.at("other"), rig.at("a/b/other")).unwrap();
        });
        rig.changes("a removal", || fs::remove_file(&file).unwrap());
        assert!(rig.watcher.stats().events >= 7);
        assert_eq!(rig.watcher.stats().watches, 3);
    }

    #[test]
    fn reading_is_no_change() {
        let rig = Rig::new();
        let before = rig.watch.generation();
        assert_eq!(fs::read(rig.at("a/b/file")).unwrap(), b"x");
        // Events come in order: when this one is here, one of the read would be too.
        let above = watched(&rig.watcher, &rig.root, "a");
        let then = above.generation();
        fs::write(rig.at("a/marker"), "").unwrap();
        until("the marker", || above.generation() != then);
        assert_eq!(rig.watch.generation(), before);
    }

    #[test]
    fn a_renamed_ancestor_ends_the_watch() {
        let rig = Rig::new();
        rig.ends("a rename", || fs::rename(rig.at("a"), rig.at("c")).unwrap());
        fs::create_dir_all(rig.at("a/b")).unwrap();
        let again = watched(&rig.watcher, &rig.root, "a/b");
        let before = again.generation();
        fs::write(rig.at("c/b/file"), "of the old one").unwrap();
        fs::write(rig.at("a/b/file"), "of the new one").unwrap();
        until("the new one", || again.generation() != before);
    }

    #[test]
    fn a_removed_directory_ends_the_watch() {
        let rig = Rig::new();
        rig.ends("a removal", || fs::remove_dir_all(rig.at("a")).unwrap());
    }

    #[test]
    fn other_permissions_above_end_the_watch() {
        use std::os::unix::fs::PermissionsExt;
        let rig = Rig::new();
        rig.ends("a chmod", || {
            fs::set_permissions(rig.at("a"), fs::Permissions::from_mode(0o700)).unwrap();
        });
    }

    /// Two roots, one beneath the other, share the kernel's watch of a directory.
    #[test]
    fn one_directory_beneath_two_roots() {
        let rig = Rig::new();
        let inner = root(&rig.at("a"));
        let second = watched(&rig.watcher, &inner, "b");
        let (first_before, second_before) = (rig.watch.generation(), second.generation());
        fs::write(rig.at("a/b/file"), "changed").unwrap();
        until("both see it", || {
            rig.watch.generation() != first_before && second.generation() != second_before
        });
        assert_eq!(rig.watcher.stats().watches, 3);
    }

    #[test]
    fn links_and_absent_directories_are_refused() {
        let rig = Rig::new();
        std::os::unix::fs::symlink("a", rig.at("link")).unwrap();
        let refused = [&b"link/b"[..], b"link", b"a/absent", b"a/b/file"];
        let watches = refused.map(|path| rig.watcher.watch(&rig.root, path));
        // Requests are answered in order.
        watched(&rig.watcher, &rig.root, "a/b");
        assert!(watches.iter().all(|watch| watch.generation().is_none()));
        let stats = rig.watcher.stats();
        let again = watches.iter().filter(|watch| watch.is_over()).count();
        assert_eq!(stats.refused as usize + again, refused.len());
    }

    #[test]
    fn an_overflow_ends_everything() {
        let rig = Rig::new();
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let report = Box::new(|_: &str| {});
        let mut tree = Tree::new(inotify, Arc::clone(&rig.watcher.shared), report);
        let generation = tree.directory(&rig.root, b"a/b").unwrap();
        tree.happened(-1, ReadFlags::QUEUE_OVERFLOW, None);
        assert_eq!(generation.load(Ordering::Relaxed), OVER);
        assert!(tree.nodes.is_empty() && tree.by_watch.is_empty() && tree.roots.is_empty());
        assert_eq!(rig.watcher.stats().overflows, 1);
    }

    #[test]
    fn unused_directories_are_released() {
        let rig = Rig::new();
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let mut tree = Tree::new(inotify, Arc::clone(&rig.watcher.shared), Box::new(|_| {}));
        let kept = tree.directory(&rig.root, b"a").unwrap();
        drop(tree.directory(&rig.root, b"a/b").unwrap());
        assert_eq!(tree.nodes.len(), 3);
        tree.release();
        assert_eq!(tree.nodes.len(), 2);
        drop(kept);
        tree.release();
        assert!(tree.nodes.is_empty() && tree.by_watch.is_empty() && tree.roots.is_empty());
    }

    #[test]
    fn lack_of_watches_is_reported_once() {
        let rig = Rig::new();
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let (reports, lines) = std::sync::mpsc::channel();
        let report = Box::new(move |line: &str| reports.send(line.to_owned()).unwrap());
        let mut tree = Tree::new(inotify, Arc::clone(&rig.watcher.shared), report);
        tree.refuse(Errno::NOSPC);
        tree.refuse(Errno::NOSPC);
        drop(tree);
        let lines: Vec<String> = lines.iter().collect();
        assert!(
            matches!(&lines[..], [one] if one.contains("max_user_watches")),
            "{lines:?}"
        );
        assert_eq!(rig.watcher.stats().refused, 2);
    }
}
