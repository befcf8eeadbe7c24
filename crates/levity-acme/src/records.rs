//! Records in the DNS that prove names, and that have to go again.

use std::time::SystemTime;

use levity_tls::in_words;

use crate::clock::{at, seconds};
use crate::renewal;
use crate::run::Run;
use crate::state::{NameState, Record};

/// How often a record is tried to be removed: for about five days.
const TRIES_MAX: u32 = 10;

/// When records are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nobody needs them any more.
    Due,
    /// After one could not be made: that is told, and one that was not made cannot be removed.
    Failed,
}

/// Removes all that `state` has and whose time has come, which is not saved. One that stays is tried again later.
pub async fn remove(run: &Run, state: &mut NameState, when: When) {
    let now = SystemTime::now();
    let is_due = |record: &Record| record.remove_at.is_none_or(|time| at(time) <= now);
    let records = std::mem::take(&mut state.records).into_iter();
    let (due, mut kept): (Vec<_>, Vec<_>) = records.partition(is_due);
    for record in due {
        let removed = match &run.dns {
            Some(dns) => dns.remove(&record.name, &record.value).await,
            None => Err("`[acme.dns]` is missing".to_owned()),
        };
        let is_new = record.failures == 0;
        match removed {
            Err(reason) if when == When::Due || !is_new => {
                kept.extend(later(run, record, &reason));
            }
            Err(_) | Ok(()) => {}
        }
    }
    state.records = kept;
}

/// `record`, which could not be removed, if that is to be tried again.
fn later(run: &Run, record: Record, reason: &str) -> Option<Record> {
    let (name, failures) = (&record.name, record.failures + 1);
    if failures >= TRIES_MAX {
        (run.log)(format_args!(
            "the record {name} stays: {reason}; it is not tried again, and has to be removed by hand"
        ));
        return None;
    }
    let pause = renewal::pause(failures, None);
    (run.log)(format_args!(
        "the record {name} stays: {reason}; the next try is in {}",
        in_words(pause)
    ));
    Some(Record {
        failures,
        remove_at: Some(seconds(SystemTime::now() + pause)),
        ..record
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::settings::{DnsSettings, Settings};

    const RECORD: &str = "_acme-challenge.a.test";

    fn run(state: &std::path::Path, hook: &str) -> Run {
        let settings = Settings {
            folder: state.to_owned(),
            contact: None,
            authorities: Vec::new(),
            methods: Vec::new(),
            dns: Some(DnsSettings::Hook(vec![hook.to_owned()])),
            ask: None,
        };
        Run::new(&settings, &Arc::default(), &Arc::default(), |_| {}).expect("a folder")
    }

    fn with_record() -> NameState {
        NameState {
            records: vec![Record {
                name: RECORD.to_owned(),
                value: "v".to_owned(),
                failures: 0,
                remove_at: None,
            }],
            ..NameState::default()
        }
    }

    #[tokio::test]
    async fn a_record_that_stays_is_tried_again_some_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let (failing, working) = (run(folder.path(), "false"), run(folder.path(), "true"));
        let mut state = with_record();
        for failures in 1..TRIES_MAX {
            remove(&failing, &mut state, When::Due).await;
            assert_eq!(state.records[0].failures, failures);
            let due = state.next_removal().expect("a time");
            assert!(due > SystemTime::now());
            // Not before its time.
            remove(&failing, &mut state, When::Due).await;
            assert_eq!(state.next_removal(), Some(due));
            state.records[0].remove_at = Some(0);
        }
        let mut removed = state.clone();
        remove(&working, &mut removed, When::Due).await;
        assert_eq!(removed.records, []);
        remove(&failing, &mut state, When::Due).await;
        assert_eq!(state.records, []);
    }

    #[tokio::test]
    async fn a_record_that_was_not_made_is_forgotten_and_older_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let failing = run(folder.path(), "false");
        let mut state = with_record();
        remove(&failing, &mut state, When::Due).await;
        state.records[0].remove_at = Some(0);
        state.records.extend(with_record().records);
        remove(&failing, &mut state, When::Failed).await;
        assert_eq!(state.records.len(), 1);
        assert_eq!(state.records[0].failures, 2);
    }
}
