//! Files that were cut, have wrong bytes, or are missing.

use std::fs;

use levity_mailbox::{MessageId, Name};

use crate::harness::*;

/// A journal with messages in some boxes.
struct Given {
    rig: Rig,
    messages: Vec<(Name, MessageId, String)>,
}

impl Given {
    fn new() -> Given {
        let mut rig = Rig::new(disk("threads"));
        let mut messages = Vec::new();
        for number in 0..9 {
            let name = name(["a", "b", "c"][number % 3]);
            let text = format!("text {number}");
            let id = rig.append(&name, &durable(), &text);
            messages.push((name, id, text));
        }
        Given { rig, messages }
    }

    fn names() -> [Name; 3] {
        ["a", "b", "c"].map(name)
    }

    /// What holds whatever has happened to the files: nothing is wrong, and what is missing was said. Returns how many
    /// messages there are.
    fn check(&self, rig: &mut Rig, what: &str) -> usize {
        let mut count = 0;
        for name in Given::names() {
            let of_box = self.messages.iter().filter(|(of, ..)| *of == name);
            let given: Vec<_> = of_box.map(|(_, id, text)| (*id, &text[..])).collect();
            let Some(found) = rig.look(&name) else {
                let id = rig.append(&name, &durable(), "new");
                assert!(id.epoch > given[0].0.epoch, "{name}: {what}");
                continue;
            };
            let texts: Vec<_> = found.messages.iter().map(text).collect();
            let is_right = |text: &String| given.iter().any(|(_, given)| given == text);
            assert!(texts.iter().all(is_right), "{name}: {what}: {texts:?}");
            if texts.len() < given.len() {
                assert!(found.epoch > given[0].0.epoch, "{name}: {what}: {texts:?}");
            }
            let numbers = found.messages.iter().map(|message| message.id.sequence);
            let by_number = |number| given.iter().find(|(id, _)| id.sequence == number);
            for (number, text) in numbers.zip(&texts) {
                assert_eq!(by_number(number).map(|(_, text)| *text), Some(&text[..]));
            }
            count += texts.len();
            let id = rig.append(&name, &durable(), "new");
            assert!(given.iter().all(|(given, _)| id > *given), "{name}: {what}");
        }
        count
    }
}

/// The file whose name ends so.
fn find(rig: &Rig, end: &str) -> (String, Vec<u8>) {
    let mut found = rig.files().into_iter();
    found
        .rfind(|(name, _)| name.ends_with(end))
        .expect("a file")
}

fn every_cut(given: &Given) {
    let (name, bytes) = find(&given.rig, ".segment");
    for len in 0..bytes.len() {
        let mut rig = given.rig.copy();
        fs::write(rig.folder.join(&name), &bytes[..len]).unwrap();
        rig.open_store();
        let count = given.check(&mut rig, &format!("cut at {len} of {}", bytes.len()));
        assert!(count < given.messages.len());
        assert!(!rig.lines().is_empty());
    }
}

#[test]
fn a_segment_that_is_cut_after_a_kill() {
    every_cut(&Given::new());
}

#[test]
fn a_segment_that_is_cut_after_an_end_in_order() {
    let mut given = Given::new();
    given.rig.store = None;
    every_cut(&given);
    // Also if nothing else says how far it was synced.
    fs::remove_file(given.rig.folder.join("synced")).unwrap();
    every_cut(&given);
}

fn every_flip(given: &Given, end: &str, check: impl Fn(usize, &mut Rig)) {
    let (name, bytes) = find(&given.rig, end);
    for at in 0..bytes.len() {
        let mut rig = given.rig.copy();
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        fs::write(rig.folder.join(&name), wrong).unwrap();
        rig.open_store();
        check(
            given.check(&mut rig, &format!("byte {at} of {name}")),
            &mut rig,
        );
    }
}

#[test]
fn a_segment_with_a_wrong_byte_after_a_kill() {
    let given = Given::new();
    every_flip(&given, ".segment", |count, rig| {
        assert!(count < given.messages.len());
        assert!(!rig.lines().is_empty());
    });
}

#[test]
fn a_segment_with_a_wrong_byte_after_an_end_in_order() {
    let mut given = Given::new();
    given.rig.store = None;
    // The index says what was there, so the other messages are.
    every_flip(&given, ".segment", |count, rig| {
        let is_in_a_record = count + 1 == given.messages.len();
        assert!(is_in_a_record || count == given.messages.len() || count == 0);
        assert!(count == given.messages.len() || !rig.lines().is_empty());
    });
}

#[test]
fn an_index_with_a_wrong_byte_is_not_needed() {
    let mut given = Given::new();
    given.rig.store = None;
    for end in [".index", "synced"] {
        every_flip(&given, end, |count, rig| {
            assert_eq!(count, given.messages.len());
            let epoch = given.messages[0].1.epoch;
            assert_eq!(rig.look(&name("a")).expect("a box").epoch, epoch);
        });
    }
}

/// Segments of which each file is missing in turn.
#[test]
fn a_file_that_is_missing() {
    let mut rig = Rig::with(disk("threads"), |options| options.segment_bytes = 800);
    let mut messages = Vec::new();
    for number in 0..60 {
        let name = name(["a", "b", "c"][number % 3]);
        let text = format!("text {number}");
        let id = rig.append(&name, &durable(), &text);
        messages.push((name, id, text));
    }
    let mut given = Given { rig, messages };
    for is_closed in [false, true] {
        if is_closed {
            given.rig.store = None;
        }
        let names: Vec<_> = given.rig.copy().files().into_keys().collect();
        assert!(
            names
                .iter()
                .filter(|name| name.ends_with(".segment"))
                .count()
                > 3
        );
        for missing in names.iter().filter(|name| *name != "lock") {
            let mut rig = given.rig.copy();
            if fs::remove_file(rig.folder.join(missing)).is_err() {
                continue;
            }
            rig.open_store();
            let count = given.check(&mut rig, missing);
            let is_segment = missing.ends_with(".segment");
            assert!(is_segment || count == given.messages.len(), "{missing}");
            // It is said once.
            let before = rig.look(&name("a")).expect("a box").epoch;
            rig.reopen();
            assert_eq!(
                rig.look(&name("a")).expect("a box").epoch,
                before,
                "{missing}"
            );
        }
    }
}

/// After a crash of the machine, an end that was not synced is no fault.
#[test]
fn an_end_that_is_torn_is_no_fault() {
    let given = Given::new();
    let (name, bytes) = find(&given.rig, ".segment");
    for end in [&[1][..], &[0; 100], &bytes[200..260], &[255; 5000]] {
        for boot in [None, Some("another")] {
            let mut rig = given.rig.copy();
            let torn = [&bytes[..], end].concat();
            fs::write(rig.folder.join(&name), torn).unwrap();
            if let Some(boot) = boot {
                rig.options.boot = boot.into();
            }
            rig.open_store();
            assert_eq!(given.check(&mut rig, "torn"), given.messages.len());
            let epoch = given.messages[0].1.epoch;
            let found = rig.look(&crate::harness::name("a")).expect("a box");
            assert_eq!(found.epoch, epoch);
            assert!(rig.lines().is_empty(), "{:?}", rig.lines());
        }
    }
}

/// Nobody knows which boxes had messages that were not synced.
#[test]
fn only_a_crash_of_the_machine_takes_what_was_not_synced() {
    let mut rig = Rig::new(disk("threads"));
    let (a, b) = (name("a"), name("b"));
    let id = rig.append(&a, &settings(|_| {}), "x");
    let durable_id = rig.append(&b, &durable(), "x");
    for (boot, may_lose) in [(None, false), (Some("another"), true)] {
        let mut copy = rig.copy();
        if let Some(boot) = boot {
            copy.options.boot = boot.into();
        }
        copy.open_store();
        let found = copy.look(&a).expect("a box");
        assert_eq!(found.epoch > id.epoch, may_lose);
        assert_eq!(found.messages.len(), 1);
        assert_eq!(copy.look(&b).expect("a box").epoch, durable_id.epoch);
        // An end in order is none, on whatever machine it goes on.
        copy.store = None;
        copy.options.boot = "a third".into();
        copy.open_store();
        assert_eq!(copy.look(&a).expect("a box").epoch, found.epoch);
    }
}

/// A set that is no longer durable: its boxes may lose messages from the first one on that was acknowledged before a sync.
#[test]
fn a_set_that_is_no_longer_durable() {
    let mut rig = Rig::new(disk("threads"));
    let a = name("a");
    let mut ids = vec![rig.append(&a, &durable(), "0")];
    ids.push(rig.append(&a, &settings(|_| {}), "1"));
    let synced = rig.files();
    ids.push(rig.append(&a, &settings(|_| {}), "2"));
    // What was written after the change is lost, as far as it was not synced.
    let mut copy = rig.copy();
    for (name, bytes) in synced {
        fs::write(copy.folder.join(name), bytes).unwrap();
    }
    copy.options.boot = "another".into();
    copy.open_store();
    let found = copy.look(&a).expect("a box");
    assert_eq!(found.messages.len(), 2);
    assert!(found.epoch > ids[0].epoch);
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let mut rig = Rig::new(disk("threads"));
    rig.append(&name("a"), &durable(), "x");
    let mut other = Rig::of(&rig.folder, rig.disk.clone());
    let error = other.try_open().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    rig.store = None;
    other.open_store();
    assert_eq!(other.texts(&name("a")), ["x"]);
}
