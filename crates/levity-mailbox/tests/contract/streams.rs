//! Boxes that are streams: their state changes together with an append.

use crate::failing::{assert_outdated, at, reported};
use crate::harness::{Rig, name, run};
use crate::servers::{Server, Switch, free};

use crate::harness::for_stores;

for_stores! {
    [memory, redis, disk],
    an_append_changes_the_state,
    what_is_refused_leaves_nothing,
    nothing_is_dropped_for_a_bound,
    receivers_open_a_stream_without_its_messages,
    a_stream_outlives_the_process,
    a_source_stays_for_its_forks,
    a_fork_goes_on_behind_what_it_inherits,
    only_the_stream_that_is_meant_changes,
    a_long_lifetime_does_no_harm,
    a_stream_expires_by_its_own_time,
    a_source_expires_with_the_last_fork,
    processes_agree_on_the_state,
}

/// Messages are appended while a process with a receiver cannot reach the server.
fn append_in_an_outage(text: &str, assert_noticed: impl Fn(&mut Rig)) {
    let server = Server::redis("");
    let switch = Switch::new(server.port());
    run(Some(at(switch.port())), |rig| {
        run(Some(at(server.port())), |other| {
            cases::make(rig, "a", None, None).expect("made");
            rig.watch(&name("a"), true);
            rig.open(&name("a"), &cases::streams());
            cases::append(other, "a", "1").expect("appended");
            assert_eq!(reported(rig).1, "1");
            switch.set_target(free("127.0.0.1").port());
            for kind in ["pubsub", "normal"] {
                let _ = server.ask(&format!("CLIENT KILL TYPE {kind}"));
            }
            while cases::append(other, "a", text).is_err() {}
            switch.set_target(server.port());
            assert_noticed(rig);
            cases::append(other, "a", "3").expect("appended");
            assert_eq!(reported(rig).1, "3");
        });
    });
}

#[test]
fn receivers_get_little_of_an_outage() {
    append_in_an_outage("2", |rig| assert_eq!(reported(rig).1, "2"));
}

#[test]
fn receivers_read_much_of_an_outage_themselves() {
    append_in_an_outage(&"x".repeat(1 << 20), |rig| {
        assert_outdated(rig);
        rig.open(&name("a"), &cases::streams());
    });
}

/// Another process has always something to append.
#[test]
fn a_busy_process_gives_way_to_another_one() {
    run(crate::stores::redis(), |rig| {
        let mut other = rig.other_process();
        cases::make(rig, "a", None, None).expect("made");
        let now = other.now();
        let many = cases::appends("a", "many", 2000);
        let appending = other.call(|store| store.append(many, now));
        for _ in 0..20 {
            cases::append(rig, "a", "one").expect("appended");
        }
        assert!(other.finish(appending).iter().all(Result::is_ok));
        let texts = cases::texts(rig, &name("a"));
        let last = texts.iter().rposition(|text| text == "one");
        assert!(last.expect("it is there") < 200, "{last:?}");
    });
}

mod cases {
    use std::sync::Arc;
    use std::time::Duration;

    use levity_mailbox::stream::{
        ContentType, ForkOf, MadeWith, Refused, Source, StreamState, Update,
    };
    use levity_mailbox::{Append, Appended, Limit, MessageId, Name, Settings, StoreError, Summary};
    use levity_wire::durable_streams::{Lifetime, Producer};

    use crate::harness::*;

    const UNKNOWN: StoreError = StoreError::Refused(Refused::Unknown);

    pub fn streams() -> Arc<Settings> {
        settings_with(|settings| {
            (settings.keeps_all, settings.messages_max) = (true, 2);
        })
    }

    fn update(
        rig: &mut Rig,
        of: &str,
        content: &str,
        update: Update,
    ) -> Result<MessageId, StoreError> {
        let append = Append {
            update: Some(Arc::new(update)),
            ..append_of(&name(of), &streams(), draft(content))
        };
        let appended = rig.append_all(vec![append]).remove(0)?;
        match appended {
            Appended::New { message, .. } => Ok(message.id),
            other => panic!("not new: {other:?}"),
        }
    }

    /// Makes a stream, which inherits from `source` up to a number.
    pub fn make(
        rig: &mut Rig,
        of: &str,
        lifetime: Option<Lifetime>,
        source: Option<(&str, u64)>,
    ) -> Result<MessageId, StoreError> {
        let of_source = source.map(|(source, _)| ForkOf {
            source: name(source),
            offset: None,
            sub_offset: 0,
        });
        let made_with = MadeWith {
            lifetime,
            fork: of_source,
        };
        let mut state = StreamState::new(ContentType::default(), lifetime, made_with, false);
        state.source = source.map(|(source, last)| Source {
            name: name(source),
            id: id_of_stream(rig, source),
            last,
        });
        update(rig, of, "", Update::Make(Box::new(state)))
    }

    fn id_of_stream(rig: &mut Rig, of: &str) -> u64 {
        let found = rig.summary(&name(of));
        found
            .and_then(|found| found.state)
            .map_or(0, |state| state.id)
    }

    pub fn append(rig: &mut Rig, to: &str, content: &str) -> Result<MessageId, StoreError> {
        append_of_producer(rig, to, content, None)
    }

    /// Appends to a stream, with the number in each text.
    pub fn appends(to: &str, text: &str, count: usize) -> Vec<Append> {
        let append = |number| Append {
            update: Some(Arc::new(Update::Append {
                essence: Some(ContentType::default().essence),
                closes: false,
                sequence: None,
                producer: None,
            })),
            ..append_of(&name(to), &streams(), draft(&format!("{text}{number}")))
        };
        (0..count).map(append).collect()
    }

    fn append_of_producer(
        rig: &mut Rig,
        to: &str,
        content: &str,
        producer: Option<Producer>,
    ) -> Result<MessageId, StoreError> {
        let change = Update::Append {
            essence: Some(ContentType::default().essence),
            closes: content == "end",
            sequence: None,
            producer,
        };
        update(rig, to, content, change)
    }

    fn producer(sequence: u64) -> Option<Producer> {
        Some(Producer {
            id: "p".into(),
            epoch: 0,
            sequence,
        })
    }

    fn summary(rig: &mut Rig, of: &str) -> Summary {
        rig.summary(&name(of)).expect("a box")
    }

    fn state(rig: &mut Rig, of: &str) -> Arc<StreamState> {
        summary(rig, of).state.expect("a stream")
    }

    pub fn texts(rig: &mut Rig, of: &Name) -> Vec<String> {
        let found = rig.read(of, None, Limit::NONE).expect("a box");
        found.messages.iter().map(text).collect()
    }

    pub fn an_append_changes_the_state(rig: &mut Rig) {
        let made = make(rig, "a", None, None).expect("made");
        let first = append(rig, "a", "1").expect("appended");
        let second = append(rig, "a", "22").expect("appended");
        assert!(made < first && first < second);
        let known = state(rig, "a");
        let positions = (known.first, known.end);
        assert_eq!(positions, (made.sequence, second.sequence));
        assert!(known.bytes > 3);
        assert!(!known.is_closed);
        append(rig, "a", "end").expect("appended");
        let read = rig.read(&name("a"), Some(second), Limit::NONE);
        let read = read.expect("a box");
        assert!(read.state.expect("a stream").is_closed);
        assert_eq!(read.messages.iter().map(text).collect::<Vec<_>>(), ["end"]);
        assert!(rig.summary(&name("b")).is_none());
    }

    pub fn what_is_refused_leaves_nothing(rig: &mut Rig) {
        assert_eq!(append(rig, "a", "1"), Err(UNKNOWN));
        let fork = make(rig, "a", None, Some(("b", 1)));
        assert_eq!(fork, Err(StoreError::Refused(Refused::NoSource)));
        assert!(rig.summary(&name("a")).is_none());
        make(rig, "a", None, None).expect("made");
        append_of_producer(rig, "a", "1", producer(0)).expect("appended");
        let before = summary(rig, "a");
        let refused = [
            make(rig, "a", None, None),
            append_of_producer(rig, "a", "1", producer(0)),
            append_of_producer(rig, "a", "1", producer(2)),
            append(rig, "a", &"x".repeat(4 << 20)),
        ];
        let reasons = [
            Refused::Exists,
            Refused::Duplicate(Some(0)),
            Refused::Gap {
                expected: 1,
                received: 2,
            },
            Refused::Full,
        ];
        assert_eq!(
            refused,
            reasons.map(|reason| Err(StoreError::Refused(reason)))
        );
        assert_eq!(summary(rig, "a"), before);
    }

    pub fn nothing_is_dropped_for_a_bound(rig: &mut Rig) {
        make(rig, "a", None, None).expect("made");
        for number in 0..100 {
            append(rig, "a", &number.to_string()).expect("appended");
        }
        assert_eq!(texts(rig, &name("a"))[1..], numbers(0..100));
        assert_eq!(summary(rig, "a").lost, 1);
    }

    pub fn receivers_open_a_stream_without_its_messages(rig: &mut Rig) {
        make(rig, "a", None, None).expect("made");
        append(rig, "a", "1").expect("appended");
        rig.watch(&name("a"), true);
        let opened = rig.open(&name("a"), &streams());
        assert!(opened.messages.is_empty());
        assert_eq!(opened.lost, opened.next);
        let next = append(rig, "a", "2").expect("appended");
        assert!(next.sequence >= opened.next);
    }

    pub fn a_stream_outlives_the_process(rig: &mut Rig) {
        if !rig.is_persistent() {
            return;
        }
        make(
            rig,
            "a",
            Some(Lifetime::Idle(Duration::from_secs(60))),
            None,
        )
        .expect("made");
        append_of_producer(rig, "a", "1", producer(0)).expect("appended");
        let before = state(rig, "a");
        rig.reopen();
        assert_eq!(state(rig, "a"), before);
        let again = append_of_producer(rig, "a", "1", producer(0));
        let duplicate = Refused::Duplicate(Some(0));
        assert_eq!(again, Err(StoreError::Refused(duplicate)));
        append_of_producer(rig, "a", "2", producer(1)).expect("appended");
        assert_eq!(texts(rig, &name("a")), ["", "1", "2"]);
    }

    pub fn a_source_stays_for_its_forks(rig: &mut Rig) {
        let end = make(rig, "a", None, None).expect("made").sequence;
        let end = make(rig, "b", None, Some(("a", end)))
            .expect("made")
            .sequence;
        make(rig, "c", None, Some(("b", end))).expect("made");
        make(rig, "d", None, Some(("b", end))).expect("made");
        for source in ["a", "b"] {
            assert!(rig.remove(&name(source)));
            assert!(state(rig, source).is_removed);
            let refused = append(rig, source, "1");
            assert_eq!(refused, Err(StoreError::Refused(Refused::Removed)));
            let refused = make(rig, source, None, None);
            assert_eq!(refused, Err(StoreError::Refused(Refused::Removed)));
            let refused = make(rig, "e", None, Some((source, end)));
            assert_eq!(refused, Err(StoreError::Refused(Refused::NoSource)));
        }
        if rig.is_persistent() {
            rig.reopen();
        }
        assert!(rig.remove(&name("c")));
        assert!(state(rig, "b").is_removed);
        assert!(rig.remove(&name("d")));
        for gone in ["a", "b", "c", "d"] {
            assert!(rig.summary(&name(gone)).is_none(), "{gone}");
        }
        assert!(rig.list(SET, None, 10).is_empty());
        make(rig, "a", None, None).expect("made");
    }

    pub fn only_the_stream_that_is_meant_changes(rig: &mut Rig) {
        let end = make(rig, "a", None, None).expect("made").sequence;
        let (old, id) = (summary(rig, "a"), id_of_stream(rig, "a"));
        assert!(rig.remove(&name("a")));
        make(rig, "a", None, None).expect("made");
        let removing = rig.call(|store| store.remove(&name("a"), Some(old.epoch)));
        assert_eq!(rig.finish(removing), Ok(false));
        let new = summary(rig, "a");
        assert!(new.epoch > old.epoch);
        let mut state = StreamState::new(ContentType::default(), None, MadeWith::default(), false);
        state.source = Some(Source {
            name: name("a"),
            id,
            last: end,
        });
        let forked = update(rig, "b", "", Update::Make(Box::new(state)));
        assert_eq!(forked, Err(StoreError::Refused(Refused::NoSource)));
        let removing = rig.call(|store| store.remove(&name("a"), Some(new.epoch)));
        assert_eq!(rig.finish(removing), Ok(true));
        assert!(rig.summary(&name("a")).is_none());
    }

    pub fn a_long_lifetime_does_no_harm(rig: &mut Rig) {
        let lifetime = Lifetime::Idle(Duration::from_secs((1 << 53) - 1));
        make(rig, "a", Some(lifetime), None).expect("made");
        append(rig, "a", "1").expect("appended");
        if rig.is_persistent() {
            rig.reopen();
        }
        append(rig, "a", "2").expect("appended");
        assert_eq!(texts(rig, &name("a")), ["", "1", "2"]);
    }

    pub fn a_fork_goes_on_behind_what_it_inherits(rig: &mut Rig) {
        make(rig, "a", None, None).expect("made");
        let last = append(rig, "a", "1").expect("appended");
        let made = make(rig, "b", None, Some(("a", last.sequence + 100))).expect("made");
        assert!(made.sequence > last.sequence + 100 && made.epoch > last.epoch);
        let next = append(rig, "b", "2").expect("appended");
        assert!(next > made);
        assert_eq!(texts(rig, &name("b")), ["", "2"]);
        assert_eq!(texts(rig, &name("a")), ["", "1"]);
    }

    pub fn a_stream_expires_by_its_own_time(rig: &mut Rig) {
        let idle = Some(Lifetime::Idle(IDLE));
        make(rig, "a", idle, None).expect("made");
        make(rig, "b", None, None).expect("made");
        rig.pass(2 * IDLE);
        rig.until("it is over", |rig| rig.summary(&name("a")).is_none());
        state(rig, "b");
    }

    pub fn a_source_expires_with_the_last_fork(rig: &mut Rig) {
        let lifetime = |times| Some(Lifetime::Idle(times * IDLE));
        let end = make(rig, "a", lifetime(1), None).expect("made").sequence;
        make(rig, "b", lifetime(2), Some(("a", end))).expect("made");
        rig.pass(IDLE + IDLE / 2);
        rig.until("it is over", |rig| state(rig, "a").is_removed);
        state(rig, "b");
        rig.pass(IDLE);
        rig.until("both are over", |rig| {
            ["a", "b"].iter().all(|of| rig.summary(&name(of)).is_none())
        });
    }

    pub fn processes_agree_on_the_state(rig: &mut Rig) {
        if !rig.is_shared() {
            return;
        }
        let mut other = rig.other_process();
        make(rig, "a", None, None).expect("made");
        let refused = make(&mut other, "a", None, None);
        assert_eq!(refused, Err(StoreError::Refused(Refused::Exists)));
        let mut last = summary(rig, "a").next;
        for number in 0..20 {
            let [first, second] = match number % 2 {
                0 => [&mut *rig, &mut other],
                _ => [&mut other, &mut *rig],
            };
            let id = append_of_producer(first, "a", "x", producer(number)).expect("appended");
            assert!(id.sequence >= last);
            last = id.sequence + 1;
            let again = append_of_producer(second, "a", "x", producer(number));
            let duplicate = Refused::Duplicate(Some(number));
            assert_eq!(again, Err(StoreError::Refused(duplicate)));
        }
        // Calls of both that are under way at the same time.
        let now = rig.now();
        let all = |of: &str| appends("a", of, 50);
        let appending = rig.call(|store| store.append(all("r"), now));
        let results = other.append_all(all("o"));
        let results = results.into_iter().chain(rig.finish(appending));
        assert!(results.into_iter().all(|result| result.is_ok()));
        let read = texts(rig, &name("a"));
        assert_eq!(read.len(), 1 + 20 + 100);
        assert_eq!(state(rig, "a"), state(&mut other, "a"));
        for of in ["r", "o"] {
            let own: Vec<_> = read.iter().filter(|text| text.starts_with(of)).collect();
            let expected: Vec<_> = (0..50).map(|number| format!("{of}{number}")).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>());
        }
    }
}
