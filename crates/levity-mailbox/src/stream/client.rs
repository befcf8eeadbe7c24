//! How event loops ask the owners of streams, and how an owner runs.

use std::future::poll_fn;
use std::task::Poll;
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, MissedTickBehavior};

use super::protocol::{
    Append, AppendError, Appended, Command, Create, CreateError, Created, Info, Missing, Read,
    ReadError, ReadResult, RemoveError,
};
use super::streams::Streams;
use crate::name::Name;
use crate::owner::{COMMANDS_MAX, SWEEP_INTERVAL, poll_tick};

/// The owners of the streams of a process. A clone is of the same ones.
#[derive(Debug, Clone)]
pub struct Client {
    owners: Vec<mpsc::UnboundedSender<Command>>,
}

impl Client {
    /// `owners` are all of the process, in the same order in all event loops.
    #[must_use]
    pub fn new(owners: Vec<mpsc::UnboundedSender<Command>>) -> Self {
        Self { owners }
    }

    /// Passes a command to the owner of the set of `name`. If it has ended, the command is dropped, and with it the sender of
    /// its answer.
    fn send(&self, name: &Name, command: Command) {
        let owner = fnv1a(name.set()) % self.owners.len() as u64;
        let _ = self.owners[owner as usize].send(command);
    }

    async fn ask<T, E>(
        &self,
        name: &Name,
        ended: E,
        command: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Command,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        self.send(name, command(reply));
        answer.await.unwrap_or(Err(ended))
    }

    /// Makes a stream, unless one like it is there.
    ///
    /// # Errors
    /// When another one is there, or none can be made.
    pub async fn create(&self, name: &Name, create: Create) -> Result<Created, CreateError> {
        let command = |reply| Command::Create(name.clone(), create, reply);
        self.ask(name, CreateError::Ended, command).await
    }

    /// Appends to a stream, or closes it, or both.
    ///
    /// # Errors
    /// When nothing is appended.
    pub async fn append(&self, name: &Name, append: Append) -> Result<Appended, AppendError> {
        let command = |reply| Command::Append(name.clone(), append, reply);
        let ended = AppendError::Missing(Missing::Ended);
        self.ask(name, ended, command).await
    }

    /// Reads from a stream.
    ///
    /// # Errors
    /// When there is no stream, or it cannot be read from there.
    pub async fn read(&self, name: &Name, read: Read) -> Result<ReadResult, ReadError> {
        let ended = ReadError::Missing(Missing::Ended);
        self.start_read(name, read).await.unwrap_or(Err(ended))
    }

    /// As [`read`](Self::read); the answer is an error if the server ends. To drop it ends the read.
    #[must_use]
    pub fn start_read(
        &self,
        name: &Name,
        read: Read,
    ) -> oneshot::Receiver<Result<ReadResult, ReadError>> {
        let (reply, answer) = oneshot::channel();
        self.send(name, Command::Read(name.clone(), read, reply));
        answer
    }

    /// Describes a stream.
    ///
    /// # Errors
    /// When there is none.
    pub async fn look(&self, name: &Name) -> Result<Info, Missing> {
        let command = |reply| Command::Look(name.clone(), reply);
        self.ask(name, Missing::Ended, command).await
    }

    /// Removes a stream.
    ///
    /// # Errors
    /// When there is none.
    pub async fn remove(&self, name: &Name) -> Result<(), RemoveError> {
        let command = |reply| Command::Remove(name.clone(), reply);
        self.ask(name, Missing::Ended, command).await
    }
}

/// The same in all event loops.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Runs an owner until all senders of `commands` are gone.
pub async fn run(mut streams: Streams, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut ticks = time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    poll_fn(|context| {
        let now = SystemTime::now();
        if poll_tick(&mut ticks, context) {
            streams.sweep(now);
        }
        let mut received = 0;
        while received < COMMANDS_MAX {
            match commands.poll_recv(context) {
                Poll::Ready(Some(command)) => streams.command(command, now),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => break,
            }
            received += 1;
        }
        let has_more = streams.answer(now);
        if has_more || received == COMMANDS_MAX {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}
