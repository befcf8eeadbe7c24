//! The store on a Redis or Valkey server, which several processes share.
//!
//! The messages of a box are a stream whose ids have the numbers of the messages. Beside it there are a hash with the state of the
//! box, the keys of publishers and the deadlines; all of them end together when the box is idle. Lua scripts change them, each
//! atomically, and publish each message to a channel of the box, on which the processes with receivers get them in one order.
//! What a process has missed it asks for by number. A reading command that waits for many streams (`XREAD BLOCK`) would have to
//! name all of them again after each message; subscriptions to channels are made once, and cost nothing while nobody publishes.
//!
//! Connections are of the process: one for what writes, one for what only reads, and one for
//! subscriptions (`session.rs`). They are checked to lead to one server, and end together.
//!
//! # Loss
//! A server that restarts or fails over may have lost messages that it had acknowledged. Its replication id changes then: it
//! writes another history, which a process that connects notes in the list `levity:runs`. A box of an earlier history leaves out
//! the numbers that may have been given to lost messages, so that no id is given twice, and goes on in its epoch: a failover
//! without loss goes unnoticed. A process says with each call what it has seen of the box, and after a change of the history it
//! has all boxes compared that it knows. A box that lacks what a process has seen gets a new epoch, in which the messages that are
//! left keep their numbers. If no process has seen both histories, nobody knows what is missing, and all boxes get new epochs. A
//! process that is new, or has seen one of the last histories but not the last one, waits some seconds for one that has.
//! Nobody misses what only a process has seen that ends before it can connect again, nor what a process has forgotten: it remembers
//! what it has seen of a box that it does not watch for five minutes after its last use.
//!
//! # Durability
//! A message is acknowledged when the server has taken it. Whether it is on a disk or on a replica by then is a matter of the
//! server: `appendonly yes` with `appendfsync always` for a disk. The store does not wait for replicas (`WAIT`).

mod boxes;
mod link;
mod scripts;
mod session;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use redis::{Client, IntoConnectionInfo, ProtocolVersion};

use self::boxes::Boxes;
use self::link::Link;
use crate::budget::Budget;
use crate::shared::{Outage, SharedStore};
use crate::store::new_epoch;

/// A Redis or Valkey server.
#[derive(Debug)]
pub struct Redis;

/// Keeps messages on a Redis or Valkey server, version 6.2 of Redis or later.
pub type RedisStore = SharedStore<Redis>;

impl RedisStore {
    /// A store on the server at `url`: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` or `redis+unix:///PATH`. Messages that
    /// are read take memory of `budget`. The store connects by itself, now and after each failure; meanwhile it is
    /// [unavailable](crate::StoreError::Unavailable). `report` logs a line and must not block.
    ///
    /// # Errors
    /// If the URL is wrong.
    ///
    /// # Panics
    /// If it is called outside a runtime of tokio.
    pub fn new(
        url: &str,
        budget: Arc<Budget>,
        report: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, String> {
        let client = client(url)?;
        let (store, ends) = Self::with_ends(Redis, false);
        let link = Link {
            client,
            requests: ends.requests,
            read_requests: ends.reads,
            budget,
            boxes: Boxes::new(ends.changes),
            outage: Outage::new(ends.figures.clone(), report),
            figures: ends.figures,
            process: new_epoch(SystemTime::now()).to_string(),
            run: String::new(),
            behind_since: None,
            reads: HashMap::new(),
            sets: BTreeSet::new(),
        };
        tokio::spawn(link.run());
        Ok(store)
    }
}

/// For the URL of a server, which is not connected to. The text of an error does not have the password.
fn client(url: &str) -> Result<Client, String> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => {}
        "rediss" | "valkeys" => return Err("connections with TLS are not supported".to_owned()),
        _ => return Err("the URL has to begin with redis:// or redis+unix://".to_owned()),
    }
    let wrong = |error: redis::RedisError| error.to_string();
    let info = url.into_connection_info().map_err(wrong)?;
    let settings = info.redis_settings().clone();
    // With it, a connection can do more than receive what comes through channels.
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings)).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for url in [
            "redis://127.0.0.1",
            "redis://host.example:6380/3",
            "redis://user:p%40ss@[::1]:6379",
            "redis+unix:///run/redis.sock?db=1",
            "valkey://localhost",
        ] {
            assert_eq!(client(url).map(drop), Ok(()), "{url}");
        }
        for url in [
            "",
            "127.0.0.1:6379",
            "http://localhost",
            "redis://",
            "redis://:secret@",
            "rediss://:secret@localhost",
            "redis://:secret@localhost/x",
            "redis://:secret@localhost:99999",
        ] {
            let error = client(url).map(drop).expect_err(url);
            assert!(!error.contains("secret") && !error.is_empty(), "{error}");
        }
    }
}
