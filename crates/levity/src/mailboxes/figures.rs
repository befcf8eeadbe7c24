//! What owners and sets have counted, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use levity_mailbox::OwnerFigures;
use levity_telemetry::stats::{MailboxFigures, ResumeFigures};

use super::set::{Refusal, SharedMailboxes};

/// The figures of all mailboxes of the process.
pub fn figures(
    store: &'static str,
    owners: &[Arc<OwnerFigures>],
    shared: &SharedMailboxes,
    resume: ResumeFigures,
) -> MailboxFigures {
    let sum = |of: fn(&OwnerFigures) -> &AtomicU64| -> u64 {
        let counts = owners.iter().map(|owner| of(owner).load(Ordering::Relaxed));
        counts.sum()
    };
    let gauge = |of: fn(&OwnerFigures) -> &AtomicUsize| -> usize {
        let counts = owners.iter().map(|owner| of(owner).load(Ordering::Relaxed));
        counts.sum()
    };
    MailboxFigures {
        store,
        boxes: gauge(|owner| &owner.boxes),
        boxes_read: gauge(|owner| &owner.watched),
        receivers: shared.receivers.load(Ordering::Relaxed),
        bytes: shared.budget.used(),
        bytes_max: shared.budget.bytes_max(),
        messages: vec![
            ("published", sum(|owner| &owner.published)),
            ("duplicate", sum(|owner| &owner.duplicates)),
            ("failed", sum(|owner| &owner.failed)),
        ],
        dropped: vec![
            ("bound", sum(|owner| &owner.lost)),
            ("expired", sum(|owner| &owner.expired)),
        ],
        refused: shared.refusals.counts(Refusal::OF_MAILBOXES),
        idle_boxes: sum(|owner| &owner.idle_boxes),
        is_down: owners
            .iter()
            .any(|owner| owner.is_down.load(Ordering::Relaxed)),
        resume,
    }
}

/// The figures of streams that are kept for clients that come back.
pub fn resume(owners: &[Arc<OwnerFigures>], shared: &SharedMailboxes) -> ResumeFigures {
    let streams = owners.iter();
    ResumeFigures {
        streams: streams
            .map(|owner| owner.boxes.load(Ordering::Relaxed))
            .sum(),
        bytes: shared.budget.used(),
        bytes_max: shared.budget.bytes_max(),
        refused: shared.refusals.counts(Refusal::OF_RESUME),
    }
}
