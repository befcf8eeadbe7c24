//! `linux-aio`: reads past the page cache by `io_submit`, into memory that `sendfile` sends from.
//!
//! The kernel's asynchronous reads work with `O_DIRECT` only (a buffered read would be made during the
//! submission). So this engine makes the reads that go past the page cache, see [`Direct`](crate::Direct):
//! large files that only one stream has asked for, or everything under `always`. Such a read goes from the
//! device into a slot of a memory file, and from there to the socket: no processor touches the bytes. All
//! other operations are left to the pool, as in `threads`: opens with their first bytes, first chunks, small
//! files, files that many ask for, and file systems that cannot tell whether a read would block or do not
//! support `O_DIRECT`.
//!
//! One thread submits, because a submission may allocate memory and look up blocks, and reaps, notified by an
//! eventfd. It also gives new pages to returned slots, see [`arena`](crate::memory::arena). It never waits
//! for the disk: with `RWF_NOWAIT` the kernel refuses a read that would block, and the pool makes it instead,
//! into the same slot. Bytes before and after whole blocks are read with the blocks that contain them.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_queue::SegQueue;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use slab::Slab;

use super::async_read::{self, AsyncRead, Next};
use super::blocking;
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::ticket::WorkItem;
use crate::job::op;
use crate::memory::Buffer;
use crate::memory::arena::{self, Arena, SlotAllocator};
use crate::syscall::aio::{Completed, Context, Request};
use crate::thread::DiskThread;

/// Lower bound on the requests in the kernel at once.
const REQUESTS_MIN: usize = 128;

pub(super) fn probe() -> Result<(), Unavailable> {
    Context::new(1).map_err(|error| unavailable(&error))?;
    arena::probe().map_err(|error| unavailable(&error))
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    start_with(context, context.jobs_max.max(REQUESTS_MIN))
}

pub(super) fn start_with(
    context: &StartContext<'_>,
    requests_max: usize,
) -> Result<Box<dyn Engine>, StartError> {
    match Aio::start(context, requests_max) {
        Ok(aio) => Ok(Box::new(aio)),
        Err(error) => Err(StartError::Unavailable {
            engine: context.name,
            why: unavailable(&error),
        }),
    }
}

/// Why the engine cannot run, for an error from `io_setup` or from making the memory file.
fn unavailable(error: &io::Error) -> Unavailable {
    let general = Unavailable::from_error(error);
    let hint = match Errno::from_raw_os_error(general.errno) {
        Errno::AGAIN => "raise the sysctl fs.aio-max-nr (fs.aio-nr is what all processes have)",
        Errno::PERM | Errno::ACCESS => "a seccomp filter forbids it",
        Errno::NOSYS => "this kernel was built without CONFIG_AIO",
        Errno::FBIG => "raise the limit on the size of files (ulimit -f, LimitFSIZE=)",
        Errno::NOMEM => "raise the limit on addresses (ulimit -v, LimitAS=)",
        _ => general.hint,
    };
    Unavailable { hint, ..general }
}

/// The engine.
struct Aio {
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    owner: DiskThread,
}

impl Aio {
    fn start(context: &StartContext<'_>, requests_max: usize) -> io::Result<Aio> {
        let commands = Arc::new(CommandQueue::new()?);
        let to_owner = Arc::clone(&commands);
        let arena = Arena::new(context.budget, Box::new(move || to_owner.wake()))?;
        let owner = Owner {
            context: Context::new(u32::try_from(requests_max).unwrap_or(u32::MAX))?,
            allocator: SlotAllocator::new(arena),
            commands: Arc::clone(&commands),
            pool: Arc::clone(context.pool),
            waiting: VecDeque::new(),
            submitted: Slab::new(),
            requests_max,
            stop: false,
        };
        Ok(Aio {
            commands,
            pool: Arc::clone(context.pool),
            owner: DiskThread::start("disk-linux-aio", || owner.serve())?,
        })
    }
}

impl Engine for Aio {
    fn submit(&self, work: WorkItem) {
        // The owner reads past the page cache, and must be able to open the second descriptor without blocking.
        let is_direct = work.is_direct_read();
        match work.into_read(|file| is_direct && file.reads_inline()) {
            Ok(read) => self.commands.push(Command::Read(read)),
            Err(work) => {
                let queue = Queue::of(work.op());
                self.pool.submit(queue, || work.run(blocking::perform));
            }
        }
    }

    fn shutdown(&self) {
        self.commands.push(Command::Stop);
        self.owner.join();
    }
}

/// The queue to the owner. Lock-free, because event loops return slots, and with a system call only if the owner
/// sleeps. [`Parker`](crate::Parker) says why no wake-up is lost; here the owner sleeps in a read of a
/// descriptor that the kernel writes to as well.
struct CommandQueue {
    queue: SegQueue<Command>,
    asleep: AtomicBool,
    /// An eventfd. Reads block.
    wake: OwnedFd,
}

enum Command {
    Read(WorkItem<op::Read>),
    Stop,
}

impl CommandQueue {
    fn new() -> io::Result<CommandQueue> {
        Ok(CommandQueue {
            queue: SegQueue::new(),
            asleep: AtomicBool::new(false),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    fn push(&self, command: Command) {
        self.queue.push(command);
        self.wake();
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // Would block only if the counter were at its maximum of 2^64.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until woken or until a read completes, unless `has_work`. May return early.
    fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            // EINTR: an early return.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// The state of the thread that submits and reaps.
struct Owner {
    context: Context,
    allocator: SlotAllocator,
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    /// Reads to submit.
    waiting: VecDeque<AsyncRead>,
    /// Reads that the kernel has, and the memory that it writes to, until their completion has been seen. Leaked
    /// after a panic, when the kernel may still be writing.
    submitted: Slab<ManuallyDrop<AsyncRead>>,
    /// Bound on `submitted`.
    requests_max: usize,
    stop: bool,
}

impl Owner {
    fn serve(mut self) {
        let mut completed = Vec::new();
        loop {
            self.allocator.collect();
            self.take_commands();
            self.submit();
            if self.stop && self.submitted.is_empty() {
                return;
            }
            let (commands, allocator) = (&self.commands, &self.allocator);
            commands.sleep_unless(|| !commands.queue.is_empty() || allocator.has_returned());
            while self.context.fetch(&mut completed) {}
            for completed in completed.drain(..) {
                self.completed(completed);
            }
        }
    }

    fn take_commands(&mut self) {
        while let Some(command) = self.commands.queue.pop() {
            match command {
                Command::Read(work) => self.begin(work),
                Command::Stop => self.stop = true,
            }
        }
    }

    fn begin(&mut self, work: WorkItem<op::Read>) {
        let allocator = &mut self.allocator;
        let slot = |memory, offset, len| Buffer::in_slot(memory, allocator, offset, len);
        self.waiting.extend(AsyncRead::begin(work, slot));
    }

    /// Submits the waiting reads, up to the bound.
    fn submit(&mut self) {
        while self.submitted.len() < self.requests_max
            && let Some(read) = self.waiting.pop_front()
        {
            if let Some(read) = self.submit_one(read) {
                self.waiting.push_front(read);
                return;
            }
        }
    }

    /// Returns the read if the kernel cannot take it now, but will after a completion.
    fn submit_one(&mut self, mut read: AsyncRead) -> Option<AsyncRead> {
        let Some(request) = self.request(&mut read) else {
            self.to_pool(read);
            return None;
        };
        let number = self.submitted.insert(ManuallyDrop::new(read));
        // SAFETY: the file and the buffer stay in `submitted` until the completion has been seen, and the
        // memory of the buffer does not move with it.
        let refused = unsafe { self.context.submit(request, number as u64) }.err()?;
        let read = ManuallyDrop::into_inner(self.submitted.remove(number));
        if refused == Errno::AGAIN && !self.submitted.is_empty() {
            return Some(read);
        }
        self.to_pool(read);
        None
    }

    /// `None` if the pool has to make the read.
    fn request(&self, read: &mut AsyncRead) -> Option<Request> {
        let async_read::Request { fd, offset, room } = read.request();
        let request = Request::read(fd, offset, room, self.commands.wake.as_fd())?;
        read.is_direct().then_some(request)
    }

    /// Leaves a blocking read to the pool.
    fn to_pool(&self, read: AsyncRead) {
        self.pool.submit(Queue::Read, || read.fill());
    }

    fn completed(&mut self, (number, result): Completed) {
        let Some(read) = self.submitted.try_remove(number as usize) else {
            return;
        };
        let mut read = ManuallyDrop::into_inner(read);
        // SAFETY: the result is that of the completed request.
        match unsafe { read.completed(result) } {
            // Before the others, as it has waited longest.
            Next::ReadOn => self.waiting.push_front(read),
            // It would block, or the kernel cannot tell whether it would, or the file ends.
            Next::Fill => self.to_pool(read),
            Next::Finish(result) => read.finish(result),
        }
    }
}
