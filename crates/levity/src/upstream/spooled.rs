//! Bodies of requests that do not fit into memory: in a file without a name, written and read back by
//! the disk's threads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use levity_disk::{Class, Completion, Done, Job, Op, OpenFile, Reply, Spool, Terms};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time;

use crate::worker::Worker;

/// Bytes that are read back at once.
const READ_BYTES: usize = 128 * 1024;

/// Where bodies are spooled.
pub struct SpoolFolder {
    /// The folder.
    pub spool: Arc<Spool>,
    /// By an engine that brings bytes into memory: they go on to a socket in another form.
    pub terms: Terms,
}

/// A body in a file.
pub struct Spooled {
    file: Arc<OpenFile>,
    terms: Terms,
    bytes: u64,
}

/// Bytes on their way back.
pub struct Reading(oneshot::Receiver<Completion>);

impl Spooled {
    /// An empty one.
    ///
    /// # Errors
    /// Those of `open`; `TimedOut` when the disk does not answer within `limits.io_timeout`.
    pub async fn create(worker: &Worker, folder: &SpoolFolder) -> io::Result<Self> {
        let spool = folder.spool.clone();
        let create = Op::Create { spool };
        match make(worker, create, Class::First, folder.terms).await? {
            Done::Created(file) => Ok(Self {
                file,
                terms: folder.terms,
                bytes: 0,
            }),
            other => unreachable!("a file was to be made: {other:?}"),
        }
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        self.bytes
    }

    /// Writes `bytes` behind what is there.
    ///
    /// # Errors
    /// Those of `write`, such as ENOSPC; `TimedOut`.
    pub async fn append(&mut self, worker: &Worker, bytes: Vec<u8>) -> io::Result<()> {
        let count = bytes.len() as u64;
        let write = Op::Write {
            file: self.file.clone(),
            offset: self.bytes,
            bytes: Arc::new(bytes),
        };
        make(worker, write, Class::Next, self.terms).await?;
        self.bytes += count;
        Ok(())
    }

    /// Begins to read from `offset` on. Does not wait.
    pub fn read(&self, worker: &Worker, offset: u64) -> Reading {
        let left = usize::try_from(self.bytes - offset).unwrap_or(usize::MAX);
        let read = Op::Read {
            file: self.file.clone(),
            offset,
            len: left.min(READ_BYTES),
        };
        Reading(submit(worker, read, Class::Next, self.terms))
    }
}

impl Reading {
    /// Adds what was read to `out` once it is here. The caller minds the time.
    pub fn poll(
        &mut self,
        worker: &Worker,
        context: &mut std::task::Context<'_>,
        out: &mut Vec<u8>,
    ) -> std::task::Poll<io::Result<()>> {
        let completion = std::task::ready!(std::pin::Pin::new(&mut self.0).poll(context));
        std::task::Poll::Ready(match taken(completion)? {
            Done::Read(ready) if !ready.is_empty() => {
                let bytes = ready.into_bytes(worker.disk.budget())?;
                out.extend_from_slice(&bytes);
                Ok(())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }
}

async fn make(worker: &Worker, op: Op, class: Class, terms: Terms) -> io::Result<Done> {
    let io_timeout: Duration = worker.service().config.limits.io_timeout;
    let answer = time::timeout(io_timeout, submit(worker, op, class, terms)).await;
    taken(answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?)
}

fn submit(worker: &Worker, op: Op, class: Class, terms: Terms) -> oneshot::Receiver<Completion> {
    let (sender, receiver) = oneshot::channel();
    worker.disk.submit(Job {
        terms,
        ..Job::new(op, class, Box::new(Answer(sender)))
    });
    receiver
}

fn taken(completion: Result<Completion, oneshot::error::RecvError>) -> io::Result<Done> {
    completion
        .map_err(|_| io::Error::from(Errno::CANCELED))?
        .result
}

struct Answer(oneshot::Sender<Completion>);

impl Reply for Answer {
    fn wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        // Nobody waits any more when the client has gone.
        let _ = self.0.send(completion);
    }
}
