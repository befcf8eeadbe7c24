//! The durable streams of the process: each event loop owns those of some sets. They are in memory, whatever keeps messages.

use std::sync::Arc;
use std::time::SystemTime;

use levity_mailbox::stream::{Client, Command, Streams, run};
use levity_mailbox::{Budget, OwnerFigures};
use tokio::sync::mpsc;

/// What one event loop needs for streams.
pub struct StreamParts {
    /// All owners of the process.
    owners: Vec<mpsc::UnboundedSender<Command>>,
    /// What the own one is asked for.
    commands: mpsc::UnboundedReceiver<Command>,
    /// The memory of content.
    budget: Arc<Budget>,
    /// What it counts.
    pub figures: Arc<OwnerFigures>,
}

impl StreamParts {
    /// For an event loop that is the only one.
    pub fn single() -> Self {
        parts(1, &Budget::new(usize::MAX)).swap_remove(0)
    }

    /// What handlers ask, and the task that answers.
    pub fn split(self) -> (Client, impl Future<Output = ()> + 'static) {
        let streams = Streams::new(self.budget, self.figures, SystemTime::now());
        (Client::new(self.owners), run(streams, self.commands))
    }
}

/// What each of `workers` event loops needs. Content takes memory of `budget`.
pub fn parts(workers: usize, budget: &Arc<Budget>) -> Vec<StreamParts> {
    let (owners, commands): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let parts = commands.into_iter().map(|commands| StreamParts {
        owners: owners.clone(),
        commands,
        budget: budget.clone(),
        figures: Arc::default(),
    });
    parts.collect()
}
