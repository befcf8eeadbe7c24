//! Threads that close files, and remove the temporary names of those that got no other.
//!
//! The last close of a deleted file frees its blocks and may wait for the journal; on FUSE it waits for a
//! reply. Event loops drop files, so a dropped file only hands over its descriptor, without a lock. A
//! device that freezes blocks one thread; the others close the descriptors of other devices.
//!
//! What waits to be closed still counts towards the limit on open files, and event loops drop files faster than threads
//! close them. So whoever opens a file waits for [room](wait_for_room). Each device has a bound of its own: files of
//! others are opened while one is frozen.

use std::collections::BTreeMap;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_queue::SegQueue;

use super::temporary::TemporaryName;
use super::unclosed::Unclosed;
use crate::thread::{DiskThread, Parker, lock};

/// When as many devices are frozen, nothing is closed, and before long nothing is opened.
const THREADS: usize = 4;

/// How long a thread waits for more after it has closed files. On a busy server waking a thread costs more
/// than most closes, so they are batched.
const NAP: Duration = Duration::from_millis(1);

/// Bound on the files of one device that wait to be closed, unless [`set_unclosed_max`] sets another one. Closing so
/// many takes less than a millisecond.
const UNCLOSED_MAX_DEFAULT: usize = 1024;

static UNCLOSED_MAX: AtomicUsize = AtomicUsize::new(UNCLOSED_MAX_DEFAULT);

/// Bounds the number of files of each device that wait to be closed in this process. While there are as many, event
/// loops open no file of that device, and threads that open one wait.
pub fn set_unclosed_max(files: usize) {
    UNCLOSED_MAX.store(files.max(1), Ordering::Relaxed);
}

/// One queue and its threads for the whole process, because files do not know the disk that reads them.
static QUEUE: Queue = Queue {
    arrived: SegQueue::new(),
    unclosed: Unclosed::new(),
    users: AtomicUsize::new(0),
    started: Mutex::new(0),
    pending: Mutex::new(BTreeMap::new()),
    closed: Condvar::new(),
    parkers: [const { Parker::new() }; THREADS],
    naps: AtomicBool::new(false),
};

struct Queue {
    /// Descriptors that are not sorted by device yet.
    arrived: SegQueue<(u64, Discarded)>,
    /// Descriptors that are not closed yet. Who opens a file looks at their number: [`has_room`], [`wait_for_room`].
    unclosed: Unclosed,
    /// Number of [`Closer`]s.
    users: AtomicUsize,
    /// Number of threads.
    started: Mutex<usize>,
    /// Descriptors by device. Only the closing threads and those that wait for them take this lock.
    pending: Mutex<BTreeMap<u64, Pending>>,
    /// Some descriptors were closed.
    closed: Condvar,
    parkers: [Parker; THREADS],
    /// A thread naps: it looks for descriptors without being woken, within [`NAP`].
    naps: AtomicBool,
}

#[derive(Default)]
struct Pending {
    fds: Vec<Discarded>,
    /// A thread is closing other descriptors of this device.
    busy: bool,
}

/// What a closing thread closes or removes.
enum Discarded {
    Fd(OwnedFd),
    Name(TemporaryName),
}

impl Discarded {
    /// Blocks.
    fn finish(self) {
        match self {
            Discarded::Fd(fd) => drop(fd),
            Discarded::Name(name) => name.remove(),
        }
    }
}

/// A descriptor of a file on `device`, closed as by [`close`] when it is dropped.
#[derive(Debug)]
pub(super) struct DeferredFd {
    fd: ManuallyDrop<OwnedFd>,
    device: u64,
}

impl DeferredFd {
    pub(super) fn new(fd: OwnedFd, device: u64) -> DeferredFd {
        let fd = ManuallyDrop::new(fd);
        DeferredFd { fd, device }
    }

    /// The device that was given.
    pub(super) fn device(&self) -> u64 {
        self.device
    }
}

impl AsFd for DeferredFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DeferredFd {
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing reads the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        close(self.device, fd);
    }
}

/// A name on `device`, removed by a closing thread when it is dropped, as by [`close`].
#[derive(Debug)]
pub(super) struct DeferredName {
    name: Option<TemporaryName>,
    device: u64,
}

impl DeferredName {
    pub(super) fn new(name: TemporaryName, device: u64) -> DeferredName {
        let name = Some(name);
        DeferredName { name, device }
    }

    pub(super) fn name(&self) -> &TemporaryName {
        self.name.as_ref().expect("taken only with the whole")
    }

    /// The name exists no longer.
    pub(super) fn forget(mut self) {
        self.name = None;
    }
}

impl Drop for DeferredName {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            discard(self.device, Discarded::Name(name));
        }
    }
}

/// Closes `fd`, a file on `device`: on a closing thread if a [`Closer`] exists, otherwise at once. Takes no lock.
pub(crate) fn close(device: u64, fd: OwnedFd) {
    discard(device, Discarded::Fd(fd));
}

fn discard(device: u64, discarded: Discarded) {
    if QUEUE.users.load(Ordering::Relaxed) == 0 {
        return discarded.finish();
    }
    QUEUE.unclosed.add(device);
    QUEUE.arrived.push((device, discarded));
    QUEUE.wake_one();
}

/// Whether an event loop may open a file on `device`: not too many of them wait to be closed. Takes no lock.
pub(crate) fn has_room(device: u64) -> bool {
    QUEUE.unclosed.files(device) < UNCLOSED_MAX.load(Ordering::Relaxed)
}

/// Blocks until one more file on `device` may be open. Call it before the file is handed over, because only then its
/// device is known: each thread has at most a few files that nobody has counted.
///
/// The closing threads wait for nobody, so this ends unless `device` is frozen, where the open could not end either.
pub(crate) fn wait_for_room(device: u64) {
    if !has_room(device) {
        QUEUE.wait_while(|| !has_room(device));
    }
}

/// While one exists, files are closed by the closing threads.
#[derive(Debug)]
pub(crate) struct Closer(());

impl Closer {
    /// Starts the threads unless they run. Call it before a guard is installed, because threads inherit it.
    /// The threads run until the process ends: to end them safely, every drop of a file would have to take a
    /// lock.
    pub(crate) fn start() -> io::Result<Closer> {
        let mut started = lock(&QUEUE.started);
        while let Some(parker) = QUEUE.parkers.get(*started) {
            DiskThread::start("disk-close", || QUEUE.run(parker))?;
            *started += 1;
        }
        QUEUE.users.fetch_add(1, Ordering::SeqCst);
        Ok(Closer(()))
    }
}

impl Drop for Closer {
    /// The drop of the last one waits until all descriptors are closed.
    fn drop(&mut self) {
        if QUEUE.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            QUEUE.wait_while(|| QUEUE.unclosed.total() > 0);
        }
    }
}

impl Queue {
    fn wake_one(&self) {
        // As in `Parker`: the napping thread sees the descriptor, or this thread sees that it no longer naps.
        fence(Ordering::SeqCst);
        if !self.naps.load(Ordering::Relaxed) {
            let _ = self.parkers.iter().any(Parker::unpark);
        }
    }

    fn run(&self, parker: &Parker) -> ! {
        let mut has_closed = false;
        loop {
            match self.take() {
                Some((device, fds)) => {
                    self.close(device, fds);
                    has_closed = true;
                }
                None if has_closed => {
                    self.nap();
                    has_closed = false;
                }
                None => parker.park_unless(|| {
                    !self.arrived.is_empty() || waiting(&mut lock(&self.pending)).is_some()
                }),
            }
        }
    }

    /// Sleeps for [`NAP`], while no thread is woken; one thread at a time.
    fn nap(&self) {
        if !self.naps.swap(true, Ordering::Relaxed) {
            thread::sleep(NAP);
            self.naps.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Takes all descriptors of one device that no thread is busy with.
    fn take(&self) -> Option<(u64, Vec<Discarded>)> {
        let mut pending = lock(&self.pending);
        while let Some((device, fd)) = self.arrived.pop() {
            pending.entry(device).or_default().fds.push(fd);
        }
        let (device, mine) = waiting(&mut pending)?;
        mine.busy = true;
        let fds = mem::take(&mut mine.fds);
        let more = waiting(&mut pending).is_some();
        drop(pending);
        // This thread may be about to freeze: another one has to close the rest.
        if more {
            self.wake_one();
        }
        Some((device, fds))
    }

    fn close(&self, device: u64, fds: Vec<Discarded>) {
        let count = fds.len();
        fds.into_iter().for_each(Discarded::finish);
        self.unclosed.subtract(device, count);
        let mut pending = lock(&self.pending);
        if let Some(mine) = pending.get_mut(&device) {
            mine.busy = false;
        }
        pending.retain(|_, device| device.busy || !device.fds.is_empty());
        self.closed.notify_all();
    }

    fn wait_while(&self, is_full: impl Fn() -> bool) {
        let mut pending = lock(&self.pending);
        while is_full() {
            let woken = self.closed.wait(pending);
            pending = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn waiting(pending: &mut BTreeMap<u64, Pending>) -> Option<(u64, &mut Pending)> {
    let waits = |pending: &Pending| !pending.busy && !pending.fds.is_empty();
    let (device, pending) = pending.iter_mut().find(|(_, p)| waits(p))?;
    Some((*device, pending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Root, Symlinks};
    use std::array;
    use std::fs::{self, DirEntry};
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Instant;

    /// There is one queue in the process, so tests that rely on being its last user must run alone.
    static TURN: Mutex<()> = Mutex::new(());

    /// A descriptor whose close waits until its peer, which reads nothing, is gone.
    fn frozen() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = ours.write(&[0; 65_536]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let linger = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_linger(&ours, linger).unwrap();
        (ours.into(), peer)
    }

    /// However often both are handed over, and in whatever order.
    #[test]
    fn a_frozen_device_stops_no_other() {
        let _turn = lock(&TURN);
        let closer = Closer::start().unwrap();
        let (fd, peer) = frozen();
        close(10, fd);
        for device in [10, 11, 10, 12, 10, 11] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            close(device, theirs.into());
            if device != 10 {
                assert_eq!(ours.read(&mut [0]).unwrap(), 0);
            }
        }
        // A close that lingers is reset by a peer that has not read.
        drop(peer);
        drop(closer);
        wait_until("all are closed", || QUEUE.unclosed.total() == 0);
    }

    fn wait_until(event: &str, has_happened: impl Fn() -> bool) {
        let start = Instant::now();
        while !has_happened() {
            assert!(start.elapsed() < Duration::from_secs(30), "{event}");
            thread::yield_now();
        }
    }

    #[test]
    fn openers_wait_for_room_on_their_device() {
        const FILES_MAX: usize = 3;
        let _turn = lock(&TURN);
        let closer = Closer::start().unwrap();
        set_unclosed_max(FILES_MAX);
        let (fd, peer) = frozen();
        close(20, fd);
        for _ in 2..FILES_MAX {
            close(20, UnixStream::pair().unwrap().0.into());
        }
        assert!(has_room(20));
        close(20, UnixStream::pair().unwrap().0.into());
        assert!(!has_room(20) && has_room(21));
        wait_for_room(21);
        let opener = thread::spawn(|| wait_for_room(20));
        thread::yield_now();
        assert!(!opener.is_finished(), "nothing could be closed");
        drop(peer);
        opener.join().unwrap();
        assert!(has_room(20));
        drop(closer);
        wait_until("all are closed", || QUEUE.unclosed.total() == 0);
        set_unclosed_max(UNCLOSED_MAX_DEFAULT);
    }

    fn is_open(path: &Path) -> bool {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let target = |descriptor: io::Result<DirEntry>| fs::read_link(descriptor.ok()?.path()).ok();
        descriptors.filter_map(target).any(|target| target == path)
    }

    #[test]
    fn a_root_is_handed_over() {
        let _turn = lock(&TURN);
        let closer = Closer::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let root = Root::open(&path, Symlinks::Beneath).unwrap();
        // Before that of the root in the order in which devices are served.
        let peers: [_; THREADS] = array::from_fn(|device| {
            let (fd, peer) = frozen();
            close(device as u64, fd);
            peer
        });
        drop(root);
        assert!(is_open(&path), "no thread could close it");
        drop(peers);
        wait_until("a thread has closed it", || !is_open(&path));
        drop(closer);
    }

    #[test]
    fn deferred_descriptors_are_closed() {
        let _turn = lock(&TURN);
        let closer = Closer::start().unwrap();
        let second = Closer::start().unwrap();
        for device in [1, 1, 2] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            close(device, theirs.into());
            assert_eq!(ours.read(&mut [0]).unwrap(), 0, "end of stream once closed");
        }
        drop((closer, second));
    }

    #[test]
    fn the_last_closer_closes_the_rest() {
        let _turn = lock(&TURN);
        let closer = Closer::start().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        close(3, theirs.into());
        drop(closer);
        // Not at once: a disk of another test may have a closer too.
        ours.set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    }
}
