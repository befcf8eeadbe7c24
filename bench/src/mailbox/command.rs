//! The load on mailboxes as a process: the command line of `levity-bench subscribe`, and starting it.

use super::client::{Client, Target};
use super::dialect::Dialect;
use super::{Delivered, Order};
use crate::failure::{Context, Failure, Result};
use crate::load::command::raise_descriptor_limit;
use crate::rig::confine::pinned;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

/// Descriptors beside those of the connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// The server and the connections.
#[derive(Clone, Debug, clap::Args)]
pub struct Subscribe {
    /// The address of the server.
    #[arg(long)]
    pub address: SocketAddr,
    /// The spelling of requests and messages.
    #[arg(long, value_enum)]
    pub dialect: Dialect,
    /// The key of publishers.
    #[arg(long, default_value = "")]
    pub key: String,
    /// Subscribers, each of which listens to one box.
    #[arg(long, default_value_t = 1)]
    pub subscribers: usize,
    /// Boxes, which are given to the subscribers in turn.
    #[arg(long, default_value_t = 1)]
    pub boxes: usize,
    /// Keep-alive connections that publish.
    #[arg(long, default_value_t = 1)]
    pub publishers: usize,
}

/// The first line of output.
#[derive(Serialize)]
struct Ready {
    subscribers: usize,
}

impl Subscribe {
    /// Runs in this process: prints a line when every stream has begun; then reads an order (JSON) from each line of
    /// standard input and prints the result (JSON). Ends with standard input.
    ///
    /// # Errors
    /// A connection or a stream is refused; an order is not valid.
    pub fn run(&self) -> Result<()> {
        let connections = (self.subscribers + self.publishers) as u64;
        raise_descriptor_limit(connections + OTHER_DESCRIPTORS)?;
        let input = std::io::stdin();
        let mut client = Client::connect(self.target(), &input)?;
        print(&Ready {
            subscribers: self.subscribers,
        })?;
        let mut orders = input.lock();
        loop {
            client.idle()?;
            let mut line = String::new();
            // Each line is written at once and the next one after the result, so that nothing stays in the reader.
            if orders
                .read_line(&mut line)
                .context(|| "read an order".into())?
                == 0
            {
                return Ok(());
            }
            let order = serde_json::from_str(&line).context(|| "read an order".into())?;
            print(&client.follow(order)?)?;
        }
    }

    fn target(&self) -> Target {
        Target {
            address: self.address,
            dialect: self.dialect,
            key: self.key.clone(),
            subscribers: self.subscribers,
            boxes: self.boxes,
            publishers: self.publishers,
        }
    }

    fn arguments(&self) -> Vec<String> {
        vec![
            "subscribe".to_owned(),
            format!("--address={}", self.address),
            format!("--dialect={}", self.dialect.word()),
            format!("--key={}", self.key),
            format!("--subscribers={}", self.subscribers),
            format!("--boxes={}", self.boxes),
            format!("--publishers={}", self.publishers),
        ]
    }

    /// Starts it as a process, pinned to `cpu` if given, and waits until every stream has begun.
    ///
    /// # Errors
    /// The process cannot be started, or the server refuses a stream.
    pub fn start(&self, cpu: Option<usize>) -> Result<Subscribers> {
        let mut child = pinned(cpu, &self.arguments())?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(|| "start the subscribers".into())?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Failure::new("no standard output"))?;
        let mut subscribers = Subscribers {
            child,
            output: BufReader::new(output),
        };
        subscribers.line()?;
        Ok(subscribers)
    }
}

fn print(report: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string(report).context(|| "report".into())?;
    println!("{json}");
    std::io::stdout()
        .flush()
        .context(|| "standard output".into())
}

/// Running subscribers. Dropping them ends the process.
pub struct Subscribers {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Subscribers {
    /// Gives an order and waits for its result.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn follow(&mut self, order: Order) -> Result<Delivered> {
        self.begin(order)?;
        self.result()
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The process failed.
    pub fn begin(&mut self, order: Order) -> Result<()> {
        let line = serde_json::to_string(&order).context(|| "order".into())?;
        let input = self.child.stdin.as_mut();
        let input = input.ok_or_else(|| Failure::new("no standard input"))?;
        writeln!(input, "{line}").context(|| "order the subscribers".into())
    }

    /// Waits for the result of the order.
    ///
    /// # Errors
    /// The process failed: its message is on standard error.
    pub fn result(&mut self) -> Result<Delivered> {
        let line = self.line()?;
        serde_json::from_str(&line).context(|| "the report of the subscribers".into())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        match read.context(|| "read the report of the subscribers".into())? {
            0 => Err(Failure::new("the subscribers failed")),
            _ => Ok(line),
        }
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
