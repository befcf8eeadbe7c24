//! Threads that compute what would hold up an event loop, such as the compression of a response.
//!
//! A loop makes a [`Job`], one piece of work of bounded time, and passes it to [`Pool::submit`], which does not block.
//! A long computation is a sequence of jobs: whoever waits for one submits the next. So a client that reads slowly takes
//! no thread, and one that leaves at most the job that runs.
//!
//! There are two classes with threads of their own. Jobs of [`Class::Response`] have a client that waits; their threads
//! have the weight of disk threads, a fifteenth of that of a loop. Jobs of [`Class::Idle`] have time; their threads run
//! when a processor has nothing else to do.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod lane;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use levity_disk::stats::Histogram;
use levity_disk::{CpuQuota, priority};

use lane::Lane;

/// Work that does no I/O and does not block.
pub trait Work: Send {
    /// Whether anyone still waits for the result. Work that nobody waits for is dropped if it has not started.
    fn is_awaited(&self) -> bool;

    /// Does the work, and passes the result to whoever waits. If it panics, the work is dropped.
    fn run(self: Box<Self>);
}

/// One piece of work.
pub struct Job {
    /// The client: a number that one connection has to itself in this process. Threads are shared fairly between
    /// clients, by cost.
    pub stream: u64,
    /// The estimated processor time: milliseconds as a rule.
    pub cost: Duration,
    /// What to do.
    pub work: Box<dyn Work>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(stream {}, {:?})", self.stream, self.cost)
    }
}

/// The urgency of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A client waits for the result.
    Response,
    /// Nobody waits. It runs when a processor is idle, which may be never.
    Idle,
}

/// The size of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Threads of each class; at least one.
    pub threads: usize,
    /// The maximum number of jobs per class that wait for a thread.
    pub queue_max: usize,
}

/// The threads, and their queues.
#[derive(Debug)]
pub struct Pool {
    lanes: [Arc<Lane>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the threads, and reads the CPU quota. Blocks. Call it before a guard is installed, because threads inherit it.
    ///
    /// # Errors
    /// Those of starting a thread: EAGAIN at a limit on threads.
    pub fn start(settings: Settings) -> io::Result<Pool> {
        let for_responses = Lane::new(settings, None);
        let for_idle_work = Lane::new(settings, Some(Box::new(CpuQuota::of_process())));
        let mut pool = Pool {
            lanes: [Arc::new(for_responses), Arc::new(for_idle_work)],
            threads: Vec::new(),
        };
        for class in [Class::Response, Class::Idle] {
            for number in 0..settings.threads {
                let thread = start(class, number, pool.lane(class))?;
                pool.threads.push(thread);
            }
        }
        Ok(pool)
    }

    /// Queues a job. Does not block: no lock, and at most one system call, to wake a thread.
    ///
    /// # Errors
    /// The job, if its queue is full.
    pub fn submit(&self, class: Class, job: Job) -> Result<(), Job> {
        self.lane(class).submit(job)
    }

    /// How long a new job of this class would wait if the estimates are right. Does not block.
    pub fn wait_estimate(&self, class: Class) -> Duration {
        self.lane(class).wait_estimate()
    }

    /// The counters of a class. Does not block.
    pub fn stats(&self, class: Class) -> Stats {
        self.lane(class).stats()
    }

    fn lane(&self, class: Class) -> &Arc<Lane> {
        &self.lanes[class as usize]
    }
}

impl Drop for Pool {
    /// Drops the queued jobs, and waits for those that run.
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.close());
        for thread in self.threads.drain(..) {
            // A thread catches the panics of jobs.
            let _ = thread.join();
        }
    }
}

fn start(class: Class, number: usize, lane: &Arc<Lane>) -> io::Result<JoinHandle<()>> {
    let name = match class {
        Class::Response => "compute",
        Class::Idle => "compute-idle",
    };
    let lane = Arc::clone(lane);
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(move || {
        match class {
            Class::Response => priority::set_for_disk(),
            Class::Idle => priority::set_for_idle(),
        }
        lane.serve(number);
    })
}

/// The counters of one class since the start. They are relaxed atomics: a snapshot is cheap, and its numbers may be
/// some jobs apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Jobs that wait for a thread at present.
    pub queued: usize,
    /// The threads.
    pub threads: usize,
    /// Jobs dropped before they started, because nobody waited for them any more.
    pub canceled: u64,
    /// Jobs refused because the queue was full.
    pub full: u64,
    /// Time from submission to start, of all jobs that started.
    pub queue_time: Histogram,
    /// Time from start to end.
    pub run_time: Histogram,
}

#[cfg(test)]
mod tests;
