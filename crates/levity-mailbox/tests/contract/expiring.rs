//! Messages and boxes whose time is over.

use crate::harness::for_every_store;

for_every_store! {
    a_message_ends_at_its_deadline,
    a_message_of_a_watched_box_ends_too,
    an_idle_box_is_removed,
    a_message_keeps_its_box,
    a_watched_box_stays,
    a_watch_is_of_a_name,
    idle_time_begins_with_the_end_of_the_watch,
    many_idle_boxes_are_removed,
}

mod cases {
    use std::sync::Arc;
    use std::time::Duration;

    use levity_mailbox::{Draft, Settings};

    use crate::harness::*;

    fn short_lived() -> Arc<Settings> {
        settings_with(|settings| settings.idle = IDLE)
    }

    pub fn a_message_ends_at_its_deadline(rig: &mut Rig) {
        let (a, settings) = (name("a"), settings());
        let now = rig.now();
        let with_deadline = |text: &str, seconds| Draft {
            deadline: Some(now + Duration::from_secs(seconds)),
            ..draft(text)
        };
        // An earlier message may live longer.
        rig.append_as(&a, &settings, with_deadline("late", 3600));
        rig.append_as(&a, &settings, with_deadline("soon", 2));
        let last = rig.append(&a, &settings, "always");
        assert_eq!(rig.texts(&a, &settings), ["late", "soon", "always"]);
        rig.pass(Duration::from_secs(3));
        rig.until("the message is over", |rig| {
            rig.texts(&a, &settings) == ["late", "always"]
        });
        assert!(rig.append(&a, &settings, "more") > last);
    }

    pub fn a_message_of_a_watched_box_ends_too(rig: &mut Rig) {
        let (a, settings) = (name("a"), short_lived());
        rig.watch(&a, true);
        rig.open(&a, &settings);
        rig.pass(IDLE * 2);
        rig.sweep();
        let deadline = Some(rig.now() + Duration::from_secs(2));
        let with_deadline = Draft {
            deadline,
            ..draft("soon")
        };
        rig.append(&a, &settings, "always");
        rig.append_as(&a, &settings, with_deadline);
        rig.pass(Duration::from_secs(3));
        rig.until("the message is over", |rig| {
            rig.texts(&a, &settings) == ["always"]
        });
        if rig.is_swept() {
            rig.until("the message is dropped", |rig| {
                rig.look(&a).expect("a box").messages.len() == 1
            });
        }
    }

    pub fn an_idle_box_is_removed(rig: &mut Rig) {
        let (a, b) = (name("a"), name("b"));
        let settings = short_lived();
        let epoch = rig.open(&a, &settings).epoch;
        let first = rig.append(&b, &settings, "x");
        rig.pass(IDLE * 2);
        for name in [&a, &b] {
            rig.until("the box is removed", |rig| rig.look(name).is_none());
        }
        assert!(rig.open(&a, &settings).epoch > epoch);
        let opened = rig.open(&b, &settings);
        assert!(opened.messages.is_empty() && opened.epoch > first.epoch);
    }

    pub fn a_message_keeps_its_box(rig: &mut Rig) {
        let (a, settings) = (name("a"), short_lived());
        let first = rig.append(&a, &settings, "0");
        for number in 1..5 {
            rig.pass(IDLE / 2);
            rig.sweep();
            rig.append(&a, &settings, &number.to_string());
        }
        let opened = rig.open(&a, &settings);
        assert_eq!((opened.epoch, opened.messages.len()), (first.epoch, 5));
    }

    pub fn a_watched_box_stays(rig: &mut Rig) {
        let (watched, other) = (name("watched"), name("other"));
        let settings = short_lived();
        rig.watch(&watched, true);
        let epoch = rig.open(&watched, &settings).epoch;
        rig.append(&watched, &settings, "x");
        rig.append(&other, &settings, "x");
        rig.pass(IDLE * 2);
        rig.until("the other is removed", |rig| rig.look(&other).is_none());
        let found = rig.look(&watched).expect("a watched box");
        assert_eq!((found.epoch, found.messages.len()), (epoch, 1));
    }

    /// Whether or not there is a box of that name as yet, or again.
    pub fn a_watch_is_of_a_name(rig: &mut Rig) {
        let (watched, other) = (name("watched"), name("other"));
        let settings = short_lived();
        rig.watch(&watched, true);
        assert!(rig.look(&watched).is_none());
        let epoch = rig.open(&watched, &settings).epoch;
        rig.watch(&watched, true);
        assert!(rig.remove(&watched));
        let id = rig.append(&watched, &settings, "x");
        assert!(id.epoch > epoch);
        rig.append(&other, &settings, "x");
        rig.pass(IDLE * 2);
        rig.until("the other is removed", |rig| rig.look(&other).is_none());
        assert_eq!(rig.look(&watched).expect("a box").epoch, id.epoch);
        // It ends as a whole, however often it began.
        rig.watch(&watched, false);
        rig.pass(IDLE * 2);
        rig.until("the box is removed", |rig| rig.look(&watched).is_none());
        rig.watch(&watched, false);
        assert!(rig.look(&watched).is_none());
    }

    pub fn idle_time_begins_with_the_end_of_the_watch(rig: &mut Rig) {
        let (a, settings) = (name("a"), short_lived());
        rig.watch(&a, true);
        let epoch = rig.open(&a, &settings).epoch;
        rig.pass(IDLE * 3);
        rig.sweep();
        rig.watch(&a, false);
        rig.sweep();
        rig.pass(IDLE / 2);
        rig.sweep();
        assert_eq!(rig.look(&a).expect("a box").epoch, epoch);
        rig.pass(IDLE);
        rig.until("the box is removed", |rig| rig.look(&a).is_none());
    }

    pub fn many_idle_boxes_are_removed(rig: &mut Rig) {
        let settings = short_lived();
        let names: Vec<_> = (0..500).map(|number| name(&format!("n{number}"))).collect();
        let of_name = |name| append_of(name, &settings, draft("x"));
        let results = rig.append_all(names.iter().map(of_name).collect());
        assert!(results.iter().all(Result::is_ok));
        rig.pass(IDLE * 2);
        rig.until("all boxes are removed", |rig| {
            rig.list(SET, None, 10).is_empty()
        });
        assert!(names.iter().all(|name| rig.look(name).is_none()));
    }
}
