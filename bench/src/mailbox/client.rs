//! Subscribers and publishers, driven by one epoll.

use super::dialect::Dialect;
use super::payload::Payloads;
use super::stream::Stream;
use super::{Delivered, Order};
use crate::failure::{Context, Failure, Result};
use crate::load::response::Decoder;
use levity_inspect::histogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The maximum number of events per wait.
const EVENTS_MAX: usize = 256;
/// The maximum number of bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// Subscribers with one address: a server may limit connections by address, and an address has so many ports.
const PER_ADDRESS: usize = 5000;
/// Streams that are requested and have not begun.
const BEGINNING_MAX: usize = 64;
/// The time until the next stream begins.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// The time until a message has reached every subscriber.
const DELIVERY_MAX: Duration = Duration::from_secs(20);
/// Messages of a box whose due times are kept for the latency. At ten per second this is 25 s.
const RECENT: usize = 256;
/// Marks the descriptor whose end stops the load.
const ORDERS: u64 = u64::MAX;
/// Set in the data of events of publishers.
const PUBLISHER: u64 = 1 << 32;

/// The server and the connections.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address of the server.
    pub address: SocketAddr,
    /// The spelling of requests.
    pub dialect: Dialect,
    /// The key of publishers.
    pub key: String,
    /// Subscribers; each listens to one box, in turn.
    pub subscribers: usize,
    /// Boxes.
    pub boxes: usize,
    /// Keep-alive connections that publish.
    pub publishers: usize,
}

/// Open connections and the state of the boxes.
pub struct Client {
    target: Target,
    host: String,
    epoll: OwnedFd,
    subscribers: Vec<Subscriber>,
    publishers: Vec<Publisher>,
    /// Publishers without a pending request.
    idle: VecDeque<usize>,
    boxes: Vec<BoxState>,
    /// The length of the messages of the current order.
    bytes: usize,
    payloads: Payloads,
    message: Vec<u8>,
    request: Vec<u8>,
    scratch: Vec<u8>,
    tally: Tally,
    is_stopped: bool,
}

struct Subscriber {
    connection: TcpStream,
    stream: Stream,
    /// The number of the message that must come next.
    next: u64,
}

struct Publisher {
    connection: TcpStream,
    decoder: Decoder,
    /// When the pending publish was due.
    due: Option<Instant>,
}

#[derive(Default)]
struct BoxState {
    subscribers: u64,
    /// Messages that were published.
    published: u64,
    /// When the latest [`RECENT`] messages were due; a message is at its number modulo this.
    due: Vec<Instant>,
}

#[derive(Default)]
struct Tally {
    begun: usize,
    messages: u64,
    acknowledgements: u64,
    expected: u64,
    deliveries: u64,
    errors: u64,
    first_error: Option<String>,
    wire_bytes: u64,
    last_us: Vec<f64>,
    latency: Histogram,
    acknowledged: Histogram,
}

impl Tally {
    fn error(&mut self, message: String) {
        self.errors += 1;
        self.first_error.get_or_insert(message);
    }
}

impl Client {
    /// Opens all connections and waits until every stream has begun. When `orders` has something to read or ends,
    /// [`Client::idle`] returns and an order in progress is given up.
    ///
    /// # Errors
    /// A connection or a stream is refused.
    pub fn connect(target: Target, orders: impl AsFd) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context(|| "epoll_create1".into())?;
        let data = EventData::new_u64(ORDERS);
        epoll::add(&epoll, orders, data, EventFlags::IN).context(|| "epoll_ctl".into())?;
        let mut client = Self {
            host: target.address.to_string(),
            epoll,
            subscribers: Vec::with_capacity(target.subscribers),
            publishers: Vec::with_capacity(target.publishers),
            idle: (0..target.publishers).collect(),
            boxes: (0..target.boxes).map(|_| BoxState::default()).collect(),
            bytes: 0,
            payloads: Payloads::default(),
            message: Vec::new(),
            request: Vec::new(),
            scratch: vec![0; READ_BYTES],
            tally: Tally::default(),
            is_stopped: false,
            target,
        };
        for index in 0..client.target.subscribers {
            client.subscribe(index)?;
            client.wait_for_streams((index + 1).saturating_sub(BEGINNING_MAX))?;
        }
        client.wait_for_streams(client.target.subscribers)?;
        for index in 0..client.target.publishers {
            let publisher = client.open_publisher(index)?;
            client.publishers.push(publisher);
        }
        Ok(client)
    }

    /// Follows an order. A message that does not arrive counts as missing after 20 s.
    ///
    /// # Errors
    /// There is no publisher, or it cannot be connected again.
    pub fn follow(&mut self, order: Order) -> Result<Delivered> {
        self.tally = Tally::default();
        self.is_stopped = false;
        let (started, cpu_before) = (Instant::now(), cpu_time());
        match order {
            Order::FanOut {
                messages,
                bytes,
                interval_ms,
            } => {
                self.bytes = bytes;
                self.fan_out(messages, Duration::from_millis(interval_ms))?;
            }
            Order::Flow {
                rate,
                seconds,
                bytes,
            } => {
                self.bytes = bytes;
                self.flow(rate, seconds)?;
            }
            Order::Publish { seconds, bytes } => {
                self.bytes = bytes;
                self.publish_for(Duration::from_secs_f64(seconds))?;
            }
        }
        let cpu_seconds = (cpu_time() - cpu_before).as_secs_f64();
        Ok(self.delivered(started.elapsed(), cpu_seconds))
    }

    /// Receives what comes, for instance heartbeats, until there is an order to read or the orders end.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn idle(&mut self) -> Result<()> {
        self.is_stopped = false;
        while !self.is_stopped {
            self.turn(Instant::now() + Duration::from_secs(1))?;
        }
        Ok(())
    }

    fn subscribe(&mut self, index: usize) -> Result<()> {
        let mut connection = connect(self.target.address, source(index))?;
        let number = index % self.target.boxes;
        let request = self.target.dialect.subscription(&self.host, number);
        // A request of a few hundred bytes fits into an empty socket buffer.
        connection
            .write_all(&request)
            .context(|| "subscribe".into())?;
        self.watch(&connection, index as u64)?;
        self.boxes[number].subscribers += 1;
        self.subscribers.push(Subscriber {
            connection,
            stream: Stream::default(),
            next: 0,
        });
        Ok(())
    }

    fn wait_for_streams(&mut self, count: usize) -> Result<()> {
        let end = Instant::now() + BEGIN_MAX;
        while self.tally.begun < count {
            self.turn(end)?;
            if let Some(error) = &self.tally.first_error {
                return Err(Failure::new(error));
            }
            if Instant::now() >= end {
                let message = format!("only {} streams have begun", self.tally.begun);
                return Err(Failure::new(message));
            }
        }
        Ok(())
    }

    fn open_publisher(&self, index: usize) -> Result<Publisher> {
        let connection = connect(self.target.address, Ipv4Addr::LOCALHOST)?;
        self.watch(&connection, PUBLISHER | index as u64)?;
        Ok(Publisher {
            connection,
            decoder: Decoder::default(),
            due: None,
        })
    }

    fn watch(&self, connection: &TcpStream, data: u64) -> Result<()> {
        connection
            .set_nonblocking(true)
            .context(|| "non-blocking mode".into())?;
        let data = EventData::new_u64(data);
        epoll::add(&self.epoll, connection, data, EventFlags::IN).context(|| "epoll_ctl".into())
    }

    fn fan_out(&mut self, messages: usize, interval: Duration) -> Result<()> {
        let mut due = Instant::now();
        for _ in 0..messages {
            self.turn_until(due)?;
            if self.is_stopped {
                return Ok(());
            }
            let started = Instant::now();
            self.publish(0, started)?;
            self.settle()?;
            let took = started.elapsed();
            self.tally.last_us.push(took.as_secs_f64() * 1e6);
            due = (started + interval).max(Instant::now());
        }
        Ok(())
    }

    fn flow(&mut self, rate: u32, seconds: f64) -> Result<()> {
        let started = Instant::now();
        let all = (f64::from(rate) * seconds) as u64;
        let mut sent = 0;
        while sent < all && !self.is_stopped {
            let due = started + Duration::from_secs_f64(sent as f64 / f64::from(rate));
            if due > Instant::now() || self.idle.is_empty() {
                // A server that has not answered in time is not waited for much longer.
                if started.elapsed() > Duration::from_secs_f64(seconds) + DELIVERY_MAX {
                    break;
                }
                self.turn(due.max(Instant::now() + Duration::from_micros(50)))?;
                continue;
            }
            self.publish((sent % self.boxes.len() as u64) as usize, due)?;
            sent += 1;
        }
        self.settle()
    }

    fn publish_for(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        let mut index = 0;
        while Instant::now() < end && !self.is_stopped {
            if self.idle.is_empty() {
                self.turn(end)?;
                continue;
            }
            self.publish(index, Instant::now())?;
            index = (index + 1) % self.boxes.len();
        }
        self.settle()
    }

    /// Waits until everything that was published has been acknowledged and has reached every subscriber.
    fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + DELIVERY_MAX;
        while self.is_unsettled() && !self.is_stopped && Instant::now() < end {
            self.turn(end)?;
        }
        Ok(())
    }

    fn is_unsettled(&self) -> bool {
        self.tally.deliveries < self.tally.expected || self.idle.len() < self.publishers.len()
    }

    fn turn_until(&mut self, time: Instant) -> Result<()> {
        while Instant::now() < time && !self.is_stopped {
            self.turn(time)?;
        }
        Ok(())
    }

    /// Waits for events until `until` at most, and handles them.
    fn turn(&mut self, until: Instant) -> Result<()> {
        let empty = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [empty; EVENTS_MAX];
        let timeout = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(timeout).context(|| "time-out".into())?;
        let ready = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => 0,
            result => result.context(|| "epoll_wait".into())?,
        };
        for event in &events[..ready] {
            match event.data.u64() {
                ORDERS => self.is_stopped = true,
                data if data & PUBLISHER != 0 => {
                    self.receive_acknowledgement((data & !PUBLISHER) as usize)?;
                }
                data => self.receive(data as usize)?,
            }
        }
        Ok(())
    }

    fn publish(&mut self, number: usize, due: Instant) -> Result<()> {
        let Some(index) = self.idle.pop_front() else {
            return Err(Failure::new("no publisher is idle"));
        };
        let state = &mut self.boxes[number];
        self.message.clear();
        self.payloads
            .write(number, state.published, self.bytes, &mut self.message);
        self.request.clear();
        let target = &self.target;
        target.dialect.publish(
            &self.host,
            number,
            &target.key,
            &self.message,
            &mut self.request,
        );
        state.note_due(due);
        self.tally.messages += 1;
        self.tally.expected += state.subscribers;
        let publisher = &mut self.publishers[index];
        publisher.due = Some(due);
        match publisher.connection.write(&self.request) {
            Ok(sent) if sent == self.request.len() => Ok(()),
            Ok(_) => self.replace_publisher(index, "publish: sent in part"),
            Err(error) => self.replace_publisher(index, &format!("publish: {error}")),
        }
    }

    fn receive_acknowledgement(&mut self, index: usize) -> Result<()> {
        let publisher = &mut self.publishers[index];
        let read = match publisher.connection.read(&mut self.scratch) {
            Ok(0) => return self.replace_publisher(index, "publish: connection closed"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return self.replace_publisher(index, &format!("publish: {error}")),
        };
        match publisher.decoder.feed(&self.scratch[..read]) {
            Ok(None) => Ok(()),
            Ok(Some(response)) if !(200..300).contains(&response.status) => {
                self.replace_publisher(index, &format!("publish: status {}", response.status))
            }
            Ok(Some(_)) => {
                if let Some(due) = publisher.due.take() {
                    self.tally.acknowledgements += 1;
                    self.tally.acknowledged.record(microseconds_since(due));
                }
                self.idle.push_back(index);
                Ok(())
            }
            Err(error) => self.replace_publisher(index, &format!("publish: {error}")),
        }
    }

    /// Counts an error. A publisher that had nothing pending is replaced as well, so that the next publish finds one.
    fn replace_publisher(&mut self, index: usize, why: &str) -> Result<()> {
        self.tally.error(why.into());
        self.publishers[index] = self.open_publisher(index)?;
        if !self.idle.contains(&index) {
            self.idle.push_back(index);
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let subscriber = &mut self.subscribers[index];
        let read = match subscriber.connection.read(&mut self.scratch) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return self.lose(index, &format!("subscriber: {error}")),
        };
        if read == 0 {
            return self.lose(index, "subscriber: connection closed");
        }
        self.tally.wire_bytes += read as u64;
        let had_begun = subscriber.stream.has_begun();
        let number = index % self.target.boxes;
        let mut inbox = Inbox {
            dialect: self.target.dialect,
            state: &self.boxes[number],
            payloads: &mut self.payloads,
            tally: &mut self.tally,
            next: &mut subscriber.next,
            number,
            bytes: self.bytes,
        };
        let fed = subscriber
            .stream
            .feed(&self.scratch[..read], |data| inbox.take(data));
        match fed {
            Err(error) => return self.lose(index, &format!("subscriber: {error}")),
            Ok(()) if !had_begun && self.subscribers[index].stream.has_begun() => {
                self.tally.begun += 1;
            }
            Ok(()) => {}
        }
        Ok(())
    }

    /// A lost subscriber stays lost: what it does not get is missing.
    fn lose(&mut self, index: usize, why: &str) -> Result<()> {
        self.tally.error(why.into());
        let connection = &self.subscribers[index].connection;
        epoll::delete(&self.epoll, connection).context(|| "epoll_ctl".into())
    }

    fn delivered(&mut self, took: Duration, cpu_seconds: f64) -> Delivered {
        let tally = std::mem::take(&mut self.tally);
        Delivered {
            messages: tally.acknowledgements,
            deliveries: tally.deliveries,
            missing: tally.expected.saturating_sub(tally.deliveries),
            errors: tally.errors,
            first_error: tally.first_error,
            seconds: took.as_secs_f64(),
            wire_bytes: tally.wire_bytes,
            cpu_seconds,
            last_us: tally.last_us,
            latency: (&tally.latency).into(),
            acknowledged: (&tally.acknowledged).into(),
        }
    }
}

impl BoxState {
    fn note_due(&mut self, due: Instant) {
        let place = self.published as usize % RECENT;
        if place == self.due.len() {
            self.due.push(due);
        } else {
            self.due[place] = due;
        }
        self.published += 1;
    }
}

/// Where the messages of a subscriber go.
struct Inbox<'a> {
    dialect: Dialect,
    state: &'a BoxState,
    payloads: &'a mut Payloads,
    tally: &'a mut Tally,
    next: &'a mut u64,
    number: usize,
    bytes: usize,
}

impl Inbox<'_> {
    fn take(&mut self, data: &[u8]) {
        let Some(message) = self.dialect.message(data) else {
            return;
        };
        let number = *self.next;
        let is_next = number < self.state.published
            && self.payloads.is(self.number, number, self.bytes, message);
        if !is_next {
            let length = message.len().min(60);
            let start = String::from_utf8_lossy(&message[..length]).into_owned();
            let name = self.number;
            let error = format!("message {number} of box {name} is not the one that came: {start}");
            return self.tally.error(error);
        }
        *self.next += 1;
        self.tally.deliveries += 1;
        let due = self.state.due[number as usize % RECENT];
        self.tally.latency.record(microseconds_since(due));
    }
}

fn microseconds_since(time: Instant) -> f64 {
    time.elapsed().as_secs_f64() * 1e6
}

/// The address of a subscriber: 127.0.0.2 and the following ones.
fn source(index: usize) -> Ipv4Addr {
    let number = u32::try_from(index / PER_ADDRESS).unwrap_or(u32::MAX);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 2)).saturating_add(number))
}

fn connect(address: SocketAddr, source: Ipv4Addr) -> Result<TcpStream> {
    let connected = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if address.is_ipv4() && source != Ipv4Addr::LOCALHOST {
            let source = SocketAddr::new(IpAddr::V4(source), 0);
            socket.bind(&source.into())?;
        }
        socket.set_tcp_nodelay(true)?;
        socket.connect(&address.into())?;
        std::io::Result::Ok(TcpStream::from(socket))
    };
    connected().context(|| format!("connect to {address} from {source}"))
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_have_several_addresses() {
        assert_eq!(source(0), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(source(PER_ADDRESS - 1), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(source(20_000), Ipv4Addr::new(127, 0, 0, 6));
    }

    #[test]
    fn only_recent_times_are_kept() {
        let mut state = BoxState::default();
        let start = Instant::now();
        for number in 0..1000 {
            state.note_due(start + Duration::from_secs(number));
        }
        assert_eq!(state.due.len(), RECENT);
        assert_eq!(state.due[999 % RECENT], start + Duration::from_secs(999));
    }

    #[test]
    fn only_the_next_message_counts() {
        let mut state = BoxState::default();
        state.note_due(Instant::now());
        state.note_due(Instant::now());
        let (mut payloads, mut tally, mut next) = (Payloads::default(), Tally::default(), 0);
        let mut texts = [Vec::new(), Vec::new()];
        for (number, text) in texts.iter_mut().enumerate() {
            payloads.write(0, number as u64, 50, text);
        }
        let mut inbox = Inbox {
            dialect: Dialect::Nchan,
            state: &state,
            payloads: &mut payloads,
            tally: &mut tally,
            next: &mut next,
            number: 0,
            bytes: 50,
        };
        for text in [&texts[1], &texts[0], &texts[0], &texts[1], &texts[1]] {
            inbox.take(text);
        }
        assert_eq!((tally.deliveries, tally.errors, next), (2, 3, 2));
        assert!(tally.first_error.unwrap().contains("0:1:"));
    }
}
