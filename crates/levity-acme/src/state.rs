//! What is known of a certificate besides itself.

use std::path::Path;
use std::time::{Duration, SystemTime};

use levity_tls::files;
use serde::{Deserialize, Serialize};

use crate::Log;
use crate::clock::{at, seconds};
use crate::folder::Folder;
use crate::settings::Method;

/// How often an authority may look for a proof of a name in vain: Let's Encrypt locks a name out for an hour after five.
const REFUSALS: Limit = Limit {
    count: 4,
    within: Duration::from_secs(60 * 60),
};

/// How often a certificate of an authority that is not asked any more is replaced at once. Two servers with different authorities
/// that share a folder would do so without an end.
const REPLACEMENTS: Limit = Limit {
    count: 2,
    within: Duration::from_secs(7 * 24 * 60 * 60),
};

/// So many within a time.
struct Limit {
    count: usize,
    within: Duration,
}

impl Limit {
    /// When one more is within the limit, besides those at `times`, which are in order.
    fn next(&self, times: &[u64]) -> Option<SystemTime> {
        let oldest = times.len().checked_sub(self.count)?;
        Some(at(times[oldest]) + self.within)
    }

    /// Whether one at `time` still counts at `now`. One that lies ahead was noted while the clock was wrong.
    fn counts(&self, time: u64, now: SystemTime) -> bool {
        let age = now.duration_since(at(time));
        age.is_ok_and(|age| age < self.within)
    }
}

/// Everything about a name that has to outlive a restart.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameState {
    /// The directory of the authority that has issued the certificate.
    pub directory: Option<String>,
    /// Orders that have not ended, at most one of each authority.
    pub orders: Vec<Pending>,
    /// When the certificate is to be renewed, in seconds since 1970.
    pub renew_at: Option<u64>,
    /// When the authority is to be asked again for a better time.
    pub ask_at: Option<u64>,
    /// The attempts that have failed since the last certificate.
    pub failures: u32,
    /// Why the last one has.
    pub last_error: Option<String>,
    /// Before this time there is no other one.
    pub not_before: Option<u64>,
    /// How the name is to be proved, if not in the preferred way, which has failed.
    pub method: Option<Method>,
    /// When authorities have looked for a proof in vain.
    pub refusals: Vec<Event>,
    /// When a certificate of an authority that was not asked any more was replaced, by the directories that were asked.
    pub replacements: Vec<Event>,
    /// Records in the DNS that may be there.
    pub records: Vec<Record>,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// To what.
    pub of: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// A TXT record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its full name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// How often it could not be removed.
    #[serde(default)]
    pub failures: u32,
    /// When it is to be removed, in seconds since 1970; `None` for as soon as nobody needs it.
    #[serde(default)]
    pub remove_at: Option<u64>,
}

/// Why there is no state, in words, with the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The file cannot be read now.
    Failed(String),
    /// What it has makes no sense.
    Malformed(String),
}

impl Unread {
    pub fn into_reason(self) -> String {
        match self {
            Self::Failed(reason) | Self::Malformed(reason) => reason,
        }
    }
}

/// An order that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The directory of the authority.
    pub directory: String,
    /// The URL of the order, once the authority has named it.
    pub url: Option<String>,
    /// The key of the certificate, as PEM.
    pub key: String,
}

impl NameState {
    /// The order at the authority with this directory that has not ended.
    pub(crate) fn order(&self, directory: &str) -> Option<&Pending> {
        self.orders.iter().find(|one| one.directory == directory)
    }

    /// Puts `order` into the place of the one at the same authority.
    pub(crate) fn begin_order(&mut self, order: Pending) {
        self.end_order(&order.directory);
        self.orders.push(order);
    }

    /// Forgets the order at the authority with this directory.
    pub(crate) fn end_order(&mut self, directory: &str) {
        self.orders.retain(|one| one.directory != directory);
    }

    /// When the next record that is left is to be removed; `None` if there is none.
    pub(crate) fn next_removal(&self) -> Option<SystemTime> {
        let times = self.records.iter().map(|record| record.remove_at);
        times.map(|time| at(time.unwrap_or(0))).min()
    }

    /// Notes that the authority with this directory has looked for a proof in vain.
    pub(crate) fn refused(&mut self, directory: &str, now: SystemTime) {
        note(&mut self.refusals, &REFUSALS, directory, now);
    }

    /// When the authority with this directory may look again; `None` if it may now.
    pub(crate) fn next_proof(&self, directory: &str, now: SystemTime) -> Option<SystemTime> {
        next(&self.refusals, &REFUSALS, directory, now)
    }

    /// Notes that a certificate of an authority that is not asked any more was replaced by one of `directories`.
    pub(crate) fn replaced(&mut self, directories: &str, now: SystemTime) {
        note(&mut self.replacements, &REPLACEMENTS, directories, now);
    }

    /// When another one may be replaced at once; `None` if it may now.
    pub(crate) fn next_replacement(
        &self,
        directories: &str,
        now: SystemTime,
    ) -> Option<SystemTime> {
        next(&self.replacements, &REPLACEMENTS, directories, now)
    }

    /// Forgets what lets the next attempt wait.
    pub(crate) fn try_again(&mut self) {
        self.not_before = None;
        self.failures = 0;
        self.method = None;
        self.refusals.clear();
        self.replacements.clear();
    }

    /// That of `name`. One that makes no sense is logged, and begins anew. Blocks.
    ///
    /// # Errors
    /// In words, with the path, when the file cannot be read: what it has counts still.
    pub fn load(folder: &Folder, name: &str, log: Log) -> Result<Self, String> {
        match Self::read(&folder.state(name)) {
            Err(Unread::Malformed(reason)) => {
                log(format_args!(
                    "the state of the certificate for {name} is lost: {reason}"
                ));
                Ok(Self::default())
            }
            read => read.map_err(Unread::into_reason),
        }
    }

    /// The same from a file, which need not be there. Blocks.
    ///
    /// # Errors
    /// When the file is there and has no state, or cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self, Unread> {
        let bytes = files::read_if_there(path).map_err(Unread::Failed)?;
        let Some(bytes) = bytes else {
            return Ok(Self::default());
        };
        let state = serde_json::from_slice(&bytes);
        state.map_err(|error| Unread::Malformed(format!("{}: {error}", path.display())))
    }

    /// Writes it. Blocks.
    ///
    /// # Errors
    /// In words, with the path.
    pub fn save(&self, folder: &Folder, name: &str) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        folder.write(&folder.state(name), &text)
    }
}

/// Notes what has happened, without what does not count any more.
fn note(events: &mut Vec<Event>, limit: &Limit, of: &str, now: SystemTime) {
    events.retain(|event| limit.counts(event.at, now));
    events.push(Event {
        of: of.to_owned(),
        at: seconds(now),
    });
}

fn next(events: &[Event], limit: &Limit, of: &str, now: SystemTime) -> Option<SystemTime> {
    let counted = events
        .iter()
        .filter(|event| event.of == of && limit.counts(event.at, now));
    let mut times: Vec<_> = counted.map(|event| event.at).collect();
    times.sort_unstable();
    limit.next(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn an_authority_looks_in_vain_four_times_an_hour() {
        let (mut state, start) = (NameState::default(), at(1_800_000_000));
        for minute in 0..4 {
            let now = start + MINUTE * minute;
            assert_eq!(state.next_proof("x", now), None);
            state.refused("x", now);
        }
        let now = start + MINUTE * 4;
        assert_eq!(state.next_proof("x", now), Some(start + REFUSALS.within));
        assert_eq!(state.next_proof("y", now), None);
        assert_eq!(state.next_proof("x", start + REFUSALS.within), None);
        // The clock was ahead.
        assert_eq!(state.next_proof("x", start - MINUTE), None);
        state.try_again();
        assert_eq!(state.next_proof("x", now), None);
    }

    #[test]
    fn servers_with_different_authorities_agree_after_a_while() {
        let (mut state, start) = (NameState::default(), at(1_800_000_000));
        let replacements = (0..1000).filter(|minute| {
            let now = start + MINUTE * *minute;
            let mine = ["x", "y"][*minute as usize % 2];
            let may = state.next_replacement(mine, now).is_none();
            if may {
                state.replaced(mine, now);
            }
            may
        });
        assert_eq!(replacements.count(), 4);
    }

    #[test]
    fn each_authority_has_an_order() {
        let order = |directory: &str, key: &str| Pending {
            directory: directory.to_owned(),
            url: None,
            key: key.to_owned(),
        };
        let mut state = NameState::default();
        for (directory, key) in [("x", "1"), ("y", "2"), ("x", "3")] {
            state.begin_order(order(directory, key));
        }
        assert_eq!(state.order("x").map(|one| &*one.key), Some("3"));
        assert_eq!(state.order("y").map(|one| &*one.key), Some("2"));
        state.end_order("x");
        assert_eq!(state.orders.len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_loses_no_state() {
        fn log(_: std::fmt::Arguments<'_>) {}
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(state.path()).expect("a folder");
        let load = |name: &str| NameState::load(&folder, name, log);
        assert_eq!(load("new.test"), Ok(NameState::default()));
        std::fs::write(folder.state("broken.test"), "{").expect("written");
        assert_eq!(load("broken.test"), Ok(NameState::default()));
        // As unreadable as a file on a disk with errors.
        std::fs::create_dir(folder.state("disk.test")).expect("made");
        let reason = load("disk.test").expect_err("no file");
        assert!(reason.contains("disk.test.json cannot be read"), "{reason}");
    }

    #[test]
    fn a_state_of_an_older_server_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.json");
        let text = r#"{"order": {"directory": "x", "url": null, "key": "k"}, "failures": 2}"#;
        std::fs::write(&path, text).expect("written");
        let state = NameState::read(&path).expect("read");
        assert_eq!(state.failures, 2);
    }
}
