//! Records in the DNS that prove names, and that have to go again.

use crate::run::Run;
use crate::state::State;

/// When records are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// After the authority has looked. One that stays is removed before the next attempt.
    Seen,
    /// After one could not be made: that is told, and one that was not made cannot be removed.
    Failed,
    /// Before an attempt: they are left of one that was cut off.
    Left,
}

/// Removes all that `state` has, which is not saved.
pub async fn remove(run: &Run, state: &mut State, when: When) {
    let mut kept = Vec::new();
    for record in std::mem::take(&mut state.records) {
        let removed = match &run.dns {
            Some(dns) => dns.remove(&record.name, &record.value).await,
            None => Err("`[acme.dns]` is missing".to_owned()),
        };
        let Err(reason) = removed else { continue };
        if when != When::Failed {
            let name = &record.name;
            (run.log)(format_args!("the record {name} stays: {reason}"));
        }
        if when == When::Seen {
            kept.push(record);
        }
    }
    state.records = kept;
}
