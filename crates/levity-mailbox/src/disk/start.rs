//! What a start makes of what it finds.
//!
//! | what was found | what may be missing | boxes that begin a new epoch |
//! |---|---|---|
//! | closed in order | nothing | none |
//! | not closed, same run of the machine, all commits that the witness knows | nothing: a kill loses no write | none |
//! | not closed, another run of the machine, or a copy of the folder | what had not been synced | those that are not durable |
//! | fewer commits than the witness knows | those commits | those that are not durable; all, if a synced commit is missing |
//! | no witness, or a damaged one, or a damaged row of `meta` | anything | all |
//!
//! The decision is written in the same transaction as the mark that the store is open. If that fails, for example because the
//! disk is full, the decision holds in memory, nothing is acknowledged until it is written, and the next start decides the same
//! again.

use std::time::SystemTime;

use super::schema::{Bases, Found, Meta};
use super::witness::Acknowledged;
use crate::store::new_epoch;

/// A power of two beyond the number of epochs that are given between two syncs.
const STEP: u64 = 1 << 20;

/// The state of the store after a start, and what it has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub meta: Meta,
    /// What to log.
    pub fault: Option<&'static str>,
}

/// Decides what `found` in the database and `said` by the witness mean, in the run `boot` of the machine.
pub(super) fn decide(
    found: Found,
    said: Option<Acknowledged>,
    boot: &str,
    now: SystemTime,
) -> Start {
    let Acknowledged { commits, epoch, .. } = said.unwrap_or_default();
    // A damaged row may say anything.
    let found_epoch = found.as_ref().filter(|(_, is_right)| *is_right);
    let last = found_epoch.map_or(0, |(meta, _)| meta.epoch).max(epoch);
    // With a clock that has gone back, not one that was given and then lost.
    let fresh = new_epoch(now);
    let epoch = fresh.max(last + STEP + fresh % STEP);
    let Some((mut meta, is_right)) = found else {
        let meta = Meta {
            boot: boot.to_owned(),
            is_closed: false,
            commits,
            epoch,
            bases: Bases {
                all: epoch,
                unsynced: epoch,
            },
        };
        return Start { meta, fault: None };
    };
    if !is_right {
        (meta.commits, meta.bases) = (0, Bases::default());
    }
    let is_another_run = !meta.is_closed && meta.boot != boot;
    let mut fault = None;
    match said {
        Some(said) if is_right && meta.commits >= said.synced => {
            if meta.commits < said.commits && !is_another_run {
                fault = Some("messages that were acknowledged are missing");
            }
            if is_another_run || meta.commits < said.commits {
                meta.bases.unsynced = epoch;
            }
        }
        _ => {
            fault = Some("messages that were acknowledged may be missing");
            meta.bases.all = epoch;
        }
    }
    boot.clone_into(&mut meta.boot);
    (meta.is_closed, meta.epoch) = (false, epoch);
    meta.commits = meta.commits.max(commits);
    Start { meta, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn meta(is_closed: bool, commits: u64) -> Found {
        let boot = "one".to_owned();
        let bases = Bases {
            all: 10,
            unsynced: 20,
        };
        let meta = Meta {
            boot,
            is_closed,
            commits,
            epoch: 1 << 40,
            bases,
        };
        Some((meta, true))
    }

    fn said(commits: u64, synced: u64) -> Option<Acknowledged> {
        Some(Acknowledged {
            commits,
            synced,
            epoch: 1 << 50,
        })
    }

    /// Which of the bases are new, after a start in the run `boot`.
    fn bases(found: Found, said: Option<Acknowledged>, boot: &str) -> (bool, bool) {
        let Start { meta, .. } = decide(found, said, boot, NOW);
        assert!(meta.epoch > 1 << 40 && !meta.is_closed && meta.boot == boot);
        (
            meta.bases.all == meta.epoch,
            meta.bases.unsynced == meta.epoch,
        )
    }

    #[test]
    fn nothing_is_new_if_nothing_is_missing() {
        assert_eq!(bases(meta(true, 7), said(7, 3), "one"), (false, false));
        assert_eq!(bases(meta(true, 7), said(7, 3), "two"), (false, false));
        assert_eq!(bases(meta(false, 7), said(7, 3), "one"), (false, false));
        // A commit whose acknowledgement was not sent.
        assert_eq!(bases(meta(false, 8), said(7, 3), "one"), (false, false));
    }

    #[test]
    fn a_crash_of_the_machine_takes_what_was_not_synced() {
        assert_eq!(bases(meta(false, 7), said(7, 3), "two"), (false, true));
        assert_eq!(bases(meta(false, 3), said(7, 3), "two"), (false, true));
    }

    #[test]
    fn missing_commits_are_noticed() {
        assert_eq!(bases(meta(false, 6), said(7, 3), "one"), (false, true));
        assert_eq!(bases(meta(false, 2), said(7, 3), "one"), (true, false));
        assert_eq!(bases(meta(false, 2), said(7, 3), "two"), (true, false));
        assert_eq!(bases(meta(true, 2), said(7, 3), "one"), (true, false));
    }

    #[test]
    fn what_nobody_can_know_is_missing() {
        assert_eq!(bases(meta(true, 7), None, "one"), (true, false));
        for commits in [7, u64::MAX >> 1] {
            let damaged = meta(true, commits).map(|(mut meta, _)| {
                meta.bases.unsynced = 1 << 61;
                (meta, false)
            });
            assert_eq!(bases(damaged.clone(), said(7, 3), "one"), (true, false));
            let Start { meta, .. } = decide(damaged, said(7, 3), "one", NOW);
            assert!(meta.bases.unsynced < meta.epoch && meta.commits == 7);
        }
    }

    #[test]
    fn epochs_grow_also_without_the_database() {
        let start = decide(None, said(7, 3), "one", NOW);
        assert!(start.meta.epoch > 1 << 50 && start.meta.commits == 7);
    }
}
