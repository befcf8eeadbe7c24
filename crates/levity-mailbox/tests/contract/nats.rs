//! What NATS does beyond what all servers do: its stream loses its end, and records that are not needed are deleted.

use std::fs;
use std::path::Path;

use levity_mailbox::{Change, Draft};
use serde_json::Value;
use tokio::runtime::Builder;

use crate::failing::{assert_outdated, open, publish, reported, run_with, texts};
use crate::harness::*;
use crate::servers::Server;
use crate::stores::Kind;

/// Asks JetStream as an operator does.
fn ask(server: &Server, call: &str, parameters: &str) -> Value {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("nats://127.0.0.1:{}", server.port());
    let (subject, parameters) = (format!("$JS.API.{call}"), parameters.to_owned());
    let answer = runtime.block_on(async {
        let client = async_nats::connect(url).await.unwrap();
        client.request(subject, parameters.into()).await.unwrap()
    });
    serde_json::from_slice(&answer.payload).unwrap()
}

/// The number of records in the stream.
fn records(server: &Server) -> u64 {
    let info = ask(server, "STREAM.INFO.LEVITY", "");
    info["state"]["messages"].as_u64().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Has the server forget what `lost` does, as a machine that crashes does.
fn forget(rig: &mut Rig, server: &mut Server, lost: impl FnOnce(&mut Rig)) {
    let (kept, saved) = (
        server.folder().join("jetstream"),
        server.folder().join("saved"),
    );
    server.stop();
    copy(&kept, &saved);
    server.start();
    lost(rig);
    server.stop();
    fs::remove_dir_all(&kept).unwrap();
    fs::rename(&saved, &kept).unwrap();
    server.start();
}

/// Appends 0 to 9, of a box that is watched, and has the server forget 5 to 9.
fn lose_half(rig: &mut Rig, server: &mut Server) {
    let publish = |rig: &mut Rig, number: usize| {
        let (id, _) = publish(rig, &number.to_string());
        assert_eq!(reported(rig), (id, number.to_string()));
    };
    (0..5).for_each(|number| publish(rig, number));
    forget(rig, server, |rig| {
        (5..10).for_each(|number| publish(rig, number));
    });
}

#[test]
fn a_stream_that_has_lost_its_end_begins_a_new_epoch() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        rig.watch(&name("a"), true);
        let before = open(rig);
        lose_half(rig, server);
        assert_outdated(rig);
        while open(rig).epoch == before.epoch {}
        assert!(open(rig).epoch > before.epoch);
        assert_eq!(texts(rig), numbers(0..5));
        let (_, is_duplicate) = publish(rig, "4");
        assert!(is_duplicate);
    });
}

/// Also that of a box whose records are all lost, and that of one which this process does not know.
#[test]
fn a_lost_end_gives_all_boxes_larger_epochs() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        let (b, c, settings) = (name("b"), name("c"), settings());
        let mut other = rig.other_process();
        let kept = other.append(&b, &settings, "kept").epoch;
        drop(other);
        rig.watch(&name("a"), true);
        let epoch = open(rig).epoch;
        let mut lost = 0;
        forget(rig, server, |rig| {
            // The restart alone is no loss.
            let (id, _) = publish(rig, "lost");
            assert_eq!(reported(rig), (id, "lost".to_owned()));
            assert_eq!(id.epoch, epoch);
            lost = rig.append(&c, &settings, "lost").epoch;
        });
        assert_outdated(rig);
        let opened = rig.open(&c, &settings);
        assert!(opened.epoch > lost && opened.messages.is_empty());
        assert!(rig.open(&b, &settings).epoch > kept);
        assert_eq!(rig.texts(&b, &settings), ["kept"]);
    });
}

/// Nothing is left in the stream but the number of its last record.
#[test]
fn epochs_grow_although_a_server_without_boxes_is_killed() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        let mut last = 0;
        for _ in 0..5 {
            let (id, _) = publish(rig, "0");
            assert!(id.epoch > last);
            last = id.epoch;
            assert!(rig.remove(&name("a")));
            server.stop();
            server.start();
        }
    });
}

/// The numbers of the messages of the other process hide that some are missing.
#[test]
fn a_loss_is_noticed_although_others_have_published_more() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        let mut other = rig.other_process();
        rig.watch(&name("a"), true);
        let before = open(rig);
        lose_half(rig, server);
        for number in 20..40 {
            publish(&mut other, &number.to_string());
        }
        assert_outdated(rig);
        while open(rig).epoch == before.epoch {}
        assert!(open(rig).epoch > before.epoch);
        let expected: Vec<_> = numbers(0..5).into_iter().chain(numbers(20..40)).collect();
        assert_eq!(texts(rig), expected);
        assert_eq!(open(&mut other).epoch, open(rig).epoch);
    });
}

#[test]
fn a_stream_that_is_gone_is_a_loss() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        rig.watch(&name("a"), true);
        let before = open(rig).epoch;
        publish(rig, "0");
        assert_eq!(reported(rig).1, "0");
        server.stop();
        fs::remove_dir_all(server.folder().join("jetstream")).unwrap();
        server.start();
        assert_outdated(rig);
        let after = open(rig);
        assert!(after.epoch > before && after.messages.is_empty());
        assert!(!publish(rig, "0").1);
    });
}

/// Whatever happens to a box, the stream has little more than what is kept, and what is kept stays the same.
#[test]
fn records_that_are_not_needed_are_deleted() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        let mut other = rig.other_process();
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 10);
        let mut ids = Vec::new();
        for number in 0..1000 {
            let key = format!("k{number}");
            let (one, two) = match number % 3 {
                0 => (&mut *rig, &mut other),
                _ => (&mut other, &mut *rig),
            };
            let (id, is_duplicate) = one.append_key(&a, &settings, &key);
            assert!(!is_duplicate);
            ids.push(id);
            match number % 7 {
                1 => assert_eq!(two.append_key(&a, &settings, &key), (id, true)),
                2 => two.call(|store| store.mark_read(&a, id)),
                3 => assert_eq!(two.texts(&a, &settings).len(), ids.len().min(10)),
                _ => {}
            }
        }
        let kept: Vec<_> = (990..1000).map(|number| format!("k{number}")).collect();
        // A process that knows nothing as yet reads the same from the stream.
        let mut third = rig.other_process();
        for process in [rig, &mut other, &mut third] {
            assert_eq!(process.texts(&a, &settings), kept);
            for (number, id) in ids.iter().enumerate().skip(1000 - 256) {
                let found = process.append_key(&a, &settings, &format!("k{number}"));
                assert_eq!(found, (*id, true));
            }
        }
        third.until("the records are deleted", |_| records(server) < 200);
        assert_eq!(third.texts(&a, &settings), kept);
    });
}

#[test]
fn boxes_that_no_process_uses_are_removed() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, server| {
        let settings = settings_with(|settings| settings.idle = IDLE);
        let mut other = rig.other_process();
        for number in 0..20 {
            other.append(&name(&format!("n{number}")), &settings, "x");
        }
        drop(other);
        rig.open(&name("used"), &settings);
        rig.until("they are removed", |rig| {
            rig.list(SET, None, 100).is_empty()
        });
        rig.until("their records are deleted", |_| records(server) == 0);
    });
}

#[test]
fn a_message_that_is_too_large_is_refused() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, _| {
        let (a, settings) = (name("a"), settings());
        let content = vec![0; 1 << 20].into();
        let large = Draft {
            content,
            ..draft("")
        };
        let results = rig.append_all(vec![append_of(&a, &settings, large)]);
        let error = results[0].as_ref().expect_err("too large").to_string();
        assert!(error.contains("1048576 bytes"), "{error}");
        rig.append(&a, &settings, "0");
    });
}

#[test]
fn a_box_is_reported_to_two_processes_in_the_same_order() {
    let mut server = Server::nats();
    run_with(Kind::Nats, &mut server, |rig, _| {
        let (a, settings) = (name("a"), settings());
        let mut other = rig.other_process();
        for process in [&mut *rig, &mut other] {
            process.watch(&a, true);
            process.open(&a, &settings);
        }
        let now = rig.now();
        let pending: Vec<_> = (0..100)
            .map(|number| {
                let process = if number % 2 == 0 {
                    &mut *rig
                } else {
                    &mut other
                };
                let append = append_of(&a, &settings, draft(&number.to_string()));
                process.call(|store| store.append(vec![append], now))
            })
            .collect();
        for (number, one) in pending.into_iter().enumerate() {
            let process = if number % 2 == 0 {
                &mut *rig
            } else {
                &mut other
            };
            process.finish(one);
        }
        let reported = |process: &mut Rig| -> Vec<_> {
            let next = |_| match process.change() {
                Change::Appended { message, .. } => text(&message),
                other => panic!("{other:?}"),
            };
            (0..100).map(next).collect()
        };
        let (one, two) = (reported(rig), reported(&mut other));
        assert_eq!(one, two);
        assert_eq!(one, rig.texts(&a, &settings));
    });
}
