//! A process that ends and starts again.

use crate::harness::for_every_store;

for_every_store! {
    everything_acknowledged_is_kept,
    a_durable_set_is_kept,
    numbers_go_on,
    what_was_dropped_stays_lost,
    a_store_that_forgets_says_so,
    an_empty_box_is_kept,
    often,
}

mod cases {
    use std::sync::Arc;

    use levity_mailbox::Settings;

    use crate::harness::*;

    fn keeps_everything(rig: &mut Rig, settings: &Arc<Settings>) {
        let names = [name("a"), name("b"), name("c")];
        let mut ids = Vec::new();
        for number in 0..60 {
            let name = &names[number % names.len()];
            ids.push(rig.append(name, settings, &(number / 3).to_string()));
        }
        rig.reopen();
        for (index, name) in names.iter().enumerate() {
            let opened = rig.open(name, settings);
            if !rig.is_persistent() {
                assert!(opened.messages.is_empty());
                continue;
            }
            let kept: Vec<_> = opened.messages.iter().map(|message| message.id).collect();
            let given: Vec<_> = ids.iter().skip(index).step_by(3).copied().collect();
            assert_eq!(kept, given);
            assert_eq!(rig.texts(name, settings), numbers(0..20));
        }
    }

    pub fn everything_acknowledged_is_kept(rig: &mut Rig) {
        keeps_everything(rig, &settings());
    }

    pub fn a_durable_set_is_kept(rig: &mut Rig) {
        keeps_everything(rig, &settings_with(|settings| settings.is_durable = true));
    }

    pub fn numbers_go_on(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let before = rig.append(&a, &settings, "0");
        let next = rig.open(&a, &settings).next;
        rig.reopen();
        let after = rig.append(&a, &settings, "1");
        if rig.is_persistent() {
            assert!(after.epoch == before.epoch && after.sequence >= next);
            assert_eq!(rig.texts(&a, &settings), ["0", "1"]);
        }
        assert!(after > before);
    }

    /// Otherwise a receiver that returns does not learn of it.
    pub fn what_was_dropped_stays_lost(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 2);
        for number in 0..5 {
            rig.append(&a, &settings, &number.to_string());
        }
        let before = rig.open(&a, &settings);
        rig.reopen();
        let after = rig.open(&a, &settings);
        match rig.is_persistent() {
            true => {
                assert_eq!(after.epoch, before.epoch);
                assert!(after.lost >= before.lost && after.next >= before.next);
                assert_eq!(rig.texts(&a, &settings), numbers(3..5));
            }
            false => assert!(after.epoch > before.epoch),
        }
    }

    pub fn a_store_that_forgets_says_so(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let epoch = rig.append(&a, &settings, "0").epoch;
        rig.reopen();
        if !rig.is_persistent() {
            assert!(rig.look(&a).is_none());
            assert!(rig.append(&a, &settings, "1").epoch > epoch);
        }
    }

    /// A receiver of it may return before the first message.
    pub fn an_empty_box_is_kept(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let before = rig.open(&a, &settings);
        rig.reopen();
        let after = rig.open(&a, &settings);
        match rig.is_persistent() {
            true => assert!(after.epoch == before.epoch && after.next >= before.next),
            false => assert!(after.epoch > before.epoch),
        }
    }

    pub fn often(rig: &mut Rig) {
        let a = name("a");
        let settings = settings_with(|settings| settings.messages_max = 5);
        let mut last = None;
        for number in 0..20 {
            let id = rig.append(&a, &settings, &number.to_string());
            assert!(Some(id) > last);
            last = Some(id);
            rig.reopen();
        }
        if rig.is_persistent() {
            assert_eq!(rig.texts(&a, &settings), numbers(15..20));
        }
    }
}
