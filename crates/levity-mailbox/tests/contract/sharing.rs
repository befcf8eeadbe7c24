//! Several processes with one store.

use crate::harness::for_every_store;

for_every_store! {
    another_process_sees_what_was_appended,
    a_watched_box_reports_changes,
    messages_of_two_processes_are_reported_in_order,
    a_box_that_another_process_removes,
    keys_hold_for_all_processes,
}

mod cases {
    use std::sync::Arc;

    use levity_mailbox::{Appended, Change, Message, Name, Opened, Settings};

    use crate::harness::*;

    /// What a receiver of a watched box gets, as the copies of an event loop do.
    struct Reader {
        name: Name,
        settings: Arc<Settings>,
        epoch: u64,
        next: u64,
        texts: Vec<String>,
    }

    impl Reader {
        fn new(rig: &mut Rig, name: &Name, settings: &Arc<Settings>) -> Reader {
            rig.watch(name, true);
            let opened = rig.open(name, settings);
            let mut reader = Reader {
                name: name.clone(),
                settings: settings.clone(),
                epoch: opened.epoch,
                next: 0,
                texts: Vec::new(),
            };
            reader.open(opened);
            reader
        }

        fn open(&mut self, opened: Opened) {
            assert_eq!(opened.epoch, self.epoch);
            opened.messages.iter().for_each(|one| self.append(one));
            self.next = self.next.max(opened.next);
        }

        fn append(&mut self, message: &Message) {
            if message.id.epoch == self.epoch && message.id.sequence >= self.next {
                self.next = message.id.sequence + 1;
                self.texts.push(text(message));
            }
        }

        fn apply(&mut self, rig: &mut Rig, change: Change) {
            match change {
                Change::Appended { name, message, .. } if name == self.name => {
                    self.append(&message);
                }
                Change::Outdated(name) if name == self.name => {
                    let opened = rig.open(&self.name, &self.settings);
                    self.open(opened);
                }
                other => panic!("{other:?}"),
            }
        }

        fn until(&mut self, rig: &mut Rig, count: usize) {
            while self.texts.len() < count {
                let change = rig.change();
                self.apply(rig, change);
            }
        }
    }

    pub fn another_process_sees_what_was_appended(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let (a, settings) = (name("a"), settings());
        let id = rig.append(&a, &settings, "0");
        let mut other = rig.other_process();
        assert_eq!(other.texts(&a, &settings), ["0"]);
        let next = other.append(&a, &settings, "1");
        assert!(next.epoch == id.epoch && next > id);
        assert_eq!(rig.texts(&a, &settings), ["0", "1"]);
        assert!(other.remove(&a));
        assert!(rig.look(&a).is_none());
    }

    pub fn a_watched_box_reports_changes(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let (a, settings) = (name("a"), settings());
        let mut other = rig.other_process();
        other.append(&a, &settings, "0");
        let mut reader = Reader::new(rig, &a, &settings);
        for number in 1..50 {
            other.append(&a, &settings, &number.to_string());
        }
        reader.until(rig, 50);
        assert_eq!(reader.texts, numbers(0..50));
    }

    /// The owner reports its own appends itself, in the order in which they end, unless the store says that it does.
    pub fn messages_of_two_processes_are_reported_in_order(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let (a, settings) = (name("a"), settings());
        let mut other = rig.other_process();
        let mut reader = Reader::new(rig, &a, &settings);
        let reports_appends = rig.call(|store| store.reports_appends());
        for round in 0..50 {
            other.append(&a, &settings, &(2 * round).to_string());
            let own = append_of(&a, &settings, draft(&(2 * round + 1).to_string()));
            let results = rig.append_all(vec![own]);
            if let (Ok(Appended::New { message, .. }), false) = (&results[0], reports_appends) {
                reader.append(message);
            }
            while let Some(change) = rig.known_change() {
                reader.apply(rig, change);
            }
        }
        reader.until(rig, 100);
        assert_eq!(reader.texts, numbers(0..100));
    }

    pub fn a_box_that_another_process_removes(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let (a, settings) = (name("a"), settings());
        rig.watch(&a, true);
        let epoch = rig.open(&a, &settings).epoch;
        let mut other = rig.other_process();
        assert!(other.remove(&a));
        match rig.change() {
            Change::Removed(name) | Change::Outdated(name) => assert_eq!(name, a),
            other => panic!("{other:?}"),
        }
        assert!(rig.open(&a, &settings).epoch > epoch);
    }

    pub fn keys_hold_for_all_processes(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let (a, settings) = (name("a"), settings());
        let (id, _) = rig.append_key(&a, &settings, "k");
        let mut other = rig.other_process();
        assert_eq!(other.append_key(&a, &settings, "k"), (id, true));
    }
}
