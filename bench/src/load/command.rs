//! The load generator as a process: the command line of `levity-bench load`, and starting it.

use super::Report;
use super::client::{Client, Target};
use super::plan::{Closed, EachOnce, Open, Paced, Plan, Rounds};
use super::tls::Tls;
use crate::failure::{Context, Failure, Result};
use crate::rig::confine::pinned;
use levity_disk::priority;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The time for responses that are pending at the end.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// The requests, the connections and the duration.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// The address of the server.
    #[arg(long)]
    pub address: SocketAddr,
    /// The Unix socket of the server, in place of the address.
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Keep-alive connections.
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// The measured time in seconds.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// The warm-up time in seconds.
    #[arg(long, default_value_t = 0.0)]
    pub warm_up: f64,
    /// GET, HEAD or POST; a POST has a body of a few bytes.
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// The path to request.
    #[arg(long, default_value = "/")]
    pub path: String,
    /// A file of paths, one per line, each requested once; in place of --path.
    #[arg(long)]
    pub list: Option<PathBuf>,
    /// Repeat the list, or the clients.
    #[arg(long)]
    pub repeat: bool,
    /// Send one request of each of so many clients, as a proxy names them in X-Forwarded-For: one of each IPv6 network of 64
    /// bits.
    #[arg(long)]
    pub clients: Option<usize>,
    /// The name and password of each request (RFC 7617), in which `{}` becomes the number of the request, from 0.
    #[arg(long)]
    pub credentials: Option<String>,
    /// Append a number to the path of each request, from 0, and report which requests failed.
    #[arg(long)]
    pub numbered: bool,
    /// The media type in Accept; by default the header is missing.
    #[arg(long)]
    pub accept: Option<String>,
    /// The coding in Accept-Encoding; by default the header is missing.
    #[arg(long)]
    pub coding: Option<String>,
    /// Requests per second at fixed times (open loop), of the list again and again if there is one, or one on each
    /// connection with --hold; by default the loop is closed.
    #[arg(long)]
    pub rate: Option<u32>,
    /// The expected body length.
    #[arg(long)]
    pub body_bytes: Option<u64>,
    /// Count 404 as success too.
    #[arg(long)]
    pub missing_ok: bool,
    /// Let the kernel discard bodies instead of copying them (TCP only), so that the load generator does not bound the
    /// throughput of large files.
    #[arg(long, conflicts_with = "socket")]
    pub discard: bool,
    /// Use TLS 1.3 with this host.
    #[arg(long, conflicts_with_all = ["socket", "discard"])]
    pub tls: Option<String>,
    /// Resume sessions of TLS.
    #[arg(long, requires = "tls")]
    pub resume: bool,
    /// Make a connection for each request, which asks the server to close it.
    #[arg(long, conflicts_with = "streams")]
    pub close: bool,
    /// Speak HTTP/2, with so many requests on a connection at a time.
    #[arg(long)]
    pub streams: Option<usize>,
    /// End with the measurement, without waiting for pending responses.
    #[arg(long)]
    pub abandon: bool,
    /// Send one request on each connection or stream, then keep all of them open until standard input ends.
    #[arg(long)]
    pub hold: bool,
}

impl Load {
    /// A closed loop of `seconds`.
    #[must_use]
    pub fn new(address: SocketAddr, path: &str, connections: usize, seconds: f64) -> Self {
        Self {
            address,
            socket: None,
            connections,
            seconds,
            warm_up: 0.0,
            method: "GET".into(),
            path: path.into(),
            list: None,
            repeat: false,
            clients: None,
            credentials: None,
            numbered: false,
            accept: None,
            coding: None,
            rate: None,
            body_bytes: None,
            missing_ok: false,
            discard: false,
            tls: None,
            resume: false,
            close: false,
            streams: None,
            abandon: false,
            hold: false,
        }
    }

    /// Runs in this process and prints the [`Report`] as JSON on standard output.
    ///
    /// # Errors
    /// The server cannot be reached; the list cannot be read.
    pub fn run(&self) -> Result<()> {
        raise_descriptor_limit(self.connections as u64 + 64)?;
        // Where a server computes on the same processor, the wait for the end of its slice would count as latency.
        priority::set_for_loop();
        let mut client = Client::connect(self.target()?, self.connections)?;
        let (warm_up, duration) = (
            Duration::from_secs_f64(self.warm_up),
            Duration::from_secs_f64(self.seconds),
        );
        let report = client.run(self.plan()?.as_mut(), warm_up, duration)?;
        let json = serde_json::to_string(&report).context(|| "report".into())?;
        println!("{json}");
        std::io::stdout()
            .flush()
            .context(|| "standard output".into())?;
        if self.hold {
            return hold();
        }
        if self.abandon {
            return Ok(());
        }
        client.drain(DRAIN_MAX)
    }

    fn target(&self) -> Result<Target> {
        let tls = self.tls.as_ref().map(|host| {
            let http2 = self.streams.is_some();
            Tls::new(host, self.resume, http2)
        });
        Ok(Target {
            address: self.address,
            socket: self.socket.clone(),
            numbered: self.numbered,
            has_clients: self.clients.is_some(),
            credentials: self.credentials.clone(),
            method: self.method.clone(),
            paths: self.paths()?,
            body_bytes: self.body_bytes,
            missing_ok: self.missing_ok,
            discard: self.discard,
            accept: self.accept.clone(),
            coding: self.coding.clone(),
            host: self.tls.clone(),
            tls: tls.transpose()?,
            close: self.close,
            streams: self.streams,
        })
    }

    fn paths(&self) -> Result<Vec<String>> {
        if self.hold {
            let streams = self.streams.unwrap_or(1);
            return Ok(vec![self.path.clone(); self.connections * streams]);
        }
        let Some(list) = &self.list else {
            return Ok(vec![self.path.clone()]);
        };
        let text = std::fs::read_to_string(list).context(|| format!("read {}", list.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn plan(&self) -> Result<Box<dyn Plan>> {
        let of_each = self
            .clients
            .or(self.credentials.as_ref().map(|_| usize::MAX));
        if let Some(count) = of_each {
            return Ok(match self.rate {
                Some(rate) => Box::new(Open::new(rate, count, Instant::now())),
                None if self.repeat => Box::new(Rounds::new(count)),
                None => Box::new(EachOnce::new(count)),
            });
        }
        Ok(match self.rate {
            _ if self.numbered => Box::new(EachOnce::new(usize::MAX)),
            Some(rate) if self.hold => {
                Box::new(Paced::new(rate, self.paths()?.len(), Instant::now()))
            }
            _ if self.repeat => Box::new(Rounds::new(self.paths()?.len())),
            Some(rate) => Box::new(Open::new(rate, self.paths()?.len(), Instant::now())),
            None if self.hold || self.list.is_some() => {
                Box::new(EachOnce::new(self.paths()?.len()))
            }
            None => Box::new(Closed),
        })
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "load".to_owned(),
            format!("--address={}", self.address),
            format!("--connections={}", self.connections),
            format!("--seconds={}", self.seconds),
            format!("--warm-up={}", self.warm_up),
            format!("--method={}", self.method),
            format!("--path={}", self.path),
        ];
        arguments.extend(
            self.list
                .iter()
                .map(|list| format!("--list={}", list.display())),
        );
        arguments.extend(
            self.socket
                .iter()
                .map(|socket| format!("--socket={}", socket.display())),
        );
        arguments.extend(self.accept.iter().map(|media| format!("--accept={media}")));
        arguments.extend(
            self.coding
                .iter()
                .map(|coding| format!("--coding={coding}")),
        );
        arguments.extend(self.tls.iter().map(|host| format!("--tls={host}")));
        arguments.extend(self.clients.map(|count| format!("--clients={count}")));
        let credentials = self.credentials.iter();
        arguments.extend(credentials.map(|credentials| format!("--credentials={credentials}")));
        arguments.extend(self.rate.map(|rate| format!("--rate={rate}")));
        arguments.extend(self.streams.map(|count| format!("--streams={count}")));
        arguments.extend(self.body_bytes.map(|bytes| format!("--body-bytes={bytes}")));
        let switches = [
            (self.repeat, "--repeat"),
            (self.numbered, "--numbered"),
            (self.missing_ok, "--missing-ok"),
            (self.discard, "--discard"),
            (self.resume, "--resume"),
            (self.close, "--close"),
            (self.abandon, "--abandon"),
            (self.hold, "--hold"),
        ];
        let given = switches.into_iter().filter(|(given, _)| *given);
        arguments.extend(given.map(|(_, switch)| switch.to_owned()));
        arguments
    }

    /// Starts it as a process whose connections stay open, and waits until each request has its response. `answered` is the
    /// number of those in the report.
    ///
    /// # Errors
    /// A request has none.
    pub fn hold(
        mut self,
        cpu: Option<usize>,
        answered: impl Fn(&Report) -> u64,
    ) -> Result<RunningLoad> {
        self.hold = true;
        let count = self.connections * self.streams.unwrap_or(1);
        let mut running = self.start(cpu)?;
        let report = running.report()?;
        let answered = answered(&report);
        if answered == count as u64 && report.errors == 0 {
            return Ok(running);
        }
        let why = report.first_error.unwrap_or_else(|| "no answer".into());
        Err(Failure::new(format!("{answered} of {count}: {why}")))
    }

    /// Starts it as a process, pinned to `cpu` if given.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(&self, cpu: Option<usize>) -> Result<RunningLoad> {
        let child = pinned(cpu, &self.arguments())?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(|| "start the load generator".into())?;
        Ok(RunningLoad { child })
    }

    /// Starts it and waits for its report.
    ///
    /// # Errors
    /// As [`Load::start`] and [`RunningLoad::report`].
    pub fn measure(&self, cpu: Option<usize>) -> Result<Report> {
        let mut load = self.start(cpu)?;
        let report = load.report()?;
        load.drained()?;
        Ok(report)
    }
}

/// Keeps the connections open until the parent has measured the server.
fn hold() -> Result<()> {
    let end = std::io::stdin().read_to_end(&mut Vec::new());
    end.context(|| "standard input".into()).map(drop)
}

/// A running load generator. Dropping it ends the process.
pub struct RunningLoad {
    child: Child,
}

impl RunningLoad {
    /// Waits for the report. Requests may still be pending.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn report(&mut self) -> Result<Report> {
        let output = self
            .child
            .stdout
            .as_mut()
            .ok_or_else(|| Failure::new("no standard output"))?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .context(|| "read the load report".into())?;
        serde_json::from_str(&line).context(|| "the load generator failed".into())
    }
}

impl RunningLoad {
    /// Waits until the pending responses have arrived.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn drained(mut self) -> Result<()> {
        let status = self
            .child
            .wait()
            .context(|| "wait for the load generator".into())?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new("the load generator failed"))
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The caller may have given up in the middle of a run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ten thousand connections need more descriptors than a login shell gives.
pub(crate) fn raise_descriptor_limit(needed: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum,
        },
    )
    .context(|| format!("raise the limit of open files to {needed}"))
}
