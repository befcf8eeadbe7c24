//! `linux-aio`: reads past the page cache by `io_submit`, into memory that `sendfile` sends from.
//!
//! The kernel's own asynchronous reads work with `O_DIRECT` only (a buffered one would be made while it
//! is submitted), so this engine does what [`Direct`](crate::Direct) says is to come past the page
//! cache: large files that only one stream has asked for, or everything under `always`. Such a read
//! goes from the device into a slot of a memory file, and from there to the socket: no processor
//! touches its bytes on the way. All else is left to the pool, as `threads` does it: opens with their
//! first bytes, first chunks, small files, what many ask for, and file systems that cannot say whether a
//! read would wait or know no `O_DIRECT`.
//!
//! One thread submits, because that may allocate memory and look up blocks, and reaps, told by an
//! eventfd. It also gives new pages to the slots that come back ([`arena`](crate::memory::arena) says why). It
//! never waits for the disk: `RWF_NOWAIT` makes the kernel refuse what would, and the pool does that in
//! its place, into the same slot. Heads and tails that are no whole blocks are read with the blocks
//! around them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crossbeam_queue::SegQueue;
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::async_read::{self, AsyncRead, Next};
use super::blocking;
use super::contract::{Engine, StartContext, StartError, Unavailable};
use super::pool::{Pool, Queue};
use super::submitted::Submitted;
use super::ticket::{Ticket, Work};
use crate::job::Op;
use crate::memory::arena::{self, Arena, SlotAllocator};
use crate::syscall::aio::{Completed, Context, Request};
use crate::thread::lock;
use crate::thread::priority;

/// Requests that the kernel is given at once, at least.
const PLACES_MIN: usize = 128;

pub(super) fn probe() -> Result<(), Unavailable> {
    Context::new(1).map_err(|error| unavailable(&error))?;
    arena::probe().map_err(|error| unavailable(&error))
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    start_with(context, context.jobs_max.max(PLACES_MIN))
}

pub(super) fn start_with(
    context: &StartContext<'_>,
    places: usize,
) -> Result<Box<dyn Engine>, StartError> {
    match Aio::start(context, places) {
        Ok(aio) => Ok(Box::new(aio)),
        Err(error) => Err(StartError::Unavailable {
            engine: context.name,
            why: unavailable(&error),
        }),
    }
}

/// What to do about an error from `io_setup`, or from making the memory file.
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

/// The engine, as the scheduler sees it.
struct Aio {
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    owner: Mutex<Option<JoinHandle<()>>>,
}

impl Aio {
    fn start(context: &StartContext<'_>, places: usize) -> io::Result<Aio> {
        let commands = Arc::new(CommandQueue::new()?);
        let to_owner = Arc::clone(&commands);
        let arena = Arena::new(context.budget, Box::new(move || to_owner.ring()))?;
        let owner = Owner {
            context: Context::new(u32::try_from(places).unwrap_or(u32::MAX))?,
            allocator: SlotAllocator::new(Arc::clone(&arena)),
            arena,
            commands: Arc::clone(&commands),
            pool: Arc::clone(context.pool),
            waiting: VecDeque::new(),
            submitted: Submitted::new(),
            places,
            stop: false,
        };
        let thread = thread::Builder::new()
            .name("disk-linux-aio".to_owned())
            .spawn(move || {
                priority::set_for_disk();
                owner.serve();
            })?;
        Ok(Aio {
            commands,
            pool: Arc::clone(context.pool),
            owner: Mutex::new(Some(thread)),
        })
    }
}

impl Engine for Aio {
    fn submit(&self, work: Work) {
        if is_for_the_owner(&work) {
            return self.commands.push(Command::Work(work));
        }
        let queue = Queue::of(work.op());
        self.pool.submit(queue, || in_pool(work));
    }

    fn shutdown(&self) {
        self.commands.push(Command::Stop);
        if let Some(owner) = lock(&self.owner).take() {
            owner.join().expect("the owner does not panic");
        }
    }
}

/// Reads that may turn out to be past the page cache, of files whose second descriptor can be opened
/// without a wait.
fn is_for_the_owner(work: &Work) -> bool {
    work.reads_directly() && matches!(work.op(), Op::Read { file, .. } if file.reads_inline())
}

fn in_pool(work: Work) {
    if let Some((op, mut ticket)) = work.begin() {
        let result = blocking::perform(op, &mut ticket);
        ticket.finish(result);
    }
}

/// How other threads reach the owner: without a lock, because event loops give slots back, and with a
/// system call only if it sleeps. See [`Parker`](crate::Parker) for why no wake-up is lost; this one sleeps in
/// a descriptor, which the kernel writes to as well.
struct CommandQueue {
    queue: SegQueue<Command>,
    asleep: AtomicBool,
    /// An eventfd. Reads of it block.
    wake: OwnedFd,
}

enum Command {
    Work(Work),
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
        self.ring();
    }

    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // Would wait only if the counter were at its end, which is 2^64 away.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Until someone has rung or a read is over, unless there is work. May return early.
    fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            // EINTR is an early return.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// The thread that submits and reaps.
struct Owner {
    context: Context,
    allocator: SlotAllocator,
    arena: Arc<Arena>,
    commands: Arc<CommandQueue>,
    pool: Arc<Pool>,
    /// Waiting for a place in the kernel.
    waiting: VecDeque<AsyncRead>,
    submitted: Submitted<AsyncRead>,
    /// How many it may have at most.
    places: usize,
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
            let (commands, arena) = (&self.commands, &self.arena);
            commands.sleep_unless(|| !commands.queue.is_empty() || arena.has_returned());
            while self.context.fetch(&mut completed) {}
            for completed in completed.drain(..) {
                self.completed(completed);
            }
        }
    }

    fn take_commands(&mut self) {
        while let Some(command) = self.commands.queue.pop() {
            match command {
                Command::Work(work) => self.begin(work),
                Command::Stop => self.stop = true,
            }
        }
    }

    fn begin(&mut self, work: Work) {
        let allocator = &mut self.allocator;
        let slot = |ticket: &mut Ticket, offset, len| ticket.slot(allocator, offset, len);
        self.waiting.extend(AsyncRead::begin_in(work, slot));
    }

    /// Gives the kernel what waits, as far as there are places.
    fn submit(&mut self) {
        while self.submitted.len() < self.places
            && let Some(read) = self.waiting.pop_front()
        {
            if let Some(read) = self.submit_one(read) {
                self.waiting.push_front(read);
                return;
            }
        }
    }

    /// Gives the read back when the kernel has no place for it, and will have one.
    fn submit_one(&mut self, mut read: AsyncRead) -> Option<AsyncRead> {
        let Some(request) = self.request(&mut read) else {
            self.to_pool(read);
            return None;
        };
        let number = self.submitted.insert(read);
        // SAFETY: the file and the buffer stay in their place until the completion has been seen, and
        // the buffer's memory does not move with it.
        let refused = unsafe { self.context.submit(request.numbered(number)) }.err()?;
        let read = self.submitted.remove(number)?;
        if refused == Errno::AGAIN && !self.submitted.is_empty() {
            return Some(read);
        }
        self.to_pool(read);
        None
    }

    /// `None` when it is to be read in another way.
    fn request(&self, read: &mut AsyncRead) -> Option<Request> {
        let async_read::Request { fd, offset, room } = read.request();
        let request = Request::read(fd, offset, room, self.commands.wake.as_fd())?;
        read.is_direct().then_some(request)
    }

    /// Waiting is for others.
    fn to_pool(&self, read: AsyncRead) {
        self.pool.submit(Queue::Read, || read.fill());
    }

    fn completed(&mut self, (number, result): Completed) {
        let Some(mut read) = self.submitted.remove(number) else {
            return;
        };
        let next = match result {
            // SAFETY: the completion of the request that `request` made says so.
            Ok(count) => Ok(unsafe { read.written(count) }),
            Err(errno) => read.failed(errno),
        };
        match next {
            // Before the others, as it has waited longest.
            Ok(Next::ReadOn) => self.waiting.push_front(read),
            // It would have to wait, or the kernel does not know whether, or the file ends.
            Ok(Next::Fill) => self.to_pool(read),
            Ok(Next::Finish) => read.finish(Ok(())),
            Err(errno) => read.finish(Err(errno.into())),
        }
    }
}
