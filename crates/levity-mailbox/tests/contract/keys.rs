//! A publisher that tries again does no harm.

use crate::harness::for_every_store;

for_every_store! {
    a_key_is_taken_once,
    a_key_is_of_a_box,
    pending_calls_with_the_same_key,
    a_key_outlives_its_message,
    keys_of_kept_messages_are_remembered_whatever_their_number,
    keys_outlive_a_reopening,
    keys_outlive_their_messages_and_a_reopening,
    keys_end_with_their_box,
}

mod cases {
    use crate::harness::*;

    /// The number of messages whose keys a box remembers at least.
    const REMEMBERED_MIN: usize = 256;

    pub fn a_key_is_taken_once(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let (first, is_duplicate) = rig.append_key(&a, &settings, "k");
        assert!(!is_duplicate);
        assert_eq!(rig.append_key(&a, &settings, "k"), (first, true));
        let (other, is_duplicate) = rig.append_key(&a, &settings, "K");
        assert!(!is_duplicate && other > first);
        assert_eq!(rig.append_key(&a, &settings, "k"), (first, true));
        assert_eq!(rig.texts(&a, &settings), ["k", "K"]);
    }

    pub fn a_key_is_of_a_box(rig: &mut Rig) {
        let settings = settings();
        for text in ["a", "b", "a/b"] {
            assert!(!rig.append_key(&name(text), &settings, "k").1);
        }
        // Neither the name nor the key says where it ends.
        assert!(!rig.append_key(&name("a/bk"), &settings, "k").1);
        assert!(!rig.append_key(&name("a/b"), &settings, "kk").1);
    }

    pub fn pending_calls_with_the_same_key(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let append = |text| append_of(&a, &settings, with_key(draft(text), "k"));
        let now = rig.now();
        let first = rig.call(|store| store.append(vec![append("0"), append("1")], now));
        let second = rig.call(|store| store.append(vec![append("2")], now));
        let results: Vec<_> = [first, second]
            .into_iter()
            .flat_map(|pending| rig.finish(pending))
            .collect();
        let (id, is_duplicate) = id_of(&results[0]);
        assert!(!is_duplicate);
        assert_eq!(id_of(&results[1]), (id, true));
        assert_eq!(id_of(&results[2]), (id, true));
        assert_eq!(rig.texts(&a, &settings), ["0"]);
    }

    pub fn a_key_outlives_its_message(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 1);
        let keys = numbers(0..REMEMBERED_MIN);
        let ids: Vec<_> = keys
            .iter()
            .map(|key| rig.append_key(&a, &settings, key).0)
            .collect();
        for (key, id) in keys.iter().zip(&ids) {
            assert_eq!(rig.append_key(&a, &settings, key), (*id, true));
        }
        assert_eq!(rig.texts(&a, &settings).len(), 1);
    }

    pub fn keys_of_kept_messages_are_remembered_whatever_their_number(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let (first, _) = rig.append_key(&a, &settings, "first");
        let of_number = |number: usize| {
            let key = number.to_string();
            append_of(&a, &settings, with_key(draft(&key), &key))
        };
        let others = (0..2 * REMEMBERED_MIN).map(of_number).collect();
        assert!(rig.append_all(others).iter().all(|one| !id_of(one).1));
        assert_eq!(rig.append_key(&a, &settings, "first"), (first, true));
    }

    pub fn keys_outlive_a_reopening(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let (first, _) = rig.append_key(&a, &settings, "k");
        rig.reopen();
        let (again, is_duplicate) = rig.append_key(&a, &settings, "k");
        match rig.is_persistent() {
            true => assert_eq!((again, is_duplicate), (first, true)),
            false => assert!(!is_duplicate && again.epoch > first.epoch),
        }
    }

    pub fn keys_outlive_their_messages_and_a_reopening(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 2);
        let keys = numbers(0..REMEMBERED_MIN);
        let ids: Vec<_> = keys
            .iter()
            .map(|key| rig.append_key(&a, &settings, key).0)
            .collect();
        rig.reopen();
        if !rig.is_persistent() {
            return;
        }
        for (key, id) in keys.iter().zip(ids) {
            assert_eq!(rig.append_key(&a, &settings, key), (id, true));
        }
    }

    pub fn keys_end_with_their_box(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let (first, _) = rig.append_key(&a, &settings, "k");
        assert!(rig.remove(&a));
        let (second, is_duplicate) = rig.append_key(&a, &settings, "k");
        assert!(!is_duplicate && second.epoch > first.epoch);
    }
}
