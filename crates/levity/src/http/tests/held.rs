//! A long-lived response without an exchange: the connection polls a cursor into events that many subscribers share.
//! Request, trace and the future of the exchange have been dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use levity_telemetry::access_log::{End, NoHeaders, Record, Source};
use levity_telemetry::trace::Trace;
use levity_wire::http1::Trailers;
use tokio::task::{self, JoinHandle, yield_now};

use crate::http::h1::conn::Conn;
use crate::http::h1::parse;
use crate::http::request_body::ClientStream;
use crate::http::send::{Head, ResponseSink};
use crate::message::fields::Fields;
use crate::message::request::{Request, RequestError};
use crate::rig::{End as ClientEnd, Rig, settle};

/// The maximum memory of a subscriber in addition to its idle connection.
const HELD_BYTES_MAX: usize = 256;

/// The number of events that are kept for slow subscribers.
const EVENTS_MAX: usize = 16;

/// The number of subscribers that are woken before the publisher yields.
const WOKEN_MAX: usize = 16;

const REQUEST: &[u8] =
    b"GET /events HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; \
                         rv:140.0) Gecko/20100101 Firefox/140.0\r\n\r\n";

/// Events in order. All subscribers share the memory of an event.
#[derive(Default)]
struct Events {
    kept: RefCell<VecDeque<Rc<[u8]>>>,
    /// The number of the oldest kept event.
    first: Cell<u64>,
    ended: Cell<bool>,
    /// Wakers, by the index of the subscriber.
    waiting: RefCell<Vec<Option<Waker>>>,
}

enum Next {
    Event(Rc<[u8]>),
    /// The event has not been published.
    Pending,
    /// The event is no longer kept.
    Missed,
    End,
}

impl Events {
    /// Adds a subscriber and returns its index.
    fn subscribe(&self) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(None);
        waiting.len() - 1
    }

    fn next(&self, number: u64) -> Next {
        let Some(index) = number.checked_sub(self.first.get()) else {
            return Next::Missed;
        };
        match self.kept.borrow().get(index as usize) {
            Some(event) => Next::Event(event.clone()),
            None if self.ended.get() => Next::End,
            None => Next::Pending,
        }
    }

    async fn publish(&self, event: &[u8]) {
        self.kept.borrow_mut().push_back(event.into());
        if self.kept.borrow().len() > EVENTS_MAX {
            self.kept.borrow_mut().pop_front();
            self.first.set(self.first.get() + 1);
        }
        self.wake_all().await;
    }

    async fn end(&self) {
        self.ended.set(true);
        self.wake_all().await;
    }

    async fn wake_all(&self) {
        let subscribers = self.waiting.borrow().len();
        for index in 0..subscribers {
            if let Some(waker) = self.waiting.borrow_mut()[index].take() {
                waker.wake();
            }
            if index % WOKEN_MAX == WOKEN_MAX - 1 {
                yield_now().await;
            }
        }
    }
}

/// A subscriber.
struct Held {
    events: Rc<Events>,
    index: usize,
    /// The number of the next event to send.
    next: u64,
    /// Bytes of that event that have been sent.
    sent_bytes: usize,
    bytes: u64,
    log: Log,
}

/// The data of the request that its log record needs.
struct Log {
    arrived: Instant,
    first_byte: Instant,
    /// Host, target, Referer and User-Agent, concatenated.
    text: Box<[u8]>,
    ends: [u16; 4],
}

impl Log {
    fn of(request: &Request, arrived: Instant) -> Self {
        let header = |name| request.header(name).unwrap_or(b"");
        let parts = [
            request.host(),
            request.target(),
            header("referer"),
            header("user-agent"),
        ];
        let mut end = 0;
        Self {
            arrived,
            first_byte: Instant::now(),
            text: parts.concat().into(),
            ends: parts.map(|part| {
                end += part.len() as u16;
                end
            }),
        }
    }

    fn text(&self, part: usize) -> &[u8] {
        let start = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start.into()..self.ends[part].into()]
    }
}

impl Held {
    /// Sends the header, and keeps the data of the request that is needed later.
    async fn begin<S: ResponseSink>(
        sink: &S,
        request: &Request,
        events: Rc<Events>,
    ) -> io::Result<Box<Self>> {
        let arrived = Instant::now();
        let mut fields = Fields::default();
        fields.add("Content-Type", b"text/event-stream");
        let head = Head {
            status: 200,
            reason: b"",
            base: None,
            fields: &fields,
            has_date: false,
            has_server: false,
            server_timing: None,
            length: None,
            may_have_trailers: false,
            framing: sink.framing(true),
            has_body: true,
            upgrade: None,
            close: false,
        };
        let mut header = Some(sink.header(&head));
        while header.is_some() {
            poll_fn(|context| sink.poll_send(context, &mut header, b"", false)).await?;
        }
        Ok(Box::new(Self {
            index: events.subscribe(),
            next: events.first.get(),
            events,
            sent_bytes: 0,
            bytes: 0,
            log: Log::of(request, arrived),
        }))
    }

    /// Sends events as they are published; ready at the end of the response.
    fn poll<S: ResponseSink>(&mut self, sink: &S, context: &mut Context<'_>) -> Poll<End> {
        loop {
            // For an event stream, a half-closed client counts as disconnected.
            if sink.watch(context).is_err() || sink.input_ended() {
                return Poll::Ready(End::ClientAbort);
            }
            match self.events.next(self.next) {
                Next::Event(event) => {
                    if ready!(self.poll_event(sink, &event, context)).is_err() {
                        return Poll::Ready(End::ClientAbort);
                    }
                }
                Next::Pending => {
                    let waker = context.waker().clone();
                    self.events.waiting.borrow_mut()[self.index] = Some(waker);
                    return Poll::Pending;
                }
                Next::Missed => {
                    sink.reset();
                    return Poll::Ready(End::Timeout);
                }
                Next::End => {
                    let ended = ready!(Self::poll_end(sink, context));
                    return Poll::Ready(ended.map_or(End::ClientAbort, |()| End::Complete));
                }
            }
        }
    }

    /// Sends the rest of an event.
    fn poll_event<S: ResponseSink>(
        &mut self,
        sink: &S,
        event: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let rest = &event[self.sent_bytes..];
            let progress = ready!(sink.poll_send(context, &mut None, rest, false))?;
            self.sent_bytes += progress.body_bytes;
            if progress.is_complete {
                break;
            }
        }
        self.sent_bytes = 0;
        self.bytes += event.len() as u64;
        self.next += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_end<S: ResponseSink>(sink: &S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !ready!(sink.poll_end(context, &mut None, &Trailers::default()))?.is_complete {}
        Poll::Ready(Ok(()))
    }

    /// Counts and logs the response.
    fn conclude<S: ResponseSink>(&self, sink: &S, end: End) {
        self.events.waiting.borrow_mut()[self.index] = None;
        let (core, log) = (sink.core(), &self.log);
        let trace = Trace::new(log.arrived, None);
        let (duration, ttfb) = (log.arrived.elapsed(), log.first_byte - log.arrived);
        let stats = &core.stats;
        stats.request(200, Source::None, duration, ttfb, &trace);
        stats.sent_bytes.add(self.bytes);
        core.config().log_in(Some(0), || Record {
            peer: sink.peer().ip(),
            via: sink.peer().socket_ip(),
            user: b"",
            limited: None,
            body_bytes: 0,
            arrived: core.clock.wall_time(log.arrived),
            id: None,
            scheme: sink.peer().scheme(),
            host: log.text(0),
            site: "",
            route: "",
            method: b"GET",
            target: log.text(1),
            version: sink.version(),
            tls: None,
            status: 200,
            bytes: self.bytes,
            duration,
            ttfb,
            source: Source::None,
            end,
            referer: log.text(2),
            user_agent: log.text(3),
            headers: &NoHeaders,
            run_queue_wait_percent: stats.polls.run_queue_wait_percent(),
            trace: &trace,
        });
    }
}

/// Waits for a request and begins its response. The request is dropped before this returns.
async fn subscribe(conn: &Conn, events: Rc<Events>) -> Result<Box<Held>, RequestError> {
    let parse::Next::Request(request) = parse::next_request(conn).await? else {
        unreachable!("the clients of these tests speak HTTP/1");
    };
    conn.timer().clear();
    // Boxed, as an exchange is.
    let begun = Box::pin(Held::begin(conn, &request, events)).await;
    conn.core.return_request(request);
    begun.map_err(|_| RequestError::Gone)
}

/// Serves a connection that is idle first and then has a subscriber.
async fn connection(conn: Rc<Conn>, events: Rc<Events>) -> End {
    let end = match subscribe(&conn, events).await {
        Ok(mut held) => {
            let end = poll_fn(|context| held.poll(&*conn, context)).await;
            held.conclude(&*conn, end);
            end
        }
        Err(_) => End::ClientAbort,
    };
    conn.core.stats.connection_ended(end);
    end
}

/// Serves a connection that is only idle, for comparison.
async fn idle_connection(conn: Rc<Conn>, events: Rc<Events>) -> bool {
    subscribe(&conn, events).await.is_ok()
}

struct Subscriber {
    client: ClientEnd,
    serving: JoinHandle<End>,
}

impl Subscriber {
    /// Connects, subscribes and waits for the header.
    async fn new(rig: &Rig, events: &Rc<Events>) -> Self {
        let (mut client, conn) = rig.conn(256);
        let serving = task::spawn_local(connection(Rc::new(conn), events.clone()));
        client.send(REQUEST).await;
        client.until("\r\n\r\n").await;
        Self { client, serving }
    }
}

#[test]
fn an_event_goes_to_all_subscribers() {
    let (rig, events) = (Rig::new(""), Rc::new(Events::default()));
    rig.run(async {
        let mut subscribers = Vec::new();
        for _ in 0..60 {
            subscribers.push(Subscriber::new(&rig, &events).await);
        }
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            events.publish(event.as_bytes()).await;
            for subscriber in &mut subscribers {
                let chunk = subscriber.client.until("\n\n\r\n").await;
                assert_eq!(chunk, format!("9\r\n{event}\r\n"));
            }
        }
        for event in &*events.kept.borrow() {
            assert_eq!(Rc::strong_count(event), 1);
        }
        events.end().await;
        for mut subscriber in subscribers {
            assert_eq!(subscriber.client.until("0\r\n\r\n").await, "0\r\n\r\n");
            assert_eq!(subscriber.serving.await.expect("an end"), End::Complete);
        }
    });
    rig.assert_idle();
}

#[test]
fn a_disconnected_subscriber_is_detected_without_an_event() {
    let (rig, events) = (Rig::new(""), Rc::new(Events::default()));
    rig.run(async {
        let closed = Subscriber::new(&rig, &events).await;
        let mut half_closed = Subscriber::new(&rig, &events).await;
        drop(closed.client);
        half_closed.client.end_output();
        for serving in [closed.serving, half_closed.serving] {
            assert_eq!(serving.await.expect("an end"), End::ClientAbort);
        }
        let waiting = events.waiting.borrow();
        assert!(waiting.iter().all(Option::is_none));
    });
    rig.assert_idle();
}

#[test]
fn a_slow_subscriber_holds_no_memory() {
    let (rig, events) = (Rig::new(""), Rc::new(Events::default()));
    rig.run(async {
        let slow = Subscriber::new(&rig, &events).await;
        for _ in 0..2 * EVENTS_MAX {
            events.publish(&[b'e'; 100]).await;
            settle().await;
        }
        assert_eq!(events.kept.borrow().len(), EVENTS_MAX);
        // It reads the bytes in its socket, and has missed later events.
        let mut client = slow.client;
        client.all().await;
        assert_eq!(slow.serving.await.expect("an end"), End::Timeout);
    });
    rig.assert_idle();
}

#[test]
fn a_subscriber_needs_little_memory_beside_its_connection() {
    fn size<F: Future>(_: impl FnOnce(Rc<Conn>, Rc<Events>) -> F) -> usize {
        size_of::<F>()
    }
    let (rig, events) = (Rig::new(""), Rc::new(Events::default()));
    rig.run(async {
        let (mut client, conn) = rig.conn(4096);
        client.send(REQUEST).await;
        let held = subscribe(&conn, events).await.expect("a subscriber");
        let loop_bytes = size(connection).saturating_sub(size(idle_connection));
        let text_bytes = held.log.text.len();
        let held_bytes = loop_bytes + size_of_val(&*held) + text_bytes + size_of::<Option<Waker>>();
        assert!(
            held_bytes <= HELD_BYTES_MAX,
            "{loop_bytes} in the loop, {} boxed, {text_bytes} for the log",
            size_of_val(&*held)
        );
    });
}
