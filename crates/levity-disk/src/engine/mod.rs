//! The contract of a disk engine, and the table of those that exist.
//!
//! An engine is one file in this folder; its file name is the value of `disk.engine` and the label
//! on its metrics. [`Engine`] says what each must keep, `tests/contract.rs` checks it for all.
//! `operation` holds what they share: the operations as plain blocking calls. `pool` runs those in
//! threads.

mod inbox;
mod io_uring;
mod linux_aio;
mod operation;
mod places;
mod pool;
mod posix_aio;
mod readahead;
mod reading;
mod ready;
mod sendfile;
pub mod simulated;
mod threads;
mod work;

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::disk::StartError;
use crate::files::{Listing, Meta, OpenFile, Root, Spool};
use crate::memory::{self, Budget, Buffer, Lease};

pub(crate) use pool::Pool;
pub use work::{Ticket, Work};

/// What one trip to the disk does.
#[derive(Debug, Clone)]
pub enum Op {
    /// Open `path` beneath `root`, `fstat` it and, when it is a regular file, read `first`: one trip
    /// instead of three, because each of the three may wait for the disk.
    Open {
        /// The directory that the path may not leave.
        root: Arc<Root>,
        /// Relative, without a leading slash; `.` for the root itself.
        path: CString,
        /// What to read at once. `None` reads nothing.
        first: Option<First>,
        /// What may stand in for the file, opened on the same trip. Boxed, because most have none.
        variants: Box<Variants>,
        /// What may be on the way, and who may go along.
        lookup: Lookup,
    },
    /// Read `len` bytes from `offset`. Fewer come back only at the end of the file, see [`Done::Read`].
    Read {
        /// The file; the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes; more than zero.
        len: usize,
    },
    /// Read the names in a directory, with the metadata of each.
    List {
        /// The directory.
        directory: Arc<OpenFile>,
        /// Names to return at most; `Listing::truncated` says whether there were more.
        entries_max: usize,
    },
    /// Make a file without a name, to be written to and read from. It is gone when nobody has it open
    /// any more, whatever becomes of the process.
    Create {
        /// Where.
        spool: Arc<Spool>,
    },
    /// Write `bytes` at `offset`, all of them. They go into the page cache: an error that the device
    /// tells of later, when the kernel writes them to it, is told to nobody.
    ///
    /// Operations on one file are done in any order, and side by side. Who wants to read what has been
    /// written, or to write one piece after the other, waits for the completion in between; that also
    /// bounds the memory that writes take, as they bring their own. But nobody who holds a [`Buffer`] may
    /// wait for a write: it may stand behind a read that waits for memory. After an error nothing is
    /// known of what the file holds from `offset` on.
    Write {
        /// Of [`Op::Create`]; the operation holds it until its completion.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// Held until the completion. So many as a chunk has, 64 to 256 KiB: devices are shared by bytes,
        /// and nothing interrupts a write.
        bytes: Arc<Vec<u8>>,
    },
    /// Remove the name `path` beneath `root`, if it is one of `file`: ENOENT when there is nothing, ESTALE
    /// when there is something else, ELOOP when a symbolic link is on the way, EISDIR or EINVAL when `file`
    /// is a directory or another thing that is no regular file.
    ///
    /// It is dropped like any other job when nobody wants it as it starts: if the name has to go whatever
    /// becomes of the client, its reply is one that is always wanted.
    ///
    /// A name that is given to something else between the look and the removal is removed all the same.
    /// Who can do that could have removed it: it takes the right to write to the directory.
    Unlink {
        /// The directory that the path may not leave, whatever the root itself lets links do.
        root: Arc<Root>,
        /// Relative, without a leading slash.
        path: CString,
        /// What was opened there. While it is open, no other file has its number.
        file: Arc<OpenFile>,
    },
    /// Find out where the path leads now by which `root` was opened, and open that if it is something else:
    /// a symbolic link was switched, or a directory replaced. Counts as work of the root's device.
    Look {
        /// As it was opened last.
        root: Arc<Root>,
    },
}

/// How an open finds its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lookup {
    /// As the root says, and once for all who ask for the same at that time.
    #[default]
    Shared,
    /// As the root says, but for this one alone, after it was asked for: a name that is used again for
    /// other content, as those are that an application hands over.
    Fresh,
    /// As `Fresh`, and no symbolic link may be on the way (ELOOP), and nothing but a regular file at its
    /// end (EISDIR, EINVAL). For files that are to be removed, by [`Op::Unlink`]. As they were mostly written
    /// a moment ago, they are best read with [`Direct::Never`]: past the page cache a read would wait
    /// until they are on the disk.
    Straight,
    /// As `Straight`, and the name is removed as soon as the file is open, in the same turn, as
    /// [`Op::Unlink`] does it. What follows may still fail; the file is gone then.
    Taken,
}

/// The bytes that an open brings along, cut at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First {
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes.
    pub len: usize,
    /// If so many are all the rest of the file, and memory is ample for them ([`Budget::is_ample`]), they
    /// are brought instead of `len`: where a read takes long to begin, one read of all costs little more
    /// than one of the start. In bytes; less than `len` means `len`.
    pub len_max: usize,
}

/// Other forms of a file that lie beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variants {
    /// Relative to the root, like the path of the file itself.
    pub paths: Vec<CString>,
    /// How many of them, from the start, are wanted more than the file itself.
    pub preferred: usize,
}

/// Bytes of a file that are ready to leave without waiting for the disk.
#[derive(Debug)]
pub enum Ready {
    /// In our memory: any transport can send it.
    Bytes(Buffer),
    /// In a pipe: `splice` moves it to a plain socket.
    Pipe {
        /// The pipe's read end; holds exactly `len` bytes.
        pipe: OwnedFd,
        /// In bytes.
        len: usize,
    },
    /// In a memory file, which `sendfile` may read without waiting.
    Shared {
        /// The memory file; to let go of it is to give the memory back.
        memory: Arc<Lease>,
        /// In bytes from the start of the memory file.
        offset: u64,
        /// In bytes.
        len: usize,
    },
    /// Still in the file. Only an engine that may block on the loop, or that has just brought the
    /// range into the page cache, says so.
    PageCache {
        /// The file to send from.
        file: Arc<OpenFile>,
        /// In bytes from the start of the file.
        offset: u64,
        /// In bytes, never beyond the size that `fstat` told.
        len: usize,
    },
}

/// In bytes: an engine that leaves bytes in the page cache copies fewer than these all the same, while
/// there is memory, as a copy costs less than to send them from there. A page on most machines.
pub const COPIED_BYTES: usize = 4096;

/// What came of an [`Op`].
#[derive(Debug)]
pub enum Done {
    /// Of [`Op::Open`].
    Opened {
        /// The open file, directory or other thing; its `meta` was read after the data, if there is
        /// any of it.
        file: Arc<OpenFile>,
        /// For each path of [`Op::Open`]'s `variants` the file there, if it may stand in for `file`
        /// ([`Meta::may_stand_in_for`](crate::Meta::may_stand_in_for)). All `None` when `file` is no
        /// regular file.
        variants: Vec<Option<Arc<OpenFile>>>,
        /// The bytes asked for, of the first preferred variant that is there or else of `file`: `None`
        /// when none were, or when it is no regular file.
        first: Option<Ready>,
        /// `fstat` before and after the read agreed: the bytes are those of one version, as far as
        /// the steps of the file system's clock can tell. Also true when nothing has been read yet
        /// that could disagree: `first` is `None` or [`Ready::PageCache`].
        stable: bool,
        /// After [`Lookup::Taken`]: why the name is still there, if it is. The errors of [`Op::Unlink`].
        not_removed: Option<io::Error>,
    },
    /// Of [`Op::Read`]. Fewer bytes than asked for mean that the file ends there, or ended there when
    /// the read was over: what a truncation has cut off in the meantime is never handed over as the
    /// zeroes that the kernel puts in its place. Only [`Ready::PageCache`], which is still to be read,
    /// cannot promise that.
    ///
    /// The metadata is what `fstat` said after the read: of the version that it tells are the bytes, or
    /// of an earlier one. Those of [`Ready::PageCache`] are still to be read, and may be of a later one;
    /// fewer than [`COPIED_BYTES`] are handed over so only by an engine that waits on the loop.
    Read(Ready, Meta),
    /// Of [`Op::List`].
    Listed(Listing),
    /// Of [`Op::Create`]. Its `meta` is that of the empty file.
    Created(Arc<OpenFile>),
    /// Of [`Op::Write`]: so many bytes, all that there were.
    Written(usize),
    /// Of [`Op::Look`]: the root that has taken the place of the one that was asked about, if one has.
    Looked(Option<Arc<Root>>),
    /// Of [`Op::Unlink`].
    Unlinked,
}

/// An outcome, and where its time went.
#[derive(Debug)]
pub struct Completion {
    /// The outcome. Errors carry the errno of the call that failed.
    pub result: io::Result<Done>,
    /// Waiting for a place in the device's queue and for a thread.
    pub queued: Duration,
    /// In the kernel, opening and reading.
    pub service: Duration,
    /// The bytes came past the page cache.
    pub direct: bool,
}

/// Whether an error means that the job was not taken: as many wait for its device, or are on their way
/// to the scheduler, as may, or it would start now and there is no memory for it. Nothing has been
/// done, and it may be submitted again.
pub fn is_full(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Full>())
}

/// Marks the error that [`is_full`] knows.
#[derive(Debug)]
pub(crate) struct Full;

impl From<Full> for io::Error {
    fn from(full: Full) -> io::Error {
        io::Error::new(io::ErrorKind::ResourceBusy, full)
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the disk is full")
    }
}

impl std::error::Error for Full {}

/// Whether an error means that the job's device has not answered for so long that it is taken for dead.
/// Its kind is `TimedOut`.
pub fn is_dead(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Dead>())
}

/// Marks the error that [`is_dead`] knows.
#[derive(Debug)]
pub(crate) struct Dead;

impl From<Dead> for io::Error {
    fn from(dead: Dead) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, dead)
    }
}

impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk does not answer")
    }
}

impl std::error::Error for Dead {}

/// Where a completion goes.
pub trait Reply: Send {
    /// Whether anyone still waits. A job that nobody wants is dropped without an answer if it has not
    /// started. Called under locks of the scheduler: no more than the load of an atomic.
    fn wanted(&self) -> bool;
    /// Hands over the completion. Called at most once, from a thread of the engine or the scheduler,
    /// or from within [`Disk::submit`](crate::Disk::submit) or
    /// [`Disk::shutdown`](crate::Disk::shutdown). Must not block, and must not submit, shut down or drop a disk; dropping the completion, and with it
    /// files and buffers, is fine. The job counts as in flight until it returns.
    fn send(self: Box<Self>, completion: Completion);
}

/// How urgent a job is: first chunks and small files go before bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Opens, listings and first chunks: a client has seen nothing yet.
    First,
    /// Later chunks: a client is already receiving. Writes: it is still sending.
    Next,
    /// Chunks that nobody waits for yet. They never wait themselves: one that cannot start at once,
    /// without a job of another class noticing, is refused ([`is_full`]). Whoever asks for the same while
    /// it is under way goes along with it.
    Prefetch,
}

/// One operation on its way to an engine.
pub struct Job {
    /// What to do.
    pub op: Op,
    /// How urgent it is.
    pub class: Class,
    /// For whom: a number that one connection has to itself, in this process. What is shared fairly
    /// is shared between streams.
    pub stream: u64,
    /// How it is to be done.
    pub terms: Terms,
    /// Who waits for it.
    pub reply: Box<dyn Reply>,
}

/// How the place that a request is for wants its files read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// By which engine: one of those that [`Disk::engine_for`](crate::Disk::engine_for) has started.
    /// `None` is the one that the disk was started with; for `auto` it may be another one that reads
    /// past the page cache.
    pub engine: Option<EngineId>,
    /// Whether past the page cache.
    pub direct: Direct,
}

/// An engine that a disk has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EngineId(pub(crate) u8);

/// When to read past the page cache (`O_DIRECT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// What only one stream has asked for, in large files: a stream that passes once does not push
    /// out what others keep asking for.
    #[default]
    Auto,
    /// All that an engine reads of regular files.
    Always,
    /// Nothing.
    Never,
}

impl Job {
    /// For no stream in particular, by the disk's own engine.
    pub fn new(op: Op, class: Class, reply: Box<dyn Reply>) -> Job {
        Job {
            op,
            class,
            stream: 0,
            terms: Terms::default(),
            reply,
        }
    }
}

impl Op {
    /// Bytes of memory that it needs: those to read, with the whole blocks around them. An open that
    /// brings more than it must takes the rest when it knows how much that is. A write brings its own.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Op::Open { first, .. } => {
                first.map_or(0, |first| memory::span(first.offset, first.len))
            }
            Op::Read { offset, len, .. } => memory::span(*offset, *len),
            Op::List { .. }
            | Op::Create { .. }
            | Op::Write { .. }
            | Op::Unlink { .. }
            | Op::Look { .. } => 0,
        }
    }

    /// Bytes that it gives its device to do.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Write { bytes, .. } => bytes.len(),
            _ => self.memory(),
        }
    }

    /// `st_dev` of where the work is done.
    pub(crate) fn device(&self) -> u64 {
        match self {
            Op::Open { root, path, .. } => root.device_of(path),
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Unlink { file, .. } => {
                file.meta.device
            }
            Op::List { directory, .. } => directory.meta.device,
            Op::Create { spool } => spool.device(),
            Op::Look { root } => root.device(),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?}, {:?})", self.class, self.op)
    }
}

/// What does the work. The scheduler hands it one [`Work`] after the other and sees to the bounds: at
/// most `depth` at a time per device, each with its memory reserved.
pub trait Engine: Send + Sync {
    /// Starts `work` and returns. Does not block, whatever state the disk is in, unless
    /// [`Engine::blocks_on_loop`]. Takes any number: the scheduler bounds it.
    ///
    /// The work owns its file and its memory until it is finished, so nothing is freed under the
    /// kernel when a client goes away: the answer then goes to nobody. A work that nobody wants when
    /// it would start is dropped, which counts it as canceled; one that has started is not
    /// interrupted.
    ///
    /// Every work is finished once ([`Ticket::finish`]), from a thread of the engine (from this call
    /// when the engine blocks), without a lock held. Short reads are carried on until the bytes asked
    /// for or the end of the file are reached, and so are EINTR and EAGAIN: [`Done::Read`] holds fewer
    /// bytes only at the end of the file, and what that means is for the caller to say. The end is
    /// asked for once more after the last byte, so that nothing cut off by a truncation is handed
    /// over. Any other errno is passed on as it is, and bytes read before it are dropped.
    ///
    /// A write is carried on in the same way until all is written, and its bytes are kept until then.
    /// It goes through the page cache, as do reads of what was written; no other file's read answers
    /// one of these.
    fn submit(&self, work: Work);

    /// [`Engine::submit`] does the work itself, on the calling thread, however long that takes.
    fn blocks_on_loop(&self) -> bool {
        false
    }

    /// Some of what it hands over leaves by `sendfile` on the event loop: a guard must let that through.
    fn needs_sendfile(&self) -> bool {
        false
    }

    /// What whoever runs it may want to know of how it was started.
    fn note(&self) -> Option<&str> {
        None
    }

    /// Something that must be let go before all work can finish. Called once, when a shutdown begins.
    fn interrupt(&self) {}

    /// Ends the threads that the engine has to itself and waits for them. Called once, when all work
    /// is finished.
    fn shutdown(&self) {}
}

/// The threads of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// All of them.
    pub total: usize,
    /// How many of these open, list, create and remove, and never read later chunks or write.
    pub stat: usize,
}

/// An engine, as a row of the table.
pub struct Description {
    /// The value of `disk.engine`, the label on metrics and the name of the source file (with `_` where
    /// the system's own word has `-`).
    pub name: &'static str,
    /// In one line, for help and documentation.
    pub summary: &'static str,
    /// For tests; not offered in help.
    pub hidden: bool,
    /// Other names that `disk.engine` takes for it.
    pub aliases: &'static [&'static str],
    /// Whether it can run here, found out by trying. May block.
    pub probe: fn() -> Result<(), Unavailable>,
    /// Starts it; call it before a guard is installed, which threads would inherit. Blocks.
    pub start: fn(&Given<'_>) -> Started,
}

/// What an engine is started with.
pub struct Given<'a> {
    /// Threads that may wait for the disk, shared by all engines of a disk.
    pub(crate) pool: &'a Arc<Pool>,
    /// The memory for what is read.
    pub(crate) budget: &'a Budget,
    /// Jobs that it may have at once, with one device frozen and another at work.
    pub(crate) jobs_max: usize,
    /// What followed a colon in the name, for `simulated`.
    pub(crate) options: Option<&'a str>,
}

/// An engine at work.
pub type Started = Result<Box<dyn Engine>, StartError>;

/// All engines. `auto` is not one of them: it is a choice among them.
pub static ENGINES: &[Description] = &[
    sendfile::DESCRIPTION,
    threads::DESCRIPTION,
    io_uring::DESCRIPTION,
    linux_aio::DESCRIPTION,
    readahead::DESCRIPTION,
    posix_aio::DESCRIPTION,
    simulated::DESCRIPTION,
];

/// The name that lets Levity choose.
pub const AUTO: &str = "auto";

/// The engine called `name`, or known under that alias.
pub fn find(name: &str) -> Option<&'static Description> {
    let named = |engine: &&Description| engine.name == name || engine.aliases.contains(&name);
    ENGINES.iter().find(named)
}

impl EngineId {
    /// Of one of [`ENGINES`].
    pub(crate) fn of(description: &Description) -> EngineId {
        let same = |engine: &Description| engine.name == description.name;
        let place = ENGINES.iter().position(same).expect("it is in the table");
        EngineId(u8::try_from(place).expect("a handful of engines"))
    }

    /// As in `disk.engine`.
    pub fn name(self) -> &'static str {
        ENGINES[usize::from(self.0)].name
    }
}

/// The names that a configuration may give, `auto` first.
pub fn names() -> impl Iterator<Item = &'static str> {
    let shown = ENGINES.iter().filter(|engine| !engine.hidden);
    std::iter::once(AUTO).chain(shown.map(|engine| engine.name))
}

/// What `auto` stands for.
pub struct Choice {
    /// Opens, lists, and reads through the page cache.
    pub engine: &'static Description,
    /// Reads past the page cache, where that is another.
    pub for_direct: Option<&'static Description>,
    /// Why.
    pub reason: String,
}

/// What `auto` stands for here, found out by trying. May block.
pub fn choose() -> Choice {
    let ring = &io_uring::DESCRIPTION;
    let refused = (ring.probe)().err();
    let direct = match &refused {
        None => "io_uring, which needs less processor time for that".to_owned(),
        Some(unavailable) => format!("threads too, as io_uring cannot run here ({unavailable})"),
    };
    Choice {
        engine: &threads::DESCRIPTION,
        for_direct: refused.is_none().then_some(ring),
        reason: format!(
            "reads through the page cache: threads, which copy side by side; past it (O_DIRECT): {direct}"
        ),
    }
}

/// Why an engine cannot run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable {
    /// Of the call that failed.
    pub errno: i32,
    /// What to do about it.
    pub hint: &'static str,
}

impl Unavailable {
    /// What to say about `error`, from setting up a ring or starting a thread.
    pub(crate) fn from_error(error: &io::Error) -> Unavailable {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Unavailable {
            errno: errno.raw_os_error(),
            hint: hint(errno),
        }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "a seccomp filter (as in most containers) or the sysctl kernel.io_uring_disabled forbids it"
        }
        Errno::NOSYS => "this kernel was built without it, or is too old",
        Errno::OPNOTSUPP | Errno::INVAL => "this kernel is too old for it",
        Errno::NOMEM => "raise the limit on locked memory (ulimit -l, LimitMEMLOCK=)",
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (ulimit -n, LimitNOFILE=)",
        Errno::AGAIN => "raise the limit on threads (ulimit -u, TasksMax=)",
        _ => "choose another engine",
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "{error}: {}", self.hint)
    }
}

impl std::error::Error for Unavailable {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Chosen, Disk, Settings};
    use crate::files::Symlinks;
    use std::sync::mpsc;

    static SMALL_RING: Description = Description {
        start: |given| io_uring::start_with(given, 2),
        ..io_uring::DESCRIPTION
    };

    static SMALL_AIO: Description = Description {
        start: |given| linux_aio::start_with(given, 2),
        ..linux_aio::DESCRIPTION
    };

    struct Numbered(usize, mpsc::Sender<(usize, Completion)>);

    impl Reply for Numbered {
        fn wanted(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            self.1.send((self.0, completion)).unwrap();
        }
    }

    fn byte(at: usize) -> u8 {
        (at ^ (at >> 8) ^ (at >> 16)) as u8
    }

    /// All are answered, with their own bytes: those that find no place wait for one.
    fn more_reads_than_places(description: &'static Description, direct: Direct) {
        const JOBS: usize = 200;
        const LEN: usize = 70_001;
        if (description.probe)().is_err() {
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..4 << 20).map(byte).collect();
        std::fs::write(tree.path().join("file"), content).unwrap();
        let settings = Settings {
            depth: Some(32),
            ..Settings::default()
        };
        let chosen = Chosen {
            engine: description,
            for_direct: None,
            reason: String::new(),
            options: None,
        };
        let disk = Disk::start_engine(&settings, chosen).unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let file = root.open_cached(c"file").unwrap();
        let (send, received) = mpsc::channel();
        let offset = |number| number * 19_997;
        for number in 0..JOBS {
            let op = Op::Read {
                file: Arc::clone(&file),
                offset: offset(number) as u64,
                len: LEN,
            };
            let reply = Box::new(Numbered(number, send.clone()));
            let mut job = Job::new(op, Class::Next, reply);
            job.terms.direct = direct;
            disk.submit(job);
        }
        drop(send);
        let mut answered = 0;
        for (number, completion) in received {
            let Ok(Done::Read(ready, _)) = completion.result else {
                panic!("{completion:?}");
            };
            let bytes = ready.into_bytes(disk.budget()).unwrap();
            assert_eq!(bytes.len(), LEN);
            let mut places = (offset(number)..).zip(&*bytes);
            assert!(places.all(|(at, found)| *found == byte(at)), "{number}");
            answered += 1;
        }
        assert_eq!(answered, JOBS);
    }

    #[test]
    fn more_reads_than_places_on_a_ring() {
        for direct in [Direct::Always, Direct::Never] {
            more_reads_than_places(&SMALL_RING, direct);
        }
    }

    #[test]
    fn more_reads_than_places_in_linux_aio() {
        more_reads_than_places(&SMALL_AIO, Direct::Always);
    }

    #[test]
    fn numbers_have_names() {
        for description in ENGINES {
            assert_eq!(EngineId::of(description).name(), description.name);
        }
    }
}
