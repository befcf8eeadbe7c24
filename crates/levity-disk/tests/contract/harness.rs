//! Test files with known content, disks, and jobs whose completion can be awaited.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use levity_disk::engine;
use levity_disk::{
    Budget, Class, Completion, Direct, DirectoryReader, Disk, Done, First, Job, Listing, Lookup,
    Meta, Op, OpenFile, Opened, Operation, Ready, Reply, Root, Settings, Spool, Symlinks, op,
};
use tempfile::TempDir;

/// Long enough for the slowest machine; only a hang takes that long.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Which pages of a file the page cache holds. A read with `RWF_NOWAIT` cannot tell: it starts read-ahead,
/// and a fast disk has the page before the read looks again.
pub fn cached_pages(file: &File) -> Vec<bool> {
    let len = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0; len.div_ceil(page_size())];
    // SAFETY: the kernel chooses the address, the mapping is only asked about and then removed, and the
    // vector has one byte for each page of it.
    unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let fd = file.as_raw_fd();
        let start = libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0);
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let result = libc::mincore(start, len, pages.as_mut_ptr());
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        libc::munmap(start, len);
    }
    pages.iter().map(|page| page & 1 == 1).collect()
}

/// Bytes.
pub fn page_size() -> usize {
    // SAFETY: asks for a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Makes one test per engine of each case, named `case::engine`.
macro_rules! for_every_engine {
    ($($case:ident),* $(,)?) => {
        $(mod $case {
            #[test]
            fn sendfile() {
                crate::harness::run("sendfile", super::cases::$case);
            }
            #[test]
            fn threads() {
                crate::harness::run("threads", super::cases::$case);
            }
            #[test]
            fn io_uring() {
                crate::harness::run("io_uring", super::cases::$case);
            }
            #[test]
            fn linux_aio() {
                crate::harness::run("linux-aio", super::cases::$case);
            }
            #[test]
            fn readahead() {
                crate::harness::run("readahead", super::cases::$case);
            }
            #[test]
            fn posix_aio() {
                crate::harness::run("posix-aio", super::cases::$case);
            }
            #[test]
            fn simulated() {
                crate::harness::run("simulated:seed=5", super::cases::$case);
            }
            /// Reads past the page cache where the engine can.
            #[test]
            fn threads_direct() {
                crate::harness::run_direct("threads", super::cases::$case);
            }
            #[test]
            fn readahead_direct() {
                crate::harness::run_direct("readahead", super::cases::$case);
            }
            #[test]
            fn posix_aio_direct() {
                crate::harness::run_direct("posix-aio", super::cases::$case);
            }
            #[test]
            fn io_uring_direct() {
                crate::harness::run_direct("io_uring", super::cases::$case);
            }
            #[test]
            fn linux_aio_direct() {
                crate::harness::run_direct("linux-aio", super::cases::$case);
            }
        })*
    };
}
pub(crate) use for_every_engine;

/// Runs a case. If the engine cannot run here, checks its error instead.
pub fn run(engine: &'static str, case: fn(&Rig)) {
    let name = engine.split(':').next().unwrap();
    let description = engine::find(name).unwrap();
    match (description.probe)() {
        Ok(()) => case(&Rig::new(engine)),
        Err(unavailable) => {
            assert_ne!(unavailable.errno, 0);
            eprintln!("{name} cannot run here: {unavailable}");
        }
    }
}

thread_local! {
    /// The read option of this test.
    static DIRECT: Cell<Direct> = const { Cell::new(Direct::Auto) };
}

/// As [`run`], with all reads past the page cache.
pub fn run_direct(engine: &'static str, case: fn(&Rig)) {
    DIRECT.set(Direct::Always);
    run(engine, case);
}

/// An engine to test, and a directory for its files.
pub struct Rig {
    pub engine: &'static str,
    pub tree: TempDir,
}

impl Rig {
    pub fn new(engine: &'static str) -> Rig {
        Rig {
            engine,
            tree: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    /// Writes a file with [`pattern`] in it.
    pub fn write(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, pattern(0, len)).unwrap();
        path
    }

    /// Drops a file's pages from the page cache.
    /// Drops a file's pages from the page cache. A journal that is being written holds some of them for
    /// a moment, so it is asked again until none is left.
    pub fn evict(&self, name: &str) {
        let file = File::open(self.path(name)).unwrap();
        let start = Instant::now();
        while {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            cached_pages(&file).contains(&true)
        } {
            assert!(start.elapsed() < DEADLINE, "{name} stays in the page cache");
        }
    }

    pub fn root(&self) -> Arc<Root> {
        Root::open(self.tree.path(), Symlinks::Beneath).unwrap()
    }

    pub fn spool(&self) -> Arc<Spool> {
        Spool::open(self.tree.path()).unwrap()
    }

    pub fn disk(&self) -> Arc<Disk> {
        self.disk_with(|_| {})
    }

    pub fn disk_with(&self, set: impl FnOnce(&mut Settings)) -> Arc<Disk> {
        let mut settings = Settings {
            engine: self.engine.to_owned(),
            ..Settings::default()
        };
        set(&mut settings);
        Disk::start(settings).unwrap()
    }

    /// A disk that does one job at a time.
    pub fn narrow_disk(&self) -> Arc<Disk> {
        self.disk_with(|settings| settings.depth = Some(1))
    }
}

/// The content of test files: neighbouring pages differ, and so do neighbouring bytes.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| (at ^ (at >> 8) ^ (at >> 16) ^ (at >> 24)) as u8;
    (offset..offset + len as u64).map(byte).collect()
}

pub fn is_pattern(bytes: &[u8], offset: u64) -> bool {
    *bytes == *pattern(offset, bytes.len())
}

/// A reply that sends its completion to a channel, and can be abandoned.
pub struct Sending {
    to: Sender<Completion>,
    wanted: Arc<AtomicBool>,
}

impl Reply for Sending {
    fn is_awaited(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    fn send(self: Box<Self>, completion: Completion) {
        // The test may have ended.
        let _ = self.to.send(completion);
    }
}

/// The other end of a [`Sending`], for a job of an `O`.
pub struct Waiting<O> {
    from: Receiver<Completion>,
    wanted: Arc<AtomicBool>,
    operation: PhantomData<O>,
}

impl<O: Operation> Waiting<O> {
    pub fn completion(&self) -> Completion<O::Output> {
        let completion = self.from.recv_timeout(DEADLINE).expect("an answer");
        completion.of::<O>()
    }

    pub fn result(&self) -> io::Result<O::Output> {
        self.completion().result
    }

    pub fn give_up(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Waits until the job is answered or dropped. Returns whether it was answered.
    pub fn is_answered(&self) -> bool {
        match self.from.recv_timeout(DEADLINE) {
            Ok(_) => true,
            Err(mpsc::RecvTimeoutError::Disconnected) => false,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("neither answered nor dropped"),
        }
    }

    /// Whether there is no completion yet.
    pub fn is_silent(&self) -> bool {
        matches!(self.from.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

/// One of several operations, whose outputs may differ.
#[derive(Clone)]
pub struct Any(pub Op);

impl From<Any> for Op {
    fn from(any: Any) -> Op {
        any.0
    }
}

impl Operation for Any {
    type Output = Done;

    fn output(done: Done) -> Done {
        done
    }
}

pub fn job<O: Operation>(op: O, class: Class) -> (Job, Waiting<O>) {
    let (to, from) = mpsc::channel();
    let wanted = Arc::new(AtomicBool::new(true));
    let reply = Box::new(Sending {
        to,
        wanted: Arc::clone(&wanted),
    });
    let waiting = Waiting {
        from,
        wanted,
        operation: PhantomData,
    };
    (job_for(op, class, reply), waiting)
}

/// A job with the read options of this test.
pub fn job_for(op: impl Into<Op>, class: Class, reply: Box<dyn Reply>) -> Job {
    let mut job = Job::new(op, class, reply);
    job.options.direct = DIRECT.get();
    job
}

pub fn submit<O: Operation>(disk: &Disk, op: O, class: Class) -> Waiting<O> {
    let (job, waiting) = job(op, class);
    disk.submit(job);
    waiting
}

/// Performs an operation for which a client waits.
pub fn ask<O: Operation>(disk: &Disk, op: O) -> io::Result<O::Output> {
    submit(disk, op, Class::First).result()
}

pub fn open_op(root: &Arc<Root>, path: &str, first: Option<(u64, usize)>) -> op::Open {
    op::Open {
        root: Arc::clone(root),
        path: CString::new(path).unwrap(),
        first: first.map(exactly),
        variants: Box::default(),
        lookup: Lookup::Shared,
    }
}

/// Exactly `len` bytes, also if memory is ample.
pub fn exactly((offset, len): (u64, usize)) -> First {
    First {
        offset,
        len,
        len_max: len,
    }
}

pub fn read_op(file: &Arc<OpenFile>, offset: u64, len: usize) -> op::Read {
    op::Read {
        file: Arc::clone(file),
        offset,
        len,
    }
}

pub fn try_open(
    disk: &Disk,
    root: &Arc<Root>,
    path: &str,
    first: Option<(u64, usize)>,
) -> io::Result<Opened> {
    let opened = ask(disk, open_op(root, path, first))?;
    assert!(opened.variants.is_empty() && opened.not_removed.is_none());
    Ok(opened)
}

pub fn open(disk: &Disk, root: &Arc<Root>, path: &str) -> Arc<OpenFile> {
    try_open(disk, root, path, None).unwrap().file
}

pub fn try_read(disk: &Disk, file: &Arc<OpenFile>, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let (ready, _) = ask(disk, read_op(file, offset, len))?;
    bytes(disk, ready)
}

pub fn read(disk: &Disk, file: &Arc<OpenFile>, offset: u64, len: usize) -> Vec<u8> {
    try_read(disk, file, offset, len).unwrap()
}

/// The metadata of `file` as of now.
pub fn stat(disk: &Disk, file: &Arc<OpenFile>) -> Meta {
    let (_, now) = ask(disk, read_op(file, 0, 1)).unwrap();
    now
}

pub fn spool_op(spool: &Arc<Spool>) -> op::Create {
    let spool = Arc::clone(spool);
    op::Create::Spooled { spool }
}

pub fn create(disk: &Disk, spool: &Arc<Spool>) -> Arc<OpenFile> {
    ask(disk, spool_op(spool)).unwrap()
}

/// A write of [`pattern`].
pub fn write_op(file: &Arc<OpenFile>, offset: u64, len: usize) -> op::Write {
    op::Write {
        file: Arc::clone(file),
        offset,
        bytes: Arc::new(pattern(offset, len)),
    }
}

pub fn try_write(disk: &Disk, file: &Arc<OpenFile>, offset: u64, len: usize) -> io::Result<()> {
    let written = submit(disk, write_op(file, offset, len), Class::Later).result()?;
    assert_eq!(written, len);
    Ok(())
}

pub fn try_append(disk: &Disk, file: &Arc<OpenFile>, bytes: &[u8]) -> io::Result<u64> {
    let append = op::Append {
        file: Arc::clone(file),
        bytes: Arc::new(bytes.to_vec()),
    };
    let appended = ask(disk, append)?;
    assert_eq!(appended.len, bytes.len());
    Ok(appended.offset)
}

pub fn sync_op(file: &Arc<OpenFile>) -> op::Sync {
    let file = Arc::clone(file);
    op::Sync { file }
}

/// A new file without a name that can be linked.
pub fn nameless_op(root: &Arc<Root>, folder: &str) -> op::Create {
    op::Create::Nameless {
        root: Arc::clone(root),
        folder: CString::new(folder).unwrap(),
        mode: 0o640,
    }
}

pub fn named_op(root: &Arc<Root>, path: &str) -> op::Create {
    op::Create::Named {
        root: Arc::clone(root),
        path: CString::new(path).unwrap(),
        mode: 0o640,
    }
}

pub fn link_op(file: &Arc<OpenFile>, root: &Arc<Root>, path: &str) -> op::Link {
    op::Link {
        file: Arc::clone(file),
        root: Arc::clone(root),
        path: CString::new(path).unwrap(),
    }
}

pub fn rename_op(root: &Arc<Root>, from: &str, to: &str, replace: bool) -> op::Rename {
    op::Rename {
        root: Arc::clone(root),
        from: CString::new(from).unwrap(),
        to: CString::new(to).unwrap(),
        replace,
    }
}

pub fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// A detached tmpfs of 1 MiB, freed when it is closed. `None` without the permission to make one.
pub fn small_file_system() -> Option<OwnedFd> {
    const SET_STRING: libc::c_long = 1;
    const CREATE: libc::c_long = 6;
    const CLOEXEC: libc::c_long = 1;
    let call = |number, arguments: [libc::c_long; 5]| {
        let [a, b, c, d, e] = arguments;
        // SAFETY: the pointers among the arguments lead to strings that outlive the call, or nowhere.
        unsafe { libc::syscall(number, a, b, c, d, e) }
    };
    let text = |text: &'static std::ffi::CStr| text.as_ptr() as libc::c_long;
    let owned = |fd: libc::c_long| {
        // SAFETY: the kernel has just made the descriptor, and nobody else uses it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    let context = owned(call(libc::SYS_fsopen, [text(c"tmpfs"), CLOEXEC, 0, 0, 0]))?;
    let fd = context.as_raw_fd().into();
    let (key, value) = (text(c"size"), text(c"1m"));
    assert_eq!(call(libc::SYS_fsconfig, [fd, SET_STRING, key, value, 0]), 0);
    assert_eq!(call(libc::SYS_fsconfig, [fd, CREATE, 0, 0, 0]), 0);
    owned(call(libc::SYS_fsmount, [fd, CLOEXEC, 0, 0, 0]))
}

/// All pieces of a directory.
pub fn list(disk: &Disk, directory: &Arc<OpenFile>) -> io::Result<Vec<Listing>> {
    let reader = DirectoryReader::new(Arc::clone(directory));
    let mut pieces = Vec::new();
    loop {
        pieces.push(next_piece(disk, &reader)?);
        if pieces.last().is_some_and(|piece| piece.is_last) {
            return Ok(pieces);
        }
    }
}

pub fn next_piece(disk: &Disk, reader: &Arc<DirectoryReader>) -> io::Result<Listing> {
    let list = op::List {
        reader: Arc::clone(reader),
        into: Listing::with_room_of_a_piece().into(),
    };
    ask(disk, list)
}

pub fn bytes(disk: &Disk, ready: Ready) -> io::Result<Vec<u8>> {
    bytes_within(disk.budget(), ready)
}

pub fn bytes_within(budget: &Budget, ready: Ready) -> io::Result<Vec<u8>> {
    let len = ready.len();
    let buffer = ready.into_bytes(budget)?;
    assert_eq!(buffer.len(), len);
    Ok(buffer.to_vec())
}

/// Whether reads hand over files instead of bytes.
pub fn hands_over_files(disk: &Disk) -> bool {
    matches!(disk.engine(), "sendfile" | "readahead")
}

/// Whether all completions come from one thread, which a reply such as [`Held`] blocks.
pub fn answers_from_one_thread(disk: &Disk) -> bool {
    matches!(disk.engine(), "io_uring" | "posix-aio" | "linux-aio")
}

/// Waits until a condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Waits until no job is in transit, queued or in flight.
pub fn settle(disk: &Disk) {
    until("no job is left", || {
        let stats = disk.stats();
        let mut devices = stats.devices.iter();
        stats.arriving == 0 && devices.all(|d| d.queued + d.in_flight == 0)
    });
}

/// Waits until no buffer is in use: an engine may free one late.
pub fn all_memory_is_back(disk: &Disk) {
    until("all memory is back", || disk.budget().in_use() == 0);
}

/// Waits until every submitted job is in the queue of its device, or beyond.
pub fn arrive(disk: &Disk) {
    until("every job has arrived", || disk.stats().arriving == 0);
}

/// A job that keeps its slot until it is released: its reply blocks, which a reply must not do.
pub struct Held {
    reached: Arc<Barrier>,
    release: Arc<Barrier>,
}

struct Blocking {
    reached: Arc<Barrier>,
    release: Arc<Barrier>,
}

impl Reply for Blocking {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        drop(completion);
        self.reached.wait();
        self.release.wait();
    }
}

impl Held {
    /// Returns once the job has its slot.
    pub fn new(disk: &Disk, op: impl Into<Op>, class: Class) -> Held {
        let op = op.into();
        let in_pool = !disk.blocks_on_loop() || matches!(op, Op::Write(_) | Op::Sync(_));
        assert!(in_pool, "it would block the test itself");
        let reached = Arc::new(Barrier::new(2));
        let release = Arc::new(Barrier::new(2));
        let reply = Box::new(Blocking {
            reached: Arc::clone(&reached),
            release: Arc::clone(&release),
        });
        disk.submit(job_for(op, class, reply));
        reached.wait();
        Held { reached, release }
    }

    pub fn release(self) {
        drop(self.reached);
        self.release.wait();
    }
}

/// Writes `bytes` into an existing file, without changing the rest.
pub fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}
