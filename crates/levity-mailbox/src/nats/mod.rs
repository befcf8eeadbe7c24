//! The store on a NATS server with JetStream, which several processes share.
//!
//! All boxes are in one stream, each on a subject of its own. Whatever happens to a box is a record on its subject, and all
//! processes apply the records in the order of the stream: what a box keeps, and which message was there already, follows from
//! the records alone. So a process publishes without a look at what others do, and learns the result when its record comes
//! back. The number of a message is that of its record in the stream.
//!
//! The server repeats each record, with the number of the one before on its subject, on a second subject, to which the
//! processes that use the box subscribe. A record that does not follow the last one shows that some are missing; they are read
//! from the stream with a consumer that ends then, and so is what a box keeps. Consumers that stay would cost the server more, and
//! vanish when it restarts.
//!
//! Records that are not needed any more are deleted after a summary of them was written: the bounds of the stream itself
//! (`max_msgs_per_subject`) know neither sizes nor the keys of publishers. The server's own memory of keys (`Nats-Msg-Id`) is
//! not used: it outlives a box that is removed, and ends after a time instead of a number of messages.
//!
//! # Loss
//! The server may lose the end of the stream, for instance when its machine crashes. A process that connects again compares the
//! last number of the stream with the last one that it knows of. If the stream is behind, the process gives it a new base of
//! epochs, and tells the other processes: all boxes have new epochs then. If others have written as many records meanwhile, that
//! is not noticed; so the last message that a process knows of a box must still be there. If it is not, the box gets a new epoch.
//! Where the machine of the server takes all processes with it, nobody is left who knows what was lost.
//!
//! # Durability
//! A message is acknowledged when the server has taken it. A server alone writes to the disk without `fsync` but for every two
//! minutes (`sync_interval`, which later versions may set to `always`). Replicas (`num_replicas` of the stream `LEVITY`, which an
//! operator may change) keep messages through the crash of a machine.

mod applying;
mod boxes;
mod ledger;
mod link;
mod listing;
mod loading;
mod record;
mod replay;
mod requests;
mod serving;
mod session;
mod upkeep;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::ServerAddr;
use tokio::sync::mpsc;
use tokio::time;

use self::boxes::Boxes;
use self::link::Link;
use self::serving::Serving;
use crate::budget::Budget;
use crate::shared::{self, Connect, Ended, Request, SharedStore};
use crate::store::{StoreError, new_epoch};

/// How long connecting may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(4);

/// A NATS server.
#[derive(Debug)]
pub enum Nats {}

/// Keeps messages on a NATS server with JetStream, version 2.9 or later.
pub type NatsStore = SharedStore<Nats>;

impl NatsStore {
    /// A store on the server at `url`: `nats://[USER:PASSWORD@]HOST[:PORT]` or `nats://TOKEN@HOST[:PORT]`. Messages that are
    /// read take memory of `budget`. The store connects by itself, now and after each failure; meanwhile it is
    /// [unavailable](crate::StoreError::Unavailable).
    ///
    /// # Errors
    /// If the URL is wrong. The text does not have the password.
    ///
    /// # Panics
    /// If it is called outside a runtime of tokio.
    pub fn new(url: &str, budget: Arc<Budget>) -> Result<Self, String> {
        let server = server(url)?;
        let (store, ends) = Self::with_ends();
        let link = Link {
            server,
            budget,
            changes: ends.changes,
            figures: ends.figures,
            process: new_epoch(SystemTime::now()),
            number: 0,
            base: None,
            last: 0,
            boxes: Boxes::new(),
            reads: HashMap::new(),
        };
        tokio::spawn(shared::run(link, ends.requests));
        Ok(store)
    }
}

impl Connect for Link {
    async fn serve(&mut self, requests: &mut mpsc::UnboundedReceiver<Request>) -> Ended {
        let number = self.next_number();
        let inbox = format!("_INBOX.levity-{}-{number}", self.process);
        let connecting = self.connect(&inbox);
        let connected = time::timeout(CONNECT_TIME_MAX, connecting).await;
        let late = |_| Err("the NATS server does not answer in time".to_owned());
        let (reason, was_connected) = match connected.unwrap_or_else(late) {
            Ok(session) => match Serving::new(self, requests, session, inbox).run().await {
                Ok(()) => return Ended::Dropped,
                Err(reason) => (reason, true),
            },
            Err(reason) => (reason, false),
        };
        let error = StoreError::Unavailable(reason.clone());
        self.boxes.disconnected(&error);
        Ended::Broken {
            reason,
            was_connected,
        }
    }

    fn note(&mut self, request: Request) {
        match request {
            Request::Read(name, last) => self.mark_read(name, last),
            Request::Watch(name, is_read) => self.set_watched(&name, is_read),
            _ => {}
        }
    }
}

fn server(url: &str) -> Result<ServerAddr, String> {
    match url.split_once("://") {
        Some(("nats", rest)) if !rest.is_empty() => {}
        Some(("tls", _)) => return Err("connections with TLS are not supported".to_owned()),
        _ => return Err("the URL has to begin with nats://".to_owned()),
    }
    let server: ServerAddr = url
        .parse()
        .map_err(|error: std::io::Error| error.to_string())?;
    match server.host().is_empty() {
        true => Err("the URL has no host".to_owned()),
        false => Ok(server),
    }
}

#[cfg(test)]
mod tests {
    use super::server;

    #[test]
    fn urls() {
        for url in [
            "nats://127.0.0.1",
            "nats://token@localhost",
            "nats://user:secret@host.example:4223",
        ] {
            assert!(server(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "127.0.0.1:4222",
            "nats://",
            "tls://:secret@localhost",
            "http://:secret@localhost",
            "nats://:secret@localhost:99999",
        ] {
            let error = server(url).expect_err(url);
            assert!(!error.contains("secret") && !error.is_empty(), "{error}");
        }
    }
}
