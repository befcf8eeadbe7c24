//! Threads that may block, for all engines of a disk: started when needed, ended when idle. They serve two
//! queues: one of opens, and one of reads, writes and syncs, which may not take every thread.
//!
//! A thread that has nothing to do first takes in what event loops have submitted ([`Arrivals`]). So a loop wakes the
//! thread that does the work, and no other in between ([`Pool::wake`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::job::Op;
use crate::thread::{Awake, Sleepers, lock, priority};

/// In bytes: a directory listing has the deepest stack.
const STACK_BYTES: usize = 256 * 1024;

/// A thread that has been idle for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The threads of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// All of them.
    pub total: usize,
    /// How many of them are reserved for opens, listings and changes of names: they never read later chunks,
    /// write or sync.
    pub stat: usize,
}

/// The queue of a task, which determines the threads that may run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Opens, listings and other operations on names: any thread.
    Stat,
    /// Reads, writes and syncs: all threads except the reserved ones.
    Read,
}

impl Queue {
    /// The queue for an operation.
    pub(super) fn of(op: &Op) -> Queue {
        match op {
            Op::Read(_) | Op::Write(_) | Op::Append(_) | Op::Sync(_) => Queue::Read,
            _ => Queue::Stat,
        }
    }
}

/// A task for one thread.
type Task = Box<dyn FnOnce() + Send>;

/// What has been submitted, and is no task yet.
pub(crate) trait Arrivals: Send + Sync {
    /// Whether nothing waits. Takes no lock.
    fn is_empty(&self) -> bool;

    /// Makes tasks of what waits, or queues it elsewhere. Does not wait for a disk.
    fn take_in(&self);

    /// Has a thread that is not of the pool take it in.
    fn leave(&self);
}

thread_local! {
    /// The pool of which this thread is one: it takes a task after the present one, before it sleeps.
    static NEXT_OF: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// Up to a fixed number of threads. The scheduler bounds the queues.
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    threads: Threads,
    idle_max: Duration,
    state: Mutex<State>,
    arrivals: OnceLock<Box<dyn Arrivals>>,
    sleepers: Sleepers,
    ended: Condvar,
}

struct State {
    stat: VecDeque<Task>,
    read: VecDeque<Task>,
    /// Threads that may still start a read.
    readers_free: usize,
    /// Number of threads.
    alive: usize,
    stop: bool,
}

impl Pool {
    /// Starts the first thread. Call it before a guard is installed on the calling thread, because threads
    /// inherit it. Blocks.
    pub(crate) fn start(threads: Threads) -> io::Result<Arc<Pool>> {
        Pool::start_with(threads, IDLE_MAX)
    }

    fn start_with(threads: Threads, idle_max: Duration) -> io::Result<Arc<Pool>> {
        let pool = Arc::new(Pool(Arc::new(Shared {
            threads,
            idle_max,
            state: Mutex::new(State {
                stat: VecDeque::new(),
                read: VecDeque::new(),
                readers_free: threads.total - threads.stat,
                alive: 1,
                stop: false,
            }),
            arrivals: OnceLock::new(),
            sleepers: Sleepers::default(),
            ended: Condvar::new(),
        })));
        Shared::spawn(&pool.0)?;
        Ok(pool)
    }

    /// Threads take in these arrivals from now on. Only the first call has an effect.
    pub(crate) fn serve_arrivals(&self, arrivals: Box<dyn Arrivals>) {
        let _ = self.0.arrivals.set(arrivals);
    }

    /// Wakes a thread for what has arrived, unless one is on its way. Returns false if none is and none sleeps. Takes no
    /// lock and does not block.
    pub(crate) fn wake(&self) -> bool {
        self.0.sleepers.wake(1)
    }

    /// Queues `task`, and starts a thread if all are busy and more are allowed. Does not wait for a disk;
    /// starting a thread takes about 50 us. Not for event loops.
    pub(crate) fn submit(&self, queue: Queue, task: impl FnOnce() + Send + 'static) {
        let shared = &self.0;
        let mut state = lock(&shared.state);
        match queue {
            Queue::Stat => state.stat.push_back(Box::new(task)),
            Queue::Read => state.read.push_back(Box::new(task)),
        }
        let takes_one = ptr::eq(NEXT_OF.get(), Arc::as_ptr(shared));
        let for_others = state.ready().saturating_sub(usize::from(takes_one));
        drop(state);
        Shared::provide(shared, for_others);
    }

    /// Present number of threads.
    pub(crate) fn threads(&self) -> usize {
        lock(&self.0.state).alive
    }

    /// Ends the threads once the queues are empty, and waits for them.
    pub(crate) fn shutdown(&self) {
        let mut state = lock(&self.0.state);
        state.stop = true;
        while self.0.sleepers.wake(usize::MAX) {}
        while state.alive > 0 {
            state = wait(&self.0.ended, state);
        }
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Sees to it that enough threads are on their way for `tasks`.
    fn provide(shared: &Arc<Shared>, tasks: usize) {
        if !shared.sleepers.wake(tasks) {
            Shared::grow(shared);
        }
    }

    /// Starts a thread, if more are allowed. Otherwise, and if the limit on threads of the user or of the system is
    /// reached, an existing thread will run what waits.
    fn grow(shared: &Arc<Shared>) {
        let mut state = lock(&shared.state);
        if state.alive == shared.threads.total {
            return;
        }
        state.alive += 1;
        drop(state);
        if Shared::spawn(shared).is_err() {
            let mut state = lock(&shared.state);
            state.alive -= 1;
            let ready = state.ready();
            drop(state);
            // Others may have relied on that thread.
            shared.sleepers.wake(ready);
            let arrivals = shared.arrivals.get();
            arrivals.inspect(|arrivals| arrivals.leave());
        }
    }

    fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
        shared.sleepers.starts();
        let serving = Arc::clone(shared);
        let builder = thread::Builder::new().name("disk".to_owned());
        let started = builder.stack_size(STACK_BYTES).spawn(move || {
            priority::set_for_disk();
            Shared::serve(&serving);
        });
        if started.is_err() {
            shared.sleepers.arrived();
        }
        started.map(drop)
    }

    fn serve(shared: &Arc<Shared>) {
        shared.sleepers.arrived();
        NEXT_OF.set(Arc::as_ptr(shared));
        while let Some((queue, task)) = Shared::next(shared) {
            // A thread ended by a panic would still be counted as alive and as reading, and the shutdown would
            // wait for it forever. The client is answered when the ticket is dropped.
            let _ = panic::catch_unwind(AssertUnwindSafe(task));
            if queue == Queue::Read {
                lock(&shared.state).readers_free += 1;
            }
        }
        shared.ended.notify_all();
    }

    /// The next task. `None` if the thread is to end: it is no longer counted.
    fn next(shared: &Arc<Shared>) -> Option<(Queue, Task)> {
        let mut idle = false;
        loop {
            shared.take_in();
            let mut state = lock(&shared.state);
            if let Some(found) = state.take() {
                // When this thread submitted it, its own slot for a read was not free yet.
                let left = state.ready();
                drop(state);
                Shared::provide(shared, left);
                return Some(found);
            }
            // One thread stays: if the limit on threads is reached meanwhile, it does all the work.
            if state.stop || idle && state.ready() == 0 && state.alive > 1 {
                state.alive -= 1;
                return None;
            }
            drop(state);
            let has_work = || shared.has_work();
            idle = shared.sleepers.sleep(shared.idle_max, has_work) == Awake::TimedOut;
        }
    }

    fn take_in(&self) {
        if let Some(arrivals) = self.arrivals.get() {
            arrivals.take_in();
        }
    }

    fn has_work(&self) -> bool {
        let arrivals = self.arrivals.get();
        if arrivals.is_some_and(|arrivals| !arrivals.is_empty()) {
            return true;
        }
        let state = lock(&self.state);
        state.stop || state.ready() > 0
    }
}

impl State {
    fn take(&mut self) -> Option<(Queue, Task)> {
        if let Some(task) = self.stat.pop_front() {
            return Some((Queue::Stat, task));
        }
        if self.readers_free == 0 {
            return None;
        }
        let task = self.read.pop_front()?;
        self.readers_free -= 1;
        Some((Queue::Read, task))
    }

    /// Number of tasks that could start now.
    fn ready(&self) -> usize {
        self.stat.len() + self.read.len().min(self.readers_free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const THREE: Threads = Threads { total: 3, stat: 1 };

    #[test]
    fn reads_leave_the_reserved_thread_to_opens() {
        let (start, started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let pool = Pool::start(THREE).unwrap();
        for _ in 0..3 {
            let (start, released) = (start.clone(), Arc::clone(&released));
            pool.submit(Queue::Read, move || {
                start.send("read").unwrap();
                lock(&released).recv().unwrap();
            });
        }
        assert_eq!([started.recv(), started.recv()], [Ok("read"); 2]);
        pool.submit(Queue::Stat, move || start.send("open").unwrap());
        assert_eq!(started.recv(), Ok("open"));
        assert_eq!(pool.threads(), 3);
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        assert_eq!(started.recv(), Ok("read"));
        pool.shutdown();
    }

    #[test]
    fn shutdown_runs_all_submitted_tasks() {
        let (send, received) = mpsc::channel();
        let pool = Pool::start(THREE).unwrap();
        for n in 0..1000 {
            let send = send.clone();
            let queue = if n % 2 == 0 { Queue::Stat } else { Queue::Read };
            pool.submit(queue, move || send.send(n).unwrap());
        }
        pool.shutdown();
        drop(send);
        let mut all: Vec<usize> = received.iter().collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    /// Else reads and the shutdown would wait forever.
    #[test]
    fn a_panic_takes_nothing_from_the_pool() {
        let (send, received) = mpsc::channel();
        let pool = Pool::start(THREE).unwrap();
        for _ in 0..3 {
            // Without the message of `panic!`.
            pool.submit(Queue::Read, || panic::resume_unwind(Box::new(())));
        }
        pool.submit(Queue::Read, move || send.send(()).unwrap());
        received.recv_timeout(Duration::from_secs(30)).unwrap();
        pool.shutdown();
    }

    #[test]
    fn idle_threads_end_but_one() {
        let (send, received) = mpsc::channel();
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let pool = Pool::start_with(THREE, Duration::from_millis(1)).unwrap();
        for _ in 0..3 {
            let (send, barrier) = (send.clone(), Arc::clone(&barrier));
            pool.submit(Queue::Stat, move || {
                barrier.wait();
                send.send(()).unwrap();
            });
        }
        (0..3).for_each(|_| received.recv().unwrap());
        while pool.threads() > 1 {
            thread::yield_now();
        }
        pool.submit(Queue::Read, move || send.send(()).unwrap());
        received.recv().unwrap();
        pool.shutdown();
    }
}
