//! `posix-aio`: `aio_read` of the C library, driven by one thread.
//!
//! The C library makes the calls on its own threads, one per descriptor: a second request for the same
//! descriptor waits behind the first. So there is one request per file in progress, and the others wait in a
//! queue here, from which the requests of clients that have gone away are dropped. The owner sleeps in
//! `aio_suspend`, which waits for requests only. So a wake-up is a request too: a read from a pipe. Signals
//! are not used, because their queue overflows.
//!
//! A request in progress owns its file, its memory and its control block until it has been reaped.
//! `aio_cancel` is never called, as it cannot stop a thread that waits for the disk.
//!
//! glibc starts a helper thread whenever none is idle, up to a bound for the whole process that is 16 unless
//! set before the first request: a frozen device would take them all. It is set to a number that is never
//! reached ([`HELPERS_MAX`]), and requests are bounded here. Two limitations remain: if a thread cannot be
//! started (`ulimit -u`), requests wait for existing threads, frozen or not; and another user of `aio_read` in
//! this process may have set the bound first.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use super::async_read::{AsyncRead, Next, Request};
use super::command_queue::{Command, CommandQueue, QueueEngine, QueuedRead};
use super::contract::{Engine, StartContext, StartError, Unavailable};
use crate::memory::Buffer;
use crate::syscall::last_errno;
use crate::thread::DiskThread;

/// The maximum number of threads of the C library: more than the disks of one process have jobs.
#[cfg(target_env = "gnu")]
const HELPERS_MAX: libc::c_int = 16_384;

/// Delay before the next attempt when there is no memory for the request that wakes the owner.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Size of one read from the pipe, in bytes; a wake-up is 8 bytes.
const WAKE_BYTES: usize = 512;

pub(super) fn probe() -> Result<(), Unavailable> {
    tried().map_err(|error| Unavailable::from_error(&error))
}

/// Reads one byte from a pipe.
fn tried() -> io::Result<()> {
    raise_helpers_max();
    let (read, write) = pipe()?;
    let mut byte = [0];
    let control = Control::new();
    rustix::io::write(&write, &[7])?;
    // SAFETY: the descriptor and the byte are there until the request is done, just below.
    unsafe { control.read(read.as_raw_fd(), 0, byte.as_mut_ptr(), 1) }?;
    while !control.is_done() {
        suspend(&[control.0], None);
    }
    match control.result() {
        Ok(1) => Ok(()),
        Ok(_) => Err(Errno::IO.into()),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn start(context: &StartContext<'_>) -> Result<Box<dyn Engine>, StartError> {
    Owner::start(context)
        .map(|engine| Box::new(engine) as Box<dyn Engine>)
        .map_err(|error| context.unavailable(&error))
}

/// A pipe whose read end blocks and whose write end does not.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let flags = rustix::fs::fcntl_getfl(&write)?;
    rustix::fs::fcntl_setfl(&write, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// Has an effect only before the first request of the process.
#[cfg(target_env = "gnu")]
fn raise_helpers_max() {
    /// `struct aioinit` of glibc's `aio.h`.
    #[repr(C)]
    #[derive(Default)]
    struct AioInit {
        threads: libc::c_int,
        num: libc::c_int,
        locks: libc::c_int,
        usedba: libc::c_int,
        debug: libc::c_int,
        numusers: libc::c_int,
        idle_time: libc::c_int,
        reserved: libc::c_int,
    }
    unsafe extern "C" {
        fn aio_init(init: *const AioInit);
    }
    let init = AioInit {
        threads: HELPERS_MAX,
        ..AioInit::default()
    };
    // SAFETY: the structure is as the C library declares it, and read during the call only.
    unsafe { aio_init(&raw const init) };
}

/// musl has no bound: it starts a thread for each request.
#[cfg(not(target_env = "gnu"))]
fn raise_helpers_max() {}

/// A control block, which the C library reads and writes until the request is reaped. Leaks unless freed.
#[derive(Clone, Copy)]
struct Control(*mut libc::aiocb);

// SAFETY: the memory belongs to no particular thread; the C library writes to it from others.
unsafe impl Send for Control {}

impl Control {
    fn new() -> Control {
        // SAFETY: all zeroes is a valid `aiocb`. Its fields differ between C libraries.
        Control(Box::into_raw(Box::new(unsafe { mem::zeroed() })))
    }

    /// Starts a read.
    ///
    /// # Safety
    /// No request of this block may be in progress. `fd` and `len` bytes at `to` must stay valid until this
    /// request has been reaped.
    unsafe fn read(self, fd: RawFd, offset: u64, to: *mut u8, len: usize) -> Result<(), Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        // SAFETY: nobody else accesses the block, by the contract of this function.
        let control = unsafe { &mut *self.0 };
        control.aio_fildes = fd;
        control.aio_offset = offset;
        control.aio_buf = to.cast();
        control.aio_nbytes = len;
        control.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        // SAFETY: the block is complete, and its file and memory stay valid, by the contract of this function.
        match unsafe { libc::aio_read(self.0) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    fn is_done(self) -> bool {
        // SAFETY: a block that has been submitted.
        unsafe { libc::aio_error(self.0) != libc::EINPROGRESS }
    }

    /// The result of a request that is done. Call it once; then free or reuse the block.
    fn result(self) -> Result<usize, Errno> {
        // SAFETY: a block that has been submitted and is done, and has not been asked before.
        let (errno, count) = unsafe { (libc::aio_error(self.0), libc::aio_return(self.0)) };
        usize::try_from(count).map_err(|_| Errno::from_raw_os_error(errno))
    }

    /// # Safety
    /// No request of this block may be in progress, and no copy may be used afterwards.
    unsafe fn free(self) {
        // SAFETY: made by `new`, and not used elsewhere by the contract of this function.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Sleeps until one of the requests is done, at most for `timeout`. May return early.
fn suspend(requests: &[*mut libc::aiocb], timeout: Option<Duration>) {
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = requests.len() as libc::c_int;
    // SAFETY: `count` blocks that are alive, and a time or none.
    unsafe { libc::aio_suspend(requests.as_ptr().cast(), count, timeout) };
}

/// The request that completes when a command is waiting.
struct Wake {
    pipe: OwnedFd,
    control: Control,
    /// The memory that it reads into: not freed while the request is in progress.
    bytes: *mut [u8; WAKE_BYTES],
    armed: bool,
}

// SAFETY: the memory belongs to no particular thread, like that of a control block.
unsafe impl Send for Wake {}

impl Wake {
    fn new(pipe: OwnedFd) -> Wake {
        Wake {
            pipe,
            control: Control::new(),
            bytes: Box::into_raw(Box::new([0; WAKE_BYTES])),
            armed: false,
        }
    }

    /// Starts the request unless it is in progress. Returns whether it is in progress now.
    fn arm(&mut self) -> bool {
        if !self.armed {
            let fd = self.pipe.as_raw_fd();
            // SAFETY: not armed, so no request is in progress; pipe and memory stay until it has been reaped.
            let begun = unsafe { self.control.read(fd, 0, self.bytes.cast(), WAKE_BYTES) };
            self.armed = begun.is_ok();
        }
        self.armed
    }

    fn reap(&mut self) {
        if self.armed && self.control.is_done() {
            // The bytes do not matter: the commands are looked at on every turn.
            let _ = self.control.result();
            self.armed = false;
        }
    }

    /// Waits for the end of the request, after the pipe has been written to.
    fn finish(mut self) {
        while self.armed {
            suspend(&[self.control.0], None);
            self.reap();
        }
        // SAFETY: reaped; the copies of both are gone.
        unsafe {
            self.control.free();
            drop(Box::from_raw(self.bytes));
        }
    }
}

/// A request in progress, and its read. Leaks if dropped: after a panic the C library may still be writing.
struct InProgress {
    control: Control,
    read: ManuallyDrop<AsyncRead>,
}

/// The state of the thread that owns the requests.
struct Owner {
    commands: Arc<CommandQueue>,
    wake: Wake,
    /// Reads that wait for the bound on requests, in order.
    waiting: VecDeque<QueuedRead>,
    /// Reads that wait for their file, by its descriptor. There is a queue, possibly empty, while a request of the
    /// file is in progress. The reads hold the file, so its descriptor is not reused.
    queues_by_fd: HashMap<RawFd, VecDeque<QueuedRead>>,
    in_progress: Vec<InProgress>,
    reads_max: usize,
    stop: bool,
}

impl Owner {
    /// Starts the engine.
    fn start(context: &StartContext<'_>) -> io::Result<QueueEngine> {
        raise_helpers_max();
        let (wake, write) = pipe()?;
        let commands = CommandQueue::new(write, |_| true, context.pool);
        let owner = Owner {
            commands: Arc::clone(&commands),
            wake: Wake::new(wake),
            waiting: VecDeque::new(),
            queues_by_fd: HashMap::new(),
            in_progress: Vec::new(),
            reads_max: context.jobs_max,
            stop: false,
        };
        Ok(QueueEngine {
            commands,
            // The threads of the C library inherit the priority.
            owner: DiskThread::start("disk-aio", || owner.serve())?,
            note: None,
        })
    }

    fn serve(mut self) {
        loop {
            self.collect();
            self.begin();
            if self.stop && self.in_progress.is_empty() {
                break;
            }
            self.wait();
            self.wake.reap();
            self.reap();
        }
        // The last command has been taken: nobody else writes to the pipe.
        let _ = rustix::io::write(self.commands.wake(), &[0; 8]);
        self.wake.finish();
    }

    fn collect(&mut self) {
        for command in self.commands.take() {
            match command {
                Command::Read(read) => self.waiting.push_back(read),
                Command::Stop => self.stop = true,
            }
        }
    }

    /// Starts the reads whose file is free, up to the bound.
    fn begin(&mut self) {
        while self.in_progress.len() < self.reads_max
            && let Some(waiting) = self.waiting.pop_front()
        {
            let fd = waiting.file().as_fd().as_raw_fd();
            if let Some(queue) = self.queues_by_fd.get_mut(&fd) {
                queue.push_back(waiting);
            } else if let Some(read) = waiting.begin(Buffer::for_blocks) {
                self.queues_by_fd.insert(fd, VecDeque::new());
                self.submit(read, Control::new());
            }
        }
    }

    fn submit(&mut self, mut read: AsyncRead, control: Control) {
        if let Err(error) = read.file().clear_nonblocking() {
            return self.go_on(read, control, Next::Finish(Err(error)));
        }
        let Request { fd, offset, room } = read.request();
        let (to, len) = (room.as_mut_ptr().cast(), room.len());
        // SAFETY: the block is new or was reaped. The read owns the file and the memory, which does not move
        // with it, and is kept until the request has been reaped.
        match unsafe { control.read(fd, offset, to, len) } {
            Ok(()) => self.in_progress.push(InProgress {
                control,
                read: ManuallyDrop::new(read),
            }),
            Err(errno) => {
                let next = read.failed(errno);
                self.go_on(read, control, next);
            }
        }
    }

    /// Sleeps until a request is done or a command arrives.
    fn wait(&mut self) {
        let timeout = match self.wake.arm() {
            true => None,
            false => Some(RETRY_AFTER),
        };
        let in_progress = self.in_progress.iter().map(|one| one.control.0);
        let wake = self.wake.armed.then_some(self.wake.control.0);
        let requests: Vec<_> = in_progress.chain(wake).collect();
        match (requests.is_empty(), timeout) {
            (true, _) => thread::sleep(RETRY_AFTER),
            (false, timeout) => suspend(&requests, timeout),
        }
    }

    fn reap(&mut self) {
        let mut at = 0;
        while at < self.in_progress.len() {
            if self.in_progress[at].control.is_done() {
                let InProgress { control, read } = self.in_progress.swap_remove(at);
                let mut read = ManuallyDrop::into_inner(read);
                // SAFETY: the result is that of the completed request.
                let next = unsafe { read.completed(control.result()) };
                self.go_on(read, control, next);
            } else {
                at += 1;
            }
        }
    }

    fn go_on(&mut self, read: AsyncRead, control: Control, next: Next) {
        match next {
            Next::ReadOn => self.submit(read, control),
            Next::Fill => {
                self.end(&read, control);
                self.commands.to_pool(read);
            }
            Next::Finish(result) => {
                self.end(&read, control);
                read.finish(result);
            }
        }
    }

    /// Ends the requests of a read: the next read that queues for its file may start.
    fn end(&mut self, read: &AsyncRead, control: Control) {
        // SAFETY: never submitted, or reaped; the copy in `in_progress` is gone.
        unsafe { control.free() };
        let queue = self.queues_by_fd.remove(&read.file().as_fd().as_raw_fd());
        // In their order: the first starts, and the others queue again.
        for waiting in queue.into_iter().flatten().rev() {
            self.waiting.push_front(waiting);
        }
    }
}
