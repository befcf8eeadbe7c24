//! `io_uring`: reads on one ring, owned by one thread.
//!
//! The kernel copies a buffered read from the page cache on the thread that owns the ring, and the submission
//! allocates pages and starts readahead. So the owner is a separate thread and not an event loop. Opens are
//! made by the pool: on a ring they and `statx` go to kernel worker threads anyway. The pool passes the read
//! of an open on to the ring.
//!
//! Files on which `RWF_NOWAIT` does not work (overlayfs, tmpfs, FUSE, another mount beneath the root) are read
//! by the pool too. A ring would pass each such read to a kernel worker thread, of which there are few for all
//! devices together: one frozen device could take them all.
//!
//! Reads past the page cache go into registered memory while there is some, see
//! [`registered`](crate::memory::registered). If the process may not register memory, they are ordinary reads.
//!
//! SQPOLL is not used, because it takes a whole processor, nor `IOSQE_ASYNC`, because it has started hundreds of
//! threads.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use slab::Slab;

use super::async_read::{AsyncRead, Next, Request};
use super::command_queue::{Command, CommandQueue, QueueEngine, QueuedRead};
use super::contract::{Engine, StartContext, StartError, Unavailable};
use crate::files::OpenFile;
use crate::memory::Buffer;
use crate::memory::registered::{self, RegisteredMemory, STEP_BYTES};
use crate::thread::DiskThread;

/// Lower bound on the entries of the submission queue. The completion queue has twice as many, so it cannot
/// overflow.
const ENTRIES_MIN: u32 = 128;

/// Bound on the kernel worker threads of the ring, both bounded and unbounded ones. The default for the latter
/// is tens of thousands.
const KERNEL_WORKERS_MAX: u32 = 8;

/// Delay before the next attempt when the kernel has no memory for a request.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The index of the only registered buffer.
const REGISTERED: u16 = 0;

/// `user_data` of the poll on the wake-up descriptor.
const WAKE: u64 = u64::MAX;

pub(super) fn probe() -> Result<(), Unavailable> {
    ring(ENTRIES_MIN)
        .map(drop)
        .map_err(|error| Unavailable::from_error(&error))
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    start_with(context, entries(context.jobs_max))
}

pub(super) fn start_with(
    context: &StartContext<'_>,
    entries: u32,
) -> Result<Box<dyn Engine>, StartError> {
    Owner::start(context, entries)
        .map(|engine| Box::new(engine) as Box<dyn Engine>)
        .map_err(|error| context.unavailable(&error))
}

/// Makes a ring for the calling thread, and checks that it supports the operations used here.
fn ring(entries: u32) -> io::Result<IoUring> {
    let ring = with_most_flags(entries)?;
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    if !known.is_supported(opcode::Read::CODE) || !known.is_supported(opcode::PollAdd::CODE) {
        return Err(Errno::OPNOTSUPP.into());
    }
    let mut workers = [KERNEL_WORKERS_MAX; 2];
    ring.submitter().register_iowq_max_workers(&mut workers)?;
    Ok(ring)
}

/// Makes a ring with as many of the three flags as the kernel supports.
fn with_most_flags(entries: u32) -> io::Result<IoUring> {
    for flags in (1..=3).rev() {
        match with_flags(flags, entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
    with_flags(0, entries)
}

/// Makes a ring with the oldest `flags` flags: COOP_TASKRUN is from Linux 5.19, SINGLE_ISSUER from 6.0,
/// DEFER_TASKRUN from 6.1.
fn with_flags(flags: usize, entries: u32) -> io::Result<IoUring> {
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
    builder.build(entries)
}

/// Registers `bytes` bytes of memory, or as many as the limit on locked memory allows.
fn register(ring: &IoUring, bytes: usize) -> io::Result<Arc<RegisteredMemory>> {
    let registered = RegisteredMemory::new(bytes)?;
    // SAFETY: all of it is mapped, and the kernel holds references to the pages.
    match unsafe { ring.submitter().register_buffers(&[registered.as_iovec()]) } {
        Ok(()) => Ok(registered),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && bytes > STEP_BYTES => {
            register(ring, bytes - STEP_BYTES)
        }
        Err(error) => Err(error),
    }
}

/// Entries of the submission queue: one for each job, and one for the wake-up.
fn entries(jobs_max: usize) -> u32 {
    u32::try_from(jobs_max)
        .unwrap_or(ENTRIES_MIN)
        .saturating_add(1)
        .max(ENTRIES_MIN)
        .next_power_of_two()
}

/// The request for the missing bytes.
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

/// The state of the thread that owns the ring.
struct Owner {
    ring: IoUring,
    commands: Arc<CommandQueue>,
    /// The registered memory, if any.
    registered: Option<Arc<RegisteredMemory>>,
    /// Reads to submit: new ones, and those that completed short.
    waiting: VecDeque<AsyncRead>,
    /// Reads that the kernel has, and the memory that it writes to, until their completion has been seen. Leaked
    /// after a panic, when the kernel may still be writing.
    on_ring: Slab<ManuallyDrop<AsyncRead>>,
    /// Bound on `on_ring`: one entry is for the wake-up.
    reads_max: usize,
    /// The wake-up descriptor is being polled.
    armed: bool,
    stop: bool,
}

impl Owner {
    /// Starts the engine.
    fn start(context: &StartContext<'_>, entries: u32) -> io::Result<QueueEngine> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let commands = CommandQueue::new(wake, OpenFile::reads_inline, context.pool);
        let registered_bytes = registered::bytes_for(context.budget);
        let (started, has_started) = mpsc::channel();
        let to_owner = Arc::clone(&commands);
        let owner = DiskThread::start("disk-ring", move || {
            // On this thread, because a ring and its worker threads belong to the thread that makes it.
            let mut owner = match ring(entries) {
                Ok(ring) => Owner::new(ring, to_owner),
                // The starting thread waits for this.
                Err(error) => return drop(started.send(Err(error))),
            };
            let note = (registered_bytes > 0).then(|| owner.register(registered_bytes));
            let _ = started.send(Ok(note));
            owner.serve();
        })?;
        let note = has_started.recv().map_err(|_| Errno::IO)??;
        Ok(QueueEngine {
            commands,
            owner,
            note,
        })
    }

    fn new(ring: IoUring, commands: Arc<CommandQueue>) -> Owner {
        Owner {
            reads_max: ring.params().sq_entries() as usize - 1,
            ring,
            commands,
            registered: None,
            waiting: VecDeque::new(),
            on_ring: Slab::new(),
            armed: false,
            stop: false,
        }
    }

    /// Registers memory, if that is allowed. Returns a note about it.
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
                Command::Read(read) => self.begin(read),
                Command::Stop => self.stop = true,
            }
        }
    }

    /// A read past the page cache goes into registered memory if a slot is free.
    fn begin(&mut self, read: QueuedRead) {
        let registered = self.registered.as_ref();
        let read = read.begin(|memory, offset, len| match registered {
            Some(registered) => Buffer::in_registered(memory, registered, offset, len),
            None => Buffer::for_blocks(memory, offset, len),
        });
        self.waiting.extend(read);
    }

    /// Fills the submission queue.
    fn push(&mut self) {
        if !self.armed {
            let fd = types::Fd(self.commands.wake().as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            // SAFETY: the descriptor lives as long as the ring, and the request has no memory.
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
        let slot = self.on_ring.insert(ManuallyDrop::new(read));
        // SAFETY: the file and the buffer stay in `on_ring` until the completion has been seen, and the
        // memory of the buffer does not move with it.
        let pushed = unsafe { push(&mut self.ring, entry.user_data(slot as u64)) };
        if !pushed {
            let read = self.on_ring.remove(slot);
            self.waiting.push_back(ManuallyDrop::into_inner(read));
        }
    }

    /// Submits, and sleeps until a read completes or a command arrives.
    fn wait(&mut self) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EAGAIN, EBUSY: no memory for requests, or completions have to be fetched first.
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
            } else if let Some(read) = self.on_ring.try_remove(user_data as usize) {
                self.completed(ManuallyDrop::into_inner(read), result);
            }
        }
    }

    fn woken(&mut self) {
        self.armed = false;
        // Fails if there is nothing to read: the commands are looked at on every turn anyway.
        let _ = rustix::io::read(self.commands.wake(), &mut [0; 8]);
    }

    fn completed(&mut self, mut read: AsyncRead, result: i32) {
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        // SAFETY: the result is that of the completed request.
        match unsafe { read.completed(result) } {
            // Short, for example at the end of the cached part: before the others, as it has waited longest.
            Next::ReadOn => self.waiting.push_front(read),
            Next::Fill => self.commands.to_pool(read),
            Next::Finish(result) => read.finish(result),
        }
    }
}

/// Puts an entry on the submission queue. Returns whether there was room.
///
/// # Safety
/// The memory of the request must stay valid until its completion has been seen.
unsafe fn push(ring: &mut IoUring, entry: squeue::Entry) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { ring.submission().push(&entry) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Root, Symlinks};
    use crate::job::{Class, Completion, Direct, Done, Job, Ready, Reply, op};
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

    /// More reads than there are slots: the surplus are ordinary reads.
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
                let op = op::Read {
                    file: Arc::clone(&file),
                    offset: 1,
                    len: LEN,
                };
                let (send, received) = mpsc::channel();
                let mut job = Job::new(op, Class::Later, Box::new(Channel(send)));
                job.options.direct = Direct::Always;
                disk.submit(job);
                let completion = received.recv().unwrap();
                let Ok(Done::Read((Ready::Bytes(bytes), _))) = completion.result else {
                    panic!("{completion:?}");
                };
                assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == 7));
                if file.reads_inline() && file.direct_fd().is_some() {
                    assert_eq!(bytes.is_registered(), number < SLOTS, "{number}");
                }
                held.push(bytes);
            }
        }
    }

    /// Old kernels support fewer flags: a ring works with any number of them.
    #[test]
    fn a_ring_needs_no_flags() {
        if probe().is_err() {
            return;
        }
        for flags in 0..=3 {
            let mut ring = with_flags(flags, ENTRIES_MIN).unwrap();
            let nop = opcode::Nop::new().build().user_data(7);
            // SAFETY: a nop points to nothing.
            assert!(unsafe { push(&mut ring, nop) });
            ring.submit_and_wait(1).unwrap();
            let done: Vec<_> = ring.completion().map(|c| c.user_data()).collect();
            assert_eq!(done, [7], "{flags} flags");
        }
    }
}
