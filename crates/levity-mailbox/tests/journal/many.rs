//! Many boxes.

use std::time::{Duration, Instant, SystemTime};

use levity_mailbox::Store as _;

use crate::harness::*;

/// A start with so many boxes of one message each takes no longer than `time_max`.
fn start(count: usize, time_max: Duration) {
    let mut rig = Rig::new(disk("threads"));
    let settings = settings(|_| {});
    let name = |number: usize| name(&format!("user-{number:07}"));
    for first in (0..count).step_by(1000) {
        let append = |number| append_of(&name(number), &settings, draft(&format!("text {number}")));
        let appends = (first..first + 1000).map(append).collect();
        assert!(rig.append_all(appends).iter().all(Result::is_ok));
    }
    rig.store = None;
    let before = resident_bytes();
    let start = Instant::now();
    rig.open_store();
    let (time, bytes) = (start.elapsed(), resident_bytes() - before);
    eprintln!(
        "{count} boxes: {time:?}, {} bytes of memory each",
        bytes / count
    );
    assert_eq!(rig.store().figures().boxes, count);
    for number in (0..count).step_by(count / 100 + 1) {
        assert_eq!(rig.texts(&name(number)), [format!("text {number}")]);
    }
    let start = Instant::now();
    rig.store().sweep(SystemTime::now());
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(time < time_max, "{time:?}");
}

/// The memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_start_with_twenty_thousand_boxes_is_quick() {
    start(20_000, Duration::from_secs(5));
}

#[test]
#[ignore = "takes a minute, and half a gigabyte"]
fn a_start_with_a_million_boxes_takes_a_second() {
    start(1_000_000, Duration::from_secs(2));
}
