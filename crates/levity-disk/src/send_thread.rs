//! Sends files from the page cache to sockets, on a thread of its own.
//!
//! `sendfile` hands pages to a socket without a copy, which halves the cost of a large file. It may also wait for the
//! disk: a page that was in memory a moment ago may have been evicted, and no flag makes the call fail instead. So an
//! event loop leaves it to this thread, and copies the bytes itself while the thread waits.
//!
//! The thread serves its sockets in turn and waits for those whose send buffer is full. The loop hears of a transfer
//! when that ends, because a switch between the threads costs as much as sending 100 KiB.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::{ArrayQueue, SegQueue};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use slab::Slab;

use crate::files::{Meta, OpenFile};
use crate::syscall;
use crate::transmit;

/// The bytes of a turn, where several transfers take turns. The processor's caches keep what the kernel needs for so
/// many pages; twice as many cost up to a fifth more.
const SHARED_TURN_BYTES: usize = 128 * 1024;

/// The bytes of a turn of the only transfer that can continue.
const TURN_BYTES: usize = 512 * 1024;

/// The maximum number of turns between two looks at the sockets that were full.
const TURNS_MAX: usize = 8;

/// The maximum time of a transfer, so that the loop sees the progress of a slow client.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The time after which a transfer that has begun has ended, unless the thread waits for a disk.
/// One that waits for its socket is looked at every `CHECK_INTERVAL`.
pub const TRANSFER_TIME_MAX: Duration = TIME_MAX.saturating_add(CHECK_INTERVAL.saturating_mul(2));

/// How often the transfers whose sockets are full are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of events that are taken at once.
const EVENTS_MAX: usize = 64;

/// The key of the eventfd; others are indexes of waiting transfers.
const WAKE: u64 = u64::MAX;

/// A range of a file for a socket.
#[derive(Debug)]
pub struct Transfer {
    /// A non-blocking socket, to which nothing else is written meanwhile.
    pub socket: Arc<OwnedFd>,
    /// The file.
    pub file: Arc<OpenFile>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: usize,
    /// The metadata of the version to be sent.
    pub version: Meta,
}

/// The result of a [`Transfer`].
#[derive(Debug)]
pub struct Transferred {
    /// The number of bytes that were sent.
    pub bytes: usize,
    /// Why there were not more.
    pub end: TransferEnd,
    /// The metadata of the file after the last byte.
    pub now: Meta,
}

/// Why a [`Transfer`] ended.
#[derive(Debug)]
pub enum TransferEnd {
    /// All bytes were sent.
    Complete,
    /// It took a second. The send buffer may be full.
    Slow,
    /// The next page is not in the page cache, or the file has changed.
    Unavailable,
    /// The socket or the file failed.
    Failed(io::Error),
}

type Reply = Box<dyn FnOnce(Transferred) + Send>;

/// The thread, for one event loop.
pub struct SendThread(Arc<Shared>);

struct Shared {
    requests: SegQueue<Claim>,
    /// The thread waits for events.
    is_asleep: AtomicBool,
    /// A request was taken back, and the thread has not come to it yet.
    is_late: AtomicBool,
    /// The kernel or a sandbox forbids the calls.
    is_forbidden: AtomicBool,
    /// An eventfd.
    wake: OwnedFd,
    has_ended: AtomicBool,
}

struct Request {
    transfer: Transfer,
    reply: Reply,
}

/// The right to send the bytes of a [`Transfer`]: of the thread or of its client. It holds the socket and the file
/// until one of them takes it.
#[derive(Debug, Clone)]
pub struct Claim(Arc<ArrayQueue<Request>>);

impl Claim {
    fn new(request: Request) -> Self {
        let holder = ArrayQueue::new(1);
        let pushed = holder.push(request);
        debug_assert!(pushed.is_ok());
        Self(Arc::new(holder))
    }

    /// Takes the right, and closes socket and file. False if the other side has it.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.pop().is_some()
    }
}

impl SendThread {
    /// Starts the thread. Call it before a guard is installed, because threads inherit it. The thread keeps the
    /// priority of the calling one: it does a part of a loop's work.
    ///
    /// # Errors
    /// Those of making an eventfd and an epoll instance, and of starting a thread.
    pub fn start() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let key = epoll::EventData::new_u64(WAKE);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &wake, key, flags)?;
        let shared = Arc::new(Shared {
            requests: SegQueue::new(),
            is_asleep: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            wake,
            has_ended: AtomicBool::new(false),
        });
        let sending = Sending {
            shared: Arc::clone(&shared),
            epoll,
            ready: VecDeque::new(),
            waiting: Slab::new(),
            checked: Instant::now(),
        };
        let builder = thread::Builder::new().name("send".to_owned());
        builder.spawn(move || sending.run())?;
        Ok(Self(shared))
    }

    /// Queues `transfer`; `reply` is called on the thread. Does not block. Whoever takes the returned claim first sends
    /// the bytes: if that is the caller, there is no reply.
    pub fn send(
        &self,
        transfer: Transfer,
        reply: impl FnOnce(Transferred) + Send + 'static,
    ) -> Claim {
        let reply = Box::new(reply);
        let claim = Claim::new(Request { transfer, reply });
        self.0.requests.push(claim.clone());
        self.0.wake();
        claim
    }

    /// Takes the claim of a transfer that the thread has not begun in time. False if it has begun it now.
    pub fn take_back(&self, claim: &Claim) -> bool {
        // Set first: the thread clears it when it comes to the request, whoever has the claim.
        self.0.is_late.store(true, Ordering::Release);
        let taken = claim.take();
        if !taken {
            self.0.is_late.store(false, Ordering::Release);
        }
        taken
    }

    /// Whether the thread may be sent a transfer: not while it waits for a disk, and not if `sendfile` is forbidden.
    pub fn is_available(&self) -> bool {
        !self.0.is_late.load(Ordering::Acquire) && !self.0.is_forbidden.load(Ordering::Relaxed)
    }
}

impl Drop for SendThread {
    /// Ends the thread, without waiting for it: it may be waiting for a disk.
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        self.0.wake();
    }
}

impl fmt::Debug for SendThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendThread")
    }
}

impl Shared {
    /// Wakes the thread if it waits. The fences are those of [`Parker`](crate::Parker).
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            // Fails only if the counter is full: then the thread is awake.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// The state of the thread.
struct Sending {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// Transfers whose sockets may accept bytes, in turn.
    ready: VecDeque<Running>,
    /// Transfers whose sockets are full.
    waiting: Slab<Running>,
    /// When they were checked last.
    checked: Instant,
}

/// A transfer in progress.
struct Running {
    transfer: Transfer,
    reply: Reply,
    since: Instant,
    sent: usize,
    /// Pages that were seen in the page cache may have been evicted since.
    has_waited: bool,
    /// The socket is registered for events.
    is_registered: bool,
}

/// What a turn of a transfer came to.
enum Turn {
    Sent,
    SocketFull,
    Ended(TransferEnd),
}

impl Sending {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.has_ended() {
            while let Some(claim) = self.shared.requests.pop() {
                let request = claim.0.pop();
                self.shared.is_late.store(false, Ordering::Release);
                self.ready.extend(request.map(Running::new));
            }
            for _ in 0..TURNS_MAX {
                let Some(running) = self.ready.pop_front() else {
                    break;
                };
                self.take_turn(running);
            }
            if self.wait_for_events(&mut events).is_err() {
                // Without events no transfer would end.
                for running in mem::take(&mut self.waiting) {
                    self.end(running.1, TransferEnd::Slow);
                }
            }
            self.check_waiting();
        }
    }

    fn take_turn(&mut self, mut running: Running) {
        let bytes = match self.ready.is_empty() {
            true => TURN_BYTES,
            false => SHARED_TURN_BYTES,
        };
        match running.turn(bytes) {
            Turn::Ended(TransferEnd::Failed(error)) if is_refusal(&error) => {
                self.shared
                    .is_forbidden
                    .fetch_or(is_refusal_of_all(&error), Ordering::Relaxed);
                self.end(running, TransferEnd::Unavailable);
            }
            Turn::Ended(end) => self.end(running, end),
            _ if running.since.elapsed() >= TIME_MAX => self.end(running, TransferEnd::Slow),
            Turn::Sent => self.ready.push_back(running),
            Turn::SocketFull => self.wait_for(running),
        }
    }

    /// Waits until the socket of `running` accepts bytes.
    fn wait_for(&mut self, mut running: Running) {
        let place = self.waiting.vacant_entry();
        let key = epoll::EventData::new_u64(place.key() as u64);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        let socket = &running.transfer.socket;
        let registered = match running.is_registered {
            true => epoll::modify(&self.epoll, socket, key, flags),
            false => epoll::add(&self.epoll, socket, key, flags),
        };
        if registered.is_err() {
            return running.end(TransferEnd::Slow);
        }
        running.is_registered = true;
        running.has_waited = true;
        place.insert(running);
    }

    fn end(&self, running: Running, end: TransferEnd) {
        if running.is_registered {
            // Does not fail for a socket that is registered.
            let _ = epoll::delete(&self.epoll, &running.transfer.socket);
        }
        running.end(end);
    }

    /// Moves the transfers whose sockets accept bytes to `ready`. Waits if there are none in it.
    fn wait_for_events(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        self.shared.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_work =
            !self.ready.is_empty() || !self.shared.requests.is_empty() || self.shared.has_ended();
        let timeout = match has_work {
            true => Some(Duration::ZERO),
            false => (!self.waiting.is_empty()).then_some(CHECK_INTERVAL),
        };
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        events.clear();
        let waited = epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref());
        self.shared.is_asleep.store(false, Ordering::Relaxed);
        if !matches!(waited, Ok(_) | Err(Errno::INTR)) {
            return waited.map(|_| ());
        }
        for event in &*events {
            let key = event.data.u64();
            if key != WAKE {
                self.ready.extend(self.waiting.try_remove(key as usize));
            }
        }
        Ok(())
    }

    /// Ends waiting transfers that are slow, or whose file has changed: the pages of a file change while a socket still
    /// has to send them.
    fn check_waiting(&mut self) {
        if self.checked.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.checked = Instant::now();
        for key in (0..self.waiting.capacity()).rev() {
            let end = match self.waiting.get(key) {
                Some(running) if running.transfer.has_changed() => TransferEnd::Unavailable,
                Some(running) if running.since.elapsed() >= TIME_MAX => TransferEnd::Slow,
                _ => continue,
            };
            let running = self.waiting.remove(key);
            self.end(running, end);
        }
    }
}

impl Running {
    fn new(Request { transfer, reply }: Request) -> Self {
        Self {
            transfer,
            reply,
            since: Instant::now(),
            sent: 0,
            has_waited: true,
            is_registered: false,
        }
    }

    /// Sends up to `bytes_max`, if the file has its version and the first page of them is in the page cache, and the last
    /// one of each part of [`SHARED_TURN_BYTES`]. The pages between are assumed to be there too.
    fn turn(&mut self, bytes_max: usize) -> Turn {
        let Transfer { socket, file, .. } = &self.transfer;
        let left = self.transfer.len - self.sent;
        let (offset, len) = (self.transfer.offset + self.sent as u64, left.min(bytes_max));
        let ends = (SHARED_TURN_BYTES..len).step_by(SHARED_TURN_BYTES);
        // The first page first: a look at a page that is missing may make the kernel read it alone.
        let is_cached = (!mem::take(&mut self.has_waited) || is_cached(file, offset))
            && ends
                .chain([len])
                .all(|end| is_cached(file, offset + end as u64 - 1));
        if !is_cached || self.transfer.has_changed() {
            return Turn::Ended(TransferEnd::Unavailable);
        }
        match transmit::sendfile(socket.as_fd(), file, offset, len) {
            Ok(0) => Turn::Ended(TransferEnd::Unavailable),
            Ok(count) => {
                self.sent += count;
                match count < len {
                    _ if count == left => Turn::Ended(TransferEnd::Complete),
                    true => Turn::SocketFull,
                    false => Turn::Sent,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::SocketFull,
            Err(error) => Turn::Ended(TransferEnd::Failed(error)),
        }
    }

    fn end(self, end: TransferEnd) {
        let now = self.transfer.file.refresh();
        (self.reply)(Transferred {
            bytes: self.sent,
            end,
            now: now.unwrap_or(self.transfer.version),
        });
    }
}

impl Transfer {
    fn has_changed(&self) -> bool {
        let now = self.file.refresh();
        !now.is_ok_and(|now| now.same_version(&self.version))
    }
}

/// Whether the call is refused as such: by a sandbox, or for this file.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::INVAL)
    )
}

/// Whether that is so for every file.
fn is_refusal_of_all(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PERM | Errno::NOSYS)
    )
}

/// Whether the page at `offset` is in the page cache.
fn is_cached(file: &OpenFile, offset: u64) -> bool {
    let mut byte = Vec::with_capacity(1);
    syscall::append_cached(file.as_fd(), &mut byte, 1, offset) == Ok(1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::files::{KnownDevices, Root, Symlinks};

    const LEN: usize = 1_700_001;

    struct Rig {
        tree: tempfile::TempDir,
        file: Arc<OpenFile>,
        bytes: Vec<u8>,
        socket: Arc<OwnedFd>,
        client: UnixStream,
        thread: SendThread,
    }

    impl Rig {
        fn new() -> Self {
            let bytes: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
            let tree = tempfile::tempdir().unwrap();
            std::fs::write(tree.path().join("file"), &bytes).unwrap();
            let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
            let known = KnownDevices::only(root.device());
            let file = Arc::new(root.open_waiting(c"file", known).unwrap());
            let (near, client) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            Self {
                tree,
                file,
                bytes,
                socket: Arc::new(near.into()),
                client,
                thread: SendThread::start().unwrap(),
            }
        }

        fn send(&self, offset: usize, len: usize) -> (Claim, mpsc::Receiver<Transferred>) {
            let (sender, receiver) = mpsc::channel();
            let transfer = Transfer {
                socket: Arc::clone(&self.socket),
                file: Arc::clone(&self.file),
                offset: offset as u64,
                len,
                version: self.file.meta(),
            };
            let reply = move |sent| sender.send(sent).unwrap();
            (self.thread.send(transfer, reply), receiver)
        }

        fn sent(&self, offset: usize, len: usize) -> Transferred {
            self.send(offset, len).1.recv().unwrap()
        }
    }

    /// Far more than the send buffer holds.
    #[test]
    fn a_range_is_sent_as_the_client_takes_it() {
        let mut rig = Rig::new();
        let (_claim, receiver) = rig.send(5000, LEN - 5000);
        let mut received = vec![0; LEN - 5000];
        rig.client.read_exact(&mut received).unwrap();
        assert_eq!(received, rig.bytes[5000..]);
        let sent = receiver.recv().unwrap();
        assert!(matches!(sent.end, TransferEnd::Complete));
        assert_eq!(sent.bytes, LEN - 5000);
        assert!(sent.now.same_version(&rig.file.meta()));
    }

    /// A client that takes nothing delays no other, and its transfer ends.
    #[test]
    fn a_transfer_to_a_slow_client_ends() {
        let mut rig = Rig::new();
        let (_claim, receiver) = rig.send(0, LEN);
        let (near, mut other) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let slow = mem::replace(&mut rig.socket, Arc::new(near.into()));
        assert_eq!(rig.sent(0, 100).bytes, 100);
        other.read_exact(&mut [0; 100]).unwrap();
        let sent = receiver.recv().unwrap();
        assert!(matches!(sent.end, TransferEnd::Slow));
        assert!((1..LEN).contains(&sent.bytes));
        // The rest is another transfer.
        rig.socket = slow;
        let (_claim, receiver) = rig.send(sent.bytes, LEN - sent.bytes);
        let mut received = vec![0; LEN];
        rig.client.read_exact(&mut received).unwrap();
        assert_eq!(received, rig.bytes);
        let rest = receiver.recv().unwrap();
        assert!(matches!(rest.end, TransferEnd::Complete));
    }

    #[test]
    fn nothing_is_sent_of_another_version_or_beyond_the_end() {
        let rig = Rig::new();
        let beyond = rig.sent(LEN, 10);
        assert!(matches!(beyond.end, TransferEnd::Unavailable));
        let path = rig.tree.path().join("file");
        let mut file = std::fs::File::options().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
        let sent = rig.sent(0, 10);
        assert!(matches!(sent.end, TransferEnd::Unavailable));
        assert_eq!((sent.bytes, sent.now.size), (0, LEN as u64 + 4));
    }

    #[test]
    fn a_client_that_is_gone_is_a_failure() {
        let mut rig = Rig::new();
        rig.client = UnixStream::pair().unwrap().0;
        assert!(matches!(rig.sent(0, 10).end, TransferEnd::Failed(_)));
    }

    /// Until the thread has come to a request that was taken back, whose socket is closed at once.
    #[test]
    fn a_late_thread_is_not_available() {
        let mut rig = Rig::new();
        let reply = |_| panic!("it was taken back");
        let (near, mut far) = UnixStream::pair().unwrap();
        let transfer = Transfer {
            socket: Arc::new(near.into()),
            file: Arc::clone(&rig.file),
            offset: 0,
            len: 10,
            version: rig.file.meta(),
        };
        // As if the thread were waiting for a disk.
        let claim = Claim::new(Request {
            transfer,
            reply: Box::new(reply),
        });
        assert!(rig.thread.is_available());
        assert!(rig.thread.take_back(&claim));
        assert!(!rig.thread.is_available());
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        rig.thread.0.requests.push(claim.clone());
        // Requests are served in turn.
        assert_eq!(rig.sent(0, 10).bytes, 10);
        assert!(rig.thread.is_available());
        assert!(!rig.thread.take_back(&claim));
        assert!(rig.thread.is_available());
        rig.client.read_exact(&mut [0; 10]).unwrap();
    }

    #[test]
    fn refusals_are_no_failures_of_the_file() {
        let is_refused = |errno: Errno| is_refusal(&errno.into());
        assert!(
            [Errno::PERM, Errno::NOSYS, Errno::INVAL]
                .into_iter()
                .all(is_refused)
        );
        assert!(
            ![Errno::IO, Errno::PIPE, Errno::CONNRESET]
                .into_iter()
                .any(is_refused)
        );
    }

    #[test]
    fn one_file_that_is_refused_does_not_end_the_use_of_the_call() {
        assert!(is_refusal_of_all(&Errno::NOSYS.into()));
        assert!(!is_refusal_of_all(&Errno::ACCESS.into()));
        assert!(!is_refusal_of_all(&Errno::INVAL.into()));
    }

    #[test]
    fn one_side_sends() {
        let rig = Rig::new();
        let (claim, receiver) = rig.send(0, 10);
        match claim.take() {
            true => assert!(receiver.recv().is_err()),
            false => assert_eq!(receiver.recv().unwrap().bytes, 10),
        }
        assert!(!claim.take());
        let timeout = receiver.recv_timeout(Duration::ZERO);
        assert!(timeout.is_err(), "there is one reply at most");
    }
}
