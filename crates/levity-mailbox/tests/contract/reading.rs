//! Parts of what is kept are read, no more than was asked for.

use crate::harness::for_every_store;

for_every_store! {
    parts_follow_each_other,
    a_part_has_a_bounded_size,
    another_life_is_read_from_its_beginning,
    what_is_gone_is_no_part,
}

mod cases {
    use std::time::Duration;

    use levity_mailbox::{Limit, MessageId, Opened};

    use crate::harness::*;

    fn of(messages: usize, bytes: usize) -> Limit {
        Limit { messages, bytes }
    }

    fn texts(part: &Opened) -> Vec<String> {
        check(part);
        part.messages.iter().map(text).collect()
    }

    pub fn parts_follow_each_other(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        assert!(rig.read(&a, None, Limit::NONE).is_none());
        for number in 0..50 {
            rig.append(&a, &settings, &number.to_string());
        }
        let (mut after, mut read) = (None, Vec::new());
        loop {
            let part = rig.read(&a, after, of(7, usize::MAX)).expect("a box");
            assert_eq!((part.lost, part.next), (1, 51));
            let Some(last) = part.messages.last() else {
                break;
            };
            assert!(part.messages.len() == 7 || last.id.sequence == 50);
            after = Some(last.id);
            read.extend(texts(&part));
        }
        assert_eq!(read, numbers(0..50));
        let beyond = after.map(|last| MessageId {
            sequence: u64::MAX,
            ..last
        });
        let part = rig.read(&a, beyond, Limit::NONE).expect("a box");
        assert!(part.messages.is_empty());
    }

    pub fn a_part_has_a_bounded_size(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        for _ in 0..10 {
            rig.append(&a, &settings, &"x".repeat(1000));
        }
        let all = rig.look(&a).expect("a box").messages;
        let one = all[0].draft.bytes();
        for (bytes, count) in [
            (1, 1),
            (one, 1),
            (one + 1, 2),
            (3 * one, 3),
            (100 * one, 10),
        ] {
            let part = rig.read(&a, None, of(100, bytes)).expect("a box");
            assert_eq!(part.messages.len(), count, "{bytes} bytes");
        }
        let part = rig
            .read(&a, Some(all[3].id), of(100, 2 * one))
            .expect("a box");
        let ids: Vec<_> = part.messages.iter().map(|one| one.id).collect();
        assert_eq!(ids, [all[4].id, all[5].id]);
    }

    pub fn another_life_is_read_from_its_beginning(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        rig.append(&a, &settings, "0");
        let old = rig.append(&a, &settings, "1");
        assert!(rig.remove(&a));
        rig.append(&a, &settings, "2");
        rig.append(&a, &settings, "3");
        let part = rig.read(&a, Some(old), Limit::NONE).expect("a box");
        assert_eq!(texts(&part), ["2", "3"]);
    }

    pub fn what_is_gone_is_no_part(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 3);
        let first = rig.append(&a, &settings, "0");
        // Later than the next message on a machine with other work: only then the one that is over has pushed another one out.
        let soon = rig.now() + Duration::from_secs(1);
        for number in 1..5 {
            let mut draft = draft(&number.to_string());
            draft.deadline = (number == 3).then_some(soon);
            rig.append_as(&a, &settings, draft);
        }
        rig.pass(Duration::from_millis(1_010));
        rig.until("one is over", |rig| {
            rig.look(&a).expect("a box").messages.len() == 2
        });
        let part = rig
            .read(&a, Some(first), of(10, usize::MAX))
            .expect("a box");
        assert_eq!((part.lost, part.next), (3, 6));
        assert_eq!(texts(&part), ["2", "4"]);
    }
}
