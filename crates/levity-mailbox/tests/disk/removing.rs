//! Boxes whose messages are dropped in parts.

use std::time::SystemTime;

use levity_mailbox::Store as _;

use crate::harness::*;

/// More messages than a transaction drops.
const MESSAGES: usize = 3000;

/// The numbers of messages and keys that the database has. Closes the store.
fn rows(rig: &mut Rig) -> (usize, usize) {
    rig.store = None;
    let connection = rusqlite::Connection::open(rig.folder.join("messages.db")).unwrap();
    let count = |table: &str| {
        let select = format!("SELECT count(*) FROM {table}");
        connection.query_row(&select, [], |row| row.get(0)).unwrap()
    };
    (count("message"), count("key"))
}

/// A store that was killed after a large box was removed, and sweeps until `count` calls have ended.
fn after_a_kill(rig: &Rig, count: usize) -> Rig {
    let mut copy = rig.copy();
    copy.open_store();
    for number in 0..count {
        copy.store().sweep(SystemTime::now());
        copy.append(&name("other"), &durable(), &number.to_string());
    }
    copy
}

#[test]
fn a_large_box_is_gone_at_once_and_its_messages_in_parts() {
    let (mut rig, a) = (Rig::new(), name("a"));
    let large = settings_with(|settings| settings.messages_max = MESSAGES);
    let append = |number: usize| {
        let mut draft = draft("x");
        draft.key = number.is_multiple_of(2).then(|| number.to_string().into());
        append_of(&a, &large, draft)
    };
    let results = rig.append_all((0..MESSAGES).map(append).collect());
    assert!(results.iter().all(Result::is_ok));
    let old = rig.look(&a).expect("a box").epoch;
    assert!(rig.remove(&a));
    assert!(rig.look(&a).is_none());
    let id = rig.append(&a, &durable(), "new");
    assert!(id.epoch > old && id.sequence == 1);
    let (messages, keys) = rows(&mut after_a_kill(&rig, 0));
    assert!((1000..MESSAGES).contains(&messages), "{messages} are left");
    assert!((500..MESSAGES / 2).contains(&keys), "{keys} are left");
    let mut copy = after_a_kill(&rig, 5);
    assert_eq!(copy.texts(&a), ["new"]);
    assert_eq!(rows(&mut copy), (1 + 5, 0));
}
