use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::kept::Next;
use crate::log::tests::{draft, settings};
use crate::message::Message;
use crate::protocol::EventKind;
use crate::settings::Mode;
use crate::store::{Opened, StoreError};

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn has_rung(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) > 0
    }
}

/// An event loop whose owner is the test.
struct Rig {
    copies: Rc<Copies>,
    commands: mpsc::UnboundedReceiver<Command>,
    settings: Arc<Settings>,
}

impl Rig {
    fn new(set: impl FnOnce(&mut Settings)) -> Self {
        let (owner, commands) = mpsc::unbounded_channel();
        let mut settings = settings(100, usize::MAX);
        set(&mut settings);
        Self {
            copies: Rc::new(Copies::new(3, vec![owner])),
            commands,
            settings: settings.into(),
        }
    }

    fn subscribe(&self, text: &str) -> Feed {
        let name = name(text);
        let feed = self.copies.subscribe(&name, &self.settings, None);
        feed.expect("room")
    }

    /// Receivers of the box `a`, which is open.
    fn receivers(&mut self, count: usize) -> Vec<Receiver> {
        let feeds = (0..count).map(|_| Receiver::new(self.subscribe("a")));
        let mut receivers: Vec<_> = feeds.collect();
        self.apply(0, opened());
        self.wake();
        for receiver in &mut receivers {
            receiver.bell.has_rung();
            assert!(!receiver.gets_something());
        }
        receivers
    }

    fn apply(&self, copy: u64, kind: EventKind) {
        let name = name("a");
        self.copies.apply(BoxEvent { name, copy, kind }, NOW);
    }

    fn append(&self, sequence: u64) {
        self.apply(0, appended(sequence));
    }

    /// Wakes all receivers.
    fn wake(&self) {
        while !self.copies.to_wake.borrow().is_empty() {
            self.copies.wake_some();
        }
    }

    /// What the owner was told.
    fn commands(&mut self) -> Vec<String> {
        let commands = std::iter::from_fn(|| self.commands.try_recv().ok());
        commands
            .map(|command| match command {
                Command::Open { worker, copy, .. } => format!("{worker} opens copy {copy}"),
                Command::Receivers { receivers, .. } => format!("{receivers} receivers"),
                Command::Read { last, .. } => format!("read {last}"),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

struct Receiver {
    feed: Feed,
    bell: Arc<Bell>,
}

impl Receiver {
    fn new(feed: Feed) -> Self {
        let bell = Arc::default();
        Self { feed, bell }
    }

    /// Receives one thing, or waits.
    fn poll(&mut self) -> Poll<Next> {
        let waker = self.bell.clone().into();
        self.feed.poll_next(&mut Context::from_waker(&waker), NOW)
    }

    /// Receives everything, and then waits.
    fn gets_something(&mut self) -> bool {
        let mut has = false;
        while self.poll().is_ready() {
            has = true;
        }
        has
    }

    fn poll_open(&mut self) -> Poll<Result<(), StoreError>> {
        let waker = self.bell.clone().into();
        self.feed.poll_open(&mut Context::from_waker(&waker))
    }
}

fn name(text: &str) -> Name {
    Name::new("s", text.as_bytes()).expect("a name")
}

fn appended(sequence: u64) -> EventKind {
    let message = Message {
        id: MessageId { epoch: 7, sequence },
        draft: draft("x", None).into(),
    };
    EventKind::Appended { message, lost: 1 }
}

fn opened() -> EventKind {
    EventKind::Opened(Opened {
        state: None,
        epoch: 7,
        next: 1,
        first: 1,
        lost: 1,
        read: 1,
        messages: Vec::new(),
    })
}

#[test]
fn receivers_of_an_event_loop_share_a_copy() {
    let mut rig = Rig::new(|_| {});
    let first = rig.subscribe("a");
    let second = rig.subscribe("a");
    assert_eq!(
        rig.commands(),
        ["3 opens copy 0", "1 receivers", "2 receivers"]
    );
    drop(first);
    drop(second);
    assert_eq!(rig.commands(), ["1 receivers", "0 receivers"]);
    assert_eq!(rig.copies.boxes(), 0);
    let _third = rig.subscribe("a");
    assert_eq!(rig.commands(), ["3 opens copy 1", "1 receivers"]);
}

#[test]
fn what_is_for_an_earlier_copy_is_ignored() {
    let rig = Rig::new(|_| {});
    drop(rig.subscribe("a"));
    let mut receiver = Receiver::new(rig.subscribe("a"));
    rig.apply(0, opened());
    rig.append(1);
    rig.apply(0, EventKind::Removed);
    assert!(receiver.poll_open().is_pending() && receiver.poll().is_pending());
    rig.apply(1, opened());
    assert!(receiver.poll_open().is_ready());
    rig.append(1);
    assert!(receiver.poll().is_pending());
    rig.apply(1, appended(1));
    assert!(matches!(receiver.poll(), Poll::Ready(Next::Message(_))));
}

#[test]
fn a_receiver_waits_until_the_box_is_open() {
    let rig = Rig::new(|_| {});
    let mut receiver = Receiver::new(rig.subscribe("a"));
    assert_eq!(receiver.feed.position(), None);
    assert!(receiver.poll_open().is_pending());
    rig.append(1);
    rig.wake();
    assert!(receiver.poll_open().is_pending());
    rig.apply(0, opened());
    rig.wake();
    assert!(receiver.bell.has_rung());
    assert_eq!(receiver.poll_open(), Poll::Ready(Ok(())));
    let before_first = MessageId {
        epoch: 7,
        sequence: 0,
    };
    assert_eq!(receiver.feed.position(), Some(before_first));
    assert!(receiver.gets_something());
    assert_eq!(receiver.feed.position().expect("open").sequence, 1);
}

/// What comes between the moment in which a client is told that it receives, and the first look for a message.
#[test]
fn nothing_is_missed_once_the_box_is_open() {
    let rig = Rig::new(|_| {});
    let mut early = Receiver::new(rig.subscribe("a"));
    rig.apply(0, opened());
    assert!(early.poll_open().is_ready());
    let mut late = Receiver::new(rig.subscribe("a"));
    rig.append(1);
    assert!(early.gets_something() && late.gets_something());
}

#[test]
fn a_removed_box_is_opened_anew() {
    let mut rig = Rig::new(|_| {});
    let mut receiver = Receiver::new(rig.subscribe("a"));
    rig.apply(0, opened());
    rig.append(1);
    rig.commands();
    rig.apply(0, EventKind::Removed);
    assert_eq!(rig.commands(), ["0 receivers"]);
    let mut next = Receiver::new(rig.subscribe("a"));
    assert_eq!(rig.commands(), ["3 opens copy 1", "1 receivers"]);
    rig.append(2);
    assert!(matches!(receiver.poll(), Poll::Ready(Next::Message(_))));
    assert!(matches!(receiver.poll(), Poll::Ready(Next::Removed)));
    drop(receiver);
    assert!(rig.commands().is_empty());
    assert_eq!(rig.copies.boxes(), 1);
    assert!(next.poll_open().is_pending());
}

#[test]
fn a_box_that_ends_before_it_is_open_keeps_nobody_waiting() {
    let rig = Rig::new(|_| {});
    let mut receiver = Receiver::new(rig.subscribe("a"));
    assert!(receiver.poll_open().is_pending());
    rig.apply(0, EventKind::Removed);
    rig.wake();
    assert!(receiver.bell.has_rung() && receiver.poll_open().is_ready());
    assert!(matches!(receiver.poll(), Poll::Ready(Next::Removed)));
}

#[test]
fn a_failure_ends_the_receivers_but_not_the_next_ones() {
    let mut rig = Rig::new(|_| {});
    let mut receiver = Receiver::new(rig.subscribe("a"));
    let error = StoreError::TooManyBoxes;
    rig.apply(0, EventKind::Failed(error.clone()));
    assert_eq!(receiver.poll_open(), Poll::Ready(Err(error)));
    rig.commands();
    let mut next = Receiver::new(rig.subscribe("a"));
    assert_eq!(rig.commands(), ["3 opens copy 1", "1 receivers"]);
    assert!(next.poll_open().is_pending());
    rig.apply(1, opened());
    assert!(next.poll_open().is_ready());
}

/// It has received from another process, of which this one hears later.
#[test]
fn a_receiver_that_knows_more_has_the_box_opened_again() {
    let mut rig = Rig::new(|_| {});
    let mut other = rig.receivers(1).remove(0);
    rig.commands();
    let id = |epoch| MessageId { epoch, sequence: 9 };
    let after = |rig: &Rig, epoch| {
        let cursor = Some(Cursor::After(id(epoch)));
        let feed = rig.copies.subscribe(&name("a"), &rig.settings, cursor);
        Receiver::new(feed.expect("room"))
    };
    let mut receiver = after(&rig, 8);
    let expected = ["3 opens copy 0", "2 receivers", "2 receivers"];
    assert_eq!(rig.commands(), expected);
    assert!(receiver.poll_open().is_pending() && receiver.poll().is_pending());
    rig.apply(0, opened());
    rig.wake();
    assert!(receiver.bell.has_rung() && receiver.poll_open().is_ready());
    assert!(matches!(receiver.poll(), Poll::Ready(Next::Gap(_))));
    // Whoever asks on and on keeps nothing from the others.
    for sequence in 1..5 {
        let _bogus = after(&rig, 8 + sequence);
        rig.append(sequence);
        assert!(other.gets_something());
    }
    rig.commands();
    // It asks once, and not for an earlier life.
    assert!(rig.commands().is_empty());
    let mut earlier = after(&rig, 6);
    assert!(earlier.poll_open().is_ready());
    assert_eq!(rig.commands(), ["3 receivers"]);
    // Nor is one asked that has ended.
    rig.apply(0, EventKind::Outdated);
    let mut late = after(&rig, 8);
    rig.apply(0, EventKind::Removed);
    rig.commands();
    assert!(late.poll_open().is_ready() && rig.commands().is_empty());
    assert!(matches!(late.poll(), Poll::Ready(Next::Removed)));
}

#[test]
fn the_number_of_receivers_is_bounded() {
    let rig = Rig::new(|settings| settings.receivers_max = 2);
    let first = rig.subscribe("a");
    let _second = rig.subscribe("a");
    let _other = rig.subscribe("b");
    let refused = rig.copies.subscribe(&name("a"), &rig.settings, None);
    assert!(refused.is_none());
    drop(first);
    let _third = rig.subscribe("a");
    let mut rig = Rig::new(|settings| settings.receivers_max = 0);
    let refused = rig.copies.subscribe(&name("a"), &rig.settings, None);
    assert!(refused.is_none() && rig.commands().is_empty());
    assert_eq!(rig.copies.boxes(), 0);
}

#[test]
fn an_inbox_is_read_once() {
    let mut rig = Rig::new(|settings| settings.mode = Mode::Inbox);
    let mut first = Receiver::new(rig.subscribe("a"));
    rig.apply(0, opened());
    (1..4).for_each(|sequence| rig.append(sequence));
    assert!(first.gets_something());
    rig.commands();
    let id = |sequence| MessageId { epoch: 7, sequence };
    for (sequence, expected) in [(2, vec!["read 7-2"]), (2, vec![]), (1, vec![])] {
        first.feed.mark_read(id(sequence));
        assert_eq!(rig.commands(), expected);
    }
    let mut second = Receiver::new(rig.subscribe("a"));
    let Poll::Ready(Next::Message(entry)) = second.poll() else {
        panic!("no message");
    };
    assert_eq!(entry.message.id, id(3));
    rig.apply(0, EventKind::Read(id(3)));
    assert!(!Receiver::new(rig.subscribe("a")).gets_something());
}

#[test]
fn a_topic_is_not_marked_as_read() {
    let mut rig = Rig::new(|_| {});
    let receivers = rig.receivers(1);
    rig.append(1);
    rig.commands();
    let id = MessageId {
        epoch: 7,
        sequence: 1,
    };
    receivers[0].feed.mark_read(id);
    assert!(rig.commands().is_empty());
}

#[test]
fn receivers_are_woken_a_bounded_number_at_a_time() {
    let mut rig = Rig::new(|_| {});
    let receivers = rig.receivers(3 * WOKEN_MAX);
    let woken = || receivers.iter().filter(|one| one.bell.has_rung()).count();
    rig.append(1);
    for _ in 0..3 {
        assert_eq!(woken(), 0);
        rig.copies.wake_some();
        assert_eq!(woken(), WOKEN_MAX);
    }
    rig.wake();
    assert_eq!(woken(), 0);
}

#[test]
fn places_of_receivers_that_have_left_are_passed_in_bounded_steps() {
    let mut rig = Rig::new(|settings| settings.receivers_max = usize::MAX);
    let mut receivers = rig.receivers(10 * LOOKS_MAX);
    receivers.drain(..10 * LOOKS_MAX - 1);
    rig.append(1);
    let mut calls = 0;
    while !receivers[0].bell.has_rung() {
        rig.copies.wake_some();
        calls += 1;
    }
    assert_eq!(calls, 10);
}

/// A receiver at a place that was passed already, which waits again, must get what comes later.
#[test]
fn one_that_waits_behind_the_progress_is_woken_by_the_next_message() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(2 * WOKEN_MAX);
    rig.append(1);
    rig.copies.wake_some();
    assert!(receivers[0].bell.has_rung() && receivers[0].gets_something());
    rig.append(2);
    rig.wake();
    assert!(receivers[0].bell.has_rung() && receivers[0].gets_something());
    for receiver in &mut receivers[1..] {
        assert!(receiver.bell.has_rung() && receiver.gets_something());
    }
    assert!(!receivers[0].gets_something());
}

/// Also if it comes to a place that was free, or makes the places more.
#[test]
fn one_that_subscribes_behind_the_progress_is_woken_by_the_next_message() {
    for leaving in [0, 1, WOKEN_MAX] {
        for coming in [1, WOKEN_MAX, 4 * WOKEN_MAX] {
            let mut rig = Rig::new(|_| {});
            let mut receivers = rig.receivers(2 * WOKEN_MAX);
            rig.append(1);
            rig.copies.wake_some();
            receivers.drain(..leaving);
            for _ in 0..coming {
                let mut receiver = Receiver::new(rig.subscribe("a"));
                assert!(!receiver.gets_something());
                receivers.push(receiver);
            }
            rig.append(2);
            rig.copies.wake_some();
            let mut last = Receiver::new(rig.subscribe("a"));
            assert!(!last.gets_something());
            receivers.push(last);
            rig.append(3);
            rig.wake();
            for receiver in &mut receivers {
                assert!(receiver.bell.has_rung() && receiver.gets_something());
            }
        }
    }
}

#[test]
fn new_places_do_not_take_the_turn_of_others() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(2 * WOKEN_MAX);
    for sequence in 1..=2 {
        rig.append(sequence);
        rig.copies.wake_some();
        for receiver in &mut receivers {
            if receiver.bell.has_rung() {
                assert!(receiver.gets_something());
            }
        }
    }
    // The way goes on at the end of the places, of which there are twice as many now.
    let copy = rig.copies.copies.borrow().get(&name("a")).cloned();
    let copy = copy.expect("it is read");
    assert_eq!(copy.waiting.borrow().capacity(), 2 * WOKEN_MAX);
    let _more = rig.subscribe("a");
    rig.wake();
    for receiver in &mut receivers[..WOKEN_MAX] {
        assert!(receiver.bell.has_rung() && receiver.gets_something());
    }
}

/// While messages come faster than receivers are woken, all have their turn.
#[test]
fn nobody_starves() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(4 * WOKEN_MAX);
    let mut times = vec![0; receivers.len()];
    for sequence in 1..=40 {
        rig.append(sequence);
        rig.copies.wake_some();
        for (receiver, times) in receivers.iter_mut().zip(&mut times) {
            if receiver.bell.has_rung() {
                *times += 1;
                receiver.gets_something();
            }
        }
    }
    assert!(times.iter().all(|&times| times >= 8), "{times:?}");
}

#[test]
fn a_copy_is_queued_once_and_boxes_take_turns() {
    let mut rig = Rig::new(|_| {});
    let receivers = rig.receivers(2 * WOKEN_MAX);
    let mut others = [(); 2].map(|()| Receiver::new(rig.subscribe("b")));
    for other in &mut others {
        assert!(other.poll_open().is_pending());
    }
    (1..100).for_each(|sequence| rig.append(sequence));
    let event = BoxEvent {
        name: name("b"),
        copy: 1,
        kind: opened(),
    };
    rig.copies.apply(event, NOW);
    assert_eq!(rig.copies.to_wake.borrow().len(), 2);
    rig.copies.wake_some();
    rig.copies.wake_some();
    assert!(others.iter().all(|other| other.bell.has_rung()));
    assert!(!receivers[WOKEN_MAX].bell.has_rung());
}

#[test]
fn the_only_receiver_is_woken_at_once() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(2);
    assert!(!receivers[0].feed.is_only());
    receivers.pop();
    rig.append(1);
    assert!(receivers[0].feed.is_only() && receivers[0].bell.has_rung());
    assert!(receivers[0].gets_something() && rig.copies.to_wake.borrow().is_empty());
}

/// One that comes later does not share what the first one is about to get.
#[test]
fn forms_are_kept_while_several_are_woken() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(1);
    rig.append(1);
    receivers.push(Receiver::new(rig.subscribe("a")));
    assert!(!receivers[0].feed.is_only() && !receivers[0].feed.keeps_forms());
    rig.append(2);
    assert!(receivers[0].feed.keeps_forms());
    let copies = rig.copies.clone();
    let mut waking = pin!(copies.wake_receivers());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        assert!(waking.as_mut().poll(&mut context).is_pending());
    }
    assert!(!receivers[0].feed.keeps_forms());
}

/// To look for it among the places of many takes time.
#[test]
fn the_last_of_many_receivers_has_its_turn() {
    let mut rig = Rig::new(|_| {});
    let mut receivers = rig.receivers(2 * WOKEN_MAX);
    receivers.drain(..2 * WOKEN_MAX - 1);
    rig.append(1);
    assert!(!receivers[0].bell.has_rung());
    rig.wake();
    assert!(receivers[0].bell.has_rung() && receivers[0].gets_something());
}

#[test]
fn the_task_that_wakes_sleeps_until_there_is_a_change() {
    let mut rig = Rig::new(|_| {});
    let copies = rig.copies.clone();
    let mut waking = pin!(copies.wake_receivers());
    let bell = Arc::new(Bell::default());
    let waker = bell.clone().into();
    let mut context = Context::from_waker(&waker);
    let mut receivers = rig.receivers(2);
    for sequence in 1..4 {
        while waking.as_mut().poll(&mut context).is_pending() && bell.has_rung() {}
        assert!(!receivers[0].bell.has_rung());
        rig.append(sequence);
        assert!(bell.has_rung());
        assert!(waking.as_mut().poll(&mut context).is_pending());
        for receiver in &mut receivers {
            assert!(receiver.bell.has_rung() && receiver.gets_something());
        }
    }
}

/// A box in which nothing happens takes no memory for them.
#[test]
fn encoded_messages_are_forgotten_when_all_have_them() {
    let mut rig = Rig::new(|_| {});
    let copies = rig.copies.clone();
    let mut waking = pin!(copies.wake_receivers());
    let mut context = Context::from_waker(Waker::noop());
    let mut receivers = rig.receivers(2 * WOKEN_MAX);
    rig.append(1);
    let mut encoded = None;
    for _ in 0..2 {
        // The task runs before the receivers that it wakes.
        assert!(waking.as_mut().poll(&mut context).is_pending());
        for receiver in receivers.iter_mut().filter(|one| one.bell.has_rung()) {
            let Poll::Ready(Next::Message(entry)) = receiver.poll() else {
                panic!("no message");
            };
            assert_eq!(entry.encoded(0).as_deref(), encoded.as_deref());
            let form = entry.form(0, true, |_| vec![encoded.iter().len() as u8]);
            encoded = Some(form);
        }
    }
    let entry_of = |rig: &Rig| {
        let earliest = Some(Cursor::Earliest);
        let feed = rig.copies.subscribe(&name("a"), &rig.settings, earliest);
        match Receiver::new(feed.expect("room")).poll() {
            Poll::Ready(Next::Message(entry)) => entry,
            _ => panic!("no message"),
        }
    };
    assert!(entry_of(&rig).encoded(0).is_some());
    drop(encoded);
    assert!(waking.as_mut().poll(&mut context).is_pending());
    assert!(entry_of(&rig).encoded(0).is_none());
}

#[test]
fn owners_share_the_names() {
    let owners: Vec<_> = (0..4).map(|_| mpsc::unbounded_channel()).collect();
    let senders = owners.iter().map(|(sender, _)| sender.clone()).collect();
    let copies = Copies::new(0, senders);
    let mut counts = vec![0; copies.owners()];
    for number in 0..1000 {
        counts[copies.owner_of(&name(&format!("room-{number}")))] += 1;
    }
    assert!(counts.iter().all(|&count| count > 150), "{counts:?}");
}
