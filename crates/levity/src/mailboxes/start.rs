//! Starts what mailboxes need before the event loops run.

use std::io;
use std::iter;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;
use std::time::{Duration, Instant};

use levity_config::in_unit::remedy;
use levity_config::{MailboxStore, StoreKind};
use levity_disk::responds;
use levity_mailbox::disk::{DiskStore, Options};
#[cfg(feature = "redis")]
use levity_mailbox::redis::RedisStore;
use levity_mailbox::{
    BoxEvent, Budget, Command, Owner, OwnerFigures, Reports, Store, run, steady_time,
};
use levity_telemetry::diagnostics;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

use super::local::{LocalParts, OwnParts};

/// The mailboxes of a process before its event loops run.
pub struct Started {
    /// For each event loop.
    pub loops: Vec<LocalParts>,
    /// Where messages are kept.
    pub store: &'static str,
    /// What the owners count.
    pub figures: Vec<Arc<OwnerFigures>>,
    /// The thread of the store; `None` where event loops keep messages in memory.
    pub thread: Option<StoreThread>,
}

/// The thread that owns all boxes of a store which may have to wait: `mailbox-store`.
pub struct StoreThread {
    owner: mpsc::UnboundedSender<Command>,
    ended: blocking::Receiver<()>,
}

impl StoreThread {
    /// Waits until what was asked of the store has been done, at most `timeout`. Event loops that have not ended get no more of it.
    pub fn end(self, timeout: Duration) {
        // An error means that it has ended.
        let _ = self.owner.send(Command::End);
        // An error means that it has ended, or hangs on its disk or server.
        let _ = self.ended.recv_timeout(timeout);
    }
}

type Queues<T> = (
    Vec<mpsc::UnboundedSender<T>>,
    Vec<mpsc::UnboundedReceiver<T>>,
);

fn queues<T>(count: usize) -> Queues<T> {
    (0..count).map(|_| mpsc::unbounded_channel()).unzip()
}

/// What each event loop needs, of which some have an owner of their own.
fn loops(
    owners: &[mpsc::UnboundedSender<Command>],
    events: Vec<mpsc::UnboundedReceiver<BoxEvent>>,
    own: impl Iterator<Item = Option<OwnParts>>,
) -> Vec<LocalParts> {
    let loops = events.into_iter().zip(own).enumerate();
    let loops = loops.map(|(worker, (events, own))| LocalParts {
        worker,
        owners: owners.to_vec(),
        events,
        own,
    });
    loops.collect()
}

/// Starts the store that `of` names, for `workers` event loops, with memory from `budget`. May block.
///
/// # Errors
/// When it cannot be used.
pub fn start(of: &MailboxStore, workers: usize, budget: Arc<Budget>) -> io::Result<Started> {
    let store = of.kind.label();
    match of.kind {
        StoreKind::Memory => Ok(in_memory(workers)),
        #[cfg(not(feature = "redis"))]
        StoreKind::Redis => unreachable!("the configuration refuses it"),
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            let url = of.url.clone().unwrap_or_default();
            let make = move || RedisStore::new(&url, budget, report).map_err(unusable);
            on_thread(workers, store, make)
        }
        StoreKind::Disk => {
            let folder = of.folder.clone().unwrap_or_default();
            responds(&folder)
                .map_err(|error| unusable(format!("{}: {error}", folder.display())))?;
            let make = move || open_disk(&folder, budget);
            on_thread(workers, store, make)
        }
    }
}

/// Logs what a store has to say.
fn report(line: &str) {
    diagnostics::log(format_args!("mailboxes: {line}"));
}

fn open_disk(folder: &Path, budget: Arc<Budget>) -> io::Result<impl Store + use<>> {
    let options = Options::new(folder, report);
    let now = steady_time(Instant::now());
    let opened = options.and_then(|options| DiskStore::open(folder, budget, options, now));
    opened.map_err(|error| {
        let remedy = remedy(folder, &error);
        unusable(format!("{}: {error}{remedy}", folder.display()))
    })
}

fn unusable(reason: String) -> io::Error {
    io::Error::other(format!("mailbox_store: {reason}"))
}

/// The number of owners among which boxes are divided.
pub fn owners(of: &MailboxStore, workers: usize) -> usize {
    match of.kind {
        StoreKind::Memory => workers,
        _ => 1,
    }
}

/// Each event loop owns a part of the boxes.
pub fn in_memory(workers: usize) -> Started {
    let (owners, commands) = queues(workers);
    let (reports, events) = queues(workers);
    let figures: Vec<Arc<OwnerFigures>> = (0..workers).map(|_| Arc::default()).collect();
    let own = commands.into_iter().zip(&figures);
    let own = own.map(|(commands, figures)| {
        Some(OwnParts {
            commands,
            workers: reports.clone(),
            figures: figures.clone(),
        })
    });
    Started {
        loops: loops(&owners, events, own),
        store: StoreKind::Memory.label(),
        figures,
        thread: None,
    }
}

/// For an event loop that is the only one.
pub fn single() -> LocalParts {
    in_memory(1).loops.remove(0)
}

/// One thread owns all boxes. `make` is called on it, in its runtime.
fn on_thread<S: Store>(
    workers: usize,
    store: &'static str,
    make: impl FnOnce() -> io::Result<S> + Send + 'static,
) -> io::Result<Started> {
    let (owner, commands) = mpsc::unbounded_channel();
    let (reports, events) = queues(workers);
    let figures = Arc::<OwnerFigures>::default();
    let (made, result) = blocking::channel();
    let (end, ended) = blocking::channel();
    let of_owner = figures.clone();
    thread::Builder::new()
        .name("mailbox-store".to_owned())
        .spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default());
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(made.send(Err(error))),
            };
            runtime.block_on(async {
                let store = match make() {
                    Ok(store) => store,
                    Err(error) => return drop(made.send(Err(error))),
                };
                let _ = made.send(Ok(()));
                let reports = reports.into_iter().map(Reports::Queue).collect();
                run(Owner::new(store, reports, of_owner), commands).await;
            });
            let _ = end.send(());
        })?;
    let failed = |_| io::Error::other("the thread of the mailboxes has ended");
    result.recv().map_err(failed)??;
    let own = iter::repeat_with(|| None);
    Ok(Started {
        loops: loops(slice::from_ref(&owner), events, own),
        store,
        figures: vec![figures],
        thread: Some(StoreThread { owner, ended }),
    })
}
