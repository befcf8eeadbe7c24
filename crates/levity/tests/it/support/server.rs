//! A running server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::capture::Capture;
use super::{Answer, Client, Metrics, wait_until};

/// How long a server may take to end when a test is over: its connections are gone by then.
const END_MAX: Duration = Duration::from_secs(2);

/// A server in a process of its own, ended with the value.
pub struct Server {
    child: Child,
    /// None when it is left unread.
    stdout: Option<Capture>,
    stderr: Capture,
    address: Option<SocketAddr>,
    own: tempfile::TempDir,
    /// The test has ended it itself, or means it to die.
    ended: bool,
}

impl Server {
    /// Waits until `child` listens; if it ends before, gives what it said.
    pub fn new(mut child: Child, own: tempfile::TempDir, unread: bool) -> Result<Self, String> {
        let stdout = (!unread).then(|| Capture::start(child.stdout.take().expect("stdout")));
        let stderr = Capture::start(child.stderr.take().expect("stderr"));
        let mut server = Self {
            child,
            stdout,
            stderr,
            address: None,
            own,
            ended: false,
        };
        // Printed after the addresses, so that all of them are known.
        if server.stderr.line_with("levity: serving ").is_none() {
            server.ended = true;
            server.kill();
            return Err(server.stderr.text());
        }
        if !server.stderr.text().contains("listening on ") {
            // `levity serve` prints them on standard output only, all at once.
            server.prints(":");
        }
        server.address = server.addresses().into_iter().next();
        Ok(server)
    }

    /// Every TCP address that it listens on, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let text = self.stderr.text() + &self.stdout();
        let urls = text.lines().filter_map(|line| {
            let line = line.strip_prefix("levity: listening on ").unwrap_or(line);
            let of_https = line.strip_prefix("https://");
            of_https.or_else(|| line.strip_prefix("http://"))
        });
        urls.map(|url| url.trim_end_matches('/').replace("localhost", "127.0.0.1"))
            .map(|address| address.parse().expect("an address with a port"))
            .collect()
    }

    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a server on TCP")
    }

    /// Where files of its own are: `{own}` in its configuration.
    pub fn own(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.own("levity.toml")
    }

    /// Puts other words into its configuration, and has it read again.
    #[track_caller]
    pub fn reload(&self, from: &[&str], to: &[&str]) {
        let mut config = fs::read_to_string(self.config()).expect("read");
        for (from, to) in from.iter().zip(to) {
            assert!(config.contains(from), "{config}");
            config = config.replace(from, to);
        }
        fs::write(self.config(), config).expect("write");
        let count = || self.stderr().matches("configuration reloaded").count();
        let before = count();
        self.signal(Signal::HUP);
        wait_until("the configuration is read again", || count() > before);
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::new(self.address())
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.client().get(path)
    }

    #[track_caller]
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.client().get_with(path, headers)
    }

    /// What it has said on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    pub fn stdout(&self) -> String {
        self.stdout.as_ref().map(Capture::text).unwrap_or_default()
    }

    /// Waits for a line on standard error.
    #[track_caller]
    pub fn says(&self, part: &str) -> String {
        let line = self.stderr.line_with(part);
        line.unwrap_or_else(|| panic!("it never said {part:?}: {}", self.stderr()))
    }

    /// Waits for a line on standard output.
    #[track_caller]
    pub fn prints(&self, part: &str) -> String {
        let line = self
            .stdout
            .as_ref()
            .and_then(|stdout| stdout.line_with(part));
        line.unwrap_or_else(|| panic!("it never printed {part:?}: {}", self.stdout()))
    }

    /// What its admin listener at `path` says at `/metrics`.
    #[track_caller]
    pub fn metrics(&self, socket: &Path) -> Metrics {
        let answer = Client::unix(socket).get("/metrics");
        answer.assert_status(200);
        Metrics::parse(&answer.text())
    }

    /// Descriptors of its process that lead to something in `folder`, or did before that was deleted.
    #[track_caller]
    pub fn open_files(&self, folder: &Path) -> Vec<PathBuf> {
        let folder = fs::canonicalize(folder).expect("a folder");
        let leads = |descriptor: &PathBuf| {
            fs::read_link(descriptor).is_ok_and(|to| to.starts_with(&folder) && to != folder)
        };
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero()));
        let all = all.expect("descriptors").flatten();
        all.map(|entry| entry.path()).filter(leads).collect()
    }

    /// Bytes that are in memory of it.
    #[track_caller]
    pub fn resident_bytes(&self) -> usize {
        self.memory("VmRSS:")
    }

    /// The most bytes that have been in memory of it.
    #[track_caller]
    pub fn peak_bytes(&self) -> usize {
        self.memory("VmHWM:")
    }

    #[track_caller]
    fn memory(&self, what: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid().as_raw_nonzero()));
        let status = status.expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
        kib.expect("a line of the status") * 1024
    }

    /// Processor time that it has used, in steps of a hundredth of a second.
    #[track_caller]
    pub fn processor_time(&self) -> Duration {
        const TICKS_PER_SECOND: u64 = 100;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid().as_raw_nonzero()));
        let stat = stat.expect("a running process");
        // The name, in brackets, may hold anything.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let fields = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("kill");
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.ended = true;
        let mut status = None;
        wait_until("the server ends", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.expect("a status")
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    fn kill(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks once to end, then again, as an operator in a hurry would.
    fn end(&mut self) {
        for _ in 0..2 {
            self.signal(Signal::TERM);
            let start = Instant::now();
            while start.elapsed() < END_MAX / 2 {
                if !self.is_running() {
                    return;
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failing = thread::panicking();
        let died = !self.ended && !self.is_running();
        if !self.ended && !died && !failing {
            self.end();
        }
        self.kill();
        let stderr = self.stderr.text();
        if failing {
            eprintln!("--- the server's standard error:\n{stderr}---");
        } else {
            assert!(!died, "the server died: {stderr}");
            assert!(!stderr.contains("panicked"), "a thread panicked: {stderr}");
        }
    }
}
