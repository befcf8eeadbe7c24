//! Stores to test, and a clock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use levity_mailbox::{
    Append, Appended, Change, Draft, Limit, MessageId, Name, Opened, Settings, Store, StoreError,
    Summary,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time;

pub use crate::messages::*;

/// How long a box of the tests is kept when nobody uses it. Short, as a store with a clock of its own is waited for.
pub const IDLE: Duration = Duration::from_secs(2);

/// Makes one test per store of each case, named `case::store`.
macro_rules! for_every_store {
    ($($case:ident),* $(,)?) => {
        crate::harness::for_stores! {
            [memory, simulated, simulated_shared, redis, disk], $($case),*
        }
    };
}
pub(crate) use for_every_store;

/// The same for the stores that are named first.
macro_rules! for_stores {
    ($stores:tt, $($case:ident),* $(,)?) => {
        $(mod $case {
            crate::harness::with_stores! { $stores, $case }
        })*
    };
}
pub(crate) use for_stores;

macro_rules! with_stores {
    ([$($store:ident),*], $case:ident) => {
        $(#[test]
        fn $store() {
            crate::harness::run(crate::stores::$store(), super::cases::$case);
        })*
    };
}
pub(crate) use with_stores;

pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Where a store can be opened.
pub trait Subject: 'static {
    /// Whether a store that is opened again has everything that was acknowledged before.
    fn is_persistent(&self) -> bool;

    /// Whether several processes use the store at once. Then it is opened a second time beside the first.
    fn is_shared(&self) -> bool;

    /// What time goes by.
    fn clock(&self) -> Clock;

    /// Opens the store. It is opened again after it was dropped.
    fn open(&mut self, now: SystemTime) -> Local<'_, Box<dyn Store>>;
}

/// What time a store goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// That which the caller passes, so that tests need not wait.
    OfCaller,
    /// That of the machine or of a server: tests wait until it is so late.
    OfMachine,
}

/// Runs a case; without a subject, the store cannot run here.
pub fn run<S: Subject>(subject: Option<S>, case: impl FnOnce(&mut Rig)) {
    match subject {
        Some(subject) => case(&mut Rig::new(subject)),
        None => eprintln!("the store cannot run here"),
    }
}

/// What all processes of a test share.
struct World {
    runtime: Runtime,
    subject: RefCell<Box<dyn Subject>>,
    /// How far the clock was put forward.
    ahead: RefCell<Duration>,
}

impl World {
    fn now(&self) -> SystemTime {
        SystemTime::now() + *self.ahead.borrow()
    }

    fn open(&self) -> Box<dyn Store> {
        let mut subject = self.subject.borrow_mut();
        self.runtime.block_on(subject.open(self.now()))
    }
}

/// An open store, as a process drives it.
pub struct Rig {
    world: Rc<World>,
    /// `None` only while it is opened again.
    store: Option<Box<dyn Store>>,
    /// What other processes have done.
    changes: VecDeque<Change>,
}

impl Rig {
    fn new(subject: impl Subject) -> Rig {
        let runtime = Builder::new_current_thread().enable_all().build();
        let world = World {
            runtime: runtime.unwrap(),
            subject: RefCell::new(Box::new(subject)),
            ahead: RefCell::default(),
        };
        Rig::of(Rc::new(world))
    }

    fn of(world: Rc<World>) -> Rig {
        Rig {
            store: Some(world.open()),
            world,
            changes: VecDeque::new(),
        }
    }

    /// Another process with the same store, which must be shared.
    pub fn other_process(&self) -> Rig {
        assert!(self.is_shared());
        Rig::of(self.world.clone())
    }

    pub fn is_persistent(&self) -> bool {
        self.world.subject.borrow().is_persistent()
    }

    pub fn is_shared(&self) -> bool {
        self.world.subject.borrow().is_shared()
    }

    pub fn now(&self) -> SystemTime {
        self.world.now()
    }

    /// Ends the process and starts it again.
    pub fn reopen(&mut self) {
        self.enter(|rig| rig.store = None);
        self.changes.clear();
        // No process restarts within the resolution of an epoch.
        self.put_forward(Duration::from_millis(2));
        self.store = Some(self.world.open());
    }

    fn put_forward(&self, by: Duration) {
        *self.world.ahead.borrow_mut() += by;
    }

    /// Whether a sweep drops what is over, rather than hide it.
    pub fn is_swept(&self) -> bool {
        self.world.subject.borrow().clock() == Clock::OfCaller
    }

    /// Lets time pass, if the store goes by the time of its caller. Follow it with [`until`](Self::until), which waits for
    /// other stores.
    pub fn pass(&mut self, duration: Duration) {
        if self.is_swept() {
            self.put_forward(duration);
        }
    }

    /// Sweeps until a condition holds.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Rig) -> bool) {
        let start = Instant::now();
        loop {
            let now = self.now();
            self.call(|store| store.sweep(now));
            if is_so(self) {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
            self.poll_for(Duration::from_millis(20));
        }
    }

    /// Sweeps often enough for everything that is due.
    pub fn sweep(&mut self) {
        let now = self.now();
        for _ in 0..100 {
            self.call(|store| store.sweep(now));
        }
    }

    fn enter<T>(&mut self, call: impl FnOnce(&mut Rig) -> T) -> T {
        let world = self.world.clone();
        let _guard = world.runtime.enter();
        call(self)
    }

    /// Calls the store, within the runtime.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut dyn Store) -> T) -> T {
        self.enter(|rig| call(rig.store.as_deref_mut().unwrap()))
    }

    /// Drives the store until `future` ends, and notes changes.
    pub fn finish<T>(&mut self, mut future: Pin<Box<dyn Future<Output = T>>>) -> T {
        let (store, changes) = (self.store.as_deref_mut().unwrap(), &mut self.changes);
        let driven = poll_fn(|context| {
            let result = future.as_mut().poll(context);
            while let Poll::Ready(change) = store.poll_change(context) {
                changes.push_back(change);
            }
            result
        });
        let in_time = async { time::timeout(DEADLINE, driven).await };
        self.world.runtime.block_on(in_time).expect("a result")
    }

    /// Drives the store for a while.
    fn poll_for(&mut self, duration: Duration) {
        let wait = async move { time::sleep(duration).await };
        self.finish(Box::pin(wait));
    }

    /// The next change of another process.
    pub fn change(&mut self) -> Change {
        let start = Instant::now();
        while self.changes.is_empty() {
            assert!(start.elapsed() < DEADLINE, "no change came");
            self.poll_for(Duration::from_millis(5));
        }
        self.changes.pop_front().unwrap()
    }

    /// A change, if there is one.
    pub fn known_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    pub fn append_all(&mut self, appends: Vec<Append>) -> Vec<Result<Appended, StoreError>> {
        let now = self.now();
        let appending = self.call(|store| store.append(appends, now));
        self.finish(appending)
    }

    /// Appends a message and returns its id and `lost`.
    pub fn append_as(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
        draft: Draft,
    ) -> (MessageId, u64) {
        let mut results = self.append_all(vec![append_of(name, settings, draft)]);
        assert_eq!(results.len(), 1);
        match results.remove(0) {
            Ok(Appended::New { message, lost }) => (message.id, lost),
            other => panic!("not appended: {other:?}"),
        }
    }

    /// Appends a text.
    pub fn append(&mut self, name: &Name, settings: &Arc<Settings>, text: &str) -> MessageId {
        self.append_as(name, settings, draft(text)).0
    }

    /// Appends a text with a key, and tells whether it was a duplicate.
    pub fn append_key(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
        key: &str,
    ) -> (MessageId, bool) {
        let draft = with_key(draft(key), key);
        let mut results = self.append_all(vec![append_of(name, settings, draft)]);
        id_of(&results.remove(0))
    }

    pub fn try_open(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
    ) -> Result<Opened, StoreError> {
        let now = self.now();
        let opening = self.call(|store| store.open(name, settings, now));
        let opened = self.finish(opening)?;
        check(&opened);
        Ok(opened)
    }

    pub fn open(&mut self, name: &Name, settings: &Arc<Settings>) -> Opened {
        self.try_open(name, settings).expect("a box")
    }

    /// All that is kept of a box, and its summary says the same.
    pub fn look(&mut self, name: &Name) -> Option<Opened> {
        let summary = self.summary(name);
        let found = self.read(name, None, Limit::NONE);
        if let Some(found) = &found {
            check(found);
        }
        // A sweep may have dropped something meanwhile.
        if summary == self.summary(name) {
            assert_eq!(summary.is_some(), found.is_some());
            let both = summary.zip(found.as_ref());
            both.inspect(|(summary, found)| check_summary(summary, found));
        }
        found
    }

    pub fn summary(&mut self, name: &Name) -> Option<Summary> {
        let summing = self.call(|store| store.summary(name));
        self.finish(summing).expect("an answer")
    }

    pub fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Option<Opened> {
        let reading = self.call(|store| store.read(name, after, limit));
        self.finish(reading).expect("an answer")
    }

    pub fn remove(&mut self, name: &Name) -> bool {
        let removing = self.call(|store| store.remove(name, None));
        self.finish(removing).expect("an answer")
    }

    pub fn watch(&mut self, name: &Name, is_read: bool) {
        let now = self.now();
        self.call(|store| store.watch(name, is_read, now));
    }

    pub fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Vec<Summary> {
        let listing = self.call(|store| store.list(set, after, count_max));
        self.finish(listing).expect("a list")
    }

    /// The texts that are kept, and not over.
    pub fn texts(&mut self, name: &Name, settings: &Arc<Settings>) -> Vec<String> {
        let now = self.now();
        let opened = self.open(name, settings);
        let current = opened.messages.iter().filter(|m| !m.has_expired(now));
        current.map(text).collect()
    }
}

/// What a summary says of what is kept.
pub fn check_summary(summary: &Summary, found: &Opened) {
    let bytes = found.messages.iter().map(|one| one.draft.bytes()).sum();
    let said = (summary.messages, summary.bytes);
    assert_eq!(said, (found.messages.len(), bytes));
    let positions = [summary.epoch, summary.next, summary.lost, summary.read];
    assert_eq!(positions, [found.epoch, found.next, found.lost, found.read]);
}

/// Bounds that no test meets by chance.
pub fn settings() -> Arc<Settings> {
    settings_with(|_| {})
}

/// The id of a message, and whether the box had it already.
pub fn id_of(result: &Result<Appended, StoreError>) -> (MessageId, bool) {
    match result {
        Ok(Appended::New { message, .. }) => (message.id, false),
        Ok(Appended::Duplicate(id)) => (*id, true),
        Err(error) => panic!("not appended: {error}"),
    }
}

/// `first`, `first + 1` and so on as texts.
pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}
