//! The life of a connection.
//!
//! Calls that wait are sent together, in their order, and the next ones when these are answered: one batch is under way on a
//! connection at a time. So calls take effect in the order in which they were asked for, and a slow server gets larger batches,
//! not more of them. Calls that only read have a connection of their own: they wait for nothing that is written.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::MessageId;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisResult, ServerError, Value};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{self, Instant};

use super::super::boxes::Known;
use super::super::scripts::{
    self, Script, Subject, TEXTS, Version, array, milliseconds_of, number, text,
};
use super::super::session::{Session, reason};
use super::Link;
use crate::message::Message;
use crate::name::Name;
use crate::settings::Settings;
use crate::shared::{Connect as _, Reply, Request, TaskFigures};
use crate::store::{Append, Appended, Limit, Opened, StoreError, Summary};
use crate::stream_state::Refused;

/// The pause between two checks whether the connections live.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum of requests that a batch begins with.
const BATCH_MAX: usize = 256;

/// The maximum size of the messages that a batch sends or asks for in bytes, without the last one.
const BATCH_BYTES: usize = 1 << 20;

/// The maximum of channels that are subscribed to at once.
const SUBSCRIPTIONS_MAX: usize = 256;

/// The maximum of boxes in which a sweep lets messages expire.
const EXPIRED_MAX: usize = 64;

/// The maximum of boxes that a sweep has compared with what was seen of them.
const CHECKED_MAX: usize = 64;

/// The connections, and what waits for them.
pub(super) struct Serving<'a> {
    link: &'a mut Link,
    session: Session,
    main: Lane,
    reads: Lane,
    subscribing: Option<Subscribing>,
    /// Streams of which a call is under way that changes their state.
    updates: HashMap<Name, Updates>,
    /// The store was dropped.
    has_ended: bool,
}

/// Appends that change the state of a stream. What becomes of it is computed here, and the server does it if the stream is as it
/// was read. So one at a time is under way.
#[derive(Default)]
struct Updates {
    waiting: VecDeque<(Append, SystemTime, Reply<Appended>)>,
    /// How the stream is; `None` until it was read.
    version: Option<Version>,
}

/// A connection for calls.
struct Lane {
    connection: MultiplexedConnection,
    /// What is sent next.
    next: Batch,
    /// Who waits for the answers of what was sent.
    waiting: Vec<Waiting>,
    sending: Option<Sending>,
}

impl Lane {
    fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            next: Batch::default(),
            waiting: Vec::new(),
            sending: None,
        }
    }

    /// Sends what is next, unless a batch is under way.
    fn send_next(&mut self) {
        if self.sending.is_none() && !self.next.waiting.is_empty() {
            let next = mem::take(&mut self.next);
            self.send(next, 0);
        }
    }

    /// Sends calls. The answers of the first `skipped` ones are of no interest.
    fn send(&mut self, batch: Batch, skipped: usize) {
        let mut connection = self.connection.clone();
        let (calls, count) = (batch.calls, batch.waiting.len());
        self.waiting = batch.waiting;
        self.sending = Some(Box::pin(async move {
            let all = skipped + count;
            let answers = connection.req_packed_commands(&calls, 0, all).await;
            (calls, answers)
        }));
    }

    /// Sends calls again after somebody has had the server forget the scripts.
    fn load_and_send(&mut self, again: Batch) {
        let mut calls = Pipeline::new();
        for text in TEXTS {
            calls.cmd("SCRIPT").arg("LOAD").arg(text);
        }
        for call in again.calls.cmd_iter() {
            calls.add_command(call.clone());
        }
        let batch = Batch { calls, ..again };
        self.send(batch, TEXTS.len());
    }

    /// The answers of what was sent, each with who waits for it. Calls of scripts that the server has forgotten are sent again.
    fn answered(
        &mut self,
        calls: &Pipeline,
        answers: RedisResult<Vec<Value>>,
    ) -> Result<Vec<(Waiting, Value)>, Broken> {
        self.sending = None;
        let answers = answers.map_err(|error| reason(&error))?;
        let waiting = mem::take(&mut self.waiting);
        let skipped = answers.len() - waiting.len();
        let (mut again, mut answered) = (Batch::default(), Vec::new());
        let each = calls.cmd_iter().zip(answers).skip(skipped).zip(waiting);
        for ((call, answer), waiting) in each {
            match answer {
                Value::ServerError(error) if error.code() == "NOSCRIPT" && skipped == 0 => {
                    again.push(call.clone(), waiting);
                }
                answer => answered.push((waiting, answer)),
            }
        }
        if !again.waiting.is_empty() {
            self.load_and_send(again);
        }
        Ok(answered)
    }

    /// All who wait.
    fn into_waiting(self) -> impl Iterator<Item = Waiting> {
        self.waiting.into_iter().chain(self.next.waiting)
    }
}

#[derive(Default)]
struct Batch {
    calls: Pipeline,
    waiting: Vec<Waiting>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, call: Cmd, waiting: Waiting) {
        self.calls.add_command(call);
        self.waiting.push(waiting);
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= BATCH_MAX || self.bytes >= BATCH_BYTES
    }
}

/// Who waits for the answer of a call.
enum Waiting {
    Append(Append, Reply<Appended>),
    Update(Name, Box<Version>),
    Open(Name, bool, Reply<Opened>),
    Summary(Name, Reply<Option<Summary>>),
    ReadAfter(Name, Option<MessageId>, Limit, Reply<Option<Opened>>),
    /// A request that is begun anew when its box was compared.
    Check(Request),
    Remove(Name, Reply<bool>),
    List(String, Reply<Vec<Summary>>),
    Run,
    Resume(Name),
    Touch(Name),
    Expire(Name),
    Prune,
    Nobody,
}

impl Waiting {
    fn fail(self, error: StoreError) {
        match self {
            Self::Append(_, reply) => reply.send(Err(error)),
            Self::Open(_, _, reply) => reply.send(Err(error)),
            Self::Summary(_, reply) => reply.send(Err(error)),
            Self::ReadAfter(_, _, _, reply) => reply.send(Err(error)),
            Self::Check(request) => drop(request.fail(&error)),
            Self::Remove(_, reply) => reply.send(Err(error)),
            Self::List(_, reply) => reply.send(Err(error)),
            Self::Run
            | Self::Update(..)
            | Self::Resume(_)
            | Self::Touch(_)
            | Self::Expire(_)
            | Self::Prune
            | Self::Nobody => {}
        }
    }
}

/// What was sent, and the answers.
type Sending = Pin<Box<dyn Future<Output = (Pipeline, RedisResult<Vec<Value>>)> + Send>>;

/// Channels that the server has confirmed, with the numbers of their watches.
type Subscribing = Pin<Box<dyn Future<Output = RedisResult<Vec<(Name, u64)>>> + Send>>;

async fn of<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Why the connection ends.
type Broken = String;

impl<'a> Serving<'a> {
    pub(super) fn new(link: &'a mut Link, session: Session) -> Self {
        link.boxes.connected();
        Self {
            link,
            main: Lane::new(session.main.clone()),
            reads: Lane::new(session.reads.clone()),
            session,
            subscribing: None,
            updates: HashMap::new(),
            has_ended: false,
        }
    }

    /// Serves requests until the store is dropped, or the connections end.
    pub(super) async fn run(
        mut self,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        reads: &mut mpsc::UnboundedReceiver<Request>,
    ) -> Result<(), Broken> {
        let mut pings = time::interval(PING_INTERVAL);
        loop {
            self.send_next(requests, reads);
            if self.has_ended && self.main.sending.is_none() && self.reads.sending.is_none() {
                return Ok(());
            }
            self.subscribe_next();
            let step = tokio::select! {
                biased;
                (calls, answers) = of(&mut self.main.sending) => {
                    let answered = self.main.answered(&calls, answers);
                    answered.and_then(|answered| self.take_all(answered))
                }
                (calls, answers) = of(&mut self.reads.sending) => {
                    let answered = self.reads.answered(&calls, answers);
                    answered.and_then(|answered| self.take_all(answered))
                }
                channels = of(&mut self.subscribing) => self.subscribed(channels),
                push = self.session.pushes.recv() => self.pushed(push.as_ref()),
                request = requests.recv(), if self.main.sending.is_none() => {
                    self.begin_or_end(request);
                    Ok(())
                }
                read = reads.recv(), if self.reads.sending.is_none() => {
                    self.begin_or_end(read);
                    Ok(())
                }
                _ = pings.tick() => {
                    self.ping();
                    Ok(())
                }
            };
            if let Err(reason) = step {
                let error = StoreError::Unavailable(Link::UNAVAILABLE.to_owned());
                let waiting = self.main.into_waiting().chain(self.reads.into_waiting());
                waiting.for_each(|waiting| waiting.fail(error.clone()));
                let updates = self.updates.into_values();
                for (_, _, reply) in updates.flat_map(|updates| updates.waiting) {
                    reply.send(Err(error.clone()));
                }
                return Err(reason);
            }
        }
    }

    /// Sends all that waits on the connections whose last batch was answered.
    fn send_next(
        &mut self,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        reads: &mut mpsc::UnboundedReceiver<Request>,
    ) {
        if self.main.sending.is_none() {
            while let Some((name, first)) = self.link.boxes.next_to_resume() {
                let mut call = self.call(Script::Resume, &name);
                call.arg(first);
                self.main.next.push(call, Waiting::Resume(name));
            }
            while !self.main.next.is_full() && self.begin_next(requests) {}
        }
        if self.reads.sending.is_none() {
            while !self.reads.next.is_full() && self.begin_next(reads) {}
        }
        self.main.send_next();
        self.reads.send_next();
    }

    /// Begins a request that waits; whether there was one.
    fn begin_next(&mut self, queue: &mut mpsc::UnboundedReceiver<Request>) -> bool {
        let next = match queue.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => None,
        };
        let has_begun = next.is_some();
        self.begin_or_end(next);
        has_begun
    }

    fn begin_or_end(&mut self, request: Option<Request>) {
        match request {
            Some(request) => self.begin(request),
            None => self.has_ended = true,
        }
    }

    /// A call that concerns a box.
    fn call(&self, script: Script, name: &Name) -> Cmd {
        let subject = Subject {
            name,
            known: self.link.boxes.known(name),
            idle: self.link.boxes.idle(name),
            boxes_max: 0,
        };
        self.session.calls.call(script, &subject)
    }

    fn call_with(&mut self, script: Script, name: &Name, settings: &Settings) -> Cmd {
        self.flush_read(name);
        self.link.sets.insert(settings.set.clone());
        let boxes = &mut self.link.boxes;
        boxes.mark_used(name, Some(settings.idle), Instant::now());
        let subject = Subject {
            name,
            known: boxes.known(name),
            idle: settings.idle,
            boxes_max: settings.boxes_max,
        };
        self.session.calls.call(script, &subject)
    }

    /// Adds the calls of a request to the next batch.
    fn begin(&mut self, request: Request) {
        match request {
            Request::Append(append, now, reply) if append.update.is_some() => {
                let name = append.name.clone();
                let is_first = !self.updates.contains_key(&name);
                let updates = self.updates.entry(name.clone()).or_default();
                updates.waiting.push_back((append, now, reply));
                if is_first {
                    self.update_next(name);
                }
            }
            Request::Append(append, now, reply) => {
                let mut call = self.call_with(Script::Append, &append.name, &append.settings);
                scripts::add_append(&mut call, &append, now);
                self.main.next.bytes += append.draft.bytes();
                self.main.next.push(call, Waiting::Append(append, reply));
            }
            Request::Open(name, settings, reply) => {
                let mut call = self.call_with(Script::Open, &name, &settings);
                call.arg(u8::from(self.link.boxes.is_watched(&name)));
                let keeps_all = settings.keeps_all;
                call.arg(u8::from(keeps_all));
                self.main
                    .next
                    .push(call, Waiting::Open(name, keeps_all, reply));
            }
            Request::Summary(name, reply) => {
                let call = self.call(Script::Summary, &name);
                self.reads.next.push(call, Waiting::Summary(name, reply));
            }
            Request::ReadAfter(name, after, limit, reply) => {
                let mut call = self.call(Script::ReadAfter, &name);
                scripts::add_read_after(&mut call, after, limit);
                let bytes = &mut self.reads.next.bytes;
                *bytes = bytes.saturating_add(limit.bytes);
                let waiting = Waiting::ReadAfter(name, after, limit, reply);
                self.reads.next.push(call, waiting);
            }
            Request::Remove(name, epoch, reply, _) => {
                self.link.reads.remove(&name);
                let mut call = self.call(Script::Remove, &name);
                call.arg(epoch.map_or_else(String::new, |epoch| epoch.to_string()));
                self.main.next.push(call, Waiting::Remove(name, reply));
            }
            Request::List(set, after, count_max, reply) => {
                let name = Name::first_of(&set);
                let mut call = self.call(Script::List, &name);
                scripts::add_list(&mut call, after.as_ref(), count_max);
                self.reads.next.push(call, Waiting::List(set, reply));
            }
            Request::Read(name, last, _) => self.link.mark_read(name, last),
            Request::Watch(name, is_read) => {
                self.link.boxes.set_watched(&name, is_read, Instant::now());
                self.touch(name);
            }
            Request::Sweep(now) => self.sweep(now),
        }
    }

    /// Adds the call of the next append to a stream that may be appended, or that reads the stream.
    fn update_next(&mut self, name: Name) {
        while let Some(updates) = self.updates.get_mut(&name)
            && let Some((append, now, reply)) = updates.waiting.pop_front()
        {
            let version = updates.version.as_ref();
            let updated =
                version.map(|version| append.updated(version.state.as_ref(), version.next));
            let known = version.cloned().unwrap_or_default();
            let updated = match updated.transpose() {
                Err(refused) => {
                    reply.send(Err(StoreError::Refused(refused)));
                    continue;
                }
                Ok(updated) => updated.flatten(),
            };
            let mut call = self.call_with(Script::Append, &name, &append.settings);
            scripts::add_append(&mut call, &append, now);
            match &updated {
                Some(updated) => scripts::add_update(&mut call, &append, &known, updated, now),
                None => drop(call.arg("read")),
            }
            self.main.next.bytes += append.draft.bytes();
            let next = Version {
                state: updated.map(|(state, _)| state),
                ..known
            };
            let updates = self.updates.entry(name.clone()).or_default();
            updates.waiting.push_front((append, now, reply));
            return self
                .main
                .next
                .push(call, Waiting::Update(name, Box::new(next)));
        }
        self.updates.remove(&name);
    }

    /// Takes the answer to a call of [`update_next`](Self::update_next), which has made `next` of the stream.
    fn updated(&mut self, name: Name, mut next: Version, answer: &Value) {
        let Some(updates) = self.updates.get_mut(&name) else {
            return;
        };
        if let Some(version) = scripts::version(answer) {
            updates.version = Some(version);
            return self.update_next(name);
        }
        updates.version = None;
        let Some((append, _, reply)) = updates.waiting.pop_front() else {
            return;
        };
        let is_refused = matches!(array(answer), Some([only]) if text(only) == Some("no source"));
        let appended = match is_refused {
            true => Some(Err(StoreError::Refused(Refused::NoSource))),
            false => self.appended(append, answer),
        };
        let appended = appended.unwrap_or_else(|| Err(strange()));
        if let (Ok(Appended::New { message, .. }), Some(updates)) =
            (&appended, self.updates.get_mut(&name))
        {
            next.epoch = message.id.epoch.to_string();
            next.next = message.id.sequence + 1;
            let idle = next
                .state
                .as_ref()
                .map(|state| state.idle(SystemTime::now()));
            let boxes = &mut self.link.boxes;
            boxes.mark_used(&name, idle, Instant::now());
            // A process that lets others go first reads what they have made of it.
            updates.version = (!scripts::gives_way(answer)).then_some(next);
        }
        reply.send(appended);
        self.update_next(name);
    }

    /// Begins the idle time of a box anew, and says whether it is watched.
    fn touch(&mut self, name: Name) {
        let mut call = self.call(Script::Touch, &name);
        call.arg(u8::from(self.link.boxes.is_watched(&name)));
        self.main.next.push(call, Waiting::Touch(name));
    }

    /// Has a box compared with what was seen of it before a request reads it.
    fn check(&mut self, name: &Name, request: Request) {
        let call = self.call(Script::Check, name);
        self.main.next.push(call, Waiting::Check(request));
    }

    /// Tells the server what was read of a box.
    fn flush_read(&mut self, name: &Name) {
        if let Some(last) = self.link.reads.remove(name) {
            let mut call = self.call(Script::Read, name);
            call.arg(last.epoch).arg(last.sequence.saturating_add(1));
            self.main.next.push(call, Waiting::Nobody);
        }
    }

    fn sweep(&mut self, now: SystemTime) {
        let read: Vec<_> = self.link.reads.keys().cloned().collect();
        read.iter().for_each(|name| self.flush_read(name));
        for name in self.link.boxes.sweep(Instant::now()) {
            self.touch(name);
        }
        for _ in 0..CHECKED_MAX {
            let Some(name) = self.link.boxes.next_to_check() else {
                break;
            };
            let call = self.call(Script::Check, &name);
            self.main.next.push(call, Waiting::Nobody);
        }
        let now = milliseconds_of(now);
        for _ in 0..EXPIRED_MAX {
            let Some(name) = self.link.boxes.next_due(now) else {
                break;
            };
            let mut call = self.call(Script::Expire, &name);
            call.arg(now);
            self.main.next.push(call, Waiting::Expire(name));
        }
        let sets: Vec<_> = self
            .link
            .sets
            .iter()
            .map(|set| Name::first_of(set))
            .collect();
        for set in sets {
            let call = self.call(Script::Prune, &set);
            self.main.next.push(call, Waiting::Prune);
        }
        let boxes = self.link.boxes.len();
        self.link.figures.boxes.store(boxes, Ordering::Relaxed);
    }

    /// Checks that the connections live, and which history the server writes: that of a server to which no replica was
    /// attached changes with the first one.
    fn ping(&mut self) {
        let begin = self.session.calls.begin(&self.link.run, true);
        self.main.next.push(begin, Waiting::Run);
        if self.reads.sending.is_none() {
            self.reads.next.push(redis::cmd("PING"), Waiting::Nobody);
        }
        if self.subscribing.is_none() {
            let mut feed = self.session.feed.clone();
            self.subscribing = Some(Box::pin(async move {
                let ping = redis::cmd("PING");
                ping.exec_async(&mut feed).await?;
                Ok(Vec::new())
            }));
        }
    }

    /// Subscribes to the channels of boxes that are watched now, or leaves those of others.
    fn subscribe_next(&mut self) {
        if self.subscribing.is_some() {
            return;
        }
        let (is_wanted, boxes) = self.link.boxes.next_subscriptions(SUBSCRIPTIONS_MAX);
        if boxes.is_empty() {
            return;
        }
        let calls = &self.session.calls;
        let channels: Vec<_> = boxes.iter().map(|(name, _)| calls.channel(name)).collect();
        let mut feed = self.session.feed.clone();
        self.subscribing = Some(Box::pin(async move {
            if is_wanted {
                feed.subscribe(&channels).await?;
                return Ok(boxes);
            }
            feed.unsubscribe(&channels).await?;
            Ok(Vec::new())
        }));
    }

    fn subscribed(&mut self, boxes: RedisResult<Vec<(Name, u64)>>) -> Result<(), Broken> {
        self.subscribing = None;
        let boxes = boxes.map_err(|error| reason(&error))?;
        self.link.boxes.subscribed(boxes);
        Ok(())
    }

    /// Something has come through a channel.
    fn pushed(&mut self, push: Option<&PushInfo>) -> Result<(), Broken> {
        let Some(push) = push.filter(|push| push.kind != PushKind::Disconnection) else {
            return Err("the connection to the Redis server has ended".to_owned());
        };
        let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
            return Ok(());
        };
        let calls = &self.session.calls;
        let notice = scripts::notice(payload, &calls.process, &self.link.budget);
        if let (PushKind::Message, Some(name), Some(notice)) =
            (&push.kind, calls.box_of(channel), notice)
        {
            self.link.boxes.arrived(&name, notice);
        }
        Ok(())
    }

    /// Takes answers.
    fn take_all(&mut self, answered: Vec<(Waiting, Value)>) -> Result<(), Broken> {
        let mut broken = None;
        for (waiting, answer) in answered {
            match answer {
                Value::ServerError(error) => {
                    self.link.outage.refused(&error.to_string());
                    if let Waiting::Update(name, _) = &waiting {
                        self.fail_update(name.clone(), failure(&error));
                    }
                    waiting.fail(failure(&error));
                    if ends_connection(&error) {
                        broken = Some(error.to_string());
                    }
                }
                answer => self.take(waiting, &answer),
            }
        }
        broken.map_or(Ok(()), Err)
    }

    fn fail_update(&mut self, name: Name, error: StoreError) {
        let updates = self.updates.get_mut(&name);
        if let Some((_, _, reply)) = updates.and_then(|updates| updates.waiting.pop_front()) {
            reply.send(Err(error));
        }
        self.update_next(name);
    }

    /// Takes the answer of a call.
    fn take(&mut self, waiting: Waiting, answer: &Value) {
        let budget = self.link.budget.clone();
        let reserve = |opened| Opened::reserve(opened, &budget);
        match waiting {
            Waiting::Append(append, reply) => {
                let appended = self.appended(append, answer);
                reply.send(appended.unwrap_or_else(|| Err(strange())));
            }
            Waiting::Update(name, next) => self.updated(name, *next, answer),
            Waiting::Open(name, keeps_all, reply) => {
                reply.send(self.taken(&name, keeps_all, answer));
            }
            Waiting::Summary(name, reply) if scripts::has_to_check(answer) => {
                self.check(&name.clone(), Request::Summary(name, reply));
            }
            Waiting::ReadAfter(name, after, limit, reply) if scripts::has_to_check(answer) => {
                self.check(&name.clone(), Request::ReadAfter(name, after, limit, reply));
            }
            Waiting::Check(request) => self.begin(request),
            Waiting::Summary(name, reply) => {
                reply.send(scripts::summed(answer, &name).ok_or_else(strange));
            }
            Waiting::ReadAfter(_, _, mut limit, reply) => {
                let found = scripts::opened_if_known(answer).ok_or_else(strange);
                let limited = |mut found: Opened| {
                    found.messages.retain(|one| limit.take(one.draft.bytes()));
                    reserve(found)
                };
                reply.send(found.and_then(|found| found.map(limited).transpose()));
            }
            Waiting::Remove(name, reply) => {
                self.link.boxes.removed(&name);
                reply.send(number(answer).map(|known| known > 0).ok_or_else(strange));
            }
            Waiting::List(set, reply) => {
                reply.send(scripts::listed(answer, &set).ok_or_else(strange));
            }
            Waiting::Run => text(answer)
                .filter(|run| !run.is_empty())
                .into_iter()
                .for_each(|run| self.link.note_run(run)),
            Waiting::Resume(name) => {
                let found = scripts::opened_if_known(answer).flatten();
                // Without memory the box is outdated: its receivers learn it when it is opened again.
                let found = found.and_then(|found| reserve(found).ok());
                if let Some(found) = &found {
                    self.opened(&name, found);
                }
                self.link.boxes.resumed(&name, found);
            }
            Waiting::Touch(name) if number(answer) == Some(0) => self.link.boxes.outdated(&name),
            Waiting::Expire(name) => self.expired(&name, answer),
            Waiting::Prune => {
                let pruned = number(answer).unwrap_or(0);
                TaskFigures::add(&self.link.figures.idle_boxes, pruned);
            }
            Waiting::Touch(_) | Waiting::Nobody => {}
        }
    }

    /// What is kept of a box that was opened.
    fn taken(
        &mut self,
        name: &Name,
        keeps_all: bool,
        answer: &Value,
    ) -> Result<Opened, StoreError> {
        if scripts::is_refused(answer) {
            return Err(StoreError::TooManyBoxes);
        }
        let opened = scripts::opened(answer).ok_or_else(strange)?;
        let opened = opened.reserve(&self.link.budget)?;
        self.opened(name, &opened);
        self.link.boxes.opened(name, &opened);
        Ok(opened.for_receivers(keeps_all))
    }

    fn learn(&mut self, name: &Name, epoch: u64, next: u64) {
        self.link.boxes.learn(name, Known { epoch, next });
    }

    fn opened(&mut self, name: &Name, opened: &Opened) {
        self.learn(name, opened.epoch, opened.next);
        if let Some(state) = &opened.state {
            let idle = state.idle(SystemTime::now());
            let boxes = &mut self.link.boxes;
            boxes.mark_used(name, Some(idle), Instant::now());
        }
        let deadlines = opened
            .messages
            .iter()
            .filter_map(|message| message.draft.deadline);
        if let Some(first) = deadlines.min() {
            self.link.boxes.schedule(name, milliseconds_of(first) + 1);
        }
    }

    fn appended(&mut self, append: Append, answer: &Value) -> Option<Result<Appended, StoreError>> {
        if scripts::is_refused(answer) {
            return Some(Err(StoreError::TooManyBoxes));
        }
        let [kind, epoch, sequence, rest @ ..] = array(answer)? else {
            return None;
        };
        let (epoch, sequence) = (number(epoch)?, number(sequence)?);
        let id = MessageId { epoch, sequence };
        self.learn(&append.name, epoch, sequence + 1);
        if text(kind)? == "duplicate" {
            return Some(Ok(Appended::Duplicate(id)));
        }
        let [lost, dropped, expired, _] = rest else {
            return None;
        };
        TaskFigures::add(&self.link.figures.lost, number(dropped)?);
        TaskFigures::add(&self.link.figures.expired, number(expired)?);
        let draft = append.draft;
        if let Some(deadline) = draft.deadline {
            let due = milliseconds_of(deadline) + 1;
            self.link.boxes.schedule(&append.name, due);
        }
        let message = Message { id, draft };
        let lost = number(lost)?;
        Some(Ok(Appended::New { message, lost }))
    }

    fn expired(&mut self, name: &Name, answer: &Value) {
        let Some([expired, due]) = array(answer) else {
            return;
        };
        TaskFigures::add(&self.link.figures.expired, number(expired).unwrap_or(0));
        if let Some(due) = number(due) {
            self.link.boxes.schedule(name, due);
        }
    }
}

fn strange() -> StoreError {
    StoreError::Unavailable("the Redis server gives an unknown answer".to_owned())
}

/// What clients are told of an error, which is reported.
fn failure(error: &ServerError) -> StoreError {
    // Before version 7 the code is that of a failed script.
    let details = error.details().unwrap_or_default();
    match error.code() == "OOM" || details.contains("OOM command not allowed") {
        true => StoreError::Full("the Redis server has no memory left".to_owned()),
        false => StoreError::Unavailable("the Redis server refuses it".to_owned()),
    }
}

/// Whether another server may do better, to which the address may lead by now.
fn ends_connection(error: &ServerError) -> bool {
    matches!(
        error.code(),
        "READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH"
    )
}
