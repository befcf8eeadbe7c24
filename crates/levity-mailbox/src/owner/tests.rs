use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::task::Waker;

use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::kept::Next;
use crate::log::tests::{draft, settings};
use crate::memory::MemoryStore;
use crate::message::Message;
use crate::store::{
    Appending, Figures, Limit, Listing, Opened, Opening, Reading, Removing, Summing,
};

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// A store whose answers the test gives.
#[derive(Clone, Default)]
struct Scripted(Rc<RefCell<Script>>);

#[derive(Default)]
struct Script {
    opening: Vec<oneshot::Sender<Result<Opened, StoreError>>>,
    appending: Vec<oneshot::Sender<Vec<Result<Appended, StoreError>>>>,
    removing: Vec<oneshot::Sender<Result<bool, StoreError>>>,
    changes: VecDeque<Change>,
    /// Changes that are noted just before an append ends.
    changes_of_appends: Vec<Change>,
    changes_forever: Option<Name>,
    reports_appends: bool,
    watched: HashSet<Name>,
    read: Vec<MessageId>,
}

fn later<T: 'static>(senders: &mut Vec<oneshot::Sender<T>>) -> Pin<Box<dyn Future<Output = T>>> {
    let (sender, receiver) = oneshot::channel();
    senders.push(sender);
    Box::pin(async move { receiver.await.expect("an answer") })
}

impl Store for Scripted {
    fn open(&mut self, name: &Name, _: &Arc<Settings>, _: SystemTime) -> Opening {
        let mut script = self.0.borrow_mut();
        assert!(script.watched.contains(name), "watched before it is opened");
        later(&mut script.opening)
    }

    fn summary(&mut self, _: &Name) -> Summing {
        unimplemented!()
    }

    fn read(&mut self, _: &Name, _: Option<MessageId>, _: Limit) -> Reading {
        unimplemented!()
    }

    fn append(&mut self, _: Vec<Append>, _: SystemTime) -> Appending {
        let results = later(&mut self.0.borrow_mut().appending);
        let script = self.0.clone();
        Box::pin(async move {
            let results = results.await;
            let script = &mut *script.borrow_mut();
            script.changes.extend(script.changes_of_appends.drain(..));
            results
        })
    }

    fn remove(&mut self, _: &Name, _: Option<u64>) -> Removing {
        later(&mut self.0.borrow_mut().removing)
    }

    fn mark_read(&mut self, _: &Name, last: MessageId) {
        self.0.borrow_mut().read.push(last);
    }

    fn watch(&mut self, name: &Name, is_read: bool, _: SystemTime) {
        let watched = &mut self.0.borrow_mut().watched;
        match is_read {
            true => watched.insert(name.clone()),
            false => watched.remove(name),
        };
    }

    fn list(&mut self, _: &str, _: Option<&Name>, _: usize) -> Listing {
        unimplemented!()
    }

    fn poll_change(&mut self, _: &mut Context<'_>) -> Poll<Change> {
        let mut script = self.0.borrow_mut();
        let forever = script.changes_forever.clone().map(Change::Removed);
        let change = script.changes.pop_front().or(forever);
        change.map_or(Poll::Pending, Poll::Ready)
    }

    fn reports_appends(&self) -> bool {
        self.0.borrow().reports_appends
    }

    fn sweep(&mut self, _: SystemTime) {}

    fn figures(&self) -> Figures {
        Figures {
            boxes: 5,
            lost: 4,
            expired: 3,
            idle_boxes: 2,
            is_down: true,
        }
    }
}

/// An owner with three event loops.
struct Rig<S> {
    owner: Owner<S>,
    events: Vec<mpsc::UnboundedReceiver<BoxEvent>>,
    figures: Arc<OwnerFigures>,
}

impl<S: Store> Rig<S> {
    fn new(store: S) -> Self {
        let (workers, events): (Vec<_>, _) = (0..3).map(|_| mpsc::unbounded_channel()).unzip();
        let workers = workers.into_iter().map(Reports::Queue).collect();
        let figures = Arc::default();
        Self {
            owner: Owner::new(store, workers, Arc::clone(&figures)),
            events,
            figures,
        }
    }

    fn command(&mut self, command: Command) {
        self.owner.command(command, NOW);
    }

    fn poll(&mut self) {
        self.owner
            .poll(&mut Context::from_waker(Waker::noop()), NOW);
    }

    fn open(&mut self, worker: usize, copy: u64) {
        self.command(Command::Open {
            name: a(),
            settings: settings(100, usize::MAX).into(),
            worker,
            copy,
        });
    }

    fn receivers(&mut self, worker: usize, receivers: usize) {
        self.command(Command::Receivers {
            name: a(),
            worker,
            receivers,
        });
    }

    fn publish(
        &mut self,
        drafts: impl IntoIterator<Item = crate::message::Draft>,
    ) -> oneshot::Receiver<Vec<Delivery>> {
        let (reply, results) = oneshot::channel();
        let of_draft = |draft| Append {
            update: None,
            name: a(),
            settings: settings(100, usize::MAX).into(),
            draft: Arc::new(draft),
        };
        let appends = drafts.into_iter().map(of_draft).collect();
        self.command(Command::Publish { appends, reply });
        results
    }

    /// Publishes to boxes that nobody receives from.
    fn publish_to(&mut self, names: &[&str]) -> oneshot::Receiver<Vec<Delivery>> {
        let (reply, results) = oneshot::channel();
        let append = |name: &&str| Append {
            update: None,
            name: Name::new("s", name.as_bytes()).expect("a name"),
            settings: settings(100, usize::MAX).into(),
            draft: Arc::new(draft("x", None)),
        };
        let appends = names.iter().map(append).collect();
        self.command(Command::Publish { appends, reply });
        results
    }

    fn remove(&mut self) -> oneshot::Receiver<Result<bool, StoreError>> {
        let (reply, result) = oneshot::channel();
        self.command(Command::Remove {
            name: a(),
            epoch: None,
            reply,
        });
        result
    }

    /// What an event loop was told.
    fn events(&mut self, worker: usize) -> Vec<String> {
        let events = std::iter::from_fn(|| self.events[worker].try_recv().ok());
        let text = |event: BoxEvent| {
            assert_eq!(event.name, a());
            let kind = match event.kind {
                EventKind::Opened(opened) => format!("opened, next {}", opened.next),
                EventKind::Updated(opened) => format!("updated, next {}", opened.next),
                EventKind::Failed(error) => error.to_string(),
                EventKind::Outdated => "outdated".to_owned(),
                EventKind::Appended { message, .. } => format!("message {}", message.id.sequence),
                EventKind::Read(last) => format!("read {}", last.sequence),
                EventKind::Removed => "removed".to_owned(),
            };
            format!("{}: {kind}", event.copy)
        };
        events.map(text).collect()
    }
}

fn a() -> Name {
    Name::new("s", b"a").expect("a name")
}

fn memory() -> Rig<MemoryStore> {
    Rig::new(MemoryStore::new(7))
}

fn scripted() -> (Rig<Scripted>, Scripted) {
    let store = Scripted::default();
    (Rig::new(store.clone()), store)
}

fn message(sequence: u64) -> Message {
    Message {
        id: MessageId { epoch: 7, sequence },
        draft: draft("x", None).into(),
    }
}

fn new(sequence: u64) -> Vec<Result<Appended, StoreError>> {
    vec![Ok(Appended::New {
        message: message(sequence),
        lost: 1,
    })]
}

fn of_others(sequence: u64) -> Change {
    Change::Appended {
        name: a(),
        message: message(sequence),
        lost: 1,
    }
}

fn opened(next: u64) -> Opened {
    Opened {
        state: None,
        epoch: 7,
        next,
        first: next,
        lost: 1,
        read: 1,
        messages: Vec::new(),
    }
}

#[test]
fn a_message_goes_to_all_event_loops_with_receivers() {
    let mut rig = memory();
    rig.open(0, 10);
    rig.receivers(0, 2);
    rig.open(2, 20);
    rig.receivers(2, 3);
    let mut results = rig.publish([draft("x", Some("k")), draft("x", Some("k"))]);
    rig.poll();
    let id = MessageId {
        epoch: 7,
        sequence: 1,
    };
    let published = |is_duplicate| Published {
        id,
        receivers: 5,
        is_duplicate,
    };
    let expected = vec![(a(), Ok(published(false))), (a(), Ok(published(true)))];
    assert_eq!(results.try_recv(), Ok(expected));
    assert_eq!(rig.events(0), ["10: message 1", "10: opened, next 1"]);
    assert_eq!(rig.events(2), ["20: message 1", "20: opened, next 1"]);
    assert!(rig.events(1).is_empty());
    let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    assert_eq!(count(&rig.figures.published), 1);
    assert_eq!(count(&rig.figures.duplicates), 1);
}

#[test]
fn an_event_loop_without_receivers_hears_no_more() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    rig.open(1, 0);
    rig.receivers(0, 4);
    rig.receivers(1, 1);
    rig.receivers(0, 0);
    assert_eq!(store.0.borrow().watched.len(), 1);
    store.0.borrow_mut().changes.push_back(of_others(1));
    rig.poll();
    assert!(rig.events(0).is_empty());
    assert_eq!(rig.events(1), ["0: message 1"]);
    rig.receivers(1, 0);
    assert!(store.0.borrow().watched.is_empty() && rig.owner.watched.len() == 0);
    // A late one of an event loop that nobody knows.
    rig.receivers(1, 3);
    assert!(rig.owner.watched.len() == 0);
}

#[test]
fn a_new_copy_replaces_the_one_before() {
    let (mut rig, store) = scripted();
    rig.open(0, 1);
    rig.receivers(0, 5);
    rig.open(0, 2);
    assert_eq!(rig.owner.receivers(&a()), 0);
    rig.receivers(0, 1);
    assert_eq!(rig.owner.receivers(&a()), 1);
    store.0.borrow_mut().changes.push_back(of_others(1));
    rig.poll();
    assert_eq!(rig.events(0), ["2: message 1"]);
    // The answer to the earlier one is marked as such.
    let openings = std::mem::take(&mut store.0.borrow_mut().opening);
    for (opening, next) in openings.into_iter().zip([3, 4]) {
        opening.send(Ok(opened(next))).expect("awaited");
    }
    rig.poll();
    let mut events = rig.events(0);
    events.sort();
    assert_eq!(events, ["1: opened, next 3", "2: opened, next 4"]);
}

#[test]
fn results_are_in_the_order_of_the_calls() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    let mut first = rig.publish([draft("x", None)]);
    let mut second = rig.publish([draft("x", None)]);
    let mut appending = std::mem::take(&mut store.0.borrow_mut().appending);
    appending.remove(1).send(new(2)).expect("awaited");
    rig.poll();
    assert!(second.try_recv().is_err() && rig.events(0).is_empty());
    appending.remove(0).send(new(1)).expect("awaited");
    rig.poll();
    assert!(first.try_recv().is_ok() && second.try_recv().is_ok());
    assert_eq!(rig.events(0), ["0: message 1", "0: message 2"]);
}

/// A box whose messages are synced may take long.
#[test]
fn boxes_do_not_wait_for_each_other() {
    let (mut rig, store) = scripted();
    let mut of_a = rig.publish_to(&["a"]);
    let mut of_both = rig.publish_to(&["a", "b", "b"]);
    let mut of_b = rig.publish_to(&["b"]);
    let mut of_c = rig.publish_to(&["c"]);
    let mut appending = std::mem::take(&mut store.0.borrow_mut().appending);
    for (number, count) in [(3, 1), (2, 1), (1, 3)] {
        let results = (0..count).flat_map(|_| new(1)).collect();
        appending.remove(number).send(results).expect("awaited");
        rig.poll();
    }
    assert!(of_c.try_recv().is_ok());
    for waiting in [&mut of_a, &mut of_both, &mut of_b] {
        assert!(waiting.try_recv().is_err());
    }
    appending.remove(0).send(new(1)).expect("awaited");
    rig.poll();
    for mut ended in [of_a, of_both, of_b] {
        assert!(ended.try_recv().is_ok());
    }
    assert!(!rig.owner.is_busy());
}

#[test]
fn a_change_comes_before_the_results_that_end_after_it() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    rig.publish([draft("x", None)]);
    let appending = store.0.borrow_mut().appending.remove(0);
    rig.poll();
    store.0.borrow_mut().changes.push_back(of_others(1));
    let late = of_others(2);
    store.0.borrow_mut().changes_of_appends.push(late);
    appending.send(new(3)).expect("awaited");
    rig.poll();
    let expected = ["0: message 1", "0: message 2", "0: message 3"];
    assert_eq!(rig.events(0), expected);
}

#[test]
fn a_store_may_report_all_messages_itself() {
    let (mut rig, store) = scripted();
    store.0.borrow_mut().reports_appends = true;
    rig.open(0, 0);
    let mut results = rig.publish([draft("x", None)]);
    let appending = store.0.borrow_mut().appending.remove(0);
    appending.send(new(1)).expect("awaited");
    rig.poll();
    assert!(results.try_recv().is_ok() && rig.events(0).is_empty());
}

#[test]
fn outdated_copies_are_opened_once_for_all() {
    let (mut rig, store) = scripted();
    rig.open(0, 5);
    rig.open(1, 6);
    store.0.borrow_mut().opening.clear();
    store
        .0
        .borrow_mut()
        .changes
        .extend([Change::Outdated(a()), of_others(9)]);
    // The answers to the commands are not awaited here.
    rig.owner.asked = FuturesUnordered::new();
    rig.poll();
    let opening = store.0.borrow_mut().opening.remove(0);
    assert!(store.0.borrow().opening.is_empty());
    opening.send(Ok(opened(9))).expect("awaited");
    rig.poll();
    assert_eq!(
        rig.events(0),
        ["5: outdated", "5: message 9", "5: updated, next 9"]
    );
    assert_eq!(
        rig.events(1),
        ["6: outdated", "6: message 9", "6: updated, next 9"]
    );
    // Nobody reads it any more.
    rig.receivers(0, 0);
    rig.receivers(1, 0);
    store
        .0
        .borrow_mut()
        .changes
        .push_back(Change::Outdated(a()));
    rig.poll();
    assert!(store.0.borrow().opening.is_empty());
}

#[test]
fn only_copies_of_the_removed_life_are_removed() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    let mut removed = rig.remove();
    rig.open(1, 0);
    let removing = store.0.borrow_mut().removing.remove(0);
    removing.send(Ok(true)).expect("awaited");
    rig.poll();
    assert_eq!(removed.try_recv(), Ok(Ok(true)));
    assert_eq!(rig.events(0), ["0: removed"]);
    assert!(rig.events(1).is_empty());
    // Another process does not say which life it has removed.
    store.0.borrow_mut().changes.push_back(Change::Removed(a()));
    rig.poll();
    assert_eq!(rig.events(1), ["0: removed"]);
}

#[test]
fn what_fails_is_said() {
    let (mut rig, store) = scripted();
    let down = || StoreError::Unavailable("down".to_owned());
    rig.open(0, 0);
    let mut removed = rig.remove();
    let mut results = rig.publish([draft("x", None)]);
    let mut script = store.0.borrow_mut();
    script.opening.remove(0).send(Err(down())).expect("awaited");
    let removing = script.removing.remove(0);
    removing.send(Err(down())).expect("awaited");
    let appending = script.appending.remove(0);
    appending.send(vec![Err(down())]).expect("awaited");
    drop(script);
    rig.poll();
    assert_eq!(rig.events(0), ["0: down"]);
    assert_eq!(removed.try_recv(), Ok(Err(down())));
    let expected = vec![(a(), Err(down()))];
    assert_eq!(results.try_recv(), Ok(expected));
    assert_eq!(rig.figures.failed.load(Ordering::Relaxed), 1);
}

#[test]
fn the_other_event_loops_hear_what_was_read() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    rig.open(1, 0);
    let last = message(4).id;
    rig.command(Command::Read {
        name: a(),
        worker: 1,
        last,
    });
    assert_eq!(rig.events(0), ["0: read 4"]);
    assert!(rig.events(1).is_empty());
    assert_eq!(store.0.borrow().read, [last]);
}

#[test]
fn progress_is_told_once_there_is_some() {
    // The script would panic if content were read.
    let (mut rig, _script) = scripted();
    let ask = |rig: &mut Rig<Scripted>, known| {
        let (reply, answer) = oneshot::channel();
        let name = a();
        rig.command(Command::Progress { name, known, reply });
        answer
    };
    let progress = |receivers, taken| Progress { receivers, taken };
    let read = |rig: &mut Rig<Scripted>, sequence| {
        rig.command(Command::Read {
            name: a(),
            worker: 0,
            last: MessageId { epoch: 7, sequence },
        });
    };
    assert!(ask(&mut rig, None).try_recv().is_err(), "nobody is there");
    rig.open(0, 0);
    rig.receivers(0, 1);
    assert_eq!(ask(&mut rig, None).try_recv(), Ok(progress(1, None)));
    let mut answer = ask(&mut rig, Some(progress(1, None)));
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    read(&mut rig, 5);
    assert_eq!(answer.try_recv(), Ok(progress(1, Some(5))));
    // The same client on a new connection has got less.
    rig.receivers(0, 2);
    assert_eq!(ask(&mut rig, None).try_recv(), Ok(progress(2, None)));
    read(&mut rig, 3);
    let mut answer = ask(&mut rig, Some(progress(2, Some(3))));
    rig.receivers(0, 1);
    assert_eq!(answer.try_recv(), Ok(progress(1, Some(3))));
    let mut answer = ask(&mut rig, Some(progress(1, Some(3))));
    rig.receivers(0, 0);
    assert_eq!(answer.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn a_summary_and_a_list_count_receivers() {
    let mut rig = memory();
    let (reply, mut unknown) = oneshot::channel();
    rig.command(Command::Summary { name: a(), reply });
    rig.open(0, 0);
    rig.receivers(0, 3);
    rig.publish([draft("x", None)]);
    let (reply, mut info) = oneshot::channel();
    rig.command(Command::Summary { name: a(), reply });
    let (reply, mut list) = oneshot::channel();
    rig.command(Command::List {
        set: "s".to_owned(),
        after: None,
        count_max: 10,
        reply,
    });
    rig.poll();
    assert!(
        unknown
            .try_recv()
            .expect("an answer")
            .expect("none")
            .is_none()
    );
    let info = info.try_recv().expect("an answer").expect("a box");
    let info = info.expect("a box");
    assert_eq!((info.receivers, info.summary.messages), (3, 1));
    let list = list.try_recv().expect("an answer").expect("a list");
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].summary.messages, list[0].receivers), (1, 3));
}

#[test]
fn a_poll_is_bounded_and_goes_on() {
    let (mut rig, store) = scripted();
    rig.open(0, 0);
    store.0.borrow_mut().changes_forever = Some(a());
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    rig.owner.poll(&mut Context::from_waker(&waker), NOW);
    assert_eq!(rig.events(0).len(), STEPS_MAX);
    assert!(woken.0.load(Ordering::Relaxed) > 0);
    // Results have to wait for the changes before them, and are not lost.
    let mut results = rig.publish([draft("x", None)]);
    let appending = store.0.borrow_mut().appending.remove(0);
    appending.send(new(1)).expect("awaited");
    rig.poll();
    assert!(results.try_recv().is_err());
    store.0.borrow_mut().changes_forever = None;
    rig.poll();
    assert!(results.try_recv().is_ok());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_sweep_publishes_figures() {
    let (mut rig, _) = scripted();
    rig.open(0, 0);
    rig.owner.sweep(NOW);
    let figures = &rig.figures;
    assert_eq!(figures.boxes.load(Ordering::Relaxed), 5);
    assert_eq!(figures.watched.load(Ordering::Relaxed), 1);
    let counts = [&figures.lost, &figures.expired, &figures.idle_boxes];
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [4, 3, 2]);
    assert!(figures.is_down.load(Ordering::Relaxed));
}

/// The event loop that runs the owner knows of a message before the publisher.
#[test]
fn changes_for_the_own_event_loop_are_applied_at_once() {
    let (commands, mut received) = mpsc::unbounded_channel();
    let copies = Rc::new(Copies::new(0, vec![commands]));
    let reports = vec![Reports::Here(Rc::downgrade(&copies))];
    let mut owner = Owner::new(MemoryStore::new(7), reports, Arc::default());
    let settings = Arc::new(settings(100, usize::MAX));
    let subscribed = copies.subscribe(&a(), &settings, None);
    let mut feed = subscribed.expect("room");
    let append = Append {
        update: None,
        name: a(),
        settings,
        draft: draft("x", None).into(),
    };
    let (reply, mut results) = oneshot::channel();
    let appends = vec![append];
    copies.send(0, Command::Publish { appends, reply });
    while let Ok(command) = received.try_recv() {
        owner.command(command, NOW);
    }
    let mut context = Context::from_waker(Waker::noop());
    owner.poll(&mut context, NOW);
    assert!(matches!(feed.next(NOW), Some(Next::Message(_))));
    assert_eq!(results.try_recv().expect("results").len(), 1);
    // The owner does not keep the event loop's copies.
    drop((feed, copies));
    owner.poll(&mut context, NOW);
}

/// An event loop that has ended is no reason to stop.
#[test]
fn an_event_loop_may_be_gone() {
    let mut rig = memory();
    rig.open(0, 0);
    rig.receivers(0, 1);
    rig.events.clear();
    let mut results = rig.publish([draft("x", None)]);
    rig.poll();
    assert!(results.try_recv().expect("results")[0].1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_owner_ends_when_all_is_answered() {
    let store = Scripted::default();
    let (commands, received) = mpsc::unbounded_channel();
    let owner = Owner::new(store.clone(), Vec::new(), Arc::default());
    let mut running = Box::pin(run(owner, received));
    let (reply, results) = oneshot::channel();
    let publish = Command::Publish {
        appends: Vec::new(),
        reply,
    };
    commands.send(publish).expect("an owner");
    drop(commands);
    let waiting = time::timeout(Duration::from_secs(60), &mut running).await;
    assert!(waiting.is_err(), "ended before the answer");
    let appending = store.0.borrow_mut().appending.remove(0);
    appending.send(Vec::new()).expect("awaited");
    running.await;
    assert_eq!(results.await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn more_commands_than_one_turn_takes_are_all_done() {
    let (commands, received) = mpsc::unbounded_channel();
    let owner = Owner::new(MemoryStore::new(7), Vec::new(), Arc::default());
    let mut results = Vec::new();
    for _ in 0..5 * COMMANDS_MAX + 1 {
        let (reply, result) = oneshot::channel();
        let append = Append {
            update: None,
            name: a(),
            settings: settings(100, usize::MAX).into(),
            draft: draft("x", None).into(),
        };
        let appends = vec![append];
        commands
            .send(Command::Publish { appends, reply })
            .expect("an owner");
        results.push(result);
    }
    drop(commands);
    run(owner, received).await;
    for result in results {
        assert!(result.await.expect("results")[0].1.is_ok());
    }
}
