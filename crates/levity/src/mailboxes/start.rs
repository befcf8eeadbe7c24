//! Starts what mailboxes need before the event loops run.

use std::sync::Arc;

use levity_mailbox::OwnerFigures;
use tokio::sync::mpsc;

use super::local::{LocalParts, OwnParts};

/// The mailboxes of a process before its event loops run.
pub struct Started {
    /// For each event loop.
    pub loops: Vec<LocalParts>,
    /// What the owners count.
    pub figures: Vec<Arc<OwnerFigures>>,
}

/// Makes the queues between `workers` event loops, each of which owns a part of the boxes.
pub fn in_memory(workers: usize) -> Started {
    let (owners, commands): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let (reports, events): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let figures: Vec<Arc<OwnerFigures>> = (0..workers).map(|_| Arc::default()).collect();
    let parts = commands.into_iter().zip(events).zip(&figures).enumerate();
    let loops = parts.map(|(worker, ((commands, events), figures))| LocalParts {
        worker,
        owners: owners.clone(),
        events,
        own: Some(OwnParts {
            commands,
            workers: reports.clone(),
            figures: figures.clone(),
        }),
    });
    Started {
        loops: loops.collect(),
        figures,
    }
}
