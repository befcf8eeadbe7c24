//! The life of a connection.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_nats::{Event, HeaderMap, Message as Received, Subscriber};
use futures_util::stream::{Abortable, SelectAll, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::link::Link;
use super::session::{
    ANSWER_TIME_MAX, Failure, STREAM, Session, box_of, delivery_of, feed_of, parse, subjects_of,
};
use super::waiting::{Listing, Load, Purpose};
use crate::name::Name;
use crate::shared::Request;
use crate::store::StoreError;

/// The pause between two checks whether answers are late.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Why the connection ends.
pub(super) type Broken = String;

/// A connection, and what waits for it.
pub(super) struct Serving<'a> {
    pub(super) link: &'a mut Link,
    requests: &'a mut mpsc::UnboundedReceiver<Request>,
    pub(super) session: Session,
    /// The subject under which answers come.
    inbox: String,
    feeds: SelectAll<Abortable<Subscriber>>,
    /// What was not sent yet.
    pub(super) outgoing: VecDeque<Outgoing>,
    /// Who waits for which answer.
    pub(super) calls: HashMap<u64, Call>,
    /// When an answer is late.
    late: VecDeque<(Instant, u64)>,
    pub(super) loads: HashMap<u64, Load>,
    /// Loads that wait for others to end.
    pub(super) to_load: VecDeque<(Name, Purpose)>,
    pub(super) listings: HashMap<u64, Listing>,
    /// Boxes that no process uses, perhaps.
    pub(super) orphans: VecDeque<Name>,
    /// Calls that delete something: their subjects and parameters. They take the server time, in which it does nothing else
    /// for the connection.
    pub(super) chores: VecDeque<(String, String)>,
    pub(super) chores_under_way: usize,
    /// The store was dropped.
    has_ended: bool,
}

pub(super) enum Outgoing {
    Subscribe(Name),
    Publish {
        subject: String,
        reply: String,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
    },
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Call {
    /// A record of this box, until it comes back.
    Record(Name),
    /// A consumer for a load.
    Consumer,
    /// The boxes of a set, to count them.
    Count(String),
    /// The same, to find those that no process uses.
    Scan(String),
    /// The same, for a list.
    List,
    /// The last record of a box that no process may use.
    Last(Name),
    /// A record that removes such a box.
    End(Name),
    /// A chore.
    Chore,
}

impl<'a> Serving<'a> {
    pub(super) fn new(
        link: &'a mut Link,
        requests: &'a mut mpsc::UnboundedReceiver<Request>,
        session: Session,
        inbox: String,
    ) -> Self {
        Self {
            link,
            requests,
            session,
            inbox,
            feeds: SelectAll::new(),
            outgoing: VecDeque::new(),
            calls: HashMap::new(),
            late: VecDeque::new(),
            loads: HashMap::new(),
            to_load: VecDeque::new(),
            listings: HashMap::new(),
            orphans: VecDeque::new(),
            chores: VecDeque::new(),
            chores_under_way: 0,
            has_ended: false,
        }
    }

    /// Serves requests until the store is dropped.
    ///
    /// # Errors
    /// If the connection ends.
    pub(super) async fn run(mut self) -> Result<(), Broken> {
        let result = self.serve().await;
        if let Err(reason) = &result {
            self.fail(&StoreError::Unavailable(reason.clone()));
        }
        result
    }

    async fn serve(&mut self) -> Result<(), Broken> {
        self.connected();
        let mut ticks = time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.send().await?;
            if self.has_ended && self.is_done() {
                return Ok(());
            }
            tokio::select! {
                answer = self.session.answers.next() => self.received(answer)?,
                delivered = self.session.deliveries.next() => {
                    let delivered = delivered.ok_or_else(ended)?;
                    if let Some(reply) = &delivered.reply {
                        self.delivered(reply.as_str(), &delivered.payload);
                    }
                }
                repeated = self.feeds.next(), if !self.feeds.is_empty() => {
                    if let Some(repeated) = repeated {
                        self.repeated(repeated);
                    }
                }
                notice = self.session.notices.next() => self.session.check_notice(notice)?,
                event = self.session.events.recv() => check(event)?,
                request = self.requests.recv(), if !self.has_ended => match request {
                    Some(request) => self.begin(request),
                    None => self.has_ended = true,
                },
                _ = ticks.tick() => self.tick()?,
            }
        }
    }

    /// Goes on with what was known before.
    fn connected(&mut self) {
        let base = self.session.base;
        let is_same = self
            .link
            .base
            .replace(base)
            .is_none_or(|before| before == base);
        self.link.last = match is_same {
            true => self.session.last.max(self.link.last),
            false => self.session.last,
        };
        let names: Vec<_> = self.link.boxes.order.iter().cloned().collect();
        for name in names {
            let Some(used) = self.link.boxes.boxes.get_mut(&name) else {
                continue;
            };
            if !is_same {
                // Another stream, or one that has lost records.
                used.ledger = None;
                self.outdated(&name);
            } else if used.watch == Some(true) {
                self.follow(&name);
            }
        }
    }

    fn is_done(&self) -> bool {
        let boxes = self.link.boxes.boxes.values();
        let mut busy = boxes.filter(|used| !used.pending.is_empty() || !used.waiting.is_empty());
        let is_reading = !self.loads.is_empty() || !self.listings.is_empty();
        busy.next().is_none() && !is_reading && self.chores_under_way == 0
    }

    /// Answers everything with an error.
    fn fail(&mut self, error: &StoreError) {
        let waiting = self.to_load.drain(..).map(|(_, purpose)| purpose);
        let loading = self.loads.drain().map(|(_, load)| load.purpose);
        waiting
            .chain(loading)
            .for_each(|purpose| purpose.fail(error));
        for (_, listing) in self.listings.drain() {
            listing.fail(error);
        }
    }

    async fn send(&mut self) -> Result<(), Broken> {
        while let Some(outgoing) = self.outgoing.pop_front() {
            let sending = async {
                match outgoing {
                    Outgoing::Subscribe(name) => {
                        let subscriber = self.session.client.subscribe(feed_of(&name)).await;
                        let subscriber = subscriber.map_err(|error| error.to_string())?;
                        if let Some(used) = self.link.boxes.boxes.get_mut(&name) {
                            let (feed, handle) = futures_util::stream::abortable(subscriber);
                            used.feed = Some(handle);
                            self.feeds.push(feed);
                        }
                        Ok(())
                    }
                    Outgoing::Publish {
                        subject,
                        reply,
                        headers,
                        payload,
                    } => {
                        let (client, payload) = (&self.session.client, payload.into());
                        let published = match headers {
                            Some(headers) => {
                                client
                                    .publish_with_reply_and_headers(
                                        subject, reply, headers, payload,
                                    )
                                    .await
                            }
                            None => client.publish_with_reply(subject, reply, payload).await,
                        };
                        published.map_err(|error| error.to_string())
                    }
                }
            };
            match time::timeout(ANSWER_TIME_MAX, sending).await {
                Ok(sent) => sent?,
                Err(_) => return Err(late()),
            }
        }
        Ok(())
    }

    /// Calls the server; the answer comes under the number.
    pub(super) fn call(&mut self, subject: String, parameters: String, call: Call) -> u64 {
        let number = self.link.next_number();
        self.call_as(number, subject, None, parameters.into_bytes(), call);
        number
    }

    pub(super) fn call_as(
        &mut self,
        number: u64,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
        call: Call,
    ) {
        let reply = format!("{}.call.{number}", self.inbox);
        self.calls.insert(number, call);
        self.late
            .push_back((Instant::now() + ANSWER_TIME_MAX, number));
        self.outgoing.push_back(Outgoing::Publish {
            subject,
            reply,
            headers,
            payload,
        });
    }

    /// Where consumers deliver.
    pub(super) fn delivery(&self) -> String {
        delivery_of(&self.inbox)
    }

    fn received(&mut self, answer: Option<Received>) -> Result<(), Broken> {
        let Some(answer) = answer else {
            return Err(ended());
        };
        let number = answer.subject.rsplit('.').next();
        let Some(number) = number.and_then(|word| word.parse().ok()) else {
            return Ok(());
        };
        match self.calls.get(&number) {
            Some(Call::Record(name)) => {
                let name = name.clone();
                if let Err(failure) = parse_ack(&answer) {
                    self.calls.remove(&number);
                    self.refused(&name, number, &failure);
                }
                Ok(())
            }
            Some(_) => {
                let call = self.calls.remove(&number).expect("it was just there");
                self.answered(number, call, &answer)
            }
            None => Ok(()),
        }
    }

    fn answered(&mut self, number: u64, call: Call, answer: &Received) -> Result<(), Broken> {
        match call {
            Call::Consumer => self.consumed(number, &parse(&answer.payload).map_err(text)?),
            Call::Count(set) => self.counted(&set, &parse(&answer.payload).map_err(text)?),
            Call::Scan(set) => self.scanned(&set, &parse(&answer.payload).map_err(text)?),
            Call::List => self.listed(number, &parse(&answer.payload).map_err(text)?),
            Call::Last(name) => self.last_of_orphan(&name, answer),
            Call::End(name) => self.ended_orphan(&name, answer),
            Call::Chore => {
                self.chores_under_way -= 1;
                self.do_chores();
            }
            Call::Record(_) => {}
        }
        Ok(())
    }

    /// Ends the connection if an answer is late.
    fn tick(&mut self) -> Result<(), Broken> {
        let now = Instant::now();
        while let Some(&(due, number)) = self.late.front() {
            if due > now {
                break;
            }
            self.late.pop_front();
            if self.calls.contains_key(&number) {
                return Err(late());
            }
        }
        self.restart_loads()
    }

    /// Asks for the boxes of a set.
    pub(super) fn ask_for_boxes(&mut self, call: Call, set: &str) -> u64 {
        let filter = serde_json::json!({"subjects_filter": subjects_of(set)});
        self.call(
            format!("$JS.API.STREAM.INFO.{STREAM}"),
            filter.to_string(),
            call,
        )
    }
}

/// The boxes in an answer.
pub(super) fn names_in(info: &Value) -> impl Iterator<Item = Name> {
    let subjects = info["state"]["subjects"].as_object();
    let subjects = subjects.into_iter().flat_map(|subjects| subjects.keys());
    subjects.filter_map(|subject| box_of(subject))
}

/// Whether the server has taken a record.
pub(super) fn parse_ack(answer: &Received) -> Result<Value, Failure> {
    if answer.status.is_some_and(|status| status.as_u16() >= 400) {
        return Err(Failure {
            code: 0,
            text: "the NATS server has no JetStream at present".to_owned(),
        });
    }
    parse(&answer.payload)
}

/// Whether the connection goes on.
fn check(event: Option<Event>) -> Result<(), Broken> {
    match event {
        Some(Event::Connected | Event::LameDuckMode) => Ok(()),
        Some(Event::ServerError(error)) => Err(format!("the NATS server refuses: {error}")),
        Some(Event::ClientError(error)) => Err(format!("the NATS server fails: {error}")),
        Some(Event::SlowConsumer(_)) => {
            Err("the NATS server sends more than can be taken".to_owned())
        }
        Some(Event::Disconnected | Event::Draining | Event::Closed) | None => Err(ended()),
    }
}

fn text(failure: Failure) -> Broken {
    failure.text
}

pub(super) fn late() -> Broken {
    "the NATS server does not answer in time".to_owned()
}

fn ended() -> Broken {
    "the connection to the NATS server has ended".to_owned()
}
