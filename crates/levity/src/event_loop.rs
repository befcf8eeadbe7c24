//! A worker's thread: its runtime, its listeners, and what the control thread tells it.

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
use tokio::sync::{mpsc, oneshot};
use tokio::task;

use crate::accept;
use crate::route::Service;
use crate::worker::{Worker, WorkerParts};

/// What the control thread tells a worker.
pub enum Message {
    /// Answer with this service from now on, and listen on these addresses only.
    Reload {
        /// The new configuration.
        service: Arc<Service>,
        /// Addresses that are new.
        listen: Vec<(Address, ListeningSocket)>,
        /// Addresses that are gone.
        close: Vec<Address>,
    },
    /// Write access log lines here from now on.
    Log(Option<Log>),
    /// Tell which files are asked for.
    Popular(oneshot::Sender<Snapshot>),
    /// Take no more connections, finish what is in hand, then end.
    Drain,
}

/// What a worker's thread is given.
pub struct Parts {
    /// What its tasks share.
    pub worker: WorkerParts,
    /// Where it listens.
    pub listen: Vec<(Address, ListeningSocket)>,
    /// What it is told.
    pub messages: mpsc::UnboundedReceiver<Message>,
    /// Abort the process when this thread makes a file call that may block.
    pub guard: bool,
}

/// Starts a worker's thread. Whatever may block has been done by the caller.
///
/// # Errors
/// When the thread cannot be made.
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
        .on_thread_unpark(Watch::turn_begins)
        .build_local(LocalOptions::default())?;
    Watch::install(parts.worker.stats.polls.clone());
    let disk = &parts.worker.disk;
    if parts.guard && !disk.blocks_on_loop() {
        guard::install(disk.needs_sendfile())?;
    }
    runtime.block_on(live(parts));
    Ok(())
}

async fn live(parts: Parts) {
    let worker = Rc::new(Worker::new(parts.worker));
    let mut listeners = accept::Listeners::default();
    listeners.add(&worker, parts.listen);
    let sweep = task::spawn_local(worker.clone().sweep());
    let mut messages = parts.messages;
    while let Some(message) = messages.recv().await {
        match message {
            Message::Reload {
                service,
                listen,
                close,
            } => {
                worker.set_service(service);
                listeners.add(&worker, listen);
                listeners.close(&close).await;
            }
            Message::Log(log) => {
                worker.set_log(log);
            }
            Message::Popular(reply) => {
                let snapshot = worker.popular.borrow().snapshot(Instant::now());
                // Whoever asked may have given up.
                let _ = reply.send(snapshot);
            }
            Message::Drain => {
                listeners.close_all().await;
                worker.drain().await;
                break;
            }
        }
    }
    sweep.abort();
    worker.flush_log();
}
