//! Connections to the server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, RedisError};
use tokio::sync::mpsc;

use super::scripts::{Calls, TEXTS};

/// How long an answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Connections to one run of one server: an answer of many messages on one does not delay those on the others. All end
/// together, so that what is read and what comes through channels is of the server that takes messages.
pub(super) struct Session {
    /// For calls of scripts that write, in their order.
    pub(super) main: MultiplexedConnection,
    /// For those that only read.
    pub(super) reads: MultiplexedConnection,
    /// For subscriptions.
    pub(super) feed: MultiplexedConnection,
    /// What comes through channels.
    pub(super) pushes: mpsc::UnboundedReceiver<PushInfo>,
    pub(super) calls: Calls,
}

impl Session {
    pub(super) async fn new(client: &Client, process: &str) -> Result<Self, String> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIME_MAX))
            .set_response_timeout(Some(ANSWER_TIME_MAX));
        let connect = |config: AsyncConnectionConfig| async move {
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.await?;
            let run = run_of(&mut connection).await?;
            Ok::<_, RedisError>((connection, run))
        };
        let main = connect(config.clone()).await;
        let (mut main, run) = main.map_err(|error| reason(&error))?;
        let reads = connect(config.clone()).await;
        let (reads, run_of_reads) = reads.map_err(|error| reason(&error))?;
        let feed = connect(config.set_push_sender(sender)).await;
        let (feed, run_of_feed) = feed.map_err(|error| reason(&error))?;
        if run != run_of_reads || run != run_of_feed {
            return Err("the address leads to different Redis servers".to_owned());
        }
        let digests = load_scripts(&mut main).await;
        let calls = Calls {
            run: run.into(),
            digests: digests.map_err(|error| reason(&error))?,
            database: client.get_connection_info().redis_settings().db(),
            process: process.to_owned(),
        };
        Ok(Self {
            main,
            reads,
            feed,
            pushes,
            calls,
        })
    }
}

/// What to say of an error, without the address and credentials.
pub(super) fn reason(error: &RedisError) -> String {
    match error.is_timeout() {
        true => "the Redis server does not answer in time".to_owned(),
        false => format!("the Redis server fails: {error}"),
    }
}

/// A random text that the server makes when it starts.
async fn run_of(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    let info = redis::cmd("INFO").arg("server").clone();
    let info: String = info.query_async(connection).await?;
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    Ok(run.unwrap_or_default().to_owned())
}

/// Has the server know the scripts, and returns their digests.
async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<Vec<String>, RedisError> {
    let mut loads = redis::pipe();
    for text in TEXTS {
        loads.cmd("SCRIPT").arg("LOAD").arg(text);
    }
    loads.query_async(connection).await
}
