//! A worker's thread: its runtime, its listeners, and the messages of the control thread.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use levity_config::address::Address;
use levity_disk::{guard, priority};
use levity_net::ListeningSocket;
use levity_telemetry::access_log::Log;
use levity_telemetry::popular::Snapshot;
use levity_telemetry::stall::Watch;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};

use crate::loop_core;
use crate::loop_core::completions::Completions;
use crate::mailboxes::local::LocalParts;
use crate::route::Service;
use crate::serve::accept;
use crate::worker::{Worker, WorkerParts};

/// A message of the control thread to a worker.
pub enum Message {
    /// Replace the configuration and adjust the listeners.
    Reload {
        /// The new configuration.
        service: Arc<Service>,
        /// The worker's ends of its access logs.
        logs: Vec<Log>,
        /// New addresses.
        listen: Vec<(Address, ListeningSocket)>,
        /// Removed addresses.
        close: Vec<Address>,
    },
    /// Report which files are requested.
    Popular(oneshot::Sender<Snapshot>),
    /// Answer: the loop turns.
    Answer(oneshot::Sender<()>),
    /// Stop accepting, complete the requests in progress, then end.
    Drain,
}

/// The parts of a worker's thread.
pub struct Parts {
    /// The parts of the worker.
    pub worker: WorkerParts,
    /// The mailboxes of the worker.
    pub mailboxes: LocalParts,
    /// The streams that `resume` keeps, as mailboxes of their own.
    pub resume: LocalParts,
    /// The listening sockets.
    pub listen: Vec<(Address, ListeningSocket)>,
    /// Where it hears of the control thread and of the other event loops.
    pub channels: Channels,
    /// Abort the process when this thread makes a file call that may block.
    pub guard: bool,
}

/// Where an event loop hears of the control thread and of the other event loops.
pub struct Channels {
    messages: mpsc::UnboundedReceiver<Message>,
    /// Each event loop holds a receiver until it has drained.
    all_drains: Arc<watch::Sender<()>>,
    own_drain: watch::Receiver<()>,
}

/// The channels of `count` event loops, and where the control thread sends messages.
pub fn channels(count: usize) -> (Vec<mpsc::UnboundedSender<Message>>, Vec<Channels>) {
    let all_drains = Arc::new(watch::Sender::new(()));
    let one = |_| {
        let (sender, messages) = mpsc::unbounded_channel();
        let channels = Channels {
            messages,
            own_drain: all_drains.subscribe(),
            all_drains: all_drains.clone(),
        };
        (sender, channels)
    };
    (0..count).map(one).unzip()
}

/// Starts a worker's thread. The caller has done everything that may block.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(number: usize, parts: Parts) -> io::Result<JoinHandle<io::Result<()>>> {
    thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || run(parts))
}

fn run(parts: Parts) -> io::Result<()> {
    priority::set_for_loop();
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_unpark(turn_begins)
        .build_local(LocalOptions::default())
        .map_err(|error| io::Error::new(error.kind(), format!("no event loop: {error}")))?;
    Watch::install(parts.worker.stats.polls.clone());
    let disk = &parts.worker.disk;
    if parts.guard && !disk.blocks_on_loop() {
        guard::install(disk.needs_sendfile())?;
    }
    runtime.block_on(live(parts));
    Ok(())
}

fn turn_begins() {
    Watch::turn_begins();
    levity_net::arrived();
}

async fn live(parts: Parts) {
    let (completions, delivery) = Completions::new();
    loop_core::spawn(delivery.run());
    let (mailboxes, upkeep) = parts.mailboxes.split();
    loop_core::spawn(upkeep);
    let (resume, upkeep) = parts.resume.split();
    loop_core::spawn(upkeep);
    let worker = Worker::new(parts.worker, completions, mailboxes, resume);
    let worker = Rc::new(worker);
    let mut listeners = accept::Listeners::default();
    listeners.add(&worker, parts.listen);
    let sweep = loop_core::spawn(worker.clone().sweep());
    let mut channels = parts.channels;
    while let Some(message) = channels.messages.recv().await {
        match message {
            Message::Reload {
                service,
                logs,
                listen,
                close,
            } => {
                worker.set_service(service, logs);
                listeners.add(&worker, listen);
                listeners.close(&close).await;
            }
            Message::Popular(reply) => {
                let snapshot = worker.popular.borrow().snapshot(Instant::now());
                // An error means that the receiver has timed out.
                let _ = reply.send(snapshot);
            }
            Message::Answer(reply) => {
                // An error means that the server ends.
                let _ = reply.send(());
            }
            Message::Drain => {
                // Before it accepts what waits: idle connections may have all slots.
                worker.core.begin_drain().await;
                listeners.close_all().await;
                worker.core.drained().await;
                // Requests at other event loops may need mailboxes that this one owns.
                drop(channels.own_drain);
                channels.all_drains.closed().await;
                break;
            }
        }
    }
    sweep.abort();
    worker.core.flush_logs();
}
