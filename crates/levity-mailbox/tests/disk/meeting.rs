//! Receivers that come while something is written, as an owner drives the store.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use levity_mailbox::{Appended, Change, Limit, Store as _, StoreError};

use crate::harness::*;

/// The numbers of the messages that a receiver knows: those of the answer, and those of changes.
fn numbers_known(rig: &mut Rig, round: usize) -> (BTreeSet<u64>, u64) {
    let a = name(&format!("box{round}"));
    let now = SystemTime::now();
    let append = |text: &str| vec![append_of(&a, &durable(), draft(text))];
    let first = rig.store().append(append("first"), now);
    // The moment at which the receiver comes is another one each time.
    let moment = Duration::from_micros(20 * round as u64 % 1000);
    std::thread::sleep(moment);
    rig.store().watch(&a, true, now);
    let opening = rig.store().open(&a, &durable(), now);
    let second = rig.store().append(append("second"), now);
    let store = rig.store.as_mut().unwrap();
    let mut known = BTreeSet::new();
    let (opened, acknowledged) = rig.runtime.block_on(async {
        let all = async {
            let first = first.await.remove(0);
            let opened = opening.await.expect("a box");
            let second = second.await.remove(0);
            let number = |result: Result<Appended, _>| match result {
                Ok(Appended::New { message, .. }) => message.id.sequence,
                other => panic!("{other:?}"),
            };
            (opened, [number(first), number(second)])
        };
        let mut all = Box::pin(all);
        poll_fn(|context| {
            let done = all.as_mut().poll(context);
            while let Poll::Ready(change) = store.poll_change(context) {
                if let Change::Appended { message, .. } = change {
                    known.insert(message.id.sequence);
                }
            }
            done
        })
        .await
    });
    known.extend(opened.messages.iter().map(|message| message.id.sequence));
    assert_eq!(acknowledged, [1, 2]);
    (known, opened.first)
}

#[test]
fn a_message_that_is_being_written_is_in_the_answer_or_a_change() {
    let mut rig = Rig::new();
    for round in 0..300 {
        let (known, first) = numbers_known(&mut rig, round);
        assert_eq!(known, [1, 2].into(), "round {round}");
        // The second was published after the receiver had come.
        assert!(first <= 2, "round {round}: new messages begin with {first}");
    }
}

/// A box that gives way while a receiver opens it.
#[test]
fn whoever_opens_a_box_that_is_dropped_learns_of_it() {
    let mut rig = Rig::new();
    let one = settings_with(|settings| settings.boxes_max = 1);
    let now = SystemTime::now();
    for round in 0..200 {
        let [old, new] = ["old", "new"].map(|of| name(&format!("{of}{round}")));
        rig.open(&old, &one);
        let making = rig
            .store()
            .append(vec![append_of(&new, &one, draft("x"))], now);
        std::thread::sleep(Duration::from_micros(10 * round % 400));
        rig.store().watch(&old, true, now);
        let opening = rig.store().open(&old, &one, now);
        let (made, opened) = rig.finish(async { (making.await, opening.await) });
        let store = rig.store.as_mut().unwrap();
        let mut changes = Vec::new();
        rig.runtime.block_on(poll_fn(|context| {
            while let Poll::Ready(change) = store.poll_change(context) {
                changes.push(change);
            }
            Poll::Ready(())
        }));
        let is_there = rig.look(&old).is_some();
        let is_told = changes
            .iter()
            .any(|change| matches!(change, Change::Removed(_)));
        assert!(
            opened.is_err() || is_there || is_told,
            "round {round}: {made:?}"
        );
        rig.store().watch(&old, false, now);
        rig.remove(&old);
        rig.remove(&new);
    }
}

#[test]
fn keys_are_forgotten_also_beside_messages_without_one() {
    let mut rig = Rig::new();
    let a = name("a");
    let few = settings_with(|settings| settings.messages_max = 4);
    for number in 0..2000 {
        let mut draft = draft("x");
        draft.key = (number % 2 == 0).then(|| format!("k{number}").into());
        rig.try_append(&a, &few, draft).unwrap();
    }
    rig.store = None;
    let connection = rusqlite::Connection::open(rig.folder.join("messages.db")).unwrap();
    let count: usize = connection
        .query_row("SELECT count(*) FROM key", [], |row| row.get(0))
        .unwrap();
    assert!((128..400).contains(&count), "{count} keys");
    rig.open_store();
    assert_eq!(
        rig.call(|store| store.read(&a, None, Limit::NONE))
            .unwrap()
            .unwrap()
            .messages
            .len(),
        4
    );
}

/// A call with many messages takes no longer than one, if nobody answers.
#[test]
fn more_questions_than_may_wait_are_refused() {
    let mut rig = Rig::new();
    let a = name("a");
    rig.append(&a, &durable(), "x");
    let asked: Vec<_> = (0..10_000)
        .map(|_| rig.store().read(&a, None, Limit::NONE))
        .collect();
    let mut refused = 0;
    for one in asked {
        refused += usize::from(rig.finish(one).is_err());
    }
    assert!(refused < 10_000, "none was answered");
    assert!(rig.look(&a).is_some());
}

/// Boxes for which there is room one after the other, but not at the same time.
#[test]
fn a_box_waits_for_memory_that_another_one_gives_back() {
    let mut rig = Rig::new();
    let names = [name("a"), name("b")];
    for name in &names {
        for _ in 0..60 {
            rig.append(name, &durable(), &"x".repeat(60_000));
        }
    }
    let open = |rig: &mut Rig, name| {
        let opening = rig.store().open(name, &durable(), SystemTime::now());
        // Dropped at once, so that the memory is given back.
        async { opening.await.map(|opened| opened.messages.len()) }
    };
    // Of this memory, three quarters are for those who read.
    for (memory, expected) in [(8 << 20, Ok(60)), (2 << 20, Err(StoreError::Memory))] {
        rig.memory = memory;
        rig.reopen();
        let (first, second) = (open(&mut rig, &names[0]), open(&mut rig, &names[1]));
        let both = rig.finish(async { tokio::join!(first, second) });
        assert_eq!(both, (expected.clone(), expected));
    }
}
