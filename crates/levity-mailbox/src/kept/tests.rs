use std::sync::Arc;

use futures_util::FutureExt as _;

use super::*;
use crate::budget::Budget;
use crate::log::tests::draft;
use crate::message::Draft;

const EPOCH: u64 = 7;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn id(epoch: u64, sequence: u64) -> MessageId {
    MessageId { epoch, sequence }
}

fn message(epoch: u64, sequence: u64) -> Message {
    Message {
        id: id(epoch, sequence),
        draft: draft(&sequence.to_string(), None).into(),
    }
}

fn until(sequence: u64, seconds: u64) -> Message {
    let draft = Draft {
        deadline: Some(at(seconds)),
        ..draft("x", None)
    };
    Message {
        id: id(EPOCH, sequence),
        draft: draft.into(),
    }
}

fn of_life(epoch: u64, lost: u64, next: u64) -> EventKind {
    EventKind::Opened(Opened {
        state: None,
        epoch,
        next,
        first: next,
        lost,
        read: 1,
        messages: (lost..next).map(|number| message(epoch, number)).collect(),
    })
}

/// The box is open and has the messages from `lost` up to `next`.
fn opened(lost: u64, next: u64) -> EventKind {
    of_life(EPOCH, lost, next)
}

/// As [`opened`], after something was missing.
fn updated(lost: u64, next: u64) -> EventKind {
    of_update(opened(lost, next))
}

fn of_update(event: EventKind) -> EventKind {
    match event {
        EventKind::Opened(opened) => EventKind::Updated(opened),
        other => other,
    }
}

fn appended(sequence: u64, lost: u64) -> EventKind {
    EventKind::Appended {
        message: message(EPOCH, sequence),
        lost,
    }
}

fn state(events: impl IntoIterator<Item = EventKind>) -> CopyState {
    let mut state = CopyState::new(false);
    events.into_iter().for_each(|event| {
        state.apply(event, at(0));
    });
    state
}

fn begin(state: &CopyState, cursor: Cursor) -> Position {
    at_once(state.begin(Some(cursor), Mode::Topic, false))
}

fn at_once(begin: Begin) -> Position {
    match begin {
        Begin::At(position) => position,
        other => panic!("{other:?}"),
    }
}

/// What a receiver gets until it has to wait.
fn rest(state: &mut CopyState, position: &mut Position) -> String {
    let mut out = Vec::new();
    while let Some(next) = state.next(Some(position), at(100)) {
        match next {
            Next::Message(entry) => out.push(entry.message.id.sequence.to_string()),
            Next::Gap(id) => out.push(format!("gap {id}")),
            Next::Removed => return out.join(" ") + " removed",
            Next::Failed(error) => return out.join(" ") + " " + &error.to_string(),
        }
    }
    out.join(" ")
}

fn all_from(state: &mut CopyState, cursor: Cursor) -> String {
    let mut position = begin(state, cursor);
    rest(state, &mut position)
}

#[test]
fn a_receiver_begins_where_its_cursor_says() {
    let mut state = state([opened(3, 6)]);
    for (cursor, expected) in [
        (Cursor::Earliest, "3 4 5"),
        (Cursor::New, ""),
        (Cursor::After(id(EPOCH, 4)), "5"),
        (Cursor::After(id(EPOCH, 2)), "3 4 5"),
        (Cursor::After(id(EPOCH, 1)), "gap 7-3 3 4 5"),
        (Cursor::After(id(EPOCH, 0)), "gap 7-3 3 4 5"),
        (Cursor::After(id(EPOCH - 1, 4)), "gap 7-3 3 4 5"),
        (Cursor::After(id(0, 0)), "gap 7-3 3 4 5"),
        (Cursor::After(id(EPOCH, 5)), ""),
    ] {
        assert_eq!(all_from(&mut state, cursor), expected, "{cursor:?}");
    }
}

/// Another process may have told it more than this one knows yet.
#[test]
fn a_cursor_beyond_what_is_known_waits_for_what_is_kept_now() {
    for (beyond, expected) in [
        (id(EPOCH, 3), "4"),
        (id(EPOCH, 4), ""),
        (id(EPOCH, 5), "gap 7-1 1 2 3 4"),
        (id(EPOCH, u64::MAX), "gap 7-1 1 2 3 4"),
        (id(EPOCH + 1, 0), "gap 7-1 1 2 3 4"),
    ] {
        let mut state = state([opened(1, 3)]);
        let cursor = Some(Cursor::After(beyond));
        let begin = |state: &CopyState| state.begin(cursor, Mode::Topic, false);
        assert!(matches!(begin(&state), Begin::Beyond(_)));
        let asked = state.ask();
        assert!(!state.has_answered(asked));
        state.apply(opened(1, 5), at(0));
        assert!(state.has_answered(asked));
        let (Begin::At(mut position) | Begin::Beyond(mut position)) = begin(&state) else {
            panic!("not known");
        };
        assert_eq!(rest(&mut state, &mut position), expected);
    }
}

#[test]
fn without_a_cursor_an_inbox_gives_what_was_not_read() {
    let mut state = state([opened(1, 6)]);
    let begin_inbox = |state: &CopyState| at_once(state.begin(None, Mode::Inbox, false));
    let mut position = begin_inbox(&state);
    assert_eq!(rest(&mut state, &mut position), "1 2 3 4 5");
    assert!(state.mark_read(id(EPOCH, 3)));
    assert!(!state.mark_read(id(EPOCH, 2)) && !state.mark_read(id(EPOCH + 1, 9)));
    let mut position = begin_inbox(&state);
    assert_eq!(rest(&mut state, &mut position), "4 5");
    // Another event loop has read more.
    state.apply(EventKind::Read(id(EPOCH, 4)), at(0));
    assert!(!state.mark_read(id(EPOCH, 4)));
    let mut position = begin_inbox(&state);
    assert_eq!(rest(&mut state, &mut position), "5");
    // What nobody has read is lost.
    state.apply(appended(8, 7), at(0));
    let mut position = begin_inbox(&state);
    assert_eq!(rest(&mut state, &mut position), "gap 7-7 8");
}

#[test]
fn one_that_waited_for_the_box_gets_what_came_since() {
    let mut state = state([appended(4, 1), appended(5, 1)]);
    let begin = state.begin(Some(Cursor::New), Mode::Topic, true);
    assert!(matches!(begin, Begin::Later));
    state.apply(opened(1, 4), at(0));
    let mut position = at_once(state.begin(None, Mode::Topic, true));
    assert_eq!(position.last(), Some(id(EPOCH, 3)));
    assert_eq!(rest(&mut state, &mut position), "4 5");
    assert_eq!(all_from(&mut state, Cursor::New), "");
    // A receiver that looks late, when messages are gone already.
    state.apply(appended(6, 6), at(0));
    let mut position = at_once(state.begin(None, Mode::Topic, true));
    assert_eq!(rest(&mut state, &mut position), "gap 7-6 6");
}

#[test]
fn early_messages_come_once_and_in_order() {
    for next in 1..=4 {
        let mut state = state([appended(1, 1), appended(2, 1), appended(3, 1)]);
        assert!(state.next(None, at(0)).is_none());
        state.apply(opened(1, next), at(0));
        state.apply(appended(3, 1), at(0));
        assert_eq!(all_from(&mut state, Cursor::Earliest), "1 2 3");
    }
}

#[test]
fn no_more_early_messages_are_kept_than_the_box_keeps() {
    let mut state = CopyState::new(false);
    for sequence in 1..1000 {
        state.apply(appended(sequence, sequence.saturating_sub(2)), at(0));
        assert!(state.early.len() <= 3);
    }
    // Those of an earlier life are of no use any more.
    let message = message(EPOCH + 1, 1);
    state.apply(EventKind::Appended { message, lost: 1 }, at(0));
    assert_eq!(state.early.len(), 1);
    state.apply(of_life(EPOCH + 1, 1, 1), at(0));
    assert_eq!(all_from(&mut state, Cursor::Earliest), "1");
}

#[test]
fn what_was_missing_comes_before_what_is_new() {
    let mut state = state([opened(1, 3)]);
    let mut position = begin(&state, Cursor::Earliest);
    assert_eq!(rest(&mut state, &mut position), "1 2");
    state.apply(EventKind::Outdated, at(0));
    state.apply(appended(5, 1), at(0));
    assert_eq!(rest(&mut state, &mut position), "");
    // Who asks for other reasons does not end the wait, and nothing waits for the answer.
    state.ask();
    state.apply(opened(1, 4), at(0));
    assert_eq!(rest(&mut state, &mut position), "3");
    state.apply(updated(1, 6), at(0));
    state.ask();
    state.apply(appended(6, 1), at(0));
    assert_eq!(rest(&mut state, &mut position), "4 5 6");
}

#[test]
fn messages_wait_for_the_last_of_several_updates() {
    let mut state = state([opened(1, 2)]);
    let mut position = begin(&state, Cursor::Earliest);
    state.apply(EventKind::Outdated, at(0));
    state.apply(EventKind::Outdated, at(0));
    state.apply(updated(1, 3), at(0));
    state.apply(appended(5, 1), at(0));
    assert_eq!(rest(&mut state, &mut position), "1 2");
    state.apply(updated(1, 5), at(0));
    assert_eq!(rest(&mut state, &mut position), "3 4 5");
}

#[test]
fn an_answer_of_an_earlier_life_comes_late() {
    let mut state = state([opened(1, 2), EventKind::Outdated, EventKind::Outdated]);
    state.apply(of_update(of_life(EPOCH + 1, 1, 3)), at(0));
    state.apply(updated(1, 4), at(0));
    assert_eq!(all_from(&mut state, Cursor::Earliest), "1 2");
    assert_eq!(begin(&state, Cursor::New).last(), Some(id(EPOCH + 1, 2)));
}

#[test]
fn another_life_begins_with_a_gap_and_has_all_its_messages() {
    let mut state = state([opened(1, 5), EventKind::Outdated]);
    let mut position = begin(&state, Cursor::New);
    state.apply(of_update(of_life(EPOCH + 1, 1, 3)), at(0));
    assert_eq!(rest(&mut state, &mut position), "gap 8-1 1 2");
    // Who comes back before it knows of the gap has to learn of it then.
    assert_eq!(begin(&state, Cursor::After(id(EPOCH, 4))).last(), None);
    // One that has not begun yet has missed nothing.
    let mut position = at_once(state.begin(None, Mode::Topic, true));
    assert_eq!(rest(&mut state, &mut position), "1 2");
    // Neither the messages nor the losses of the life before count.
    state.apply(appended(9, 9), at(0));
    assert_eq!(all_from(&mut state, Cursor::Earliest), "1 2");
}

#[test]
fn a_slow_receiver_is_told_of_the_gap() {
    let mut state = state([opened(1, 4)]);
    let mut position = begin(&state, Cursor::Earliest);
    assert!(state.next(Some(&mut position), at(0)).is_some());
    state.apply(appended(4, 2), at(0));
    assert_eq!(rest(&mut state, &mut position), "2 3 4");
    for sequence in 5..10 {
        state.apply(appended(sequence, sequence - 2), at(0));
    }
    assert_eq!(rest(&mut state, &mut position), "gap 7-7 7 8 9");
    // Everything is gone, and nothing new has come.
    state.apply(EventKind::Outdated, at(0));
    state.apply(updated(20, 20), at(0));
    assert_eq!(rest(&mut state, &mut position), "gap 7-20");
    assert_eq!(position.last(), Some(id(EPOCH, 19)));
}

#[test]
fn numbers_may_have_holes() {
    let mut state = state([opened(1, 1), appended(4, 1), appended(9, 1)]);
    assert_eq!(all_from(&mut state, Cursor::Earliest), "4 9");
    assert_eq!(all_from(&mut state, Cursor::After(id(EPOCH, 2))), "4 9");
    assert_eq!(all_from(&mut state, Cursor::After(id(EPOCH, 4))), "9");
}

#[test]
fn what_is_kept_comes_before_the_end() {
    let mut open = state([opened(1, 3)]);
    let mut position = begin(&open, Cursor::Earliest);
    open.apply(EventKind::Removed, at(0));
    assert!(open.has_ended() && open.failure().is_none());
    assert_eq!(rest(&mut open, &mut position), "1 2 removed");
    let mut waiting = CopyState::new(false);
    let error = StoreError::Unavailable("down".to_owned());
    waiting.apply(EventKind::Failed(error.clone()), at(0));
    assert_eq!(waiting.failure(), Some(&error));
    assert!(matches!(waiting.next(None, at(0)), Some(Next::Failed(_))));
}

#[test]
fn a_message_whose_time_is_over_is_not_received_nor_kept() {
    let mut state = state([opened(1, 2)]);
    let soon = until(2, 99);
    let watched = Arc::downgrade(&soon.draft);
    for message in [soon, until(3, 101), message(EPOCH, 4)] {
        state.apply(EventKind::Appended { message, lost: 1 }, at(0));
    }
    assert!(watched.upgrade().is_some());
    assert_eq!(all_from(&mut state, Cursor::Earliest), "1 3 4");
    assert!(watched.upgrade().is_none());
}

/// A box that keeps few messages since their time is soon over: its bound says nothing of the copy.
#[test]
fn messages_whose_time_is_over_do_not_pile_up() {
    let mut state = state([opened(1, 1)]);
    state.apply(appended(1, 1), at(0));
    for number in 2..10_000 {
        let now = at(0) + Duration::from_millis(number * 100);
        let mut message = until(number, 0);
        Arc::get_mut(&mut message.draft).unwrap().deadline = Some(now + EXPIRY_INTERVAL);
        state.apply(EventKind::Appended { message, lost: 1 }, now);
        assert!(state.kept.as_ref().unwrap().entries.len() <= 22);
    }
}

#[test]
fn looks_for_expired_messages_are_rare() {
    let mut kept = state([opened(1, 1)]).kept.unwrap();
    for number in 1..100 {
        kept.append(until(number, number), 1);
    }
    kept.expire(at(5));
    assert_eq!(kept.entries.len(), 94);
    let moment = Duration::from_millis(999);
    kept.append(until(100, 5), 1);
    kept.expire(at(5) + moment);
    assert_eq!(kept.entries.len(), 95);
    kept.expire(at(6));
    assert_eq!(kept.entries.len(), 93);
    kept.expire(at(1000));
    assert!(kept.entries.is_empty() && kept.expiry.is_none());
}

#[test]
fn the_last_messages_are_encoded_once() {
    let mut kept = state([opened(1, 20)]).kept.unwrap();
    let encode = |entry: &Rc<Entry>| {
        let mut times = 0;
        for _ in 0..2 {
            let form = entry.form(FORMS - 1, true, |message| {
                times += 1;
                message.id.to_string().into_bytes()
            });
            assert_eq!(*form, *entry.message.id.to_string().into_bytes());
        }
        times
    };
    let times: Vec<_> = kept.entries.iter().map(encode).collect();
    assert_eq!(times, [[2; 11].as_slice(), &[1; ENCODED_MAX]].concat());
    let last = kept.entries[18].clone();
    assert!(last.encoded(FORMS - 1).is_some() && last.encoded(0).is_none());
    for sequence in 20..20 + ENCODED_MAX as u64 {
        assert!(last.encoded(FORMS - 1).is_some());
        kept.append(message(EPOCH, sequence), 1);
    }
    assert!(last.encoded(FORMS - 1).is_none());
    assert_eq!(encode(&last), 2);
}

#[test]
fn the_last_messages_are_parsed_once() {
    let kept = state([opened(1, 20)]).kept.unwrap();
    let parse = |entry: &Rc<Entry>| {
        let mut times = 0;
        for _ in 0..2 {
            let parsed = entry.parsed(|message| {
                times += 1;
                message.id
            });
            assert_eq!(*parsed, entry.message.id);
        }
        times
    };
    assert_eq!(parse(&kept.entries[18]), 1);
    kept.entries[18].forget_forms();
    assert_eq!(parse(&kept.entries[18]), 1);
    assert_eq!(parse(&kept.entries[0]), 2);
}

#[test]
fn receivers_that_send_a_long_message_share_its_parts() {
    let kept = state([opened(1, 2)]).kept.unwrap();
    let entry = &kept.entries[0];
    let first = entry.long_form(0, 2);
    let part = |long: &LongForm, part, text: &[u8]| {
        let part = long.part(part, &entry.message, |_| text.to_vec());
        part.to_vec()
    };
    assert_eq!(
        (part(&first, 0, b"a"), part(&first, 1, b"b")),
        (b"a".into(), b"b".into())
    );
    entry.forget_forms();
    let second = entry.long_form(0, 2);
    assert_eq!(
        (part(&second, 1, b"c"), part(&second, 0, b"d")),
        (b"b".into(), b"a".into())
    );
    drop((first, second));
    assert_eq!(part(&entry.long_form(0, 2), 0, b"e"), b"e");
    entry.forget_forms();
    assert!(entry.made.borrow().is_none());
}

#[test]
fn forms_that_are_kept_take_memory_of_messages() {
    let budget = Budget::new(1024);
    let draft = Draft {
        reservation: budget.try_reserve(256),
        ..draft("x", None)
    };
    let recent = Rc::<Recent>::default();
    let message = Message {
        id: id(EPOCH, 1),
        draft: draft.into(),
    };
    let entry = Entry::new(message, &recent);
    let encode = |form, bytes| entry.form(form, true, |_| vec![0; bytes]);
    // Half is left for messages.
    encode(0, 257);
    assert_eq!(budget.used(), 256);
    assert!(entry.encoded(0).is_none());
    let kept = encode(0, 256);
    assert_eq!(budget.used(), 512);
    entry.forget_forms();
    assert_eq!(budget.used(), 512);
    drop(kept);
    assert_eq!(budget.used(), 256);
    let long = entry.long_form(0, 1);
    let part = |bytes| long.part(0, &entry.message, |_| vec![0; bytes]).len();
    assert_eq!((part(257), budget.used()), (257, 256));
    assert_eq!((part(256), budget.used()), (256, 512));
    assert_eq!(part(1), 256);
}

#[test]
fn a_form_of_the_last_messages_is_made_once() {
    let mut kept = state([opened(1, 2)]).kept.unwrap();
    let entry = kept.entries[0].clone();
    let starts = Cell::new(0);
    let budget = Budget::new(1);
    let making = |form| {
        let start = |_, _| starts.update(|starts| starts + 1);
        entry.making(form, || budget.try_reserve(1), start)
    };
    let first = making(0).expect("it is one of the last");
    let second = making(0).expect("it is one of the last");
    assert!(Rc::ptr_eq(&first, &second) && starts.get() == 1);
    let held = budget.reserve(1);
    assert!(making(1).is_none());
    drop(held);
    assert!(making(1).is_some());
    for sequence in 2..2 + ENCODED_MAX as u64 {
        kept.append(message(EPOCH, sequence), 1);
    }
    assert!(making(0).is_none());
    assert_eq!((starts.get(), Rc::strong_count(&first)), (2, 2));
}

#[test]
fn what_is_being_made_is_forgotten_when_it_is_made() {
    let kept = state([opened(1, 2)]).kept.unwrap();
    let entry = kept.entries[0].clone();
    let reserve = || Budget::new(1).try_reserve(1);
    let making = entry
        .making(0, reserve, |_, _| {})
        .expect("it is one of the last");
    entry.form(1, true, |_| vec![1]);
    kept.recent.forget_forms();
    assert!(entry.encoded(1).is_none());
    let again = entry.making(0, reserve, |_, _| panic!("it is being made"));
    assert!(Rc::ptr_eq(&making, &again.expect("it is one of the last")));
    making.finish(None).now_or_never().expect("nobody waits");
    kept.recent.forget_forms();
    assert!(entry.made.borrow().is_none() && kept.recent.encoded.borrow().is_empty());
}

#[test]
fn an_expired_message_takes_no_memory_for_its_forms() {
    let mut kept = state([opened(1, 1)]).kept.unwrap();
    kept.append(until(1, 5), 1);
    kept.entries[0].form(0, true, |_| vec![1]);
    let entry = Rc::downgrade(&kept.entries[0]);
    assert!(entry.upgrade().is_some());
    kept.expire(at(5));
    assert!(entry.upgrade().is_none());
    kept.append(message(EPOCH, 2), 1);
    assert!(kept.recent.encoded.borrow().is_empty());
}

#[test]
fn messages_are_found_beside_those_that_are_gone() {
    let mut kept = state([opened(1, 10)]).kept.unwrap();
    kept.entries
        .retain(|entry| entry.message.id.sequence % 3 != 0);
    let found = |number| {
        let entry = kept.entries.get(kept.index_of(number));
        entry.map(|entry| entry.message.id.sequence)
    };
    let expected = [1, 1, 2, 4, 4, 5, 7, 7, 8].map(Some);
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(found), expected);
    assert_eq!([9, 10, 11].map(found), [None; 3]);
}

#[test]
fn the_copy_of_a_stream_is_bounded_whatever_the_store_keeps() {
    let large = |sequence, bytes: usize| EventKind::Appended {
        message: Message {
            id: id(EPOCH, sequence),
            draft: draft(&"x".repeat(bytes), None).into(),
        },
        lost: 1,
    };
    for (bytes, kept) in [(1, 64), (64 * 1024, 4), (1 << 20, 1)] {
        let mut state = CopyState::new(true);
        state.apply(opened(1, 1), at(0));
        for sequence in 1..=100 {
            state.apply(large(sequence, bytes), at(0));
        }
        assert_eq!(state.entries().len(), kept);
        let mut position = begin(&state, Cursor::After(id(EPOCH, 1)));
        let first = id(EPOCH, 101 - kept as u64);
        let expected = format!("gap {first}");
        assert!(rest(&mut state, &mut position).starts_with(&expected));
    }
}
