//! Disks that fail.

use std::fs;
use std::future::poll_fn;
use std::time::Duration;

use levity_disk::engine::simulated;
use levity_mailbox::{Change, Store as _, StoreError};
use tokio::time;

use crate::harness::*;

/// Syncs of a start: of the first segment and of its name.
const SYNCS_OF_START: usize = 2;

#[test]
fn a_sync_that_fails_refuses_what_it_covers_and_nothing_else_is_lost() {
    // The sync that fails is of messages, of a new segment, or of its name.
    for good in SYNCS_OF_START..SYNCS_OF_START + 6 {
        let disk = disk(&format!(
            "simulated:delay_ms=0,eio_syncs=1,good_syncs={good}"
        ));
        let mut rig = Rig::with(disk, |options| options.segment_bytes = 500);
        let sets = [("durable", durable()), ("other", settings(|_| {}))];
        let mut expected = [Vec::new(), Vec::new()];
        let mut refused = 0;
        for number in 0..12 {
            for ((of, settings), expected) in sets.iter().zip(&mut expected) {
                let text = number.to_string();
                match rig.try_append(&name(of), settings, draft(&text)) {
                    Ok(_) => expected.push(text),
                    Err(StoreError::Unavailable(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(refused <= 1, "{refused} with {good}");
        let epochs = |rig: &mut Rig| {
            let mut epoch = |of| rig.look(&name(of)).expect("a box").epoch;
            [epoch("durable"), epoch("other")]
        };
        for ((of, _), expected) in sets.iter().zip(&expected) {
            assert_eq!(&rig.texts(&name(of)), expected, "{good}");
        }
        let before = epochs(&mut rig);
        let mut copy = rig.copy();
        copy.open_store();
        rig.reopen();
        for rig in [&mut copy, &mut rig] {
            for ((of, _), expected) in sets.iter().zip(&expected) {
                // One that was refused may be there.
                let texts = rig.texts(&name(of));
                assert!(
                    expected.iter().all(|text| texts.contains(text)),
                    "{texts:?}"
                );
                assert!(texts.len() <= expected.len() + refused);
            }
            // Nobody knows at a start what of the others was written again.
            let after = epochs(rig);
            assert!(after[0] == before[0] && after[1] >= before[1]);
        }
    }
}

#[test]
fn a_byte_that_cannot_be_written_costs_what_was_to_be_there() {
    let disk = disk("simulated:delay_ms=0,eio_at=700");
    let mut rig = Rig::new(disk);
    let a = name("a");
    let mut expected = Vec::new();
    for number in 0..20 {
        let text = number.to_string();
        if rig.try_append(&a, &durable(), draft(&text)).is_ok() {
            expected.push(text);
        }
    }
    assert!(expected.len() > 10 && expected.len() < 20);
    assert_eq!(rig.texts(&a), expected);
    let epoch = rig.look(&a).expect("a box").epoch;
    rig.store = None;
    rig.disk = crate::harness::disk("threads");
    rig.open_store();
    assert_eq!(rig.texts(&a), expected);
    assert_eq!(rig.look(&a).expect("a box").epoch, epoch);
}

#[test]
fn a_disk_that_does_not_answer_is_unavailable_in_time() {
    let mut rig = Rig::new(disk("threads"));
    let (a, b) = (name("a"), name("b"));
    rig.append(&a, &durable(), "x");
    rig.store = None;
    // That of the first segment: what is written goes to the next one.
    rig.disk = disk("simulated:delay_ms=0,freeze=0000000001.segment");
    rig.options.time_max = Duration::from_millis(50);
    rig.open_store();
    let looked = rig.call(|store| store.read(&a, None, levity_mailbox::Limit::NONE));
    assert!(
        matches!(looked, Err(StoreError::Unavailable(_))),
        "{looked:?}"
    );
    rig.append(&b, &durable(), "y");
    assert_eq!(rig.texts(&b), ["y"]);
    simulated::thaw("0000000001.segment");
    assert_eq!(rig.texts(&a), ["x"]);
}

#[test]
fn what_is_written_too_late_is_reported() {
    let mut rig = Rig::with(disk("simulated:delay_ms=20"), |options| {
        options.time_max = Duration::ZERO;
    });
    let a = name("a");
    let refused = rig.try_append(&a, &durable(), draft("late"));
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
    let store = rig.store.as_mut().unwrap();
    let change = poll_fn(|context| store.poll_change(context));
    let change = rig
        .runtime
        .block_on(async { time::timeout(DEADLINE, change).await });
    assert!(matches!(change, Ok(Change::Outdated(name)) if name == a));
    rig.reopen();
    rig.options.time_max = DEADLINE;
    rig.reopen();
    assert_eq!(rig.texts(&a), ["late"]);
}

/// Where the bytes of a message are not what they were, the message is lost, and no other.
#[test]
fn a_wrong_message_is_lost_and_said_to_be() {
    let mut rig = Rig::with(disk("threads"), |options| options.recent_bytes_max = 0);
    let a = name("a");
    let ids: Vec<_> = (0..5)
        .map(|number| rig.append(&a, &durable(), &format!("text {number}")))
        .collect();
    let (segment, mut bytes) = rig.files().into_iter().next().unwrap();
    let at = bytes.windows(6).position(|part| part == b"text 2").unwrap();
    bytes[at] = b'T';
    fs::write(rig.folder.join(segment), bytes).unwrap();
    let expected = ["text 0", "text 1", "text 3", "text 4"];
    assert_eq!(rig.texts(&a), expected);
    let epoch = rig.look(&a).expect("a box").epoch;
    assert!(
        epoch > ids[0].epoch && rig.lines().len() == 1,
        "{:?}",
        rig.lines()
    );
    let store = rig.store.as_mut().unwrap();
    let change = rig
        .runtime
        .block_on(poll_fn(|context| store.poll_change(context)));
    assert!(matches!(change, Change::Outdated(name) if name == a));
    let id = rig.append(&a, &durable(), "text 5");
    assert_eq!((id.epoch, id.sequence), (epoch, ids[4].sequence + 1));
    rig.reopen();
    assert_eq!(rig.look(&a).expect("a box").epoch, epoch);
    assert_eq!(rig.texts(&a).len(), 5);
}
