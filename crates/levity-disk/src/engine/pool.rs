//! Threads that take work from two queues: short opens, and reads that may not take every thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::Threads;
use crate::lock::lock;

/// In bytes: the deepest call is a directory listing.
const STACK_BYTES: usize = 256 * 1024;

/// Which threads may take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// Opens and listings: any thread.
    Stat,
    /// Reads: all but the reserved threads.
    Read,
}

/// A fixed number of threads. Its queues are bounded by whoever fills them.
pub(super) struct Pool<T> {
    shared: Arc<Shared<T>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    run: Box<dyn Fn(T) + Send + Sync>,
}

struct State<T> {
    stat: VecDeque<T>,
    read: VecDeque<T>,
    /// Threads that may still start a read.
    readers_free: usize,
    stop: bool,
}

impl<T: Send + 'static> Pool<T> {
    /// Starts the threads; each calls `run` with what was submitted.
    pub(super) fn start(
        threads: Threads,
        name: &str,
        run: impl Fn(T) + Send + Sync + 'static,
    ) -> io::Result<Pool<T>> {
        let pool = Pool {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    stat: VecDeque::new(),
                    read: VecDeque::new(),
                    readers_free: threads.total - threads.stat,
                    stop: false,
                }),
                filled: Condvar::new(),
                run: Box::new(run),
            }),
            threads: Mutex::default(),
        };
        for _ in 0..threads.total {
            if let Err(error) = pool.add_thread(name) {
                pool.shutdown();
                return Err(error);
            }
        }
        Ok(pool)
    }

    fn add_thread(&self, name: &str) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder
            .stack_size(STACK_BYTES)
            .spawn(move || shared.serve())?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Leaves `item` for a thread. Does not block.
    pub(super) fn submit(&self, queue: Queue, item: T) {
        let mut state = lock(&self.shared.state);
        match queue {
            Queue::Stat => state.stat.push_back(item),
            Queue::Read => state.read.push_back(item),
        }
        drop(state);
        self.shared.filled.notify_one();
    }

    /// Ends the threads once the queues are empty, and waits for them.
    pub(super) fn shutdown(&self) {
        lock(&self.shared.state).stop = true;
        self.shared.filled.notify_all();
        for thread in lock(&self.threads).drain(..) {
            thread.join().expect("a disk thread does not panic");
        }
    }
}

impl<T> Shared<T> {
    fn serve(&self) {
        while let Some((queue, item)) = self.next() {
            (self.run)(item);
            if queue == Queue::Read {
                lock(&self.state).readers_free += 1;
            }
        }
    }

    fn next(&self) -> Option<(Queue, T)> {
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = state.take() {
                return Some(found);
            }
            if state.stop {
                return None;
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> State<T> {
    fn take(&mut self) -> Option<(Queue, T)> {
        if let Some(item) = self.stat.pop_front() {
            return Some((Queue::Stat, item));
        }
        if self.readers_free == 0 {
            return None;
        }
        let item = self.read.pop_front()?;
        self.readers_free -= 1;
        Some((Queue::Read, item))
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
        let released = Mutex::new(released);
        let pool = Pool::start(THREE, "test", move |name: &'static str| {
            start.send(name).unwrap();
            if name == "read" {
                lock(&released).recv().unwrap();
            }
        })
        .unwrap();
        for _ in 0..3 {
            pool.submit(Queue::Read, "read");
        }
        assert_eq!([started.recv(), started.recv()], [Ok("read"); 2]);
        pool.submit(Queue::Stat, "open");
        assert_eq!(started.recv(), Ok("open"));
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        assert_eq!(started.recv(), Ok("read"));
        pool.shutdown();
    }

    #[test]
    fn shutdown_runs_what_was_submitted() {
        let (send, received) = mpsc::channel();
        let pool = Pool::start(THREE, "test", move |n: usize| send.send(n).unwrap()).unwrap();
        for n in 0..1000 {
            pool.submit(if n % 2 == 0 { Queue::Stat } else { Queue::Read }, n);
        }
        pool.shutdown();
        drop(pool);
        let mut all: Vec<_> = received.iter().collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }
}
