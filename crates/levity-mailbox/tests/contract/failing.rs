//! Servers that end, restart and freeze.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_mailbox::{Change, MessageId, Opened, StoreError};

use crate::harness::*;
use crate::servers::Server;
use crate::stores::Redis;

/// A server that keeps what it has acknowledged when it is killed.
pub fn lasting() -> Server {
    Server::redis("--appendonly yes --appendfsync always")
}

pub fn at(port: u16) -> Redis {
    Redis {
        port,
        _server: None,
        reports: Arc::default(),
    }
}

/// Drives a store with a server, of which the test has the process.
pub fn run_with(server: &mut Server, case: impl FnOnce(&mut Rig, &mut Server)) {
    run(Some(at(server.port())), |rig| case(rig, server));
}

/// Publishes until the server takes it, as publishers do that try again with the same key.
pub fn publish(rig: &mut Rig, key: &str) -> (MessageId, bool) {
    let (a, settings) = (name("a"), settings());
    let start = Instant::now();
    loop {
        let draft = with_key(draft(key), key);
        let results = rig.append_all(vec![append_of(&a, &settings, draft)]);
        match &results[0] {
            Err(StoreError::Unavailable(_)) => assert!(start.elapsed() < DEADLINE),
            result => return id_of(result),
        }
    }
}

/// Opens box `a` as soon as the server can.
pub fn open(rig: &mut Rig) -> Opened {
    let start = Instant::now();
    loop {
        match rig.try_open(&name("a"), &settings()) {
            Err(StoreError::Unavailable(_)) => assert!(start.elapsed() < DEADLINE),
            opened => return opened.expect("a box"),
        }
    }
}

pub fn texts(rig: &mut Rig) -> Vec<String> {
    open(rig).messages.iter().map(text).collect()
}

/// The next change, which is a message.
pub fn reported(rig: &mut Rig) -> (MessageId, String) {
    match rig.change() {
        Change::Appended { message, .. } => (message.id, text(&message)),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn assert_outdated(rig: &mut Rig) {
    match rig.change() {
        Change::Outdated(outdated) => assert_eq!(outdated, name("a")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_is_down_comes_later() {
    let mut server = lasting();
    server.stop();
    run_with(&mut server, |rig, server| {
        let refused = rig.try_open(&name("a"), &settings());
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        server.start();
        publish(rig, "0");
        assert_eq!(texts(rig), ["0"]);
    });
}

#[test]
fn a_restart_of_a_server_with_a_disk_is_no_loss() {
    let mut server = lasting();
    run_with(&mut server, |rig, server| {
        let before = open(rig).epoch;
        rig.watch(&name("a"), true);
        open(rig);
        for number in 0..10 {
            publish(rig, &number.to_string());
            assert_eq!(reported(rig).1, number.to_string());
        }
        server.stop();
        server.start();
        // Neither lost nor doubled, and receivers notice nothing.
        let (id, is_duplicate) = publish(rig, "9");
        assert!(is_duplicate && id.epoch == before);
        assert!(!publish(rig, "10").1);
        assert_eq!(reported(rig).1, "10");
        assert_eq!(texts(rig), numbers(0..11));
    });
}

#[test]
fn publishers_that_try_again_double_nothing() {
    let mut server = lasting();
    run_with(&mut server, |rig, server| {
        rig.watch(&name("a"), true);
        open(rig);
        let (a, settings) = (name("a"), settings());
        let mut expected = Vec::new();
        for round in 0..5 {
            let now = rig.now();
            let keys: Vec<_> = numbers(0..100)
                .into_iter()
                .map(|number| format!("{round}-{number}"))
                .collect();
            let pending: Vec<_> = keys
                .iter()
                .map(|key| {
                    let append = append_of(&a, &settings, with_key(draft(key), key));
                    rig.call(|store| store.append(vec![append], now))
                })
                .collect();
            // Killed while they are under way: with the first result, others are not known.
            let mut pending = pending.into_iter();
            rig.finish(pending.next().unwrap());
            server.stop();
            server.start();
            for one in pending {
                rig.finish(one);
            }
            for key in &keys {
                publish(rig, key);
            }
            expected.extend(keys);
        }
        let mut kept = texts(rig);
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.push(reported(rig).1);
        }
        assert_eq!(seen, kept);
        kept.sort_unstable();
        expected.sort_unstable();
        assert_eq!(kept, expected);
    });
}

#[test]
fn a_frozen_server_is_unavailable_in_time() {
    let mut server = lasting();
    run_with(&mut server, |rig, server| {
        rig.watch(&name("a"), true);
        let epoch = open(rig).epoch;
        publish(rig, "0");
        assert_eq!(reported(rig).1, "0");
        server.set_frozen(true);
        let start = Instant::now();
        let append = append_of(&name("a"), &settings(), with_key(draft("1"), "1"));
        let results = rig.append_all(vec![append]);
        assert!(matches!(&results[0], Err(StoreError::Unavailable(_))));
        let opened = rig.try_open(&name("a"), &settings());
        assert!(matches!(opened, Err(StoreError::Unavailable(_))));
        assert!(start.elapsed() < Duration::from_secs(12));
        server.set_frozen(false);
        let (id, _) = publish(rig, "1");
        assert_eq!(reported(rig), (id, "1".to_owned()));
        let opened = open(rig);
        let texts: Vec<_> = opened.messages.iter().map(text).collect();
        assert_eq!((opened.epoch, texts), (epoch, numbers(0..2)));
    });
}

#[test]
fn the_number_of_messages_that_wait_is_bounded() {
    let mut server = lasting();
    run_with(&mut server, |rig, server| {
        let (a, settings) = (name("a"), settings());
        publish(rig, "first");
        server.set_frozen(true);
        let append = || append_of(&a, &settings, draft("x"));
        let now = rig.now();
        let within = rig.call(|store| store.append((0..4096).map(|_| append()).collect(), now));
        let start = Instant::now();
        let beyond = rig.append_all(vec![append()]);
        assert!(matches!(&beyond[0], Err(StoreError::Unavailable(_))));
        assert!(start.elapsed() < Duration::from_secs(1));
        server.set_frozen(false);
        // All have a result, and make room for others.
        assert_eq!(rig.finish(within).len(), 4096);
        publish(rig, "last");
    });
}
