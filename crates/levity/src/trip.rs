//! A trip to the disk and back, as an async function sees it.

use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_disk::engine::{self, Listing};
use levity_disk::{
    Class, Completion, Done, Job, Op, OpenFile, Ready, Reply, Root, Terms, Variants,
};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time;

use crate::absences::Absences;
use crate::route::Place;
use crate::stats::{Ahead, WorkerStats};
use crate::worker::Worker;

/// How soon a later chunk asks again for a place in a full queue.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A read that took less than this, in the kernel, found its bytes in memory.
const CACHED_READ_MAX: Duration = Duration::from_micros(300);

struct Answer(oneshot::Sender<Completion>);

impl Reply for Answer {
    fn wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        // Nobody waits any more when the client has gone; the bytes go back to their pool.
        let _ = self.0.send(completion);
    }
}

/// What an open brought.
pub struct Opened {
    /// The file, directory or other thing.
    pub file: Arc<OpenFile>,
    /// For each variant asked for the file, if it is there and may stand in for the other.
    pub variants: Vec<Option<Arc<OpenFile>>>,
    /// The bytes asked for, of the first preferred variant that is there or else of the file.
    pub first: Option<Ready>,
    /// The bytes are those of one version.
    pub stable: bool,
}

/// What a read brought.
pub struct Read {
    /// The bytes; fewer than asked for only at the end of the file.
    pub ready: Ready,
    /// They were in memory already: an inline probe may work again.
    pub was_cached: bool,
    /// How long the kernel and the device took.
    pub service: Duration,
}

/// A chunk asked for before it is needed. Dropped, it is not read if that has not begun.
pub struct ReadAhead {
    /// Where it begins in the file.
    pub offset: u64,
    /// `None` once it has been fetched.
    answer: Option<oneshot::Receiver<Completion>>,
    stats: Arc<WorkerStats>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.stats.read_ahead(Ahead::Unused);
        }
    }
}

/// Opens and reads on behalf of one request, and adds up the time that it waited.
pub struct Trips<'a> {
    worker: &'a Worker,
    stream: u64,
    terms: Terms,
    timeout: Duration,
    /// Bytes per read, when the configuration fixes it.
    pub chunk_bytes: Option<usize>,
    /// Waiting for the disk so far.
    pub waited: Duration,
    /// Trips made.
    pub count: u32,
    /// Those of the connection that were for nothing.
    pub absences: Absences,
    /// How many of these may be made per second.
    absent_trips_max: u32,
}

impl<'a> Trips<'a> {
    /// No trip yet, for the connection that is `stream`; each may last `limits.io_timeout`.
    pub fn new(worker: &'a Worker, stream: u64, absences: Absences) -> Self {
        let config = &worker.service().config;
        Self {
            worker,
            stream,
            terms: Terms::default(),
            timeout: config.limits.io_timeout,
            chunk_bytes: None,
            waited: Duration::ZERO,
            count: 0,
            absences,
            absent_trips_max: config.limits.absent_trips as u32,
        }
    }

    /// From now on as `place` wants it.
    pub fn are_for(&mut self, place: &Place) {
        self.terms = place.terms;
        self.chunk_bytes = place.chunk_bytes;
    }

    /// Opens beneath `root`, with `variants`, and reads `first`, in one trip. Waits before it when too
    /// many trips of this connection have found nothing.
    pub async fn open(
        &mut self,
        root: &Arc<Root>,
        path: CString,
        variants: Variants,
        first: Option<(u64, usize)>,
    ) -> io::Result<Opened> {
        if let Some(wait) = self.absences.wait(Instant::now(), self.absent_trips_max) {
            self.worker.stats.absences_waited();
            time::sleep(wait).await;
        }
        let op = Op::Open {
            root: root.clone(),
            path,
            first,
            variants: Box::new(variants),
        };
        match self.make(op, Class::First).await?.result? {
            Done::Opened {
                file,
                variants,
                first,
                stable,
            } => Ok(Opened {
                file,
                variants,
                first,
                stable,
            }),
            other => unreachable!("an open was answered with {other:?}"),
        }
    }

    /// A trip was made for a name that does not exist.
    pub fn found_nothing(&mut self) {
        self.absences.add(Instant::now(), self.absent_trips_max);
    }

    /// Reads a range of a file.
    pub async fn read(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
        class: Class,
    ) -> io::Result<Read> {
        let file = file.clone();
        let completion = self.make(Op::Read { file, offset, len }, class).await?;
        read_of(completion)
    }

    /// Asks for a range of a file that will be needed next. Does not wait.
    pub fn read_ahead(&self, file: &Arc<OpenFile>, offset: u64, len: usize) -> ReadAhead {
        let file = file.clone();
        let answer = self.submit(Op::Read { file, offset, len }, Class::Prefetch);
        ReadAhead {
            offset,
            answer: Some(answer),
            stats: self.worker.stats.clone(),
        }
    }

    /// What was asked for ahead; `None` when it was refused, and must be read after all.
    pub async fn fetch(&mut self, mut ahead: ReadAhead) -> io::Result<Option<Read>> {
        let Some(answer) = ahead.answer.take() else {
            return Ok(None);
        };
        let start = Instant::now();
        let completion = time::timeout(self.timeout, answer).await;
        self.waited += start.elapsed();
        self.count += 1;
        let completion = completion.map_err(|_| timed_out())?;
        match completion.map_err(|_| io::Error::from(Errno::CANCELED))? {
            refused if refused.result.as_ref().is_err_and(engine::is_full) => {
                ahead.stats.read_ahead(Ahead::Refused);
                Ok(None)
            }
            completion => {
                ahead.stats.read_ahead(Ahead::Used);
                read_of(completion).map(Some)
            }
        }
    }

    /// Reads a directory.
    pub async fn list(
        &mut self,
        directory: Arc<OpenFile>,
        entries_max: usize,
    ) -> io::Result<Listing> {
        let op = Op::List {
            directory,
            entries_max,
        };
        match self.make(op, Class::First).await?.result? {
            Done::Listed(listing) => Ok(listing),
            other => unreachable!("a listing was answered with {other:?}"),
        }
    }

    async fn make(&mut self, op: Op, class: Class) -> io::Result<Completion> {
        let start = Instant::now();
        let completion = time::timeout(self.timeout, self.queue(op, class)).await;
        self.waited += start.elapsed();
        self.count += 1;
        completion.unwrap_or_else(|_| Err(timed_out()))
    }

    /// A full queue refuses what no client has seen anything of yet; later chunks ask again.
    async fn queue(&self, op: Op, class: Class) -> io::Result<Completion> {
        loop {
            let answer = self.submit(op.clone(), class);
            let completion = answer.await.map_err(|_| io::Error::from(Errno::CANCELED))?;
            match &completion.result {
                Err(error) if engine::is_full(error) && class == Class::First => {
                    return Err(Errno::CANCELED.into());
                }
                Err(error) if engine::is_full(error) => time::sleep(FULL_RETRY_INTERVAL).await,
                _ => return Ok(completion),
            }
        }
    }

    fn submit(&self, op: Op, class: Class) -> oneshot::Receiver<Completion> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(Answer(sender));
        self.worker.disk.submit(Job {
            op,
            class,
            stream: self.stream,
            terms: self.terms,
            reply,
        });
        receiver
    }
}

fn read_of(completion: Completion) -> io::Result<Read> {
    let was_cached = !completion.direct && completion.service < CACHED_READ_MAX;
    let service = completion.service;
    match completion.result? {
        Done::Read(ready) => Ok(Read {
            ready,
            was_cached,
            service,
        }),
        other => unreachable!("a read was answered with {other:?}"),
    }
}

fn timed_out() -> io::Error {
    let message = "the disk did not answer within limits.io_timeout";
    io::Error::new(io::ErrorKind::TimedOut, message)
}
