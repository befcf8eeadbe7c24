//! Programs that decode what the server compresses. A backend sends each response in random pieces.

use std::fs;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::clients::{build_go, chromium, run, url};
use crate::support::scripted::{Conn, Scripted};
use crate::support::{CODINGS, Server, Tree, WAIT_MAX, assert_same, sources};

/// Responses per client and coding; the second is for the slow test.
const SOME: usize = 100;
const MANY: usize = 715;

/// Clients and their codings: three of curl, Python, Go and Chromium, two of Java.
const PAIRS: usize = 14;

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, max: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % max as u64) as usize
    }
}

/// The content of one number, in ASCII: words, and what does not become shorter.
fn numbered(number: u64) -> Vec<u8> {
    const WORDS: &[u8] = b"the loop never waits for a disk while it has other things to do\n";
    let mut random = Random::new(number);
    let length = match random.below(20) {
        0 => random.below(300_000),
        _ => random.below(10_000),
    };
    let mut content = Vec::with_capacity(length + WORDS.len());
    while content.len() < length {
        match random.below(4) {
            0 => content.extend((0..random.below(500)).map(|_| b' ' + random.below(95) as u8)),
            _ => content.extend_from_slice(&WORDS[random.below(WORDS.len())..]),
        }
    }
    content.truncate(length);
    content
}

/// Sends the content of one number: chunks of random sizes, several or a part of one per write.
fn send_numbered(conn: &mut Conn, number: u64) {
    let content = numbered(number);
    let mut sum = flate2::Crc::new();
    sum.update(&content);
    let mut random = Random::new(!number);
    let is_chunked = random.below(4) > 0;
    let framing = match is_chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {}", content.len()),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Sum: {:08x}\r\n{framing}\r\n\r\n",
        sum.sum()
    );
    let mut unsent = head.into_bytes();
    let piece_max = (1 << random.below(18)).max(1 + content.len() / 200);
    let mut rest = &content[..];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + random.below(piece_max)).min(rest.len()));
        match is_chunked {
            true => unsent.extend(super::bounds::chunk(piece)),
            false => unsent.extend_from_slice(piece),
        }
        rest = after;
        if random.below(3) == 0 {
            conn.send(&unsent);
            unsent.clear();
            thread::yield_now();
        }
    }
    if is_chunked {
        unsent.extend_from_slice(b"0\r\n\r\n");
    }
    conn.send(unsent);
}

/// Answers with a page of `apps/decoders`.
pub fn send_page(conn: &mut Conn, name: &str) {
    let page = fs::read(sources("decoders").join(name)).expect("a page");
    let length = page.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n");
    conn.send([head.as_bytes(), &page].concat());
}

/// A server in front of `backend` that has a route per coding, whatever else a client accepts.
fn launched(backend: &Scripted) -> Server {
    let routes = CODINGS.map(|coding| {
        format!("[[site.route]]\npath = \"/{coding}/*\"\ncompress_codings = [\"{coding}\"]\n")
    });
    let keys = format!("compress_min_bytes = \"0B\"\n{}", routes.concat());
    super::in_front_of(backend, "", &keys).start()
}

fn numbers() -> (Scripted, Server) {
    let backend = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            match request.target.rsplit_once('/') {
                Some(("", _)) => send_page(conn, "decode.html"),
                Some((_, number)) => send_numbered(conn, number.parse().expect("a number")),
                None => panic!("no path: {}", request.target),
            };
        }
    });
    let server = launched(&backend);
    (backend, server)
}

/// Some responses for one client: the numbers from `first`, in each of its codings.
#[derive(Clone, Copy)]
struct Task<'s> {
    server: &'s Server,
    first: usize,
    count: usize,
}

impl Task<'_> {
    /// Runs a program that decodes them and checks their sums.
    #[track_caller]
    fn run(self, program: &str, arguments: &[&str], coding: &str) {
        let (host, port) = (self.server.address().ip(), self.server.address().port());
        let [host, port] = [host.to_string(), port.to_string()];
        let [first, count] = [self.first, self.count].map(|number| number.to_string());
        let arguments = [arguments, &[&host, &port, coding, &first, &count]].concat();
        let output = run(self.time_max(), program, &arguments, &sources("decoders"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout.trim(), count, "{coding}: {stderr}");
    }

    fn time_max(self) -> Duration {
        Duration::from_secs(30 + self.count as u64 / 5)
    }

    /// curl says the coding of each response, and writes them all to its standard output.
    fn curl(self) {
        for coding in CODINGS {
            let last = self.first + self.count - 1;
            let url = url(self.server, &format!("/{coding}/[{}-{last}]", self.first));
            let arguments = [
                "--silent",
                "--show-error",
                "--fail",
                "--noproxy",
                "*",
                "--compressed",
                "--write-out",
                "%{stderr}%header{content-encoding}\n",
                &url,
            ];
            let output = run(self.time_max(), "curl", &arguments, &sources("decoders"));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(stderr, format!("{coding}\n").repeat(self.count));
            let contents = (self.first..=last).map(|number| numbered(number as u64));
            assert_same(&output.stdout, &contents.collect::<Vec<_>>().concat());
        }
    }

    fn python(self) {
        for coding in CODINGS {
            self.run("/usr/bin/python3", &["decode.py"], coding);
        }
    }

    fn chromium(self) {
        for coding in CODINGS {
            let (first, count) = (self.first, self.count);
            let query = format!("/?coding={coding}&first={first}&count={count}");
            let page = chromium(self.time_max(), &url(self.server, &query));
            assert!(page.contains(&format!(">decoded {count}")), "{coding}");
        }
    }

    fn go(self) {
        let own = Tree::new();
        let program = build_go(&sources("decoders").join("decode.go"), &own);
        for coding in CODINGS {
            self.run(&program, &[], coding);
        }
    }

    /// No package of Debian decodes `br` in Java.
    fn java(self) {
        let arguments = ["-cp", "/usr/share/java/zstd-jni.jar", "Decode.java"];
        for coding in ["gzip", "zstd"] {
            self.run("java", &arguments, coding);
        }
    }
}

#[test]
fn curl_decodes() {
    let (_backend, server) = numbers();
    Task {
        server: &server,
        first: 0,
        count: SOME,
    }
    .curl();
}

#[test]
fn python_decodes() {
    let (_backend, server) = numbers();
    Task {
        server: &server,
        first: SOME,
        count: SOME,
    }
    .python();
}

#[test]
fn chromium_decodes() {
    let (_backend, server) = numbers();
    Task {
        server: &server,
        first: 2 * SOME,
        count: SOME,
    }
    .chromium();
}

#[test]
#[ignore = "slow: 10 000 responses, in Go and Java too"]
fn every_client_decodes_many_responses() {
    const { assert!(PAIRS * MANY >= 10_000) };
    let clients: [fn(Task<'_>); 5] = [
        |task| task.curl(),
        |task| task.python(),
        |task| task.chromium(),
        |task| task.go(),
        |task| task.java(),
    ];
    for (number, decode) in clients.into_iter().enumerate() {
        // A connection to the backend would be idle for too long while Go builds.
        let (_backend, server) = numbers();
        decode(Task {
            server: &server,
            first: number * MANY,
            count: MANY,
        });
    }
}

const EVENTS: usize = 20;

/// What the page of events reports: one channel per coding, and one for the ends.
struct Reports {
    received: [(mpsc::Sender<usize>, Mutex<mpsc::Receiver<usize>>); CODINGS.len()],
    ended: (mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>),
}

impl Reports {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            received: CODINGS.map(|_| {
                let (sender, receiver) = mpsc::channel();
                (sender, Mutex::new(receiver))
            }),
            ended: (sender, Mutex::new(receiver)),
        }
    }

    /// Sends an event when the page has reported the one before.
    fn send_events(&self, conn: &mut Conn, coding: usize) {
        conn.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let reports = self.received[coding]
            .1
            .lock()
            .expect("one stream per coding");
        for number in 0..EVENTS {
            conn.send(super::bounds::chunk(
                format!("data: {number}\n\n").as_bytes(),
            ));
            let reported = reports
                .recv_timeout(WAIT_MAX)
                .expect("the page reports each event");
            assert_eq!(reported, number);
        }
        self.ended.0.send(()).expect("the test lasts longer");
        // The browser would connect again.
        conn.stall();
    }

    fn answer(&self, conn: &mut Conn, target: &str) {
        let named = |name: &str| CODINGS.iter().position(|coding| *coding == name);
        let words: Vec<_> = target.split('/').skip(1).collect();
        match words[..] {
            [""] => send_page(conn, "events.html"),
            [coding, "events"] => self.send_events(conn, named(coding).expect("a coding")),
            ["received", coding, number] => {
                let (sender, _) = &self.received[named(coding).expect("a coding")];
                sender
                    .send(number.parse().expect("a number"))
                    .expect("a receiver");
                conn.answer("200 OK", "");
            }
            ["end"] => {
                let ended = self.ended.1.lock().expect("one end");
                for _ in CODINGS {
                    ended
                        .recv_timeout(3 * WAIT_MAX)
                        .expect("the end of a stream");
                }
                conn.answer("200 OK", "");
            }
            _ => {
                conn.answer("404 Not Found", "");
            }
        }
    }
}

#[test]
fn chromium_receives_events() {
    let reports = Reports::new();
    let backend = Scripted::tcp(move |conn| {
        while let Some(request) = conn.read_request() {
            reports.answer(conn, &request.target);
        }
    });
    let server = launched(&backend);
    let page = chromium(3 * WAIT_MAX, &url(&server, "/"));
    let numbers: Vec<_> = (0..EVENTS).map(|number| number.to_string()).collect();
    for coding in CODINGS {
        let shown = format!("<p id=\"{coding}\">{}", numbers.join(" "));
        assert!(page.contains(&shown), "{shown}");
    }
    // The browser accepts all of them.
    let requests = backend.requests();
    let events = requests
        .iter()
        .find(|request| request.target.ends_with("/events"));
    let accepted = events.and_then(|request| request.field("accept-encoding"));
    for coding in CODINGS {
        let accepts = accepted
            .unwrap_or_default()
            .split(", ")
            .any(|own| own == coding);
        assert!(accepts, "{accepted:?}");
    }
}
