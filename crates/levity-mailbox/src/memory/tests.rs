use std::time::Duration;

use super::*;
use crate::log::tests::{draft, settings};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn name(text: &str) -> Name {
    Name::new("s", text.as_bytes()).expect("a name")
}

fn append(store: &mut MemoryStore, name: &Name, deadline: Option<u64>, now: u64) {
    let mut draft = draft("x", None);
    draft.deadline = deadline.map(at);
    let append = Append {
        update: None,
        name: name.clone(),
        settings: settings(10_000, usize::MAX).into(),
        draft: draft.into(),
    };
    drop(store.append(vec![append], at(now)));
}

fn messages(store: &MemoryStore, name: &Name) -> usize {
    let found = store.boxes.get(name).expect("a box");
    found.log.messages().len()
}

#[test]
fn a_box_is_due_once() {
    let mut store = MemoryStore::new(7);
    let a = name("a");
    append(&mut store, &a, Some(10_000), 0);
    for now in 0..1000 {
        store.watch(&a, true, at(now));
        store.watch(&a, false, at(now));
        append(&mut store, &a, Some(9_000 - now), now);
        assert_eq!(store.due.len(), 1);
    }
    assert_eq!(store.due.first(), Some(&(at(1059), a.clone())));
    store.drop_box(&a);
    assert!(store.due.is_empty() && store.counts["s"] == 0);
}

#[test]
fn messages_of_a_watched_box_expire_in_time() {
    let mut store = MemoryStore::new(7);
    let a = name("a");
    store.watch(&a, true, at(0));
    append(&mut store, &a, None, 0);
    assert!(store.due.is_empty());
    store.sweep(at(100));
    append(&mut store, &a, Some(120), 100);
    append(&mut store, &a, Some(110), 100);
    store.sweep(at(109));
    assert_eq!(messages(&store, &a), 3);
    store.sweep(at(110));
    assert_eq!(messages(&store, &a), 2);
    store.sweep(at(120));
    assert_eq!((messages(&store, &a), store.figures.expired), (1, 2));
}

#[test]
fn a_sweep_is_bounded_by_boxes_and_by_messages() {
    let mut store = MemoryStore::new(7);
    for number in 0..3 * SWEPT_MAX {
        append(&mut store, &name(&format!("n{number}")), None, 0);
    }
    for swept in 1..=3 {
        store.sweep(at(60));
        assert_eq!(store.boxes.len(), (3 - swept) * SWEPT_MAX);
    }
    assert_eq!(store.figures().idle_boxes, 3 * SWEPT_MAX as u64);
    let (a, b) = (name("a"), name("b"));
    for number in 0..4 * DROPPED_MAX {
        let name = if number % 2 == 0 { &a } else { &b };
        append(&mut store, name, Some(70), 65);
    }
    for swept in 1..=4 {
        store.sweep(at(70));
        let left = messages(&store, &a) + messages(&store, &b);
        assert_eq!(left, (4 - swept) * DROPPED_MAX);
    }
    store.sweep(at(124));
    assert_eq!(store.figures().boxes, 2);
    store.sweep(at(125));
    assert_eq!(store.figures().boxes, 0);
}
