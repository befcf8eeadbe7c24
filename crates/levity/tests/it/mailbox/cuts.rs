//! Publishers and receivers whose connections are cut after any byte, while the server is killed, restarted and reloaded.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;

use super::stores::LASTING;
use super::{KEY, SOON};
use crate::servers;
use crate::support::{Launch, Server, Tree, wait_until};

const PUBLISHERS: usize = 4;
const RECEIVERS: usize = 4;

/// About the size in bytes of a message with what is around it, and of a request and its answer.
const CUT_BYTES_MAX: u64 = 1200;

/// Numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A connection that is cut after a number of bytes in both directions.
struct Fragile {
    stream: TcpStream,
    left: usize,
}

impl Fragile {
    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let sent = bytes.len().min(self.left);
        self.left -= sent;
        self.stream.write_all(&bytes[..sent]).ok()?;
        (sent == bytes.len()).then_some(())
    }

    /// What comes next; `None` when it is over.
    fn receive(&mut self, to: &mut Vec<u8>) -> Option<()> {
        let mut bytes = [0; 4096];
        let room = bytes.len().min(self.left);
        let got = self.stream.read(&mut bytes[..room]).ok()?;
        self.left -= got;
        to.extend_from_slice(&bytes[..got]);
        (got > 0).then_some(())
    }
}

/// What all have in common.
struct World {
    /// Where the server is. Nobody connects while there is none.
    address: RwLock<SocketAddr>,
    messages: usize,
    acknowledged: AtomicUsize,
    cuts: AtomicUsize,
    start: Instant,
}

impl World {
    fn connect(&self, random: &mut Random) -> Option<Fragile> {
        assert!(self.start.elapsed() < SOON * 60, "it comes to no end");
        let stream = TcpStream::connect(*self.address.read().expect("an address")).ok()?;
        stream.set_read_timeout(Some(SOON)).expect("a time-out");
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let left = random.below(CUT_BYTES_MAX) as usize;
        Some(Fragile { stream, left })
    }

    /// Publishes messages one after the other, each until it is acknowledged.
    fn publish(&self, publisher: usize, random: &mut Random) {
        for number in 0..self.messages {
            let text = format!("{publisher}-{number}");
            while self.post(&text, random).is_none() {}
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn post(&self, text: &str, random: &mut Random) -> Option<()> {
        let mut conn = self.connect(random)?;
        let request = format!(
            "POST /m/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\
             Mailbox-Id: {text}\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        conn.send(request.as_bytes())?;
        let mut answer = Vec::new();
        while conn.receive(&mut answer).is_some() {}
        let answer = String::from_utf8(answer).expect("text");
        let (head, _) = answer.split_once("\r\n\r\n")?;
        match &head.get(9..12)? {
            &"201" | &"202" => Some(()),
            // The store does not answer just now.
            &"503" => None,
            _ => panic!("{answer}"),
        }
    }

    /// Receives until it has all messages.
    fn receive(&self, random: &mut Random) -> Received {
        let mut received = Received::default();
        while received.texts.len() < PUBLISHERS * self.messages {
            let Some(mut conn) = self.connect(random) else {
                continue;
            };
            let cursor = received.last.as_deref().unwrap_or("earliest");
            let request = format!(
                "GET /m/a?last_event_id={cursor} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"
            );
            let mut bytes = Vec::new();
            if conn.send(request.as_bytes()).is_some() {
                // An answer of 503 has no events.
                while received.take(&bytes) < PUBLISHERS * self.messages
                    && conn.receive(&mut bytes).is_some()
                {}
            }
            received.keep();
        }
        received
    }
}

/// What a receiver has got.
#[derive(Default)]
struct Received {
    texts: Vec<String>,
    last: Option<String>,
    gaps: usize,
    /// Of the present connection.
    new: Vec<(String, String, bool)>,
}

impl Received {
    /// Looks at all that has come on a connection, and tells how many messages there are with the ones before.
    fn take(&mut self, bytes: &[u8]) -> usize {
        self.new.clear();
        let text = dechunked(bytes);
        // What is behind the last empty line is incomplete.
        let complete = text.rfind("\n\n").map_or("", |end| &text[..end + 1]);
        let mut is_after_gap = false;
        for block in complete.split("\n\n") {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if field("event: ") == Some("gap") {
                is_after_gap = true;
            } else if let Some(data) = field("data: ") {
                let id = field("id: ").expect("an id");
                self.new
                    .push((id.to_owned(), data.to_owned(), is_after_gap));
                is_after_gap = false;
            }
        }
        self.texts.len() + self.new.len()
    }

    /// Takes the messages of a connection that has ended. Nothing is left out unless a gap was announced.
    fn keep(&mut self) {
        for (id, text, is_after_gap) in self.new.drain(..) {
            if let Some(last) = &self.last {
                assert!(is_after_gap || follows(last, &id), "{id} after {last}");
            }
            self.gaps += usize::from(is_after_gap);
            self.last = Some(id);
            self.texts.push(text);
        }
    }
}

/// What a box leaves out at least when a Redis server that was killed goes on: 4096 numbers for each millisecond of its life.
const LEFT_OUT_MIN: u64 = 1 << 16;

/// Whether there can be no message between these ids.
fn follows(before: &str, id: &str) -> bool {
    let parts = |id: &str| {
        let (epoch, sequence) = id.split_once('-').expect("EPOCH-SEQUENCE");
        let sequence: u64 = sequence.parse().expect("a number");
        (epoch.to_owned(), sequence)
    };
    let ((epoch, last), (of, next)) = (parts(before), parts(id));
    epoch == of && (next == last + 1 || next >= last + LEFT_OUT_MIN)
}

/// The body of a response in chunks, as far as it has come.
fn dechunked(bytes: &[u8]) -> String {
    let mut text = String::new();
    let all = String::from_utf8_lossy(bytes);
    let Some((_, mut rest)) = all.split_once("\r\n\r\n") else {
        return text;
    };
    while let Some((size, chunk)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        text.push_str(&chunk[..size.min(chunk.len())]);
        match chunk.get(size + 2..) {
            Some(next) if size > 0 => rest = next,
            _ => break,
        }
    }
    text
}

/// Lets `messages` of each publisher arrive, and `disturb` the server `times` meanwhile. Gives what receivers have got, which
/// is the same for all, and the number of connections that were cut.
fn run(
    server: Server,
    messages: usize,
    times: usize,
    mut disturb: impl FnMut(Server, usize) -> Server,
) -> (Received, usize) {
    let seed = RandomState::new().hash_one(0);
    eprintln!("seed {seed}");
    let world = World {
        address: RwLock::new(server.address()),
        messages,
        acknowledged: AtomicUsize::new(0),
        cuts: AtomicUsize::new(0),
        start: Instant::now(),
    };
    let random = |number: usize| Random(seed.wrapping_add(number as u64));
    let all: Mutex<Vec<Received>> = Mutex::new(Vec::new());
    let mut server = Some(server);
    thread::scope(|scope| {
        let (world, all) = (&world, &all);
        for publisher in 0..PUBLISHERS {
            scope.spawn(move || world.publish(publisher, &mut random(publisher)));
        }
        for receiver in 0..RECEIVERS {
            scope.spawn(move || {
                let received = world.receive(&mut random(PUBLISHERS + receiver));
                all.lock().expect("results").push(received);
            });
        }
        for time in 0..times {
            let due = (time + 1) * PUBLISHERS * messages / (times + 1);
            wait_until("more messages are published", || {
                world.acknowledged.load(Ordering::Relaxed) >= due
            });
            let mut address = world.address.write().expect("an address");
            let disturbed = disturb(server.take().expect("a server"), time);
            *address = disturbed.address();
            server = Some(disturbed);
        }
    });
    let mut all = all.into_inner().expect("results");
    let first = all.pop().expect("a receiver");
    for other in all {
        assert_eq!(first.texts, other.texts);
    }
    let mut texts = first.texts.clone();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), PUBLISHERS * messages, "some are doubled");
    (first, world.cuts.into_inner())
}

/// A server with the set `m`, whose messages are kept as `store` says. Its publishers have the key in `tree`.
fn start(tree: &Tree, store: &str, keys: &str) -> Server {
    let key = tree.file("key", KEY);
    Launch::run(&format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[mailbox_store]\n{store}\n\
         [[mailbox]]\nname = \"m\"\npublish_key_file = \"{}\"\n\
         messages = 10000\nbytes = \"16MiB\"\npublishes_per_second = 100000\n{keys}\n\
         [[site]]\nrespond = {{}}\n[[site.route]]\npath = \"/m/*\"\nmailbox = \"m\"\n",
        key.display()
    ))
    .start()
}

fn killed(mut server: Server) {
    server.signal(Signal::KILL);
    server.wait();
}

/// Kills, restarts and reloads: nothing that was acknowledged is lost, and no receiver is told of a gap.
fn disk_loses_nothing(messages: usize, times: usize) -> usize {
    let tree = Tree::new();
    let folder = tree.folder("messages").display().to_string();
    tree.chmod("messages", 0o777);
    let store = format!("store = \"disk\"\nfolder = \"{folder}\"");
    let again = || start(&tree, &store, "durable = true");
    let (received, cuts) = run(again(), messages, times, |mut server, time| {
        match time % 3 {
            0 => killed(server),
            1 => {
                server.reload(&[], &[]);
                return server;
            }
            _ => {
                server.signal(Signal::TERM);
                assert!(server.wait().success());
            }
        }
        again()
    });
    assert_eq!(received.gaps, 0);
    cuts
}

#[test]
fn a_disk_loses_nothing_under_kills_and_cuts() {
    let cuts = disk_loses_nothing(25, 3);
    assert!(cuts > 100, "{cuts}");
}

#[test]
#[ignore = "takes a minute: `cargo xtask test --full`"]
fn a_disk_loses_nothing_under_a_thousand_cuts() {
    let cuts = disk_loses_nothing(300, 30);
    assert!(cuts > 1000, "{cuts}");
}

/// Two servers in turn, and a Redis server that is killed too.
fn redis_loses_nothing(messages: usize, times: usize) -> usize {
    let (tree, mut redis) = (Tree::new(), servers::Server::redis(LASTING));
    let store = format!(
        "store = \"redis\"\nurl = \"redis://127.0.0.1:{}\"",
        redis.port()
    );
    let again = || start(&tree, &store, "");
    let (_, cuts) = run(again(), messages, times, |server, time| {
        if time % 2 == 0 {
            redis.stop();
            redis.start();
            return server;
        }
        killed(server);
        again()
    });
    cuts
}

#[test]
fn redis_loses_nothing_under_kills_and_cuts() {
    let cuts = redis_loses_nothing(25, 2);
    assert!(cuts > 100, "{cuts}");
}

#[test]
#[ignore = "takes a minute: `cargo xtask test --full`"]
fn redis_loses_nothing_under_a_thousand_cuts() {
    let cuts = redis_loses_nothing(300, 20);
    assert!(cuts > 1000, "{cuts}");
}
