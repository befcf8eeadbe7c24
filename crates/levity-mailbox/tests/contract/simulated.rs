//! A store on a server that delays, fails and forgets as a random number says. It keeps messages as the store in memory does.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use levity_mailbox::memory::MemoryStore;
use levity_mailbox::{
    Append, Appended, Appending, Change, Figures, Limit, Listing, Message, MessageId, Name, Opened,
    Opening, Reading, Removing, Settings, Store, StoreError, Summing,
};

/// How much larger the epochs are after a failover.
const EPOCHS: u64 = 1 << 20;

/// Numbers that depend on a seed alone (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// True in one of `count` cases.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// How a server behaves.
#[derive(Debug, Clone, Copy)]
pub struct Behavior {
    /// It does what it is asked for at once.
    pub is_instant: bool,
    /// Several processes use it, which learn of all messages in their order.
    pub is_shared: bool,
    /// It works when somebody waits for it. Otherwise [`Server::step`] lets it.
    pub works_by_itself: bool,
    /// One of this number of calls fails; none with 0.
    pub fails_one_in: usize,
}

/// A server. A clone is a reference.
#[derive(Clone)]
pub struct Server(Rc<RefCell<Inner>>);

type Call = Box<dyn FnOnce(&mut Inner)>;

struct Inner {
    random: Random,
    behavior: Behavior,
    memory: MemoryStore,
    epoch: u64,
    /// When it was asked last.
    at: SystemTime,
    settings: BTreeMap<Name, Arc<Settings>>,
    processes: Vec<Process>,
    history: Vec<(Name, Message)>,
}

/// What the server knows of a process.
#[derive(Default)]
struct Process {
    /// What it was asked for, in order.
    calls: VecDeque<Call>,
    /// What is on its way back, in no order.
    answers: Vec<Box<dyn FnOnce()>>,
    /// Changes on their way, in order.
    tail: VecDeque<Change>,
    /// Changes that have arrived.
    changes: VecDeque<Change>,
    watched: BTreeSet<Name>,
}

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not done.
    Refused,
    /// It is done, and nobody learns of it.
    Unknown,
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("a fault".to_owned())
}

/// The result of a future that is ready.
fn now<T>(mut future: Pin<Box<dyn Future<Output = T>>>) -> T {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the store in memory waits"),
    }
}

impl Server {
    pub fn new(seed: u64, behavior: Behavior, epoch: u64) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            random: Random(seed),
            behavior,
            memory: MemoryStore::new(epoch),
            epoch,
            at: SystemTime::UNIX_EPOCH,
            settings: BTreeMap::new(),
            processes: Vec::new(),
            history: Vec::new(),
        })))
    }

    fn inner(&self) -> RefMut<'_, Inner> {
        self.0.borrow_mut()
    }

    /// A process that uses the server.
    pub fn connect(&self) -> Simulated {
        let mut inner = self.inner();
        inner.processes.push(Process::default());
        Simulated {
            server: self.clone(),
            process: inner.processes.len() - 1,
        }
    }

    /// Does one thing; whether there was one.
    pub fn step(&self) -> bool {
        self.inner().step()
    }

    /// Does not fail from now on.
    pub fn recover(&self) {
        self.inner().behavior.fails_one_in = 0;
    }

    /// All messages that were ever appended, in order.
    pub fn history(&self) -> Vec<(Name, Message)> {
        self.inner().history.clone()
    }

    /// What is kept of a box now.
    pub fn look(&self, name: &Name) -> Option<Opened> {
        let memory = &mut self.inner().memory;
        now(memory.read(name, None, Limit::NONE)).expect("an answer")
    }

    /// Loses what is on its way to the processes.
    pub fn cut(&self) {
        self.inner().cut();
    }

    /// Goes on with an older state: boxes have lost their last messages, or are gone.
    pub fn fail_over(&self, now: SystemTime) {
        self.inner().fail_over(now);
    }
}

impl Inner {
    fn step(&mut self) -> bool {
        let mut choices: Vec<(usize, usize)> = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            let has = [
                !process.calls.is_empty(),
                !process.answers.is_empty(),
                !process.tail.is_empty(),
            ];
            choices.extend(
                (0..has.len())
                    .filter(|&kind| has[kind])
                    .map(|k| (number, k)),
            );
        }
        if choices.is_empty() {
            return false;
        }
        let (number, kind) = *self.random.of(&choices);
        let process = &mut self.processes[number];
        match kind {
            0 => {
                let call = process.calls.pop_front().expect("there is one");
                call(self);
            }
            1 => {
                let index = self.random.below(process.answers.len());
                process.answers.swap_remove(index)();
            }
            _ => {
                let change = process.tail.pop_front();
                process.changes.extend(change);
            }
        }
        true
    }

    fn fault(&mut self) -> Fault {
        match self.behavior.fails_one_in {
            0 => Fault::None,
            count if self.random.one_in(count) => {
                *self.random.of(&[Fault::Refused, Fault::Unknown])
            }
            _ => Fault::None,
        }
    }

    fn is_watched(&self, name: &Name) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|process| process.watched.contains(name))
    }

    /// Tells processes that watch the box, but not `except`.
    fn tell(&mut self, name: &Name, except: Option<usize>, change: impl Fn() -> Change) {
        for (number, process) in self.processes.iter_mut().enumerate() {
            if Some(number) != except && process.watched.contains(name) {
                process.tail.push_back(change());
            }
        }
    }

    fn append(
        &mut self,
        process: usize,
        appends: Vec<Append>,
        at: SystemTime,
    ) -> Vec<Result<Appended, StoreError>> {
        let fault = self.fault();
        let count = appends.len();
        if fault == Fault::Refused {
            return vec![Err(unavailable()); count];
        }
        let mut results = Vec::new();
        for append in appends {
            let name = append.name.clone();
            self.settings.insert(name.clone(), append.settings.clone());
            let result = now(self.memory.append(vec![append], at)).remove(0);
            if let Ok(Appended::New { message, lost }) = &result {
                self.history.push((name.clone(), message.clone()));
                let (message, lost) = (message.clone(), *lost);
                let change = || Change::Appended {
                    name: name.clone(),
                    message: message.clone(),
                    lost,
                };
                let except = (!self.behavior.is_shared).then_some(process);
                self.tell(&name, except, change);
                if fault == Fault::Unknown && !self.behavior.is_shared {
                    self.note_unknown(process, &name, Change::Outdated);
                }
            }
            results.push(result);
        }
        match fault {
            Fault::Unknown => vec![Err(unavailable()); count],
            _ => results,
        }
    }

    /// Notes a change before later calls end.
    fn note_unknown(&mut self, process: usize, name: &Name, change: impl Fn(Name) -> Change) {
        let process = &mut self.processes[process];
        if process.watched.contains(name) {
            process.changes.push_back(change(name.clone()));
        }
    }

    fn open(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
        at: SystemTime,
    ) -> Result<Opened, StoreError> {
        if self.fault() != Fault::None {
            return Err(unavailable());
        }
        self.settings.insert(name.clone(), settings.clone());
        now(self.memory.open(name, settings, at))
    }

    fn remove(&mut self, process: usize, name: &Name) -> Result<bool, StoreError> {
        let fault = self.fault();
        if fault == Fault::Refused {
            return Err(unavailable());
        }
        let removed = now(self.memory.remove(name, None));
        self.tell(name, Some(process), || Change::Removed(name.clone()));
        if fault == Fault::Unknown {
            self.note_unknown(process, name, Change::Removed);
            return Err(unavailable());
        }
        removed
    }

    fn cut(&mut self) {
        for process in &mut self.processes {
            process.tail.clear();
            let outdated = process.watched.iter().cloned().map(Change::Outdated);
            process.tail.extend(outdated);
        }
    }

    fn fail_over(&mut self, at: SystemTime) {
        self.epoch += EPOCHS;
        let mut before = std::mem::replace(&mut self.memory, MemoryStore::new(self.epoch));
        for process in &self.processes {
            for name in &process.watched {
                self.memory.watch(name, true, at);
            }
        }
        let loses_all = self.random.one_in(3);
        for (name, settings) in self.settings.clone() {
            let Some(opened) = now(before.read(&name, None, Limit::NONE)).expect("an answer")
            else {
                continue;
            };
            let count = match loses_all {
                true => continue,
                false => self.random.below(opened.messages.len() + 1),
            };
            for message in &opened.messages[..count] {
                let append = Append {
                    update: None,
                    name: name.clone(),
                    settings: settings.clone(),
                    draft: message.draft.clone(),
                };
                let result = now(self.memory.append(vec![append], at)).remove(0);
                if let Ok(Appended::New { message, .. }) = result {
                    self.history.push((name.clone(), message));
                }
            }
        }
        self.cut();
    }
}

/// The store of a process. Dropping it ends the process.
pub struct Simulated {
    server: Server,
    process: usize,
}

/// Where an answer arrives.
struct Slot<T> {
    answer: Option<T>,
    waker: Option<Waker>,
}

struct Answer<T> {
    server: Server,
    slot: Rc<RefCell<Slot<T>>>,
}

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.slot.borrow().answer.is_none() {
            self.server.work(context);
        }
        let mut slot = self.slot.borrow_mut();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Server {
    /// Works a little, if it does so by itself.
    fn work(&self, context: &mut Context<'_>) {
        let mut inner = self.inner();
        if inner.behavior.works_by_itself && inner.step() {
            context.waker().wake_by_ref();
        }
    }
}

impl Simulated {
    /// Asks the server.
    fn call<T: 'static>(
        &self,
        run: impl FnOnce(&mut Inner) -> T + 'static,
    ) -> Pin<Box<dyn Future<Output = T>>> {
        let slot = Rc::new(RefCell::new(Slot {
            answer: None,
            waker: None,
        }));
        let (number, filled) = (self.process, slot.clone());
        let call = move |inner: &mut Inner| {
            let answer = run(inner);
            let deliver = move || {
                let mut slot = filled.borrow_mut();
                slot.answer = Some(answer);
                slot.waker.take().into_iter().for_each(Waker::wake);
            };
            inner.processes[number].answers.push(Box::new(deliver));
        };
        let mut inner = self.server.inner();
        let is_instant = inner.behavior.is_instant;
        match is_instant {
            true => {
                call(&mut inner);
                let process = &mut inner.processes[self.process];
                process.answers.drain(..).for_each(|deliver| deliver());
            }
            false => {
                let process = &mut inner.processes[self.process];
                process.calls.push_back(Box::new(call));
            }
        }
        let server = self.server.clone();
        Box::pin(Answer { server, slot })
    }
}

impl Drop for Simulated {
    /// What was asked for is done or not, but in order.
    fn drop(&mut self) {
        let mut inner = self.server.inner();
        while let Some(call) = inner.processes[self.process].calls.pop_front() {
            if inner.behavior.fails_one_in > 0 && inner.random.one_in(4) {
                break;
            }
            call(&mut inner);
        }
        let ended = std::mem::take(&mut inner.processes[self.process]);
        for name in ended.watched {
            let (is_watched, at) = (inner.is_watched(&name), inner.at);
            inner.memory.watch(&name, is_watched, at);
        }
    }
}

impl Store for Simulated {
    fn open(&mut self, name: &Name, settings: &Arc<Settings>, now: SystemTime) -> Opening {
        let (name, settings) = (name.clone(), settings.clone());
        self.call(move |inner| inner.open(&name, &settings, now))
    }

    fn summary(&mut self, name: &Name) -> Summing {
        let name = name.clone();
        self.call(move |inner| match inner.fault() {
            Fault::None => now(inner.memory.summary(&name)),
            _ => Err(unavailable()),
        })
    }

    fn read(&mut self, name: &Name, after: Option<MessageId>, limit: Limit) -> Reading {
        let name = name.clone();
        self.call(move |inner| match inner.fault() {
            Fault::None => now(inner.memory.read(&name, after, limit)),
            _ => Err(unavailable()),
        })
    }

    fn append(&mut self, appends: Vec<Append>, now: SystemTime) -> Appending {
        let process = self.process;
        self.call(move |inner| inner.append(process, appends, now))
    }

    fn remove(&mut self, name: &Name, _: Option<u64>) -> Removing {
        let (process, name) = (self.process, name.clone());
        self.call(move |inner| inner.remove(process, &name))
    }

    fn mark_read(&mut self, name: &Name, last: MessageId) {
        let name = name.clone();
        drop(self.call(move |inner| inner.memory.mark_read(&name, last)));
    }

    fn watch(&mut self, name: &Name, is_read: bool, now: SystemTime) {
        let mut inner = self.server.inner();
        let watched = &mut inner.processes[self.process].watched;
        match is_read {
            true => watched.insert(name.clone()),
            false => watched.remove(name),
        };
        inner.at = now;
        let is_watched = inner.is_watched(name);
        inner.memory.watch(name, is_watched, now);
    }

    fn list(&mut self, set: &str, after: Option<&Name>, count_max: usize) -> Listing {
        let (set, after) = (set.to_owned(), after.cloned());
        self.call(move |inner| now(inner.memory.list(&set, after.as_ref(), count_max)))
    }

    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        self.server.work(context);
        let mut inner = self.server.inner();
        let change = inner.processes[self.process].changes.pop_front();
        change.map_or(Poll::Pending, Poll::Ready)
    }

    fn reports_appends(&self) -> bool {
        self.server.inner().behavior.is_shared
    }

    fn sweep(&mut self, now: SystemTime) {
        let mut inner = self.server.inner();
        inner.at = now;
        inner.memory.sweep(now);
    }

    fn figures(&self) -> Figures {
        self.server.inner().memory.figures()
    }
}
