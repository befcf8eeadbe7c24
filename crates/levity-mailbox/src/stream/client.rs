//! How event loops ask the owners of streams, and how an owner runs.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, MissedTickBehavior};

use super::protocol::{
    Answer, Append, AppendError, Appended, Command, Create, CreateError, Created, Info, Missing,
    Read, ReadError, ReadResult, RemoveError, Reply,
};
use super::streams::Streams;
use crate::clock::steady_time;
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

    fn ask<T, E>(&self, name: &Name, command: impl FnOnce(Reply<T, E>) -> Command) -> Answer<T, E> {
        let (reply, answer) = oneshot::channel();
        self.send(name, command(reply));
        answer
    }

    /// Makes a stream, unless one like it is there.
    #[must_use]
    pub fn create(&self, name: &Name, create: Create) -> Answer<Created, CreateError> {
        self.ask(name, |reply| Command::Create(name.clone(), create, reply))
    }

    /// Appends to a stream, or closes it, or both.
    #[must_use]
    pub fn append(&self, name: &Name, append: Append) -> Answer<Appended, AppendError> {
        self.ask(name, |reply| Command::Append(name.clone(), append, reply))
    }

    /// Reads from a stream. To drop the answer ends a read that waits.
    #[must_use]
    pub fn read(&self, name: &Name, read: Read) -> Answer<ReadResult, ReadError> {
        self.ask(name, |reply| Command::Read(name.clone(), read, reply))
    }

    /// Describes a stream.
    #[must_use]
    pub fn look(&self, name: &Name) -> Answer<Info, Missing> {
        self.ask(name, |reply| Command::Look(name.clone(), reply))
    }

    /// Removes a stream.
    #[must_use]
    pub fn remove(&self, name: &Name) -> Answer<(), RemoveError> {
        self.ask(name, |reply| Command::Remove(name.clone(), reply))
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
        let now = steady_time(Instant::now());
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
