//! Slow clients: many connections, each of which reads a little at fixed intervals. They keep a server's responses
//! under way.

use crate::failure::{Context, Failure, Result};
use crate::rig::confine::pinned;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Small, so that a response waits at the server and not in the kernel of the client.
const RECEIVE_BUFFER_BYTES: usize = 4096;
/// Segments as on Ethernet. The kernel sizes the send buffer of the server for ten segments, and those of the loopback
/// interface are 64 KiB: megabytes of each response would wait in the kernel.
const SEGMENT_BYTES: u32 = 1460;
/// New connections are this far apart: all at once would be a burst, in which a server may refuse to compress.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);
/// The reads of a connection are this far apart.
const ROUND: Duration = Duration::from_secs(1);
/// The time between two looks at what is due.
const TICK: Duration = Duration::from_millis(5);
/// The time after the last connection in which every response must have begun.
const BEGIN_MAX: Duration = Duration::from_secs(20);

/// The requests, the connections and their speed.
#[derive(Clone, Debug, clap::Args)]
pub struct Sip {
    /// The address of the server.
    #[arg(long)]
    pub address: SocketAddr,
    /// Connections, each with one request.
    #[arg(long)]
    pub connections: usize,
    /// The path to request.
    #[arg(long)]
    pub path: String,
    /// The coding in Accept-Encoding.
    #[arg(long)]
    pub coding: String,
    /// Bytes that a connection reads per second.
    #[arg(long)]
    pub bytes_per_second: usize,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Sipped {
    /// Connections whose response has begun and has not ended.
    pub reading: usize,
    /// Connections that the server has closed, whatever they had received.
    pub closed: usize,
    /// Bytes that arrived, headers included.
    pub bytes: u64,
    /// Since the first request.
    pub seconds: f64,
}

struct Connection {
    stream: TcpStream,
    has_begun: bool,
    is_closed: bool,
}

impl Sip {
    /// Runs in this process. Prints [`Sipped`] as JSON when every response has begun, or 20 s after the last
    /// connection, and again at the end of standard input.
    ///
    /// # Errors
    /// The server refuses a connection.
    pub fn run(&self) -> Result<()> {
        super::command::raise_descriptor_limit(self.connections as u64 + 64)?;
        let started = Instant::now();
        let mut clients = Clients {
            buffer: vec![0; self.bytes_per_second],
            connections: Vec::with_capacity(self.connections),
            bytes: 0,
            turns: 0,
            started,
        };
        for _ in 0..self.connections {
            clients.connections.push(self.open()?);
            clients.read_due();
            std::thread::sleep(CONNECT_INTERVAL);
        }
        let connected = Instant::now();
        while !clients.have_begun() && connected.elapsed() < BEGIN_MAX {
            std::thread::sleep(TICK);
            clients.read_due();
        }
        print(&clients.sipped())?;
        while !input_ends_within(TICK)? {
            clients.read_due();
        }
        print(&clients.sipped())
    }

    /// The socket gets its options before the connection, because they decide window and segments.
    fn open(&self) -> Result<Connection> {
        let connected = || {
            let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
            socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
            socket.set_tcp_mss(SEGMENT_BYTES)?;
            socket.connect(&self.address.into())?;
            let mut stream = TcpStream::from(socket);
            let Self {
                path,
                address,
                coding,
                ..
            } = self;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: {coding}\r\n\r\n"
            );
            stream.write_all(request.as_bytes())?;
            stream.set_nonblocking(true)?;
            std::io::Result::Ok(stream)
        };
        Ok(Connection {
            stream: connected().context(|| format!("connect to {}", self.address))?,
            has_begun: false,
            is_closed: false,
        })
    }

    /// Starts it as a process, pinned to `cpu` if given, and waits until the responses have begun.
    ///
    /// # Errors
    /// The process cannot be started, or the server refuses a connection.
    pub fn start(&self, cpu: Option<usize>) -> Result<(RunningSip, Sipped)> {
        let arguments = [
            "sip".to_owned(),
            format!("--address={}", self.address),
            format!("--connections={}", self.connections),
            format!("--path={}", self.path),
            format!("--coding={}", self.coding),
            format!("--bytes-per-second={}", self.bytes_per_second),
        ];
        let mut child = pinned(cpu, &arguments)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(|| "start the slow clients".into())?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::new("no standard output"))?;
        let mut running = RunningSip {
            child,
            output: BufReader::new(output),
        };
        let begun = running.line()?;
        Ok((running, begun))
    }
}

struct Clients {
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    bytes: u64,
    /// Reads so far. They go round the connections, evenly spaced.
    turns: usize,
    started: Instant,
}

impl Clients {
    fn read_due(&mut self) {
        let share = self.started.elapsed().as_secs_f64() / ROUND.as_secs_f64();
        let due = (share * self.connections.len() as f64) as usize;
        for turn in self.turns.max(due.saturating_sub(self.connections.len()))..due {
            let index = turn % self.connections.len();
            self.bytes += self.connections[index].read(&mut self.buffer);
        }
        self.turns = due;
    }

    fn have_begun(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.all(|connection| connection.has_begun || connection.is_closed)
    }

    fn sipped(&self) -> Sipped {
        let count = |is: fn(&Connection) -> bool| self.connections.iter().filter(|c| is(c)).count();
        Sipped {
            reading: count(|connection| connection.has_begun && !connection.is_closed),
            closed: count(|connection| connection.is_closed),
            bytes: self.bytes,
            seconds: self.started.elapsed().as_secs_f64(),
        }
    }
}

impl Connection {
    fn read(&mut self, buffer: &mut [u8]) -> u64 {
        if self.is_closed {
            return 0;
        }
        match self.stream.read(buffer) {
            Ok(read) if read > 0 => {
                self.has_begun = true;
                read as u64
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Ok(_) | Err(_) => {
                self.is_closed = true;
                0
            }
        }
    }
}

fn print(sipped: &Sipped) -> Result<()> {
    let json = serde_json::to_string(sipped).context(|| "report".into())?;
    println!("{json}");
    std::io::stdout()
        .flush()
        .context(|| "standard output".into())
}

/// Nothing is ever written to standard input: it is readable at its end.
fn input_ends_within(time: Duration) -> Result<bool> {
    let input = std::io::stdin();
    let mut events = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec::try_from(time).context(|| "time-out".into())?;
    match poll(&mut events, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        result => Ok(result.context(|| "poll".into())? > 0),
    }
}

/// Running slow clients. Dropping them ends the process.
pub struct RunningSip {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl RunningSip {
    /// Ends them and waits for their report.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn end(mut self) -> Result<Sipped> {
        drop(self.child.stdin.take());
        self.line()
    }

    fn line(&mut self) -> Result<Sipped> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .context(|| "read the report of the slow clients".into())?;
        serde_json::from_str(&line).context(|| "the slow clients failed".into())
    }
}

impl Drop for RunningSip {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
