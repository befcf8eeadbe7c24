//! Disks that fail, as a library says that is loaded before that of C.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use levity_mailbox::{Change, Limit, Store as _, StoreError};

use crate::faults::{FAULT, Faults};
use crate::harness::*;

/// Runs a test of this module in a process with the library.
fn run(case: &str) {
    let folder = folder();
    let output = Command::new(env::current_exe().unwrap())
        .args([&format!("failing::{case}"), "--exact", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .envs(Faults::new(folder.path()).environment())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Sets the fault of this process; without the library, which has no tests to run.
fn set_fault(fault: &str) -> Option<()> {
    let path = env::var(FAULT).ok()?;
    fs::write(path, fault).unwrap();
    Some(())
}

macro_rules! in_a_process_of_its_own {
    ($($case:ident => $body:ident),* $(,)?) => {
        $(#[test]
        fn $case() {
            run(stringify!($body));
        })*
    };
}

in_a_process_of_its_own! {
    a_sync_that_fails => sync_fails,
    a_write_that_fails => write_fails,
    a_write_that_is_torn => write_is_torn,
    a_write_without_space => write_has_no_space,
    a_write_beyond_a_quota => write_exceeds_quota,
    a_start_without_space_that_finds_a_loss => start_has_no_space,
    a_read_that_is_wrong_once => read_is_wrong_once,
    a_sync_that_hangs => sync_hangs,
}

#[test]
#[ignore = "in a process of its own"]
fn sync_fails() {
    survives("sync eio");
}

#[test]
#[ignore = "in a process of its own"]
fn write_fails() {
    survives("write eio");
}

#[test]
#[ignore = "in a process of its own"]
fn write_is_torn() {
    survives("write torn");
}

#[test]
#[ignore = "in a process of its own"]
fn write_has_no_space() {
    survives("write enospc");
}

#[test]
#[ignore = "in a process of its own"]
fn write_exceeds_quota() {
    survives("write edquot");
}

/// During the fault messages are refused and read; afterwards they are taken, and nothing is lost or doubled. The same holds
/// for a process that starts after this one was killed during the fault.
fn survives(fault: &str) {
    if set_fault("").is_none() {
        return;
    }
    let mut rig = Rig::new();
    let a = name("a");
    let mut texts: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    for text in &texts {
        rig.append(&a, &durable(), text);
    }
    let epoch = rig.look(&a).expect("a box").epoch;
    set_fault(fault);
    for key in ["k1", "k2", "k1"] {
        let refused = publish(&mut rig, key).expect_err("refused");
        let is_full = matches!(refused, StoreError::Full(_));
        let is_about_space = ["write enospc", "write edquot"].contains(&fault);
        assert_eq!(is_full, is_about_space, "{refused}");
    }
    assert_eq!(rig.texts(&a), texts);
    let mut copy = rig.copy();
    set_fault("");
    texts.extend(["k1", "k2"].map(str::to_owned));
    for rig in [&mut copy, &mut rig] {
        if rig.store.is_none() {
            rig.open_store();
        }
        for key in ["k1", "k2", "k1", "k2"] {
            until_taken(rig, key);
        }
        let found = rig.look(&a).expect("a box");
        assert_eq!(found.epoch, epoch);
        assert_eq!(rig.texts(&a), texts);
        rig.reopen();
        assert_eq!(rig.texts(&a), texts);
        assert_eq!(rig.look(&a).expect("a box").epoch, epoch);
    }
    let lines = rig.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

/// What a start decides holds until it can be written.
#[test]
#[ignore = "in a process of its own"]
fn start_has_no_space() {
    if set_fault("").is_none() {
        return;
    }
    let (mut rig, a) = (Rig::new(), name("a"));
    let old = rig.append(&a, &durable(), "0");
    let before = rig.files();
    rig.append(&a, &durable(), "lost");
    rig.store = None;
    for file in ["messages.db", "messages.db-wal"] {
        fs::write(rig.folder.join(file), &before[file]).unwrap();
    }
    set_fault("write enospc");
    rig.open_store();
    let epoch = rig.look(&a).expect("a box").epoch;
    assert!(epoch > old.epoch);
    publish(&mut rig, "k").expect_err("refused");
    set_fault("");
    until_taken(&mut rig, "k");
    assert_eq!(rig.look(&a).expect("a box").epoch, epoch);
    let lines = rig.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
}

/// What is read a second time is right: by the thread that reads, by the one that writes, and at a start.
#[test]
#[ignore = "in a process of its own"]
fn read_is_wrong_once() {
    if set_fault("").is_none() {
        return;
    }
    let (mut rig, a) = (Rig::new(), name("a"));
    rig.append(&a, &durable(), "0");
    rig.reopen();
    let is_over = || !Path::new(&env::var(FAULT).unwrap()).exists();
    set_fault("read once");
    assert_eq!(rig.texts(&a), ["0"]);
    assert!(is_over());
    set_fault("read once");
    rig.append(&a, &durable(), "1");
    assert!(is_over());
    rig.store = None;
    set_fault("read once");
    rig.open_store();
    assert!(is_over());
    assert_eq!(rig.texts(&a), ["0", "1"]);
    assert!(!rig.files().contains_key("damaged"));
    assert!(rig.lines().is_empty(), "{:?}", rig.lines());
}

/// Publishes to the box `a`, again and again.
fn until_taken(rig: &mut Rig, key: &str) {
    let start = Instant::now();
    while let Err(error) = publish(rig, key) {
        assert!(start.elapsed() < DEADLINE, "{error}");
        std::thread::yield_now();
    }
}

/// Publishes to the box `a`.
fn publish(rig: &mut Rig, key: &str) -> Result<(), StoreError> {
    let draft = with_key(draft(key), key);
    rig.try_append(&name("a"), &durable(), draft).map(drop)
}

#[test]
#[ignore = "in a process of its own"]
fn sync_hangs() {
    if set_fault("").is_none() {
        return;
    }
    let mut rig = Rig::new();
    let a = name("a");
    rig.append(&a, &durable(), "0");
    rig.call(|store| {
        store.watch(&a, true, std::time::SystemTime::now());
        std::future::ready(())
    });
    set_fault("sync hang");
    let append = append_of(&a, &durable(), draft("1"));
    let _guard = rig.runtime.handle().clone();
    let first = rig
        .store()
        .append(vec![append], std::time::SystemTime::now());
    // Time passes at once while nothing else happens.
    let results = rig.runtime.block_on(async {
        tokio::time::pause();
        let results = first.await;
        tokio::time::resume();
        results
    });
    assert!(
        matches!(results[0], Err(StoreError::Unavailable(_))),
        "{results:?}"
    );
    assert_eq!(rig.texts(&a), ["0"]);
    let opened = rig.open(&a, &durable());
    assert_eq!(opened.messages.len(), 1);
    set_fault("");
    // What had begun is done, and whoever receives learns of it.
    let store = rig.store.as_mut().unwrap();
    let change = rig.runtime.block_on(async {
        let change = std::future::poll_fn(|context| store.poll_change(context));
        tokio::time::timeout(DEADLINE, change).await
    });
    let Ok(Change::Appended { message, .. }) = change else {
        panic!("{change:?}");
    };
    assert_eq!(text(&message), "1");
    let read = rig.call(|store| store.read(&a, None, Limit::NONE));
    assert_eq!(read.unwrap().expect("a box").messages.len(), 2);
    let start = Instant::now();
    rig.append(&a, &durable(), "2");
    assert!(start.elapsed() < Duration::from_secs(5));
}
