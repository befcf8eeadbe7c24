//! Boxes that are removed, and come back as others.

use crate::harness::for_every_store;

for_every_store! {
    nothing_is_left_of_a_removed_box,
    an_unknown_box_is_not_removed,
    each_life_has_a_larger_epoch,
    calls_take_effect_in_their_order,
    a_removed_box_stays_removed,
}

mod cases {
    use crate::harness::*;

    pub fn nothing_is_left_of_a_removed_box(rig: &mut Rig) {
        let (a, b, settings) = (name("a"), name("a/b"), settings());
        let last = rig.append(&a, &settings, "0");
        rig.append(&b, &settings, "1");
        rig.call(|store| store.mark_read(&a, last));
        assert!(rig.remove(&a));
        assert!(rig.look(&a).is_none());
        let listed = rig.list(SET, None, 10);
        assert!(listed.len() == 1 && listed[0].name == b);
        let opened = rig.open(&a, &settings);
        assert!(opened.messages.is_empty());
        let id = rig.append(&a, &settings, "2");
        assert!(opened.read <= id.sequence && opened.lost <= id.sequence);
        assert_eq!(rig.texts(&a, &settings), ["2"]);
        assert_eq!(rig.texts(&b, &settings), ["1"]);
    }

    pub fn an_unknown_box_is_not_removed(rig: &mut Rig) {
        assert!(!rig.remove(&name("a")));
        rig.append(&name("a"), &settings(), "0");
        assert!(rig.remove(&name("a")));
        assert!(!rig.remove(&name("a")));
    }

    pub fn each_life_has_a_larger_epoch(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let mut last = 0;
        for life in 0..30 {
            let epoch = match life % 2 {
                0 => rig.append(&a, &settings, "x").epoch,
                _ => rig.open(&a, &settings).epoch,
            };
            assert!(epoch > last, "{epoch} after {last}");
            last = epoch;
            assert!(rig.remove(&a));
        }
    }

    pub fn calls_take_effect_in_their_order(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let now = rig.now();
        let append = |text| vec![append_of(&a, &settings, draft(text))];
        let first = rig.call(|store| store.append(append("0"), now));
        let removing = rig.call(|store| store.remove(&a, None));
        let second = rig.call(|store| store.append(append("1"), now));
        let opening = rig.call(|store| store.open(&a, &settings, now));
        let opened = rig.finish(opening).expect("a box");
        let (second, _) = id_of(&rig.finish(second)[0]);
        assert!(rig.finish(removing).expect("an answer"));
        let (first, _) = id_of(&rig.finish(first)[0]);
        assert!(first.epoch < second.epoch);
        assert_eq!(opened.epoch, second.epoch);
        assert_eq!(rig.texts(&a, &settings), ["1"]);
    }

    pub fn a_removed_box_stays_removed(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let first = rig.append(&a, &settings, "0");
        assert!(rig.remove(&a));
        rig.reopen();
        assert!(rig.look(&a).is_none());
        assert!(!rig.remove(&a));
        let opened = rig.open(&a, &settings);
        assert!(opened.messages.is_empty() && opened.epoch > first.epoch);
    }
}
