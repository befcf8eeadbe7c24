//! Crashes of the machine between any two steps, by simulation: all states of the folder that they may leave.

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use levity_disk::Disk;
use levity_disk::engine::crash::{Files, Recording};
use levity_mailbox::{MessageId, Name, Settings, Store as _};

use crate::harness::*;

/// Of the states, about so many are looked at.
const STATES_MAX: usize = 100;

/// The same in the test that takes long.
const MANY_STATES_MAX: usize = 5000;

const KEPT: usize = 3;

/// What was acknowledged, and after how many steps.
enum Done {
    Appended(Name, MessageId, String),
    Removed(Name),
}

struct Scenario {
    rig: Rig,
    recording: Recording,
    done: Vec<(usize, Done)>,
    known: Known,
}

fn kept(is_durable: bool) -> Arc<Settings> {
    settings(|settings| {
        settings.messages_max = KEPT;
        settings.is_durable = is_durable;
    })
}

impl Scenario {
    fn new() -> Scenario {
        let owned = folder();
        let recording = Recording::start(owned.path()).unwrap();
        let mut rig = Rig::of(owned.path(), disk("simulated:delay_ms=0"));
        rig.options.segment_bytes = 1200;
        rig.own(owned);
        rig.open_store();
        Scenario {
            rig,
            recording,
            done: Vec::new(),
            known: Known::default(),
        }
    }

    fn append(&mut self, name: &Name, settings: &Arc<Settings>, number: usize) {
        let text = format!("{number:>40}");
        let id = self.rig.append(name, settings, &text);
        self.known.note(name, id, &text);
        let done = Done::Appended(name.clone(), id, text);
        self.done.push((self.recording.steps(), done));
    }

    fn remove(&mut self, name: &Name) {
        assert!(self.rig.remove(name));
        let done = Done::Removed(name.clone());
        self.done.push((self.recording.steps(), done));
    }

    /// The messages of a box that were acknowledged within so many steps, since it was removed last; and whether it
    /// was removed.
    fn acknowledged(&self, name: &Name, made: usize) -> (Vec<(MessageId, &str)>, bool) {
        let (mut messages, mut is_removed) = (Vec::new(), false);
        for (_, done) in self.done.iter().take_while(|(steps, _)| *steps <= made) {
            match done {
                Done::Appended(of, id, text) if of == name => messages.push((*id, &text[..])),
                Done::Removed(of) if of == name => {
                    messages.clear();
                    is_removed = true;
                }
                _ => {}
            }
        }
        (messages, is_removed)
    }

    /// Opens the journal in a folder with these files, and looks at everything.
    fn check(&self, disk: &Arc<Disk>, made: usize, files: &Files) {
        let owned = folder();
        for (name, bytes) in files.iter().filter(|(name, _)| *name != Path::new("lock")) {
            fs::write(owned.path().join(name), bytes).unwrap();
        }
        let mut rig = Rig::of(owned.path(), disk.clone());
        // The machine has started anew.
        rig.options.boot = "another".into();
        rig.open_store();
        assert_eq!(rig.lines(), Vec::<String>::new(), "after {made}");
        for (text, is_durable) in [("d", true), ("n", false), ("r", true), ("s", false)] {
            self.check_box(&mut rig, &name(text), is_durable, made);
        }
        // What it has found stays.
        let before = rig.open(&name("n"), &kept(false));
        rig.reopen();
        let after = rig.open(&name("n"), &kept(false));
        assert_eq!((after.epoch, after.next), (before.epoch, before.next));
    }

    fn check_box(&self, rig: &mut Rig, name: &Name, is_durable: bool, made: usize) {
        let on_its_way = self.done.iter().find(|(steps, _)| *steps > made);
        if matches!(on_its_way, Some((_, Done::Removed(of))) if of == name) {
            return;
        }
        let (messages, is_removed) = self.acknowledged(name, made);
        let found = rig.look(name);
        if let Some(found) = &found {
            self.known.check(name, found);
        }
        let epoch = messages.first().map(|(id, _)| id.epoch);
        if is_durable && let Some(epoch) = epoch {
            assert_eq!(found.as_ref().map(|it| it.epoch), Some(epoch), "{name}");
        }
        let comes = matches!(on_its_way, Some((_, Done::Appended(of, ..))) if of == name);
        if is_durable && is_removed && messages.is_empty() && !comes {
            assert!(found.is_none(), "{name} is back after {made}");
        }
        // A box that says that it is the same has everything, but what a message on its way has taken the place of.
        if let Some(found) = found.filter(|found| Some(found.epoch) == epoch) {
            let last = messages.len().saturating_sub(KEPT - 1);
            for (id, text) in &messages[last..] {
                let kept = found.messages.iter().find(|message| message.id == *id);
                let kept = kept.map(crate::harness::text);
                assert_eq!(kept.as_deref(), Some(*text), "{id} of {name} after {made}");
            }
        }
        let id = rig.append(name, &kept(is_durable), "new");
        for (steps, done) in &self.done {
            if let Done::Appended(of, given, _) = done
                && of == name
                && *steps <= made
            {
                assert!(id > *given, "{id} of {name} comes after {given}");
            }
        }
    }

    fn check_all(&self, states_max: usize) {
        let disk = disk("threads");
        let mut seen = HashSet::new();
        self.recording.each_crash(|made, files| {
            seen.insert(hash(made, files));
        });
        let part = (seen.len() / states_max).max(1) as u64;
        let mut checked = HashSet::new();
        self.recording.each_crash(|made, files| {
            let hash = hash(made, files);
            if hash.is_multiple_of(part) && checked.insert(hash) {
                self.check(&disk, made, files);
            }
        });
        eprintln!("{} of {} states", checked.len(), seen.len());
    }
}

fn hash(made: usize, files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    (made, files).hash(&mut hasher);
    hasher.finish()
}

/// Durable boxes, others, removals, segments that are finished and freed, an end in order and a new start.
fn scenario() -> Scenario {
    let mut scenario = Scenario::new();
    let [d, n, r, s] = ["d", "n", "r", "s"].map(name);
    for round in 0..8 {
        for number in 0..3 {
            scenario.append(&d, &kept(true), 10 * round + number);
            scenario.append(&n, &kept(false), 10 * round + number);
        }
        scenario.append(&r, &kept(true), round);
        scenario.append(&s, &kept(false), round);
        if round % 2 == 1 {
            scenario.remove(&r);
            scenario.remove(&s);
        }
        scenario.rig.store().sweep(std::time::SystemTime::now());
        if round == 5 {
            scenario.rig.reopen();
        }
    }
    scenario.append(&d, &kept(true), 1000);
    scenario
}

#[test]
fn no_crash_takes_what_is_durable_and_none_is_silent() {
    scenario().check_all(STATES_MAX);
}

#[test]
#[ignore = "takes minutes"]
fn more_crashes_take_nothing_that_is_durable_either() {
    scenario().check_all(MANY_STATES_MAX);
}
