//! Files that were cut, removed or changed: what is missing is never missing in silence.

use std::fs;

use levity_mailbox::{MessageId, Opened, Store as _};

use crate::harness::*;

/// A store that was killed, with three messages in each of two boxes, and what was acknowledged.
struct Killed {
    rig: Rig,
    known: Known,
    /// The ids of the boxes' last messages.
    durable: MessageId,
    other: MessageId,
}

impl Killed {
    fn new() -> Self {
        let (mut rig, mut known) = (Rig::new(), Known::default());
        let (mut durable_id, mut other_id) = (None, None);
        for number in 0..3 {
            for (of, settings) in [("d", durable()), ("n", settings_with(|_| {}))] {
                let (name, text) = (name(of), format!("{of}{number}"));
                let id = rig.append(&name, &settings, &text);
                known.note(&name, id, &text);
                match of {
                    "d" => durable_id = Some(id),
                    _ => other_id = Some(id),
                }
            }
        }
        Self {
            rig,
            known,
            durable: durable_id.unwrap(),
            other: other_id.unwrap(),
        }
    }

    /// A copy of the folder in which `change` has been done to a file.
    fn with(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Rig {
        let copy = self.rig.copy();
        let path = copy.folder.join(file);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
        copy
    }

    /// What is there has been acknowledged, and if less is there the epoch is another one, now and after another start. Then
    /// new messages get new ids.
    fn check(&self, mut copy: Rig, what: &str) {
        copy.open_store();
        let before = ["d", "n"].map(|of| self.check_box(&mut copy, of, what));
        copy.store = None;
        copy.open_store();
        let after = ["d", "n"].map(|of| self.check_box(&mut copy, of, what));
        let epochs = |found: [Option<Opened>; 2]| found.map(|found| found.map(|it| it.epoch));
        assert_eq!(epochs(before), epochs(after), "{what}");
        for (of, old) in [("d", self.durable), ("n", self.other)] {
            let id = copy.append(&name(of), &settings_with(|_| {}), "new");
            assert!(id > old, "{what}: {id} after {old}");
        }
    }

    fn check_box(&self, copy: &mut Rig, of: &str, what: &str) -> Option<Opened> {
        let found = copy.try_look(&name(of)).unwrap_or_else(|_| {
            // It is mended when it is opened.
            Some(copy.open(&name(of), &durable()))
        })?;
        self.known.check(&name(of), &found);
        let is_whole =
            found.messages.len() == 3 || found.messages.iter().any(|it| it.draft.is_damaged);
        let old = if of == "d" { self.durable } else { self.other };
        assert!(is_whole || found.epoch > old.epoch, "{what}: {found:?}");
        Some(found)
    }
}

/// The part of the write-ahead log that was written.
fn used(log: &[u8]) -> usize {
    log.iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1)
}

const LOG: &str = "messages.db-wal";

#[test]
fn a_kill_alone_changes_nothing() {
    let killed = Killed::new();
    let mut copy = killed.rig.copy();
    copy.open_store();
    for (of, id) in [("d", killed.durable), ("n", killed.other)] {
        let found = copy.look(&name(of)).expect("a box");
        assert_eq!((found.epoch, found.messages.len()), (id.epoch, 3));
    }
    assert!(copy.lines().is_empty(), "{:?}", copy.lines());
}

#[test]
fn a_wrong_byte_of_the_log_is_no_silent_loss() {
    let killed = Killed::new();
    let log = fs::read(killed.rig.folder.join(LOG)).unwrap();
    let used = used(&log);
    let mut lost = 0;
    for place in (0..used).step_by(used / 60).chain([used - 1]) {
        let copy = killed.with(LOG, |bytes| bytes[place] ^= 0x55);
        let lines = copy.lines.clone();
        killed.check(copy, &format!("byte {place}"));
        lost += usize::from(!lines.lock().unwrap().is_empty());
    }
    assert!(lost > 20, "{lost} losses were noticed");
}

#[test]
fn a_log_that_is_cut_is_no_silent_loss() {
    let killed = Killed::new();
    let used = used(&fs::read(killed.rig.folder.join(LOG)).unwrap());
    for len in (0..used).step_by(used / 20) {
        let copy = killed.with(LOG, |bytes| bytes.truncate(len));
        killed.check(copy, &format!("cut at {len}"));
    }
    let copy = killed.rig.copy();
    fs::remove_file(copy.folder.join(LOG)).unwrap();
    killed.check(copy, "removed");
}

#[test]
fn a_witness_that_is_gone_or_wrong_says_nothing() {
    let killed = Killed::new();
    for len in [0, 1, 35] {
        let mut copy = killed.with("acknowledged", |bytes| bytes.truncate(len));
        copy.open_store();
        let found = copy.look(&name("d")).expect("a box");
        assert_eq!(found.messages.len(), 3);
        assert!(found.epoch > killed.durable.epoch, "cut at {len}");
        assert_eq!(copy.lines().len(), 1);
    }
}

#[test]
fn another_run_of_the_machine_ends_the_life_of_what_was_not_synced() {
    another_run(|_| "another".to_owned());
}

/// Such as one from a snapshot.
#[test]
fn a_copy_of_a_folder_ends_the_life_of_what_was_not_synced() {
    another_run(|copy| Rig::of(&copy.folder).options.boot.clone());
}

fn another_run(boot: impl FnOnce(&Rig) -> String) {
    let killed = Killed::new();
    let mut copy = killed.rig.copy();
    copy.options.boot = boot(&copy);
    copy.open_store();
    let found = copy.look(&name("d")).expect("a box");
    assert_eq!(found.epoch, killed.durable.epoch);
    let found = copy.look(&name("n")).expect("a box");
    assert!(found.epoch > killed.other.epoch && found.messages.len() == 3);
    // Once only.
    copy.reopen();
    assert_eq!(copy.look(&name("n")).expect("a box").epoch, found.epoch);
    // A set that is not durable any more does not get that epoch later.
    let id = copy.append(&name("d"), &settings_with(|_| {}), "d3");
    assert!(id.epoch > killed.durable.epoch);
    assert_eq!(copy.look(&name("d")).expect("a box").epoch, id.epoch);
}

#[test]
fn a_wrong_byte_of_the_database_is_no_silent_loss() {
    let mut killed = Killed::new();
    killed.rig.store = None;
    let len = fs::read(killed.rig.folder.join("messages.db"))
        .unwrap()
        .len();
    let (mut refused, mut gaps) = (0, 0);
    // At the end of a page is what was written to it first.
    let ends = (0..len).filter(|place| place % 4096 > 4084 && place % 5 == 0);
    for place in (0..len).step_by(131).chain(ends) {
        let mut copy = killed.with("messages.db", |bytes| bytes[place] ^= 0x55);
        copy.open_store();
        for of in ["d", "n"] {
            let opened =
                copy.call(|store| store.open(&name(of), &durable(), std::time::SystemTime::now()));
            let Ok(found) = opened else {
                refused += 1;
                continue;
            };
            check(&found);
            killed.known.check(&name(of), &found);
            let old = if of == "d" {
                killed.durable
            } else {
                killed.other
            };
            let is_told =
                found.epoch > old.epoch || found.messages.iter().any(|it| it.draft.is_damaged);
            gaps += usize::from(is_told);
            assert!(
                is_told || found.messages.len() == 3,
                "byte {place}: {found:?}"
            );
        }
    }
    assert!(gaps > 10, "{gaps} gaps, {refused} refused");
}

#[test]
fn a_damaged_database_is_set_aside() {
    let mut killed = Killed::new();
    killed.rig.store = None;
    let mut copy = killed.with("messages.db", |bytes| bytes[..4096].fill(0xaa));
    copy.open_store();
    assert!(copy.look(&name("d")).is_none());
    let names: Vec<_> = copy.files().into_keys().collect();
    let is_aside = |name: &String| name.starts_with("messages.damaged-");
    assert!(names.iter().any(is_aside), "{names:?}");
    assert_eq!(copy.lines().len(), 1, "{:?}", copy.lines());
    let id = copy.append(&name("d"), &durable(), "new");
    assert!(id.epoch > killed.durable.epoch);
    copy.reopen();
    assert_eq!(copy.texts(&name("d")), ["new"]);
}

/// The process that set it aside was killed between the write-ahead log and the database.
#[test]
fn both_files_of_a_damaged_database_get_the_same_name() {
    let killed = Killed::new();
    let mut copy = killed.with("messages.db", |bytes| bytes.fill(0xaa));
    let aside = |of: &str| copy.folder.join(format!("messages.damaged-7.{of}"));
    fs::rename(copy.folder.join(LOG), aside("db-wal")).unwrap();
    fs::write(copy.folder.join("damaged"), "7").unwrap();
    let database = aside("db");
    copy.open_store();
    assert!(database.exists());
    assert!(!copy.folder.join("damaged").exists());
}

#[test]
fn a_page_that_is_damaged_later_has_the_next_start_set_the_database_aside() {
    let mut killed = Killed::new();
    killed.rig.store = None;
    // All pages but the first one, which a start reads, and that of `meta`.
    let mut copy = killed.with("messages.db", |bytes| bytes[2 * 4096..].fill(0xaa));
    copy.open_store();
    assert!(copy.try_look(&name("d")).is_err());
    assert!(copy.files().contains_key("damaged"));
    copy.reopen();
    assert!(copy.look(&name("d")).is_none());
    assert!(!copy.files().contains_key("damaged"));
    copy.append(&name("d"), &durable(), "new");
}

/// The database's page of an index that only sweeps need.
#[test]
fn what_does_not_need_a_damaged_page_goes_on() {
    let mut killed = Killed::new();
    killed.rig.store = None;
    let path = killed.rig.folder.join("messages.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let page: usize = connection
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'message_due'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(connection);
    let mut copy = killed.with("messages.db", |bytes| {
        bytes[(page - 1) * 4096..page * 4096].fill(0xaa);
    });
    copy.open_store();
    for number in 0..20 {
        copy.store().sweep(std::time::SystemTime::now());
        copy.append(&name("d"), &durable(), &number.to_string());
    }
    assert_eq!(copy.look(&name("d")).expect("a box").messages.len(), 23);
}

#[test]
fn a_folder_with_a_journal_is_refused() {
    let mut rig = Rig::new();
    rig.store = None;
    for file in ["00000001.segment", "00000001.index"] {
        fs::write(rig.folder.join(file), "").unwrap();
        let error = rig.try_open().expect_err("refused").to_string();
        assert!(
            error.contains("journal") && error.contains("another folder"),
            "{error}"
        );
        fs::remove_file(rig.folder.join(file)).unwrap();
    }
    rig.open_store();
}

#[test]
fn one_process_uses_a_folder() {
    let rig = Rig::new();
    let mut other = Rig::of(&rig.folder);
    let error = other.try_open().expect_err("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
}
