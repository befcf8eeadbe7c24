//! What Redis does beyond what all servers do: it forgets, fails over, and is used by others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use levity_mailbox::{Appended, Change, Draft, Limit, MessageId, StoreError};

use crate::failing::{assert_outdated, at, lasting, open, publish, reported, run_with, texts};
use crate::harness::*;
use crate::servers::{Server, Switch};

#[test]
fn a_restart_of_a_server_without_a_disk_is_a_loss() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        rig.watch(&name("a"), true);
        let before = open(rig).epoch;
        publish(rig, "0");
        assert_eq!(reported(rig).1, "0");
        server.stop();
        server.start();
        assert_outdated(rig);
        let after = open(rig);
        assert!(after.epoch > before && after.messages.is_empty());
        let (id, is_duplicate) = publish(rig, "0");
        assert!(!is_duplicate && id.epoch == after.epoch);
        assert_eq!(reported(rig), (id, "0".to_owned()));
    });
}

/// Redis and all processes end together after Redis has lost its last messages.
#[test]
fn a_loss_that_no_process_has_seen_is_announced() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        publish(rig, "0");
        assert_eq!(server.ask("SAVE"), "OK");
        let (lost, _) = publish(rig, "1");
        server.stop();
        rig.reopen();
        server.start();
        let opened = open(rig);
        assert!(opened.epoch > lost.epoch);
        assert!(publish(rig, "2").0 > lost);
        assert_eq!(texts(rig), ["0", "2"]);
        // One gap, and no more.
        rig.reopen();
        assert_eq!(open(rig).epoch, opened.epoch);
    });
}

/// Nobody appends meanwhile.
#[test]
fn a_read_after_a_loss_is_of_the_new_epoch() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        let a = name("a");
        publish(rig, "0");
        assert_eq!(server.ask("SAVE"), "OK");
        let (lost, _) = publish(rig, "1");
        server.stop();
        server.start();
        let start = Instant::now();
        let read = loop {
            let reading = rig.call(|store| store.read(&a, Some(lost), Limit::NONE));
            match rig.finish(reading) {
                Err(StoreError::Unavailable(_)) => assert!(start.elapsed() < DEADLINE),
                read => break read.expect("an answer").expect("a box"),
            }
        };
        assert!(read.epoch > lost.epoch);
        assert_eq!(read.messages.iter().map(text).collect::<Vec<_>>(), ["0"]);
        assert_eq!(rig.summary(&a).expect("a box").epoch, read.epoch);
    });
}

/// However long the log is.
#[test]
fn a_new_epoch_copies_no_message() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        for number in 0..3 {
            publish(rig, &number.to_string());
        }
        assert_eq!(server.ask("SAVE"), "OK");
        let (lost, _) = publish(rig, "3");
        server.stop();
        server.start();
        assert!(open(rig).epoch > lost.epoch);
        assert!(!server.ask("INFO commandstats").contains("cmdstat_xadd"));
        assert!(publish(rig, "4").0 > lost);
        assert_eq!(texts(rig), ["0", "1", "2", "4"]);
    });
}

/// A server, its replica, and an address that leads to the first.
fn replicated() -> (Server, Server, Switch) {
    let first = Server::redis("--repl-diskless-sync-delay 0");
    let second = Server::redis("");
    let switch = Switch::new(first.port());
    second.follow(&first);
    (first, second, switch)
}

#[test]
fn a_failover_without_loss_goes_unnoticed() {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        rig.watch(&name("a"), true);
        let before = open(rig).epoch;
        for number in 0..5 {
            publish(rig, &number.to_string());
            reported(rig);
        }
        first.wait_for(&second);
        first.stop();
        second.promote();
        switch.set_target(second.port());
        for number in 3..8 {
            let (id, is_duplicate) = publish(rig, &number.to_string());
            assert_eq!((id.epoch, is_duplicate), (before, number < 5));
        }
        for number in 5..8 {
            assert_eq!(reported(rig).1, number.to_string());
        }
        assert_eq!(texts(rig), numbers(0..8));
    });
}

/// Appends 0 to 9, of a box that is watched, and fails over to a replica that has 0 to 4.
fn lose_half(rig: &mut Rig, first: &mut Server, second: &Server, switch: &Switch) {
    let publish = |rig: &mut Rig, number: usize| {
        let (id, _) = publish(rig, &number.to_string());
        assert_eq!(reported(rig), (id, number.to_string()));
    };
    (0..5).for_each(|number| publish(rig, number));
    first.wait_for(second);
    second.promote();
    (5..10).for_each(|number| publish(rig, number));
    switch.set_target(second.port());
    first.stop();
}

#[test]
fn a_failover_with_loss_begins_a_new_epoch() {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        rig.watch(&name("a"), true);
        let before = open(rig);
        lose_half(rig, &mut first, &second, &switch);
        assert_outdated(rig);
        let after = open(rig);
        assert!(after.epoch > before.epoch);
        // What is left is kept, with its keys.
        assert_eq!(texts(rig), numbers(0..5));
        let (id, is_duplicate) = publish(rig, "4");
        assert!(is_duplicate && id.epoch == after.epoch);
        assert!(!publish(rig, "5").1);
        assert_eq!(reported(rig).1, "5");
    });
}

/// The numbers of the messages of the other process hide that some are missing.
#[test]
fn a_loss_is_noticed_although_others_have_published_more() {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        let mut other = rig.other_process();
        // The other knows nothing of the box that is lost.
        rig.watch(&name("a"), true);
        let before = open(rig);
        lose_half(rig, &mut first, &second, &switch);
        let (first_id, _) = publish(&mut other, "20");
        for number in 21..40 {
            publish(&mut other, &number.to_string());
        }
        let last_lost = MessageId {
            epoch: before.epoch,
            sequence: before.next + 9,
        };
        assert!(first_id > last_lost, "no id is of two messages");
        assert_outdated(rig);
        assert!(open(rig).epoch > before.epoch);
        let expected: Vec<_> = numbers(0..5).into_iter().chain(numbers(20..40)).collect();
        assert_eq!(texts(rig), expected);
        // The other learns of it.
        assert_eq!(open(&mut other).epoch, open(rig).epoch);
    });
}

/// The replica takes over, and then the first one again as it was before.
#[test]
fn a_failback_gives_no_id_twice() {
    let (mut first, mut second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        let mut other = rig.other_process();
        publish(rig, "0");
        assert_eq!(first.ask("SAVE"), "OK");
        first.wait_for(&second);
        first.stop();
        second.promote();
        switch.set_target(second.port());
        let (lost, _) = publish(rig, "1");
        second.stop();
        first.start();
        switch.set_target(first.port());
        // This one knows nothing of the box.
        let (id, _) = publish(&mut other, "2");
        assert!(id > lost);
        assert!(publish(rig, "3").0 > id);
        assert_eq!(texts(rig), ["0", "2", "3"]);
    });
}

#[test]
fn a_replica_says_so_until_it_is_promoted() {
    let (first, second, _) = replicated();
    first.wait_for(&second);
    let subject = at(second.port());
    let reports = subject.reports.clone();
    run(Some(subject), |rig| {
        let refused = rig.try_open(&name("a"), &settings());
        let unavailable = "the Redis server cannot be used at the moment".to_owned();
        assert_eq!(refused.err(), Some(StoreError::Unavailable(unavailable)));
        let reports = reports.lock().unwrap();
        assert!(reports[0].contains("it is a replica"), "{reports:?}");
        drop(reports);
        second.promote();
        publish(rig, "0");
    });
}

/// The process that has published them has ended; another one has got them for its receivers.
#[test]
fn a_receiver_notices_a_loss() {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        let mut other = rig.other_process();
        rig.watch(&name("a"), true);
        let before = open(rig);
        publish(&mut other, "0");
        first.wait_for(&second);
        second.promote();
        publish(&mut other, "1");
        for number in 0..2 {
            assert_eq!(reported(rig).1, number.to_string());
        }
        drop(other);
        switch.set_target(second.port());
        first.stop();
        assert_outdated(rig);
        assert!(open(rig).epoch > before.epoch);
        assert_eq!(texts(rig), ["0"]);
    });
}

/// Two processes publish and receive while a primary fails over to its replica, which has all, or lacks the last messages.
fn fail_over_with_two(has_all: bool) {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |one| {
        let mut other = one.other_process();
        let before = open(one).epoch;
        let mut rigs = [one, &mut other];
        for rig in &mut rigs {
            rig.watch(&name("a"), true);
            open(rig);
        }
        let mut ids = BTreeMap::new();
        let mut publish_all = |rigs: &mut [&mut Rig; 2], keys: Range<usize>| {
            for key in keys {
                let (id, _) = publish(rigs[key % 2], &key.to_string());
                assert_eq!(*ids.entry(id).or_insert(key), key, "{id} is of one message");
            }
        };
        publish_all(&mut rigs, 0..10);
        first.wait_for(&second);
        if !has_all {
            second.promote();
            publish_all(&mut rigs, 10..20);
        }
        first.stop();
        second.promote();
        switch.set_target(second.port());
        // The first ones again, as publishers do that have got no answer.
        publish_all(&mut rigs, 8..10);
        publish_all(&mut rigs, 20..40);
        let kept: Vec<_> = numbers(0..10).into_iter().chain(numbers(20..40)).collect();
        for rig in &mut rigs {
            assert_eq!(
                (texts(rig), open(rig).epoch == before),
                (kept.clone(), has_all)
            );
            let mut received = Vec::new();
            while has_all && received.len() < kept.len() {
                received.push(reported(rig).1);
            }
            assert!(received.is_empty() || received == kept);
            let is_gap = |change| matches!(change, Change::Outdated(_));
            while !has_all && !is_gap(rig.change()) {}
        }
    });
}

#[test]
fn two_processes_lose_nothing_in_a_failover_without_loss() {
    fail_over_with_two(true);
}

#[test]
fn two_processes_learn_of_a_failover_with_loss() {
    fail_over_with_two(false);
}

/// The replication id changes, as after a failover. Nothing was lost.
#[test]
fn a_first_replica_goes_unnoticed() {
    let (first, second) = (Server::redis(""), Server::redis(""));
    run(Some(at(first.port())), |rig| {
        rig.watch(&name("a"), true);
        let before = open(rig).epoch;
        publish(rig, "0");
        second.follow(&first);
        first.wait_for(&second);
        rig.until("the history is noted", |_| {
            first.ask("LLEN levity:runs") == "2"
        });
        // A process that has seen nothing does not doubt what others vouch for.
        let mut other = rig.other_process();
        assert_eq!(publish(&mut other, "1").0.epoch, before);
        publish(rig, "2");
        let opened = open(rig);
        assert_eq!((texts(rig), opened.epoch), (numbers(0..3), before));
    });
}

/// The history changes twice, by a restart and a first replica. A process comes back that has seen neither; the other one has
/// seen the restart, and sees the replica, or ends.
fn come_back_late(has_other: bool) {
    let (mut first, second) = (lasting(), Server::redis(""));
    run(Some(at(first.port())), |late| {
        let before = open(late).epoch;
        run(Some(at(first.port())), |other| {
            publish(other, "0");
            first.stop();
            first.start();
            publish(other, "1");
            second.follow(&first);
            first.wait_for(&second);
            let start = Instant::now();
            while has_other && start.elapsed() < Duration::from_millis(500) {
                assert!(late.try_open(&name("a"), &settings()).is_err());
            }
            other.until("the history is noted", |_| {
                !has_other || first.ask("LLEN levity:runs") == "3"
            });
        });
        assert_eq!(publish(late, "2").0.epoch == before, has_other);
        assert_eq!(texts(late), numbers(0..3));
    });
}

#[test]
fn a_process_that_lags_waits_for_one_that_does_not() {
    come_back_late(true);
}

#[test]
fn a_process_that_lags_goes_on_without_others() {
    come_back_late(false);
}

#[test]
fn a_new_process_waits_for_one_that_was_there() {
    let mut first = lasting();
    run(Some(at(first.port())), |rig| {
        let before = open(rig).epoch;
        publish(rig, "0");
        first.stop();
        first.start();
        run(Some(at(first.port())), |new| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                assert!(new.try_open(&name("a"), &settings()).is_err());
            }
            publish(rig, "1");
            assert_eq!(open(new).epoch, before);
        });
        assert_eq!(texts(rig), numbers(0..2));
    });
}

/// A box without messages from which another process receives. That process is killed later.
#[test]
fn an_unused_box_gives_way_unless_another_process_watches_it() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, _| {
        let settings = settings_with(|settings| {
            settings.boxes_max = 1;
            settings.idle = Duration::from_secs(4);
        });
        let mut other = rig.other_process();
        for rig in [&mut other, &mut *rig] {
            rig.watch(&name("a"), true);
            rig.open(&name("a"), &settings);
        }
        rig.watch(&name("a"), false);
        assert!(rig.try_open(&name("b"), &settings).is_err());
        drop(other);
        rig.until("the box gives way", |rig| {
            rig.try_open(&name("b"), &settings).is_ok()
        });
        assert!(rig.look(&name("a")).is_none());
    });
}

/// A process that only publishes knows what was acknowledged to it.
#[test]
fn a_publisher_notices_a_loss() {
    let (mut first, second, switch) = replicated();
    run(Some(at(switch.port())), |rig| {
        rig.watch(&name("a"), true);
        let before = open(rig);
        lose_half(rig, &mut first, &second, &switch);
        rig.watch(&name("a"), false);
        let (id, _) = publish(rig, "10");
        assert!(id.epoch > before.epoch);
    });
}

/// For each script.
#[test]
fn many_errors_are_one_report() {
    let server = Server::redis("");
    assert_eq!(server.ask("ACL SETUSER default -script"), "OK");
    let subject = at(server.port());
    let reports = subject.reports.clone();
    run(Some(subject), |rig| {
        assert!(rig.try_open(&name("a"), &settings()).is_err());
        let reports = reports.lock().unwrap();
        assert_eq!(
            reports[0].matches("no permissions").count(),
            1,
            "{reports:?}"
        );
    });
}

#[test]
fn a_server_without_room_says_so() {
    let server = Server::redis("");
    let subject = at(server.port());
    let reports = subject.reports.clone();
    run(Some(subject), |rig| {
        publish(rig, "0");
        assert_eq!(server.ask("CONFIG SET maxmemory 1"), "OK");
        let append = append_of(&name("a"), &settings(), draft("1"));
        let results = rig.append_all(vec![append.clone()]);
        let full = StoreError::Full("the Redis server has no memory left".to_owned());
        assert_eq!(results[0].as_ref().err(), Some(&full));
        let new = append_of(&name("b"), &settings(), draft("1"));
        assert!(matches!(
            &rig.append_all(vec![new])[0],
            Err(StoreError::Full(_))
        ));
        assert_eq!(server.ask("CONFIG SET maxmemory 0"), "OK");
        assert!(matches!(
            &rig.append_all(vec![append])[0],
            Ok(Appended::New { .. })
        ));
        assert_eq!(texts(rig), ["0", "1"]);
        let reports = reports.lock().unwrap();
        assert_eq!(reports.len(), 1, "only the first: {reports:?}");
        assert!(reports[0].contains("maxmemory"));
    });
}

#[test]
fn scripts_that_the_server_has_forgotten_are_loaded_again() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        publish(rig, "0");
        assert_eq!(server.ask("SCRIPT FLUSH"), "OK");
        let append = |text| append_of(&name("a"), &settings(), draft(text));
        let results = rig.append_all(vec![append("1"), append("2")]);
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(texts(rig), numbers(0..3));
    });
}

/// Messages that take many batches are under way.
#[test]
fn a_read_does_not_wait_for_what_is_written() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, _| {
        let (a, settings, now) = (name("a"), settings(), rig.now());
        publish(rig, "0");
        let append = append_of(&a, &settings, draft(&"x".repeat(1 << 20)));
        let mut appending = rig.call(|store| store.append(vec![append; 64], now));
        let limit = Limit {
            messages: 1,
            bytes: 1,
        };
        let read = rig.read(&a, None, limit).expect("a box");
        assert_eq!(text(&read.messages[0]), "0");
        assert_eq!(rig.list(SET, None, 10).len(), 1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            rig.call(|_| appending.as_mut().poll(&mut context))
                .is_pending()
        );
        assert!(rig.finish(appending).iter().all(Result::is_ok));
    });
}

/// The server copies what a script reads.
#[test]
fn a_read_takes_large_messages_one_by_one() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        let settings = settings();
        let mut assert_read = |of: &str, texts: &[String], bytes, (count, calls)| {
            let of = name(of);
            for text in texts {
                rig.append(&of, &settings, text);
            }
            assert_eq!(server.ask("CONFIG RESETSTAT"), "OK");
            let limit = Limit {
                messages: 100,
                bytes,
            };
            let read = rig.read(&of, None, limit).expect("a box");
            assert_eq!(read.messages.len(), count);
            let stats = server.ask("INFO commandstats");
            assert!(
                stats.contains(&format!("cmdstat_xrange:calls={calls},")),
                "{stats}"
            );
        };
        assert_read("small", &numbers(0..101), usize::MAX, (100, 1));
        let large = "x".repeat(1 << 20);
        let texts = ["0".to_owned(), large.clone(), large.clone(), large];
        assert_read("large", &texts, 1000, (2, 2));
    });
}

/// As a server without memory does.
#[test]
fn keys_that_the_server_has_dropped_are_a_loss() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        rig.watch(&name("a"), true);
        let mut last = open(rig).epoch;
        for kind in ["log", "box"] {
            let (id, _) = publish(rig, kind);
            assert_eq!(reported(rig), (id, kind.to_owned()));
            assert_eq!(server.ask(&format!("DEL levity:{kind}:set/a")), "1");
            let (id, _) = publish(rig, "after");
            assert!(id.epoch > last);
            assert_outdated(rig);
            last = open(rig).epoch;
            assert_eq!((last, texts(rig)), (id.epoch, vec!["after".to_owned()]));
            rig.remove(&name("a"));
            last = open(rig).epoch.max(last);
        }
    });
}

#[test]
fn deadlines_end_on_the_server_too() {
    let mut server = Server::redis("");
    run_with(&mut server, |rig, server| {
        let (a, settings) = (name("a"), settings());
        for number in 0..10 {
            let deadline = Some(rig.now() + Duration::from_millis(300 + number));
            let draft = Draft {
                deadline,
                ..draft("x")
            };
            rig.append_as(&a, &settings, draft);
        }
        let is_empty = || server.ask("XLEN levity:log:set/a") == "0";
        rig.until("the messages are gone", |_| is_empty());
        let opened = rig.open(&a, &settings);
        assert_eq!((opened.lost, opened.messages.len()), (1, 0));
        rig.until("they are counted", |rig| {
            rig.call(|store| store.figures().expired) == 10
        });
    });
}
