//! `io_uring`: reads on one ring, owned by one thread.
//!
//! The kernel copies a buffered read out of the page cache in the context of the ring's owner, and
//! submitting it allocates pages and starts readahead; so the owner is a thread of its own and not an
//! event loop. Opens stay with a pool: on a ring they and `statx` go to kernel worker threads anyway.
//! The pool passes an open file on to the ring for its first bytes, so the caller sees one trip.
//!
//! Files on which `RWF_NOWAIT` does not work (overlayfs, tmpfs, FUSE, another mount beneath the root)
//! are read by the pool too. A ring would hand each such read to a kernel worker thread, of which
//! there are few for all devices together: one frozen device could take them all.
//!
//! What comes past the page cache goes into memory that the kernel knows beforehand, as far as there is
//! some ([`registered`](crate::memory::registered) says why); without the right to have it, reads are ordinary ones.
//!
//! Never SQPOLL (it burns a processor), never `IOSQE_ASYNC` (it has started hundreds of threads).

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::async_read::{AsyncRead, Next, Request};
use super::command_queue::{Command, CommandQueue};
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::submitted::Submitted;
use super::ticket::{Ticket, Work};
use crate::files::OpenFile;
use crate::memory::registered::{self, RegisteredMemory, STEP_BYTES};
use crate::thread::lock;
use crate::thread::priority;

/// Submitted on the ring at least. The completion queue has twice as many, so it cannot overflow.
const PLACES_MIN: u32 = 128;

/// Kernel worker threads for the ring, bounded and unbounded; the default for the latter is in the
/// tens of thousands.
const KERNEL_WORKERS_MAX: u32 = 8;

/// Before asking again when the kernel has no memory for a request.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Which of the registered buffers: there is one.
const REGISTERED: u16 = 0;

/// `user_data` of the poll on the wake-up descriptor.
const WAKE: u64 = u64::MAX;

pub(super) fn probe() -> Result<(), Unavailable> {
    ring(PLACES_MIN)
        .map(drop)
        .map_err(|error| Unavailable::from_error(&error))
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    start_with(context, places(context.jobs_max))
}

pub(super) fn start_with(
    context: &StartContext<'_>,
    places: u32,
) -> Result<Box<dyn Engine>, StartError> {
    Ring::start(context, places)
        .map(|ring| Box::new(ring) as Box<dyn Engine>)
        .map_err(|error| context.unavailable(&error))
}

/// A ring with all that this file needs, for the calling thread.
fn ring(places: u32) -> io::Result<IoUring> {
    let ring = with_most_flags(places)?;
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    if !known.is_supported(opcode::Read::CODE) || !known.is_supported(opcode::PollAdd::CODE) {
        return Err(Errno::OPNOTSUPP.into());
    }
    let mut workers = [KERNEL_WORKERS_MAX; 2];
    ring.submitter().register_iowq_max_workers(&mut workers)?;
    Ok(ring)
}

/// A ring with as many of the three flags as this kernel knows.
fn with_most_flags(places: u32) -> io::Result<IoUring> {
    for flags in (1..=3).rev() {
        match with_flags(flags, places) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
    with_flags(0, places)
}

/// A ring with the oldest `flags` flags: COOP_TASKRUN came with Linux 5.19, SINGLE_ISSUER with 6.0,
/// DEFER_TASKRUN with 6.1.
fn with_flags(flags: usize, places: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork();
    if flags >= 1 {
        builder.setup_coop_taskrun();
    }
    if flags >= 2 {
        builder.setup_single_issuer();
    }
    if flags >= 3 {
        builder.setup_defer_taskrun();
    }
    builder.build(places)
}

/// Registers memory: `bytes` bytes, or as much of it as the limit on locked memory allows.
fn register(ring: &IoUring, bytes: usize) -> io::Result<Arc<RegisteredMemory>> {
    let registered = RegisteredMemory::new(bytes)?;
    // SAFETY: all of it is mapped, and the kernel holds on to the pages itself.
    match unsafe { ring.submitter().register_buffers(&[registered.as_iovec()]) } {
        Ok(()) => Ok(registered),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && bytes > STEP_BYTES => {
            register(ring, bytes - STEP_BYTES)
        }
        Err(error) => Err(error),
    }
}

/// One for each job, and for the wake-up.
fn places(jobs_max: usize) -> u32 {
    u32::try_from(jobs_max)
        .unwrap_or(PLACES_MIN)
        .saturating_add(1)
        .max(PLACES_MIN)
        .next_power_of_two()
}

/// The engine, as the scheduler sees it.
struct Ring {
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    note: Option<String>,
    owner: Mutex<Option<JoinHandle<()>>>,
}

impl Ring {
    fn start(context: &StartContext<'_>, places: u32) -> io::Result<Ring> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let commands = CommandQueue::new(rustix::event::eventfd(0, flags)?, OpenFile::reads_inline);
        let registered_bytes = registered::bytes_for(context.budget);
        let (owner, note) = Owner::spawn(&commands, context.pool, places, registered_bytes)?;
        Ok(Ring {
            commands,
            note,
            pool: Arc::clone(context.pool),
            owner: Mutex::new(Some(owner)),
        })
    }
}

impl Engine for Ring {
    fn submit(&self, work: Work) {
        self.commands.submit(work, &self.pool);
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn shutdown(&self) {
        self.commands.push(Command::Stop);
        if let Some(owner) = lock(&self.owner).take() {
            owner.join().expect("the owner of the ring does not panic");
        }
    }
}

/// Takes up a read, into registered memory if it comes past the page cache and there is a slot for it.
fn begin(work: Work, registered: Option<&Arc<RegisteredMemory>>) -> Option<AsyncRead> {
    AsyncRead::begin_in(work, |ticket: &mut Ticket, offset, len| match registered {
        Some(registered) => ticket.registered(registered, offset, len),
        None => ticket.blocks(offset, len),
    })
}

/// The request for what is still missing.
fn entry(read: &mut AsyncRead) -> squeue::Entry {
    let is_registered = read.is_registered();
    let Request { fd, offset, room } = read.request();
    let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
    let (fd, start) = (types::Fd(fd), room.as_mut_ptr().cast());
    if is_registered {
        let read = opcode::ReadFixed::new(fd, start, len, REGISTERED);
        return read.offset(offset).build();
    }
    opcode::Read::new(fd, start, len).offset(offset).build()
}

/// The thread that has the ring.
struct Owner {
    ring: IoUring,
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    /// What the ring has registered, if anything.
    registered: Option<Arc<RegisteredMemory>>,
    /// Waiting for a place on the ring: new ones, and those that came back short.
    waiting: VecDeque<AsyncRead>,
    on_ring: Submitted<AsyncRead>,
    /// All places but that of the wake-up.
    reads_max: usize,
    /// The wake-up descriptor is being polled.
    armed: bool,
    stop: bool,
}

impl Owner {
    /// Starts the thread. With it comes what there is to say about registered memory.
    fn spawn(
        commands: &Arc<CommandQueue>,
        pool: &Arc<Pool>,
        places: u32,
        registered_bytes: usize,
    ) -> io::Result<(JoinHandle<()>, Option<String>)> {
        let (commands, pool) = (Arc::clone(commands), Arc::clone(pool));
        let (started, has_started) = mpsc::channel();
        let builder = thread::Builder::new().name("disk-ring".to_owned());
        let thread = builder.spawn(move || {
            priority::set_for_disk();
            // Here, because the kernel ties a ring and its worker threads to the thread that asks.
            let mut owner = match ring(places) {
                Ok(ring) => Owner::new(ring, commands, pool),
                // Whoever started the thread waits for this.
                Err(error) => return drop(started.send(Err(error))),
            };
            let note = (registered_bytes > 0).then(|| owner.register(registered_bytes));
            let _ = started.send(Ok(note));
            owner.serve();
        })?;
        match has_started.recv() {
            Ok(result) => Ok((thread, result?)),
            Err(_) => Err(Errno::IO.into()),
        }
    }

    fn new(ring: IoUring, commands: Arc<CommandQueue>, pool: Arc<Pool>) -> Owner {
        Owner {
            reads_max: ring.params().sq_entries() as usize - 1,
            ring,
            commands,
            pool,
            registered: None,
            waiting: VecDeque::new(),
            on_ring: Submitted::new(),
            armed: false,
            stop: false,
        }
    }

    /// Gets registered memory, if that is allowed, and tells.
    fn register(&mut self, bytes: usize) -> String {
        match register(&self.ring, bytes) {
            Ok(registered) => {
                let mib = registered.as_iovec().iov_len >> 20;
                self.registered = Some(registered);
                format!("{mib} MiB of registered buffers")
            }
            Err(error) => {
                let why = Unavailable::from_error(&error);
                format!("no registered buffers ({why})")
            }
        }
    }

    fn serve(mut self) {
        loop {
            self.collect();
            self.push();
            if self.stop && self.on_ring.is_empty() {
                return;
            }
            self.wait();
            self.reap();
        }
    }

    fn collect(&mut self) {
        for command in self.commands.take() {
            match command {
                Command::Work(work) => self.waiting.extend(begin(work, self.registered.as_ref())),
                Command::Read(read) => self.waiting.push_back(read),
                Command::Stop => self.stop = true,
            }
        }
    }

    /// Fills the submission queue.
    fn push(&mut self) {
        if !self.armed {
            let fd = types::Fd(self.commands.wake().as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            // SAFETY: the descriptor lives as long as the ring, and there is no memory.
            self.armed = unsafe { push(&mut self.ring, poll.user_data(WAKE)) };
        }
        while self.on_ring.len() < self.reads_max
            && let Some(read) = self.waiting.pop_front()
        {
            self.push_read(read);
        }
    }

    fn push_read(&mut self, mut read: AsyncRead) {
        if let Err(error) = read.file().clear_nonblocking() {
            return read.finish(Err(error));
        }
        let entry = entry(&mut read);
        let slot = self.on_ring.insert(read);
        // SAFETY: the file and the buffer stay in their slot until the completion has been seen, and
        // the buffer's memory does not move with it.
        let pushed = unsafe { push(&mut self.ring, entry.user_data(slot)) };
        if !pushed {
            self.waiting.extend(self.on_ring.remove(slot));
        }
    }

    /// Submits, and sleeps until something has completed or someone has written.
    fn wait(&mut self) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EAGAIN, EBUSY: no memory for requests, or completions to be fetched first.
            Err(_) if self.ring.completion().is_empty() => thread::sleep(RETRY_AFTER),
            Err(_) => {}
        }
    }

    fn reap(&mut self) {
        let completions = self.ring.completion();
        let done: Vec<_> = completions.map(|c| (c.user_data(), c.result())).collect();
        for (user_data, result) in done {
            if user_data == WAKE {
                self.woken();
            } else if let Some(read) = self.on_ring.remove(user_data) {
                self.completed(read, result);
            }
        }
    }

    fn woken(&mut self) {
        self.armed = false;
        // Nothing to read is fine: the commands are looked at on every turn.
        let _ = rustix::io::read(self.commands.wake(), &mut [0; 8]);
    }

    fn completed(&mut self, mut read: AsyncRead, result: i32) {
        let next = match usize::try_from(result) {
            // SAFETY: the completion of the request says so.
            Ok(count) => Ok(unsafe { read.written(count) }),
            Err(_) => read.failed(Errno::from_raw_os_error(-result)),
        };
        match next {
            // Short, perhaps where the cached part ended: before the others, as it has waited longest.
            Ok(Next::ReadOn) => self.waiting.push_front(read),
            Ok(Next::Fill) => self.pool.submit(Queue::Read, || read.fill()),
            Ok(Next::Finish) => read.finish(Ok(())),
            Err(errno) => read.finish(Err(errno.into())),
        }
    }
}

/// Puts an entry on the submission queue; whether there was room.
///
/// # Safety
/// What the entry points to must stay valid until its completion has been seen.
unsafe fn push(ring: &mut IoUring, entry: squeue::Entry) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { ring.submission().push(&entry) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Root, Symlinks};
    use crate::job::{Class, Completion, Direct, Done, Job, Op, Ready, Reply};
    use crate::{Disk, Settings};

    struct Channel(mpsc::Sender<Completion>);

    impl Reply for Channel {
        fn is_awaited(&self) -> bool {
            true
        }

        fn send(self: Box<Self>, completion: Completion) {
            self.0.send(completion).unwrap();
        }
    }

    /// As many reads as there are slots, again and again; those beyond are ordinary ones.
    #[test]
    fn reads_have_registered_memory() {
        const LEN: usize = 512 << 10;
        const SLOTS: usize = 3;
        let disk = match Disk::start(Settings {
            engine: "io_uring".to_owned(),
            ..Settings::default()
        }) {
            Ok(disk) if disk.reason().contains("; 2 MiB of registered") => disk,
            _ => return,
        };
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("file"), vec![7; LEN + 1]).unwrap();
        let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
        let file = root.open_cached(c"file").unwrap();
        for _ in 0..3 {
            let mut held = Vec::new();
            for number in 0..SLOTS + 2 {
                let op = Op::Read {
                    file: Arc::clone(&file),
                    offset: 1,
                    len: LEN,
                };
                let (send, received) = mpsc::channel();
                let mut job = Job::new(op, Class::Next, Box::new(Channel(send)));
                job.options.direct = Direct::Always;
                disk.submit(job);
                let completion = received.recv().unwrap();
                let Ok(Done::Read(Ready::Bytes(bytes), _)) = completion.result else {
                    panic!("{completion:?}");
                };
                assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == 7));
                if file.reads_inline() && file.direct().is_some() {
                    assert_eq!(bytes.is_registered(), number < SLOTS, "{number}");
                }
                held.push(bytes);
            }
        }
    }

    /// Old kernels have fewer flags; a ring of this one works with any number of them.
    #[test]
    fn a_ring_needs_no_flags() {
        if probe().is_err() {
            return;
        }
        for flags in 0..=3 {
            let mut ring = with_flags(flags, PLACES_MIN).unwrap();
            let nop = opcode::Nop::new().build().user_data(7);
            // SAFETY: a nop points to nothing.
            assert!(unsafe { push(&mut ring, nop) });
            ring.submit_and_wait(1).unwrap();
            let done: Vec<_> = ring.completion().map(|c| c.user_data()).collect();
            assert_eq!(done, [7], "{flags} flags");
        }
    }
}
