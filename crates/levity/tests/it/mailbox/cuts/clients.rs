//! Publishers and receivers whose connections are cut after any byte.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{KEY, SOON};
use super::check::{Acknowledged, Loss, Message, Received};
use crate::support::wait_until;

pub const PUBLISHERS: usize = 4;
pub const RECEIVERS: usize = 4;

/// The text of the last message.
pub const END: &str = "end";

/// The pause of a publisher that was refused.
const PAUSE: Duration = Duration::from_millis(5);

/// Numbers by SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A connection that is cut after a number of bytes in both directions.
pub struct Fragile {
    stream: TcpStream,
    left: usize,
}

impl Fragile {
    pub fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let sent = bytes.len().min(self.left);
        self.left -= sent;
        self.stream.write_all(&bytes[..sent]).ok()?;
        (sent == bytes.len()).then_some(())
    }

    /// What comes next; `None` when it is over.
    fn receive(&mut self, to: &mut Vec<u8>) -> Result<(), ErrorKind> {
        let mut bytes = [0; 4096];
        let room = bytes.len().min(self.left);
        let got = self.stream.read(&mut bytes[..room]);
        let got = got.map_err(|error| error.kind())?;
        self.left -= got;
        to.extend_from_slice(&bytes[..got]);
        (got > 0).then_some(()).ok_or(ErrorKind::UnexpectedEof)
    }
}

/// What the clients of a box have in common.
pub struct World {
    /// The path of the box.
    pub path: String,
    /// Where the servers are. Nobody connects while one of them is replaced.
    pub addresses: RwLock<Vec<SocketAddr>>,
    pub acknowledged: Mutex<Vec<Acknowledged>>,
    pub losses: Mutex<Vec<Loss>>,
    pub refused: AtomicUsize,
    pub connections: AtomicUsize,
    /// Publishers end.
    pub is_over: AtomicBool,
    /// A test fails: everybody ends.
    has_failed: AtomicBool,
}

/// Has everybody end when the thread panics that has it.
pub struct EndInPanic<'a>(pub &'a World);

impl Drop for EndInPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl World {
    pub fn new(path: String, addresses: Vec<SocketAddr>) -> Self {
        Self {
            path,
            addresses: RwLock::new(addresses),
            acknowledged: Mutex::default(),
            losses: Mutex::default(),
            refused: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    pub fn connect(&self, random: &mut Random) -> Option<Fragile> {
        assert!(!self.has_failed.load(Ordering::Relaxed), "another failed");
        let addresses = self.addresses.read();
        let addresses = addresses.unwrap_or_else(PoisonError::into_inner);
        let stream = TcpStream::connect(random.choose(&addresses)).ok()?;
        stream.set_read_timeout(Some(SOON)).expect("a time-out");
        self.connections.fetch_add(1, Ordering::Relaxed);
        // From less than a request to many messages.
        let left_max = 64 << random.below(10);
        let left = random.below(left_max);
        Some(Fragile { stream, left })
    }

    /// Publishes messages one after the other, each until it is acknowledged.
    pub fn publish_all(&self, publisher: usize, random: &mut Random) {
        let _guard = EndInPanic(self);
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.publish(&format!("{publisher}-{number}"), random);
        }
    }

    /// Publishes a message until it is acknowledged.
    pub fn publish(&self, text: &str, random: &mut Random) {
        self.until_acknowledged(|| {
            let headers = format!("Mailbox-Id: {text}\r\n");
            let (status, answer) = self.request(&headers, text, random)?;
            assert!(["201", "202"].contains(&&*status), "{answer}");
            let (_, body) = answer.split_once("\r\n\r\n")?;
            let body: Value = serde_json::from_str(body).ok()?;
            let id = super::super::text(&body, "id").parse().expect("an id");
            Some(Message::new(id, text))
        });
    }

    /// Repeats `publish` until it returns a message, which is acknowledged.
    pub fn until_acknowledged(&self, mut publish: impl FnMut() -> Option<Message>) {
        loop {
            let began = Instant::now();
            if let Some(message) = publish() {
                let ended = Instant::now();
                let all = self.acknowledged.lock();
                all.expect("no other failed").push(Acknowledged {
                    message,
                    began,
                    ended,
                });
                return;
            }
        }
    }

    /// Posts a text: the status and the answer, unless it is lost or the store refuses.
    pub fn request(
        &self,
        headers: &str,
        text: &str,
        random: &mut Random,
    ) -> Option<(String, String)> {
        let mut conn = self.connect(random)?;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\
             {headers}Content-Length: {}\r\n\r\n{text}",
            self.path,
            text.len()
        );
        conn.send(request.as_bytes())?;
        let mut answer = Vec::new();
        while conn.receive(&mut answer).is_ok() {}
        let answer = String::from_utf8(answer).expect("text");
        let (head, _) = answer.split_once("\r\n\r\n")?;
        let status = head.get(9..12)?.to_owned();
        // The store does not answer just now, or has no room.
        if ["503", "507"].contains(&&*status) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
            return None;
        }
        Some((status, answer))
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no other failed").len()
    }

    /// Waits until `count` further messages were acknowledged.
    pub fn wait_for(&self, count: usize) {
        let due = self.count() + count;
        wait_until("messages are acknowledged", || self.count() >= due);
    }

    /// Waits until something is acknowledged that was published after this call.
    pub fn wait_for_new(&self) {
        let now = Instant::now();
        wait_until("new messages are acknowledged", || {
            let all = self.acknowledged.lock().expect("no other failed");
            all.iter().rev().take(PUBLISHERS).any(|it| it.began > now)
        });
    }

    /// Waits until `count` further messages were refused.
    pub fn wait_for_refusals(&self, count: usize) {
        let due = self.refused.load(Ordering::Relaxed) + count;
        wait_until("messages are refused", || {
            self.refused.load(Ordering::Relaxed) >= due
        });
    }

    /// Receives until the last message has come.
    pub fn receive_all(&self, random: &mut Random) -> Received {
        let _guard = EndInPanic(self);
        let mut received = Received::default();
        while !received.has(END) {
            let Some(mut conn) = self.connect(random) else {
                continue;
            };
            let cursor = received.last.map(|last| last.to_string());
            let request = format!(
                "GET {}?last_event_id={} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n",
                self.path,
                cursor.as_deref().unwrap_or("earliest")
            );
            if conn.send(request.as_bytes()).is_some() {
                let end = format!("data: {END}\n\n");
                let bytes = self.receive_stream(&mut conn, |body| body.ends_with(&end));
                received.take(&dechunked(&bytes));
            }
        }
        received
    }

    /// What comes on a connection. Nobody waits for long while others are told that their messages are there.
    pub fn receive_stream(&self, conn: &mut Fragile, is_end: impl Fn(&str) -> bool) -> Vec<u8> {
        let (mut bytes, mut count) = (Vec::new(), None);
        loop {
            match conn.receive(&mut bytes) {
                Ok(()) => count = None,
                Err(ErrorKind::WouldBlock) => {
                    let is_waiting = bytes.starts_with(b"HTTP/1.1 200 ");
                    let before = count.replace(self.count());
                    let has_missed = before.is_some_and(|before| self.count() > before);
                    assert!(!is_waiting || !has_missed, "a receiver was not woken");
                    if before.is_some() || !is_waiting {
                        return bytes;
                    }
                }
                Err(_) => return bytes,
            }
            if is_end(&dechunked(&bytes)) {
                return bytes;
            }
        }
    }
}

/// The body of a response in chunks, as far as it has come.
pub fn dechunked(bytes: &[u8]) -> String {
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
