//! Segments that are no longer needed.

use std::time::{Duration, SystemTime};

use levity_mailbox::{Name, Store as _};

use crate::harness::*;

const SEGMENT_BYTES: u32 = 16 << 10;

fn rig() -> Rig {
    Rig::with(disk("threads"), |options| {
        options.segment_bytes = SEGMENT_BYTES;
        options.recent_bytes_max = 4096;
    })
}

fn boxes(count: usize) -> Vec<Name> {
    (0..count)
        .map(|number| name(&format!("box{number}")))
        .collect()
}

#[test]
fn the_size_is_bounded_by_what_is_kept() {
    let mut rig = rig();
    let few = settings(|settings| settings.messages_max = 3);
    let always = boxes(50);
    // Some boxes get messages all the time, others only at the beginning.
    for name in &always {
        rig.append(name, &few, &format!("first of {name}"));
    }
    for number in 0..4000 {
        let name = &always[number % 10];
        rig.append(name, &few, &format!("{number:>100}"));
        if number % 100 == 0 {
            rig.store().sweep(SystemTime::now());
        }
    }
    let bound = 6 * SEGMENT_BYTES as usize;
    rig.until("segments are freed", |rig| rig.size(".segment") < bound);
    let check = |rig: &mut Rig| {
        for (number, name) in always.iter().enumerate() {
            let texts = rig.texts(name);
            match number {
                0..10 => {
                    let expected = [3970 + number, 3980 + number, 3990 + number];
                    assert_eq!(texts, expected.map(|number| format!("{number:>100}")));
                }
                _ => assert_eq!(texts, [format!("first of {name}")]),
            }
        }
    };
    check(&mut rig);
    let mut copy = rig.copy();
    copy.open_store();
    check(&mut copy);
    rig.reopen();
    check(&mut rig);
    assert!(rig.lines().is_empty() && copy.lines().is_empty());
}

#[test]
fn removed_boxes_leave_nothing() {
    let mut rig = rig();
    let stays = name("stays");
    rig.append(&stays, &settings(|_| {}), "x");
    let id = rig.look(&stays).expect("a box").epoch;
    for round in 0..20 {
        let names = boxes(100);
        let appends = names
            .iter()
            .map(|name| append_of(name, &settings(|_| {}), draft(&format!("{round:>50}"))));
        let results = rig.append_all(appends.collect());
        assert!(results.iter().all(Result::is_ok));
        for name in &names {
            assert!(rig.remove(name));
        }
        rig.store().sweep(SystemTime::now());
    }
    let bound = 6 * SEGMENT_BYTES as usize;
    rig.until("segments are freed", |rig| rig.size(".segment") < bound);
    for _ in 0..2 {
        let mut copy = rig.copy();
        copy.open_store();
        assert_eq!(copy.store().figures().boxes, 1);
        assert_eq!(copy.texts(&stays), ["x"]);
        assert_eq!(copy.look(&stays).expect("a box").epoch, id);
        rig.reopen();
    }
}

#[test]
fn keys_and_read_positions_outlive_their_segments() {
    let mut rig = rig();
    let one = settings(|settings| settings.messages_max = 1);
    let a = name("a");
    let key = |number: usize| levity_mailbox::Draft {
        key: Some(format!("key {number}").into()),
        ..draft(&format!("{number:>300}"))
    };
    let append = |rig: &mut Rig, number| rig.try_append(&a, &one, key(number)).unwrap();
    let ids: Vec<_> = (0..256).map(|number| append(&mut rig, number)).collect();
    rig.store().mark_read(&a, ids[99]);
    rig.until("segments are freed", |rig| {
        rig.size(".segment") < 3 * SEGMENT_BYTES as usize
    });
    for _ in 0..3 {
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(append(&mut rig, number), *id);
        }
        assert_eq!(rig.look(&a).expect("a box").read, ids[99].sequence + 1);
        rig.reopen();
    }
}

#[test]
fn many_starts_leave_few_files() {
    let mut rig = rig();
    let a = name("a");
    for number in 0..60 {
        rig.append(&a, &settings(|_| {}), &number.to_string());
        rig.reopen();
        rig.store().sweep(SystemTime::now());
    }
    rig.until("small segments are put together", |rig| {
        rig.files().len() < 40
    });
    let expected: Vec<_> = (0..60).map(|number| number.to_string()).collect();
    assert_eq!(rig.texts(&a), expected);
    rig.reopen();
    assert_eq!(rig.texts(&a), expected);
    assert!(rig.lines().is_empty(), "{:?}", rig.lines());
}

#[test]
fn idle_boxes_are_removed_after_a_start_too() {
    let mut rig = rig();
    let idle = settings(|settings| settings.idle = Duration::from_secs(2));
    for name in boxes(1000) {
        rig.append(&name, &idle, "x");
    }
    let stays = name("stays");
    rig.append(&stays, &settings(|_| {}), "x");
    rig.reopen();
    assert_eq!(rig.store().figures().boxes, 1001);
    let later = SystemTime::now() + Duration::from_secs(3);
    for _ in 0..20 {
        rig.store().sweep(later);
    }
    assert_eq!(rig.store().figures().boxes, 1);
    rig.reopen();
    assert_eq!(rig.store().figures().boxes, 1);
    assert_eq!(rig.texts(&stays), ["x"]);
}

/// A box that is read while its segment is freed.
#[test]
fn a_segment_that_is_read_stays() {
    let mut rig = rig();
    let few = settings(|settings| settings.messages_max = 20);
    let (a, b) = (name("a"), name("b"));
    for number in 0..20 {
        rig.append(&a, &few, &format!("{number:>500}"));
    }
    for number in 0..100 {
        rig.append(&b, &few, &format!("{number:>500}"));
    }
    let looking = rig.store().read(&a, None, levity_mailbox::Limit::NONE);
    for number in 0..200 {
        rig.append(&a, &few, &format!("{number:>500}"));
    }
    rig.until("segments are freed", |rig| {
        rig.append(&b, &few, &"x".repeat(500));
        rig.size(".segment") < 6 * SEGMENT_BYTES as usize
    });
    let found = rig.finish(looking).expect("an answer").expect("a box");
    let texts: Vec<_> = found.messages.iter().map(text).collect();
    let expected: Vec<_> = (0..20).map(|number| format!("{number:>500}")).collect();
    assert_eq!(texts, expected);
}
