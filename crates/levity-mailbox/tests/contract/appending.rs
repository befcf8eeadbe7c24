//! The order of messages, and the bounds of a box.

use crate::harness::for_every_store;

for_every_store! {
    ids_grow_in_the_order_of_the_calls,
    a_new_box_is_empty,
    many_boxes_in_one_call,
    results_of_many_pending_calls_are_in_order,
    the_number_of_messages_is_bounded,
    the_size_is_bounded,
    the_last_message_stays_whatever_its_size,
    other_bounds_hold_from_the_next_message_on,
    what_was_opened_stays_the_same,
    too_many_boxes_at_the_edge,
    an_unused_box_gives_way,
    a_read_position_does_not_go_back,
    a_read_position_is_of_a_life,
}

mod cases {
    use levity_mailbox::{Appended, Limit, MessageId, StoreError};

    use crate::harness::*;

    pub fn ids_grow_in_the_order_of_the_calls(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let first = rig.append(&a, &settings, "0");
        let mut last = first;
        for number in 1..20 {
            let id = rig.append(&a, &settings, &number.to_string());
            assert!(id.epoch == first.epoch && id.sequence > last.sequence);
            last = id;
        }
        assert_eq!(rig.texts(&a, &settings), numbers(0..20));
        let opened = rig.open(&a, &settings);
        assert_eq!(opened.epoch, first.epoch);
        assert!(opened.lost <= first.sequence && opened.read <= first.sequence);
        assert!(opened.next > last.sequence);
    }

    pub fn a_new_box_is_empty(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        assert!(rig.look(&a).is_none() && rig.look(&a).is_none());
        let opened = rig.open(&a, &settings);
        assert!(opened.messages.is_empty());
        // There is an id before the first message, and nothing is lost that nobody has read.
        assert!(opened.next >= 1 && opened.read >= opened.lost);
        assert_eq!(rig.open(&a, &settings).epoch, opened.epoch);
        assert_eq!(rig.look(&a).expect("a box").epoch, opened.epoch);
        let id = rig.append(&a, &settings, "x");
        assert_eq!(id.epoch, opened.epoch);
        assert!(id.sequence >= opened.next);
    }

    pub fn many_boxes_in_one_call(rig: &mut Rig) {
        let (a, b, settings) = (name("a"), name("b"), settings());
        let of = |name, text| append_of(name, &settings, draft(text));
        let appends = vec![of(&a, "0"), of(&b, "0"), of(&a, "1"), of(&b, "1")];
        let results = rig.append_all(appends);
        assert_eq!(results.len(), 4);
        let ids: Vec<_> = results.iter().map(|result| id_of(result).0).collect();
        assert!(ids[0] < ids[2] && ids[1] < ids[3]);
        for name in [&a, &b] {
            assert_eq!(rig.texts(name, &settings), numbers(0..2));
        }
        assert!(rig.append_all(Vec::new()).is_empty());
    }

    /// As publishers do who do not wait for each other.
    pub fn results_of_many_pending_calls_are_in_order(rig: &mut Rig) {
        let (names, settings) = ([name("a"), name("b"), name("c")], settings());
        let mut pending = Vec::new();
        for number in 0..300 {
            let name = &names[number % names.len()];
            let append = append_of(name, &settings, draft(&(number / 3).to_string()));
            let now = rig.now();
            pending.push(rig.call(|store| store.append(vec![append], now)));
        }
        // Opened while they are pending: a beginning of the messages, without a hole.
        let (now, first) = (rig.now(), &names[0]);
        let opening = rig.call(|store| store.open(first, &settings, now));
        let looking = rig.call(|store| store.read(first, None, Limit::NONE));
        let results: Vec<_> = pending.into_iter().map(|one| rig.finish(one)).collect();
        let opened = rig.finish(opening).expect("a box");
        let looked = rig.finish(looking).expect("an answer");
        for found in looked.into_iter().chain([opened]) {
            check(&found);
            let texts: Vec<_> = found.messages.iter().map(text).collect();
            assert_eq!(texts, numbers(0..texts.len()));
        }
        for (index, name) in names.iter().enumerate() {
            let of_box = results.iter().skip(index).step_by(names.len());
            let ids: Vec<_> = of_box.map(|results| id_of(&results[0]).0).collect();
            assert!(ids.len() == 100 && ids.is_sorted_by(|a, b| a < b));
            assert_eq!(rig.texts(name, &settings), numbers(0..100));
        }
    }

    pub fn the_number_of_messages_is_bounded(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 3);
        let mut ids = Vec::new();
        for number in 0..10_usize {
            let (id, lost) = rig.append_as(&a, &settings, draft(&number.to_string()));
            ids.push(id.sequence);
            match number.checked_sub(3) {
                Some(dropped) => assert!(lost > ids[dropped] && lost <= ids[dropped + 1]),
                None => assert!(lost <= ids[0]),
            }
        }
        let opened = rig.open(&a, &settings);
        assert_eq!(rig.texts(&a, &settings), numbers(7..10));
        assert!(opened.lost > ids[6] && opened.lost <= ids[7]);
    }

    pub fn the_size_is_bounded(rig: &mut Rig) {
        let a = name("a");
        let of_number = |number: usize| draft(&format!("{number:1000}"));
        let settings = settings_with(|settings| settings.bytes_max = 3 * of_number(0).bytes());
        let mut ids = Vec::new();
        for number in 0..10 {
            ids.push(rig.append_as(&a, &settings, of_number(number)).0.sequence);
        }
        let opened = rig.open(&a, &settings);
        let texts: Vec<_> = opened.messages.iter().map(text).collect();
        let texts: Vec<_> = texts.iter().map(|text| text.trim()).collect();
        assert_eq!(texts, numbers(7..10));
        assert!(opened.lost > ids[6] && opened.lost <= ids[7]);
        // A message of another size takes the place of as many as necessary, and of no more.
        let text = "x".repeat(1001);
        rig.append(&a, &settings, &text);
        assert_eq!(rig.texts(&a, &settings)[1..], [text]);
    }

    pub fn the_last_message_stays_whatever_its_size(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.bytes_max = 500);
        rig.append(&a, &settings, "0");
        rig.append(&a, &settings, &"x".repeat(1000));
        assert_eq!(rig.texts(&a, &settings), ["x".repeat(1000)]);
        rig.append(&a, &settings, "1");
        assert_eq!(rig.texts(&a, &settings), ["1"]);
    }

    /// As after a reload.
    pub fn other_bounds_hold_from_the_next_message_on(rig: &mut Rig) {
        let a = name("a");
        for number in 0..10 {
            rig.append(&a, &settings(), &number.to_string());
        }
        let fewer = settings_with(|settings| settings.messages_max = 2);
        rig.append(&a, &fewer, "10");
        assert_eq!(rig.texts(&a, &fewer), numbers(9..11));
        rig.append(&a, &settings(), "11");
        assert_eq!(rig.texts(&a, &settings()), numbers(9..12));
    }

    pub fn what_was_opened_stays_the_same(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 1);
        rig.append(&a, &settings, "0");
        let opened = rig.open(&a, &settings);
        rig.append(&a, &settings, "1");
        rig.remove(&a);
        assert_eq!(text(&opened.messages[0]), "0");
    }

    pub fn too_many_boxes_at_the_edge(rig: &mut Rig) {
        let settings = settings_with(|settings| settings.boxes_max = 3);
        for text in ["a", "b"] {
            rig.append(&name(text), &settings, "0");
        }
        rig.watch(&name("c"), true);
        rig.open(&name("c"), &settings);
        let refused = rig.try_open(&name("d"), &settings);
        assert_eq!(refused.unwrap_err(), StoreError::TooManyBoxes);
        // A refused message does not take the others with it, and makes no box.
        let of = |text| append_of(&name(text), &settings, draft("1"));
        let results = rig.append_all(vec![of("a"), of("d"), of("c")]);
        assert!(matches!(results[0], Ok(Appended::New { .. })));
        assert!(matches!(results[1], Err(StoreError::TooManyBoxes)));
        assert!(matches!(results[2], Ok(Appended::New { .. })));
        assert!(rig.look(&name("d")).is_none());
        // Other sets have their own bound.
        let mut other = (*settings).clone();
        other.set = "other".to_owned();
        let elsewhere = levity_mailbox::Name::new("other", b"a").unwrap();
        rig.append(&elsewhere, &other.into(), "0");
        assert!(rig.remove(&name("b")));
        rig.append(&name("d"), &settings, "2");
        assert_eq!(rig.texts(&name("d"), &settings), ["2"]);
        assert!(rig.try_open(&name("b"), &settings).is_err());
    }

    pub fn an_unused_box_gives_way(rig: &mut Rig) {
        let settings = settings_with(|settings| settings.boxes_max = 3);
        let (kept, watched) = (name("kept"), name("watched"));
        rig.append(&kept, &settings, "0");
        rig.watch(&watched, true);
        let epoch = rig.open(&watched, &settings).epoch;
        for text in ["a", "b", "c"] {
            rig.watch(&name(text), true);
            let before = rig.open(&name(text), &settings);
            assert_eq!(rig.open(&name(text), &settings).epoch, before.epoch);
            assert!(rig.try_open(&name("d"), &settings).is_err());
            rig.watch(&name(text), false);
        }
        let id = rig.append(&name("a"), &settings, "1");
        assert!(rig.look(&name("c")).is_none());
        assert!(rig.try_open(&name("c"), &settings).is_err());
        assert_eq!(rig.texts(&kept, &settings), ["0"]);
        assert_eq!(rig.open(&watched, &settings).epoch, epoch);
        assert_eq!(rig.open(&name("a"), &settings).epoch, id.epoch);
        rig.watch(&watched, false);
        rig.append(&name("c"), &settings, "2");
        assert!(rig.look(&watched).is_none());
        assert_eq!(rig.list(SET, None, 10).len(), 3);
    }

    pub fn a_read_position_does_not_go_back(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let ids: Vec<_> = numbers(0..4)
            .iter()
            .map(|text| rig.append(&a, &settings, text))
            .collect();
        for (last, expected) in [(ids[1], ids[1]), (ids[0], ids[1]), (ids[2], ids[2])] {
            rig.call(|store| store.mark_read(&a, last));
            let is_read = |read| read > expected.sequence && read <= expected.sequence + 1;
            assert!(is_read(rig.open(&a, &settings).read));
            rig.until("others see it", |rig| {
                is_read(rig.summary(&a).expect("a box").read)
            });
        }
        // What was read is kept, and what does not exist cannot be read.
        let beyond = MessageId {
            sequence: u64::MAX,
            ..ids[0]
        };
        rig.call(|store| store.mark_read(&a, beyond));
        assert_eq!(rig.texts(&a, &settings), numbers(0..4));
        let opened = rig.open(&a, &settings);
        assert!(opened.read > ids[3].sequence && opened.read <= opened.next);
        let id = rig.append(&a, &settings, "4");
        assert!(rig.open(&a, &settings).read <= id.sequence);
        rig.call(|store| store.mark_read(&name("unknown"), id));
        assert!(rig.look(&name("unknown")).is_none());
    }

    /// A receiver of the earlier life may say late what it has read.
    pub fn a_read_position_is_of_a_life(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let mut last = rig.append(&a, &settings, "0");
        last.sequence += 10;
        assert!(rig.remove(&a));
        let id = rig.append(&a, &settings, "1");
        rig.call(|store| store.mark_read(&a, last));
        assert!(rig.open(&a, &settings).read <= id.sequence);
    }
}
