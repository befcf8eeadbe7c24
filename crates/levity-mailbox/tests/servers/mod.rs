//! Servers that tests start on loopback ports, with a folder of their own, and stop.

mod ports;

pub use ports::free;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

const PROGRAM: &str = "redis-server";

/// How long a server may take to be able to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(2);

/// A Redis server. Dropping it ends the process.
pub struct Server {
    arguments: String,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    /// Starts one. Without further arguments it keeps nothing on disk.
    #[must_use]
    pub fn redis(arguments: &str) -> Self {
        let mut failures = Vec::new();
        // Another process may have taken the port meanwhile.
        for _ in 0..5 {
            let port = free("127.0.0.1").port();
            let mut server = Self {
                arguments: format!("--port {port} --bind 127.0.0.1 --save '' {arguments}"),
                port,
                folder: tempfile::tempdir().unwrap(),
                child: None,
            };
            match server.try_start() {
                Ok(()) => return server,
                Err(log) => failures.push(log),
            }
        }
        panic!("{PROGRAM} does not start: {failures:?}");
    }

    /// Starts the process again.
    pub fn start(&mut self) {
        self.try_start().expect("a server");
    }

    /// Starts the process, and waits until it takes connections; what it says if it does not.
    fn try_start(&mut self) -> Result<(), String> {
        assert!(self.child.is_none());
        let words = self.arguments.split_whitespace();
        let words = words.map(|word| word.trim_matches('\''));
        let mut child = Command::new(PROGRAM)
            .args(words)
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{PROGRAM}: {error}: run `cargo xtask test`"));
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut log = String::new();
        while !log.contains("Ready to accept connections") {
            if lines.read_line(&mut log).unwrap() == 0 {
                child.wait().unwrap();
                return Err(log);
            }
        }
        // Lest it waits for a reader.
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        self.child = Some(child);
        Ok(())
    }

    /// Kills the process.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("a process");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the process for a while (SIGSTOP), or lets it go on.
    pub fn set_frozen(&self, is_frozen: bool) {
        let process = Pid::from_child(self.child.as_ref().expect("a process"));
        let signal = if is_frozen {
            Signal::STOP
        } else {
            Signal::CONT
        };
        kill_process(process, signal).unwrap();
        if is_frozen {
            // The signal takes a moment to stop all threads.
            let stopped = waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
            assert!(stopped.is_some_and(|(_, status)| status.stopped()));
        }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the server answers to words as an operator writes them: a number or a text, which is empty for `nil`.
    #[must_use]
    pub fn ask(&self, words: &str) -> String {
        let start = Instant::now();
        loop {
            match self.try_ask(words).unwrap() {
                Ok(answer) => return answer,
                // It serves its replica, or reads what its primary has sent.
                Err(error) if error.contains("in progress") || error.starts_with("LOADING") => {
                    assert!(start.elapsed() < ANSWER_TIME_MAX, "{error}");
                    thread::sleep(PAUSE);
                }
                Err(error) => panic!("{words}: {error}"),
            }
        }
    }

    fn try_ask(&self, words: &str) -> io::Result<Result<String, String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line)?;
        let (kind, value) = line.trim_end().split_at(1);
        Ok(match kind {
            "-" => Err(value.to_owned()),
            "$" if value != "-1" => {
                let mut text = String::new();
                let length = value.parse().expect("a length");
                answer.take(length).read_to_string(&mut text)?;
                Ok(text)
            }
            "$" => Ok(String::new()),
            _ => Ok(value.to_owned()),
        })
    }

    /// Makes the server a replica of `primary`.
    pub fn follow(&self, primary: &Self) {
        assert_eq!(
            self.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port)),
            "OK"
        );
    }

    /// Has a replica go on by itself.
    pub fn promote(&self) {
        assert_eq!(self.ask("REPLICAOF NO ONE"), "OK");
    }

    /// Waits until `replica` has all that was written before.
    pub fn wait_for(&self, replica: &Self) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        assert_eq!(self.ask(&format!("SET written {number}")), "OK");
        let start = Instant::now();
        while replica.ask("GET written") != number {
            assert!(start.elapsed() < ANSWER_TIME_MAX, "the replica lags");
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
    }
}

/// An address that leads to one server after another, as a name in a failover does.
pub struct Switch {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Switch {
    /// Leads to `target`.
    #[must_use]
    pub fn new(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(target));
        let current = target.clone();
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let target = current.load(Ordering::SeqCst);
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) {
                    join(client.unwrap(), server);
                }
            }
        });
        Self { port, target }
    }

    /// Leads new connections to `target`.
    pub fn set_target(&self, target: u16) {
        self.target.store(target, Ordering::SeqCst);
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Passes on what either side sends, until one ends.
fn join(one: TcpStream, other: TcpStream) {
    for (mut from, mut to) in [
        (one.try_clone().unwrap(), other.try_clone().unwrap()),
        (other, one),
    ] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
