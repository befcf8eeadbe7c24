//! The life of a connection.
//!
//! Calls that wait are sent together, in their order, and the next ones when these are answered: one batch is under way on a
//! connection at a time. So calls take effect in the order in which they were asked for, and a slow server gets larger batches,
//! not more of them. Calls that only read have a connection of their own: they wait for nothing that is written.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::mem;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use levity_wire::mailbox::MessageId;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisResult, ServerError, Value};
use tokio::time::{self, Instant};

use super::super::boxes::Known;
use super::super::scripts::{self, Script, Subject, Version, array, milliseconds_of, number, text};
use super::super::session::{Session, load_scripts, reason};
use super::{Link, unavailable};
use crate::message::Message;
use crate::name::Name;
use crate::settings::Settings;
use crate::shared::{Reply, Request};
use crate::store::{Append, Appended, Limit, Opened, StoreError, Summary};
use crate::stream_state::StreamState;

/// The pause between two checks whether the connections live.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of requests that a batch begins with.
const BATCH_MAX: usize = 256;

/// The maximum size of the messages that a batch sends or asks for in bytes, without the last one.
const BATCH_BYTES: usize = 1 << 20;

/// The maximum number of channels that are subscribed to at once.
const SUBSCRIPTIONS_MAX: usize = 256;

/// The maximum number of boxes in which a sweep lets messages expire.
const EXPIRED_MAX: usize = 64;

/// The maximum number of boxes that a sweep has compared with what was seen of them.
const CHECKED_MAX: usize = 64;

/// The connections, and what waits for them.
pub(super) struct Serving<'a> {
    link: &'a mut Link,
    session: Session,
    main: Lane,
    reads: Lane,
    subscribing: Option<Subscribing>,
    /// Streams of which a call is under way that changes their state, and what waits for its end. What becomes of a stream is
    /// computed here, and the server does it if the stream is as it was read. So one at a time is under way.
    updates: HashMap<Name, VecDeque<StreamAppend>>,
    /// The store was dropped.
    has_ended: bool,
}

/// An append that changes the state of a stream.
type StreamAppend = (Append, SystemTime, Reply<Appended>);

/// The answer of a call.
type Answer = Result<Value, StoreError>;

/// What follows the answer of a call.
type Continuation = Box<dyn FnOnce(&mut Serving<'_>, Answer) + Send>;

/// A connection for calls.
struct Lane {
    connection: MultiplexedConnection,
    /// What is sent next.
    next: Batch,
    /// What follows the answers of what was sent.
    continuations: Vec<Continuation>,
    sending: Option<Sending>,
}

impl Lane {
    fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            next: Batch::default(),
            continuations: Vec::new(),
            sending: None,
        }
    }

    /// Sends what is next, unless a batch is under way.
    fn send_next(&mut self) {
        if self.sending.is_none() && !self.next.continuations.is_empty() {
            let next = mem::take(&mut self.next);
            self.continuations = next.continuations;
            self.sending = Some(Box::pin(send(self.connection.clone(), next.calls)));
        }
    }

    /// The answers of what was sent, each with what follows.
    fn answered(
        &mut self,
        answers: RedisResult<Vec<Value>>,
    ) -> Result<Vec<(Continuation, Value)>, Broken> {
        self.sending = None;
        let answers = answers.map_err(|error| reason(&error))?;
        let continuations = mem::take(&mut self.continuations);
        Ok(continuations.into_iter().zip(answers).collect())
    }

    /// What follows the answers that have not come.
    fn take_continuations(&mut self) -> Vec<Continuation> {
        let mut all = mem::take(&mut self.continuations);
        all.append(&mut self.next.continuations);
        all
    }
}

/// The answers of calls. After somebody has had the server forget the scripts, their calls are sent again.
async fn send(mut connection: MultiplexedConnection, calls: Pipeline) -> RedisResult<Vec<Value>> {
    let answers = connection.req_packed_commands(&calls, 0, calls.len());
    let mut answers = answers.await?;
    let is_forgotten =
        |answer: &Value| matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT");
    let mut forgotten = Pipeline::new();
    for (call, answer) in calls.cmd_iter().zip(&answers) {
        if is_forgotten(answer) {
            forgotten.add_command(call.clone());
        }
    }
    if !forgotten.is_empty() {
        load_scripts(&mut connection).await?;
        let again = connection.req_packed_commands(&forgotten, 0, forgotten.len());
        let places = answers.iter_mut().filter(|answer| is_forgotten(answer));
        for (place, answer) in places.zip(again.await?) {
            *place = answer;
        }
    }
    Ok(answers)
}

#[derive(Default)]
struct Batch {
    calls: Pipeline,
    continuations: Vec<Continuation>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, call: Cmd, then: impl FnOnce(&mut Serving<'_>, Answer) + Send + 'static) {
        self.calls.add_command(call);
        self.continuations.push(Box::new(then));
    }

    /// Adds a call for which nobody waits: nothing follows a failure.
    fn push_unawaited(
        &mut self,
        call: Cmd,
        then: impl FnOnce(&mut Serving<'_>, &Value) + Send + 'static,
    ) {
        self.push(call, |serving, answer| {
            if let Ok(answer) = answer {
                then(serving, &answer);
            }
        });
    }

    fn is_full(&self) -> bool {
        self.continuations.len() >= BATCH_MAX || self.bytes >= BATCH_BYTES
    }
}

/// The answers of what was sent.
type Sending = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

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
    pub(super) async fn run(mut self) -> Result<(), Broken> {
        let mut pings = time::interval(PING_INTERVAL);
        loop {
            self.send_next();
            if self.has_ended && self.main.sending.is_none() && self.reads.sending.is_none() {
                return Ok(());
            }
            self.subscribe_next();
            let step = tokio::select! {
                biased;
                answers = of(&mut self.main.sending) => {
                    let answered = self.main.answered(answers);
                    answered.and_then(|answered| self.take_all(answered))
                }
                answers = of(&mut self.reads.sending) => {
                    let answered = self.reads.answered(answers);
                    answered.and_then(|answered| self.take_all(answered))
                }
                channels = of(&mut self.subscribing) => self.subscribed(channels),
                push = self.session.pushes.recv() => self.pushed(push.as_ref()),
                request = self.link.requests.recv(), if self.main.sending.is_none() => {
                    self.begin_or_end(request);
                    Ok(())
                }
                read = self.link.read_requests.recv(), if self.reads.sending.is_none() => {
                    self.begin_or_end(read);
                    Ok(())
                }
                _ = pings.tick() => {
                    self.ping();
                    Ok(())
                }
            };
            if step.is_err() {
                self.fail_all();
                return step;
            }
        }
    }

    fn fail_all(&mut self) {
        let updates = mem::take(&mut self.updates).into_values();
        for (_, _, reply) in updates.flatten() {
            reply.send(Err(unavailable()));
        }
        let mut continuations = self.main.take_continuations();
        continuations.append(&mut self.reads.take_continuations());
        for continuation in continuations {
            continuation(self, Err(unavailable()));
        }
    }

    /// Sends all that waits on the connections whose last batch was answered.
    fn send_next(&mut self) {
        if self.main.sending.is_none() {
            while let Some((name, first)) = self.link.boxes.next_to_resume() {
                self.resume(name, first);
            }
            while !self.main.next.is_full()
                && let Ok(request) = self.link.requests.try_recv()
            {
                self.begin(request);
            }
        }
        if self.reads.sending.is_none() {
            while !self.reads.next.is_full()
                && let Ok(read) = self.link.read_requests.try_recv()
            {
                self.begin(read);
            }
        }
        self.main.send_next();
        self.reads.send_next();
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
                let waiting = self.updates.entry(name.clone()).or_default();
                waiting.push_back((append, now, reply));
                if is_first {
                    self.update_next(&name, None);
                }
            }
            Request::Append(append, now, reply) => {
                let call = self.append_call(&append, now);
                self.main.next.push(call, |serving, answer| {
                    reply.send(serving.appended(append, answer));
                });
            }
            Request::Open(name, settings, reply) => {
                let mut call = self.call_with(Script::Open, &name, &settings);
                call.arg(u8::from(self.link.boxes.is_watched(&name)));
                let keeps_all = settings.keeps_all;
                call.arg(u8::from(keeps_all));
                self.main.next.push(call, move |serving, answer| {
                    reply.send(serving.opened(&name, keeps_all, answer));
                });
            }
            Request::Summary(name, reply) => self.summary(name, reply),
            Request::ReadAfter(name, after, limit, reply) => {
                self.read_after(name, after, limit, reply);
            }
            Request::Remove(name, epoch, reply, _) => {
                self.link.reads.remove(&name);
                let mut call = self.call(Script::Remove, &name);
                call.arg(epoch.map_or_else(String::new, |epoch| epoch.to_string()));
                self.main.next.push(call, move |serving, answer| {
                    if answer.is_ok() {
                        serving.link.boxes.removed(&name);
                    }
                    reply.send(understood(answer, |known| Some(number(known)? > 0)));
                });
            }
            Request::List(set, after, count_max, reply) => {
                let mut call = self.call(Script::List, &Name::first_of(&set));
                scripts::add_list(&mut call, after.as_ref(), count_max);
                self.reads.next.push(call, move |_, answer| {
                    reply.send(understood(answer, |list| scripts::listed(list, &set)));
                });
            }
            Request::Read(name, last, _) => self.link.mark_read(name, last),
            Request::Watch(name, is_read) => {
                self.link.boxes.set_watched(&name, is_read, Instant::now());
                self.touch(name);
            }
            Request::Sweep(now) => self.sweep(now),
        }
    }

    fn summary(&mut self, name: Name, reply: Reply<Option<Summary>>) {
        let call = self.call(Script::Summary, &name);
        self.reads.next.push(call, |serving, answer| match answer {
            Ok(answer) if scripts::has_to_check(&answer) => {
                serving.check(&name.clone(), Request::Summary(name, reply));
            }
            answer => reply.send(understood(answer, |found| scripts::summed(found, &name))),
        });
    }

    fn read_after(
        &mut self,
        name: Name,
        after: Option<MessageId>,
        mut limit: Limit,
        reply: Reply<Option<Opened>>,
    ) {
        let mut call = self.call(Script::ReadAfter, &name);
        scripts::add_read_after(&mut call, after, limit);
        let bytes = &mut self.reads.next.bytes;
        *bytes = bytes.saturating_add(limit.bytes);
        self.reads.next.push(call, move |serving, answer| {
            if answer.as_ref().is_ok_and(scripts::has_to_check) {
                return serving.check(&name.clone(), Request::ReadAfter(name, after, limit, reply));
            }
            let limited = |mut found: Opened| {
                found.messages.retain(|one| limit.take(one.draft.bytes()));
                found.reserve(&serving.link.budget)
            };
            let found = understood(answer, scripts::opened_if_known);
            reply.send(found.and_then(|found| found.map(limited).transpose()));
        });
    }

    /// The call of an append, but for what becomes of a stream.
    fn append_call(&mut self, append: &Append, now: SystemTime) -> Cmd {
        let mut call = self.call_with(Script::Append, &append.name, &append.settings);
        scripts::add_append(&mut call, append, now);
        self.main.next.bytes += append.draft.bytes();
        call
    }

    /// Adds the call of the next append to a stream that may be appended. The stream is as `version` says, or has to be read.
    fn update_next(&mut self, name: &Name, version: Option<Version>) {
        let next = |serving: &mut Self| serving.updates.get_mut(name)?.pop_front();
        while let Some((append, now, reply)) = next(self) {
            let known = version.as_ref();
            let updated = known.map(|known| append.updated(known.state.as_ref(), known.next));
            match updated.transpose() {
                Ok(updated) => {
                    let known = version.unwrap_or_default();
                    return self.update((append, now, reply), known, updated.flatten());
                }
                Err(refused) => reply.send(Err(refused)),
            }
        }
        self.updates.remove(name);
    }

    /// Adds the call of an append that makes `updated` of a stream, or reads it.
    fn update(
        &mut self,
        (append, now, reply): StreamAppend,
        known: Version,
        updated: Option<(StreamState, u64)>,
    ) {
        let mut call = self.append_call(&append, now);
        match &updated {
            Some(updated) => scripts::add_update(&mut call, &append, &known, updated, now),
            None => drop(call.arg("read")),
        }
        let state = updated.map(|(state, _)| state);
        let next = Version { state, ..known };
        self.main.next.push(call, move |serving, answer| {
            serving.updated((append, now, reply), next, answer);
        });
    }

    /// Takes the answer to a call of [`update`](Self::update), which has made `next` of the stream.
    fn updated(&mut self, (append, now, reply): StreamAppend, next: Version, answer: Answer) {
        let name = append.name.clone();
        if let Some(version) = answer.as_ref().ok().and_then(scripts::version) {
            let waiting = self.updates.entry(name.clone()).or_default();
            waiting.push_front((append, now, reply));
            return self.update_next(&name, Some(version));
        }
        // A process that lets others go first reads what they have made of it.
        let gives_way = answer.as_ref().is_ok_and(scripts::gives_way);
        let appended = self.appended(append, answer);
        let mut version = None;
        if let Ok(Appended::New { message, .. }) = &appended {
            let idle = next.state.as_ref();
            let idle = idle.map(|state| state.idle(SystemTime::now()));
            let boxes = &mut self.link.boxes;
            boxes.mark_used(&name, idle, Instant::now());
            version = (!gives_way).then(|| Version {
                epoch: message.id.epoch.to_string(),
                next: message.id.sequence + 1,
                ..next
            });
        }
        reply.send(appended);
        self.update_next(&name, version);
    }

    /// Begins the idle time of a box anew, and says whether it is watched.
    fn touch(&mut self, name: Name) {
        let mut call = self.call(Script::Touch, &name);
        call.arg(u8::from(self.link.boxes.is_watched(&name)));
        let next = &mut self.main.next;
        next.push_unawaited(call, move |serving, answer| {
            if number(answer) == Some(0) {
                serving.link.boxes.outdated(&name);
            }
        });
    }

    /// Asks for what has come to a box since it was subscribed to, from the number `first` on.
    fn resume(&mut self, name: Name, first: u64) {
        let mut call = self.call(Script::Resume, &name);
        call.arg(first);
        let next = &mut self.main.next;
        next.push_unawaited(call, move |serving, answer| {
            let found = scripts::opened_if_known(answer).flatten();
            // Without memory the box is outdated: its receivers learn it when it is opened again.
            let found = found.and_then(|found| found.reserve(&serving.link.budget).ok());
            if let Some(found) = &found {
                serving.note(&name, found);
            }
            serving.link.boxes.resumed(&name, found);
        });
    }

    /// Has a box compared with what was seen of it before a request reads it.
    fn check(&mut self, name: &Name, request: Request) {
        let call = self.call(Script::Check, name);
        self.main.next.push(call, |serving, answer| match answer {
            Ok(_) => serving.begin(request),
            Err(error) => drop(request.fail(&error)),
        });
    }

    /// Tells the server what was read of a box.
    fn flush_read(&mut self, name: &Name) {
        if let Some(last) = self.link.reads.remove(name) {
            let mut call = self.call(Script::Read, name);
            call.arg(last.epoch).arg(last.sequence.saturating_add(1));
            self.main.next.push(call, |_, _| {});
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
            self.main.next.push(call, |_, _| {});
        }
        let now = milliseconds_of(now);
        for _ in 0..EXPIRED_MAX {
            let Some(name) = self.link.boxes.next_due(now) else {
                break;
            };
            self.expire(name, now);
        }
        let sets: Vec<_> = self
            .link
            .sets
            .iter()
            .map(|set| Name::first_of(set))
            .collect();
        for set in sets {
            let call = self.call(Script::Prune, &set);
            self.main.next.push_unawaited(call, |serving, answer| {
                let pruned = number(answer).unwrap_or(0);
                serving.link.figures.lock().idle_boxes += pruned;
            });
        }
        let boxes = self.link.boxes.len();
        self.link.figures.lock().boxes = boxes;
    }

    /// Checks that the connections live, and which history the server writes: that of a server to which no replica was
    /// attached changes with the first one.
    fn ping(&mut self) {
        let begin = self.session.calls.begin(&self.link.run, true);
        self.main.next.push_unawaited(begin, |serving, answer| {
            if let Some(run) = text(answer).filter(|run| !run.is_empty()) {
                serving.link.note_run(run);
            }
        });
        if self.reads.sending.is_none() {
            self.reads.next.push(redis::cmd("PING"), |_, _| {});
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
    fn take_all(&mut self, answered: Vec<(Continuation, Value)>) -> Result<(), Broken> {
        let mut broken = None;
        for (continuation, answer) in answered {
            let answer = match answer {
                Value::ServerError(error) => {
                    self.link.outage.refused(&error.to_string());
                    if ends_connection(&error) {
                        broken = Some(error.to_string());
                    }
                    Err(failure(&error))
                }
                answer => Ok(answer),
            };
            continuation(self, answer);
        }
        broken.map_or(Ok(()), Err)
    }

    /// What is kept of a box that was opened.
    fn opened(
        &mut self,
        name: &Name,
        keeps_all: bool,
        answer: Answer,
    ) -> Result<Opened, StoreError> {
        let answer = accepted(answer)?;
        let opened = scripts::opened(&answer).ok_or_else(strange)?;
        let opened = opened.reserve(&self.link.budget)?;
        self.note(name, &opened);
        self.link.boxes.opened(name, &opened);
        Ok(opened.for_receivers(keeps_all))
    }

    /// Notes what was seen of a box.
    fn note(&mut self, name: &Name, opened: &Opened) {
        let boxes = &mut self.link.boxes;
        let &Opened { epoch, next, .. } = opened;
        boxes.learn(name, Known { epoch, next });
        if let Some(state) = &opened.state {
            let idle = state.idle(SystemTime::now());
            boxes.mark_used(name, Some(idle), Instant::now());
        }
        let messages = opened.messages.iter();
        let deadlines = messages.filter_map(|message| message.draft.deadline);
        if let Some(first) = deadlines.min() {
            boxes.schedule(name, milliseconds_of(first) + 1);
        }
    }

    fn appended(&mut self, append: Append, answer: Answer) -> Result<Appended, StoreError> {
        let answer = accepted(answer)?;
        self.note_append(append, &answer).ok_or_else(strange)
    }

    fn note_append(&mut self, append: Append, answer: &Value) -> Option<Appended> {
        let [kind, epoch, sequence, rest @ ..] = array(answer)? else {
            return None;
        };
        let (epoch, sequence) = (number(epoch)?, number(sequence)?);
        let id = MessageId { epoch, sequence };
        let next = sequence + 1;
        let boxes = &mut self.link.boxes;
        boxes.learn(&append.name, Known { epoch, next });
        if text(kind)? == "duplicate" {
            return Some(Appended::Duplicate(id));
        }
        let [lost, dropped, expired, _] = rest else {
            return None;
        };
        self.link.figures.lock().lost += number(dropped)?;
        self.link.figures.lock().expired += number(expired)?;
        let draft = append.draft;
        if let Some(deadline) = draft.deadline {
            boxes.schedule(&append.name, milliseconds_of(deadline) + 1);
        }
        let message = Message { id, draft };
        let lost = number(lost)?;
        Some(Appended::New { message, lost })
    }

    /// Lets messages of a box expire whose time is over.
    fn expire(&mut self, name: Name, now_ms: u64) {
        let mut call = self.call(Script::Expire, &name);
        call.arg(now_ms);
        let next = &mut self.main.next;
        next.push_unawaited(call, move |serving, answer| {
            let Some([expired, due]) = array(answer) else {
                return;
            };
            let expired = number(expired).unwrap_or(0);
            serving.link.figures.lock().expired += expired;
            if let Some(due) = number(due) {
                serving.link.boxes.schedule(&name, due);
            }
        });
    }
}

/// What an answer says.
fn understood<T>(answer: Answer, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, StoreError> {
    read(&answer?).ok_or_else(strange)
}

/// An answer that is no refusal.
fn accepted(answer: Answer) -> Answer {
    let answer = answer?;
    scripts::refusal(&answer).map_or(Ok(answer), Err)
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
